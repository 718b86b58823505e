/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-materialised.c - cuda/flash-sm80-materialised, host half: which kernels, where S and P
 * lie, three launches.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "impl/cuda/materialised/flash-materialised.h"

/* Of S and P. What is there to show bits need not be in the tables of speed. */
#define LIMIT_GIB 1.75

extern const struct attn_impl attn_cuda_flash_sm80;

/* Bytes of each array in the workspace, in this order. */
struct places {
  int64_t rows, keys, steps;
  size_t m, l, alpha, s, p;
};

struct plan {
  const struct flash_materialised_kernel *kernel;
  int64_t blocks;
  struct places places;
  struct flash_sm80_args args;
};

static bool has_options(const struct attn_problem *p)
{
  return p->softcap > 0 || p->alibi || p->dropout_p > 0;
}

static const struct flash_materialised_kernel *choose(const struct attn_problem *p)
{
  int64_t width = p->d > p->dv ? p->d : p->dv;
  for (const struct flash_materialised_kernel *k = attn_flash_materialised_kernels; k->scores.func;
       k++)
    if (k->scores.dtype == p->dtype && k->scores.options == has_options(p) && k->scores.d >= width)
      return k;
  return NULL;
}

static int64_t rounded(int64_t n, int64_t to)
{
  return (n + to - 1) / to * to;
}

static size_t array(int64_t elements, size_t size)
{
  return (size_t)rounded(elements * (int64_t)size, 1024);
}

static struct places places_of(const struct attn_problem *p, const struct flash_sm80_kernel *k)
{
  struct places x = {.rows = rounded(p->sq, k->bm), .keys = rounded(p->sk, k->bn)};
  x.steps = x.keys / k->bn;
  int64_t rows = p->b * p->hq * x.rows;
  x.m = array(rows, sizeof(float));
  x.l = array(rows, 4 * sizeof(float));
  x.alpha = array(rows * x.steps, sizeof(float));
  x.s = array(rows * x.keys, sizeof(float));
  x.p = array(rows * x.keys, 2);
  return x;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  struct places x = places_of(p, &choose(p)->scores);
  return x.m + x.l + x.alpha + x.s + x.p;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  static _Thread_local char reason[128];
  const char *no = p->op == ATTN_BWD ? "forward only"
                   : p->page         ? "no paged cache"
                                     : attn_cuda_flash_sm80.unsupported(p, dev);
  if (no)
    return no;
  if (!choose(p) || choose(p)->scores.smem > dev->sram_bytes)
    return "the tiles do not fit this device's shared memory";
  double gib = 6. * p->b * p->hq * (p->sq + 64.) * (p->sk + 128.) / 0x1p30;
  if (gib < LIMIT_GIB)
    return NULL;
  snprintf(reason, sizeof reason,
           "S and P take %.4g GiB; it compares bits, for which %g GiB are enough", gib, LIMIT_GIB);
  return reason;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  const struct flash_materialised_kernel *k = choose(p);
  struct plan *q = malloc(sizeof *q);
  if (!q)
    return ATTN_ENOMEM;
  q->kernel = k;
  q->places = places_of(p, &k->scores);
  q->blocks = attn_flash_sm80_plan(p, dev, &k->scores, &q->args);
  const void *tiled[] = {k->scores.func, k->outputs};
  for (int i = 0; i < 2; i++)
    if (cudaFuncSetAttribute(tiled[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)k->scores.smem)) {
      free(q);
      return ATTN_EDEVICE;
    }
  *plan = q;
  return ATTN_OK;
}

static bool aligned(const struct attn_tensor *t)
{
  return (uintptr_t)t->data % 16 == 0 && t->sb % 8 == 0 && t->ss % 8 == 0 && t->sh % 8 == 0;
}

/* Tensors, and the bytes that the copies of tiles step over. */
static void fill(const struct flash_sm80_kernel *k, struct flash_sm80_args *a,
                 const struct attn_args *args)
{
  int step = k->threads / (k->d / 8);
  a->q = args->q;
  a->k = args->k;
  a->v = args->v;
  a->o = args->o;
  a->lse = args->lse;
  a->cu_seqlens_q = args->cu_seqlens_q;
  a->cu_seqlens_k = args->cu_seqlens_k;
  a->k_step = 2 * step * a->k.ss;
  a->v_step = 2 * step * a->v.ss;
  a->k_tile = 2 * k->bn * a->k.ss;
  a->v_tile = 2 * k->bn * a->v.ss;
}

static struct flash_materialised_args place(const struct plan *q, char *workspace)
{
  const struct places *at = &q->places;
  char *m = workspace, *l = m + at->m, *alpha = l + at->l, *s = alpha + at->alpha;
  return (struct flash_materialised_args){q->args,    (float *)s, (float *)alpha,
                                          (float *)m, (float *)l, s + at->s,
                                          at->rows,   at->keys,   at->steps};
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  const struct plan *q = plan;
  const struct flash_sm80_kernel *k = &q->kernel->scores;
  if (!aligned(&args->q) || !aligned(&args->k) || !aligned(&args->v) || !aligned(&args->o))
    return ATTN_EINVAL;
  struct flash_materialised_args x = place(q, args->workspace);
  fill(k, &x.flash, args);
  const void *func[] = {k->func, q->kernel->softmax, q->kernel->outputs};
  const size_t smem[] = {k->smem, 0, k->smem};
  dim3 grid = {(unsigned)q->blocks, 1, 1}, block = {(unsigned)k->threads, 1, 1};
  void *params[] = {&x};
  for (int i = 0; i < 3; i++)
    if (cudaLaunchKernel(func[i], grid, block, params, smem[i], stream))
      return ATTN_EDEVICE;
  return ATTN_OK;
}

static void finish(void *plan)
{
  free(plan);
}

/* S and P of whole tiles, written and read once; the rest moves once. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  double cells = attn_problem_pairs(p) * (double)p->hq;
  t->read_bytes = attn_problem_compulsory_read(p) + 6 * cells;
  t->write_bytes = attn_problem_compulsory_write(p) + 6 * cells;
}

const struct attn_impl attn_cuda_flash_sm80_materialised = {
    .abi = ATTN_ABI,
    .name = "cuda/flash-sm80-materialised",
    .device = ATTN_CUDA,
    .summary =
        "writes S and P to memory in flash-sm80's order of reduction: bit for bit its O, LSE",
    .provenance = "attnbench",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_STORAGE, .accum_truncates = true},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .twin = "cuda/flash-sm80",
};
