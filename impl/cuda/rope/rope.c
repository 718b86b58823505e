/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.c - cuda/rope, the host side: frequencies of every scaling as fractions of a turn, made once
 * a plan; which kernel; the grid.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "impl/cuda/rope/rope.h"
#include "impl/problem.h"
#include "impl/rope.h"

struct plan {
  enum attn_dtype dtype;
  struct rope_args args;
  uint64_t *turns;
};

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op != ATTN_ROPE)
    return "only op=rope";
  if (p->rope.rotary / 2 > ROPE_PAIRS)
    return "more than 2048 rotated elements of a head";
  if (p->b * p->sq > INT32_MAX || p->sk > INT32_MAX)
    return "more than 2^31 tokens";
  if (ROPE_TOKENS * (p->hq + p->hkv) * (p->d + p->dv) > INT32_MAX)
    return "more than 2^31 elements of two tokens";
  return NULL;
}

static int64_t run_count(const struct attn_problem *p)
{
  return p->nruns ? p->nruns : 1;
}

/* A base that depends on the length takes a table for every length. */
static int64_t tables_of(const struct attn_problem *p)
{
  return p->rope.scaling == ATTN_ROPE_DYNAMIC ? run_count(p) : 1;
}

/* Few go with every launch; only a long table needs memory of its own. */
static int make_turns(const struct attn_problem *p, struct plan *q)
{
  int64_t half = p->rope.rotary / 2, tables = tables_of(p);
  bool few = tables * half <= ROPE_FEW;
  size_t bytes = (size_t)(tables * half) * sizeof(uint64_t);
  uint64_t *host = few ? q->args.few : malloc(bytes);
  if (!host)
    return ATTN_ENOMEM;
  for (int64_t r = 0; r < tables; r++)
    for (int64_t i = 0; i < half; i++) {
      int64_t sk = p->nruns ? p->runs[r].sk : p->sk;
      host[r * half + i] = attn_rope_turns(attn_rope_frequency(&p->rope, sk, i));
    }
  if (few)
    return ATTN_OK;
  cudaStream_t stream = cudaStreamPerThread;
  int status = cudaMalloc((void **)&q->turns, bytes) ? ATTN_ENOMEM : ATTN_OK;
  if (!status && (cudaMemcpyAsync(q->turns, host, bytes, cudaMemcpyHostToDevice, stream) ||
                  cudaStreamSynchronize(stream)))
    status = ATTN_EDEVICE;
  free(host);
  return status;
}

static void plan_args(const struct attn_problem *p, struct rope_args *a)
{
  const struct attn_rope *r = &p->rope;
  int32_t fit = ROPE_PAIRS / (int32_t)(r->rotary / 2), end = 0;
  *a = (struct rope_args){.attention = r->attention,
                          .b = (int32_t)p->b,
                          .hq = (int32_t)p->hq,
                          .hkv = (int32_t)p->hkv,
                          .sq = (int32_t)p->sq,
                          .sk = (int32_t)p->sk,
                          .d = (int32_t)p->d,
                          .dv = (int32_t)p->dv,
                          .page = (int32_t)p->page,
                          .rotary = (int32_t)r->rotary,
                          .tokens = fit < ROPE_TOKENS ? fit : ROPE_TOKENS,
                          .interleaved = r->interleaved,
                          .tables = (int32_t)tables_of(p)};
  a->tiles = (a->sq + a->tokens - 1) / a->tokens;
  for (int32_t i = 0; i < p->nruns; i++)
    a->run_end[i] = end += (int32_t)p->runs[i].count;
}

static void finish(void *plan)
{
  struct plan *q = plan;
  cudaFree(q->turns);
  free(q);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct plan *q = calloc(1, sizeof *q);
  if (!q)
    return ATTN_ENOMEM;
  q->dtype = p->dtype;
  plan_args(p, &q->args);
  int status = make_turns(p, q);
  q->args.turns = q->turns;
  if (status)
    finish(q);
  else
    *plan = q;
  return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static bool whole(const struct attn_tensor *t, int vector, size_t size)
{
  return (uintptr_t)t->data % ((size_t)vector * size) == 0 && t->sb % vector == 0 &&
         t->ss % vector == 0 && t->sh % vector == 0;
}

/* Vectors never cross the end of a half, of what is rotated, or of a row. */
static bool fits(const struct rope_kernel *k, const struct rope_args *a)
{
  const struct attn_tensor *all[] = {&a->q, &a->k_new, &a->v_new, &a->o, &a->k, &a->v};
  int32_t stretch = a->interleaved ? a->rotary : a->rotary / 2;
  bool fit = stretch % k->vector == 0 && a->d % k->vector == 0 && a->dv % k->vector == 0;
  for (size_t i = 0; i < sizeof all / sizeof *all && k->aligned; i++)
    fit = fit && whole(all[i], k->vector, attn_dtype_size(k->dtype));
  return fit;
}

static const struct rope_kernel *choose(enum attn_dtype dtype, const struct rope_args *a)
{
  for (const struct rope_kernel *k = attn_rope_kernels; k->func; k++)
    if (k->dtype == dtype && fits(k, a))
      return k;
  return NULL;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  struct plan *q = plan;
  struct rope_args a = q->args;
  a.q = args->q;
  a.k_new = args->k_new;
  a.v_new = args->v_new;
  a.o = args->o;
  a.k = args->k;
  a.v = args->v;
  a.cu_seqlens_q = args->cu_seqlens_q;
  a.cu_seqlens_k = args->cu_seqlens_k;
  a.seqlens_k = args->seqlens_k;
  a.block_table = args->block_table;
  a.table_stride = args->block_table_stride;
  const struct rope_kernel *k = choose(q->dtype, &a);
  void *params[] = {&a};
  unsigned blocks = (unsigned)(a.b * a.tiles);
  if (!k)
    return ATTN_EINVAL;
  return blocks && cudaLaunchKernel(k->func, (dim3){blocks, 1, 1}, (dim3){ROPE_THREADS, 1, 1},
                                    params, 0, stream)
             ? ATTN_EDEVICE
             : ATTN_OK;
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  t->read_bytes = attn_problem_compulsory_read(p);
  t->write_bytes = attn_problem_compulsory_write(p);
}

const struct attn_impl attn_cuda_rope = {
    .abi = ATTN_ABI,
    .name = "cuda/rope",
    .device = ATTN_CUDA,
    .summary = "rotate Q, rotate and append K, append V in one pass; angles in fixed point",
    .provenance = "attnbench; after Su et al., RoFormer (2021)",
    .unsupported = unsupported,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .takes = ATTN_TAKES_ROPE,
};
