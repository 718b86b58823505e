/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80.c - the portable flash backward's host half: what it takes, its workspace, in
 * which order the key tiles go.
 */
#include "config.h"

#include <cuda_runtime_api.h>

#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"

const char *attn_flash_bwd_sm80_unsupported(const struct attn_problem *p,
                                            const struct attn_device *dev)
{
  struct flash_bwd_sm80_plan plan;
  if (!attn_flash_bwd_sm80_choose(p, dev))
    return "the backward tiles do not fit this device's shared memory";
  if (attn_flash_bwd_sm80_plan(p, dev, &plan))
    return "more than 2^31 - 1 tiles";
  return NULL;
}

/* ---- workspace ------------------------------------------------------------------------------ */

static size_t aligned_up(size_t n)
{
  return (n + 1023) & ~(size_t)1023;
}

static size_t acc_bytes(const struct flash_bwd_sm80_plan *q)
{
  return aligned_up((size_t)q->rows * q->kernel->d * sizeof(float));
}

static size_t row_bytes(const struct flash_bwd_sm80_plan *q)
{
  return aligned_up((size_t)q->rows * sizeof(float));
}

/* Turns of every query tile, and the ticket. */
static size_t turn_bytes(const struct flash_bwd_sm80_plan *q)
{
  return q->deterministic ? aligned_up((size_t)(q->rows / q->kernel->bm + 1) * sizeof(int32_t)) : 0;
}

static size_t total_bytes(const struct flash_bwd_sm80_plan *q)
{
  return acc_bytes(q) + 2 * row_bytes(q) + turn_bytes(q);
}

size_t attn_flash_bwd_sm80_workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  struct flash_bwd_sm80_plan q;
  return attn_flash_bwd_sm80_plan(p, dev, &q) ? 0 : total_bytes(&q);
}

/* Every head of every sequence begins at a multiple of the tile. */
static void plan_rows(const struct attn_problem *p, struct flash_bwd_sm80_plan *q)
{
  struct flash_bwd_sm80_args *a = &q->args;
  int64_t bm = q->kernel->bm;
  if (p->nruns) {
    a->acc_head = (a->f.total_q + p->b * bm) / bm * bm;
    q->rows = a->acc_head * p->hq;
    return;
  }
  a->acc_head = (p->sq + bm - 1) / bm * bm;
  a->acc_seq = a->acc_head * p->hq;
  q->rows = a->acc_seq * p->b;
}

/* ---- order ---------------------------------------------------------------------------------- */

/* KV heads of one section: as many as keep Q, dO and the accumulators of dQ within half of L2, but
 * under a mask enough that the key tiles go by length over many heads. Turns without a mask want
 * one head after another. */
static int64_t section_heads(const struct attn_problem *p, const struct attn_device *dev,
                             const struct flash_bwd_sm80_plan *q, int64_t sq)
{
  int64_t group = p->hq / p->hkv, streams = dev->multiprocessors / 4;
  double row = (p->d + p->dv) * attn_dtype_size(p->dtype) + q->kernel->d * sizeof(float);
  double bytes = (double)sq * group * row;
  int64_t n = bytes > 0 ? (int64_t)(dev->l2_bytes / 2 / bytes) : 1;
  if (p->mask != ATTN_MASK_NONE)
    n = n < streams ? streams : n;
  else if (q->deterministic)
    n = 1;
  return n > 1 ? n : 1;
}

/* Runs of the key tiles, in the order of the problem; returns their number, or 0 beyond a grid. */
static int64_t plan_runs(const struct attn_problem *p, const struct attn_device *dev,
                         struct flash_bwd_sm80_plan *q)
{
  int64_t tiles = 0, seq = 0;
  int n = p->nruns ? p->nruns : 1, used = 0;
  for (int i = 0; i < n; i++) {
    struct attn_run r = p->nruns ? p->runs[i] : (struct attn_run){p->b, p->sq, p->sk};
    int64_t per_head = (r.sk + q->kernel->bn - 1) / q->kernel->bn, heads = r.count * p->hkv;
    int64_t section = section_heads(p, dev, q, r.sq);
    int32_t first = (int32_t)seq;
    seq += r.count;
    if (per_head == 0)
      continue;
    tiles += per_head * heads;
    if (tiles > INT32_MAX)
      return 0;
    q->args.runs[used++] = (struct flash_sm80_run){.tile_end = (int32_t)tiles,
                                                   .seq0 = first,
                                                   .tiles = (int32_t)per_head,
                                                   .heads = (int32_t)heads,
                                                   .section = section < heads ? section : heads};
  }
  return tiles;
}

int attn_flash_bwd_sm80_plan_of(const struct attn_problem *p, const struct attn_device *dev,
                                const struct flash_bwd_sm80_kernel *k,
                                struct flash_bwd_sm80_plan *q)
{
  *q = (struct flash_bwd_sm80_plan){.kernel = k, .deterministic = p->deterministic};
  const struct flash_sm80_kernel tile = {.bm = q->kernel->bm, .options = q->kernel->options};
  q->q_tiles = attn_flash_sm80_plan(p, dev, &tile, &q->args.f);
  q->args.hkv = (int32_t)p->hkv;
  q->args.descending = p->deterministic && p->mask != ATTN_MASK_NONE;
  q->args.wave = p->deterministic && p->mask == ATTN_MASK_NONE ? dev->multiprocessors : 0;
  plan_rows(p, q);
  q->k_tiles = plan_runs(p, dev, q);
  return q->q_tiles && q->k_tiles ? ATTN_OK : ATTN_EUNSUPPORTED;
}

int attn_flash_bwd_sm80_plan(const struct attn_problem *p, const struct attn_device *dev,
                             struct flash_bwd_sm80_plan *q)
{
  const struct flash_bwd_sm80_kernel *k = attn_flash_bwd_sm80_choose(p, dev);
  return k ? attn_flash_bwd_sm80_plan_of(p, dev, k, q) : ATTN_EUNSUPPORTED;
}

/* ---- run ------------------------------------------------------------------------------------ */

/* 16-byte loads and stores want every row of every head on a 16-byte boundary. */
static bool aligned(const struct attn_tensor *t)
{
  return (uintptr_t)t->data % 16 == 0 && t->sb % 8 == 0 && t->ss % 8 == 0 && t->sh % 8 == 0;
}

static bool all_aligned(const struct attn_args *x)
{
  return aligned(&x->q) && aligned(&x->k) && aligned(&x->v) && aligned(&x->o) &&
         aligned(&x->dout) && aligned(&x->dq) && aligned(&x->dk) && aligned(&x->dv);
}

static void bind(const struct flash_bwd_sm80_plan *q, const struct attn_args *x,
                 struct flash_bwd_sm80_args *a)
{
  char *scratch = x->workspace;
  a->f.q = x->q;
  a->f.k = x->k;
  a->f.v = x->v;
  a->f.o = x->o;
  a->f.lse = x->lse;
  a->f.cu_seqlens_q = x->cu_seqlens_q;
  a->f.cu_seqlens_k = x->cu_seqlens_k;
  a->dout = x->dout;
  a->dq = x->dq;
  a->dk = x->dk;
  a->dv = x->dv;
  a->acc = (float *)scratch;
  a->lse2 = (float *)(scratch + acc_bytes(q));
  a->dsum = (float *)(scratch + acc_bytes(q) + row_bytes(q));
  if (q->deterministic) {
    a->turns = (int32_t *)(scratch + acc_bytes(q) + 2 * row_bytes(q));
    a->ticket = a->turns + q->rows / q->kernel->bm;
  }
}

static int launch(const void *func, int64_t blocks, const struct flash_bwd_sm80_kernel *k,
                  size_t smem, struct flash_bwd_sm80_args *a, void *stream)
{
  dim3 grid = {(unsigned)blocks, 1, 1}, block = {(unsigned)k->threads, 1, 1};
  void *params[] = {a};
  return cudaLaunchKernel(func, grid, block, params, smem, stream) ? ATTN_EDEVICE : ATTN_OK;
}

int attn_flash_bwd_sm80_run(const struct flash_bwd_sm80_plan *q, const struct attn_args *args,
                            void *stream)
{
  const struct flash_bwd_sm80_kernel *k = q->kernel;
  struct flash_bwd_sm80_args a = q->args;
  if (!all_aligned(args) || args->workspace_bytes < total_bytes(q))
    return ATTN_EINVAL;
  bind(q, args, &a);
  int status = launch(k->pre, q->q_tiles, k, 0, &a, stream);
  if (!status)
    status = launch(k->main, q->k_tiles, k, k->smem, &a, stream);
  return status ? status : launch(k->post, q->q_tiles, k, 0, &a, stream);
}

/* Tensors move once, the accumulators once each way around the additions, which L2 does. */
void attn_flash_bwd_sm80_traffic(const struct attn_problem *p, const struct attn_device *dev,
                                 struct attn_traffic *t)
{
  struct flash_bwd_sm80_plan q;
  size_t acc = attn_flash_bwd_sm80_plan(p, dev, &q) ? 0 : acc_bytes(&q);
  t->read_bytes = attn_problem_compulsory_read(p) + 2.0 * (double)acc;
  t->write_bytes = attn_problem_compulsory_write(p) + 2.0 * (double)acc;
}
