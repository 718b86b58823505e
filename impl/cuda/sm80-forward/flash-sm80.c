/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80.c - cuda/flash-sm80, the portable flash kernel's host half: what it takes, in which
 * order the tiles go.  Which tile variant: flash-sm80-variants.c.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "impl/cuda/mask-sides.h"
#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"
#include "impl/dropout.h"

struct forward_plan {
  const struct flash_sm80_kernel *kernel;
  int64_t blocks;
  struct flash_sm80_args args;
};

struct plan {
  bool backward;
  union {
    struct forward_plan fwd;
    struct flash_bwd_sm80_plan bwd;
  };
};

static bool has_options(const struct attn_problem *p)
{
  return p->softcap > 0 || p->alibi || p->dropout_p > 0;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (dev->sm < 80)
    return "needs compute capability 8.0";
  if (p->dtype != ATTN_BF16 && p->dtype != ATTN_F16)
    return "takes bf16 and fp16 only";
  if (p->d > 256 || p->dv > 256)
    return "head dim above 256";
  if (p->d % 8 || p->dv % 8)
    return "head dim must be a multiple of 8 (16-byte loads)";
  if (p->page && has_options(p))
    return "paged KV without softcap, ALiBi and dropout only";
  if (p->sq >= FLASH_SM80_LIMIT || p->sk >= FLASH_SM80_LIMIT)
    return "sequence of 2^29 tokens or more";
  if (p->op == ATTN_BWD)
    return attn_flash_bwd_sm80_unsupported(p, dev);
  if (!attn_flash_sm80_choose(p, dev))
    return "the tiles do not fit this device's shared memory";
  struct flash_sm80_args a;
  if (!attn_flash_sm80_plan(p, dev, attn_flash_sm80_choose(p, dev), &a))
    return "more than 2^31 - 1 tiles";
  return NULL;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->op == ATTN_BWD ? attn_flash_bwd_sm80_workspace(p, dev) : 0;
}

static void plan_mask(const struct attn_problem *p, struct flash_sm80_args *a)
{
  struct mask_sides sides = mask_sides_of(p, FLASH_SM80_LIMIT);
  a->bottom_right = p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_WINDOW;
  a->left = sides.left;
  a->right = sides.right;
}

/* Heads of one section. Without a mask the tiles of one KV head after the other: all blocks in
 * flight share few heads, and K and V come from L2 (sections of half an L2 moved 1.89 of the
 * compulsory bytes at s=8k, d=128, no faster). Under a mask at least as many heads as leave four
 * blocks for each K and V stream, for then the longest tiles of many heads start first. */
static int64_t section_heads(const struct attn_problem *p, const struct attn_device *dev,
                             const struct flash_sm80_kernel *k, int64_t sk)
{
  int64_t group = p->hq / p->hkv, streams = (int64_t)dev->multiprocessors * k->blocks / 4;
  double bytes = (double)sk * (p->d + p->dv) * attn_dtype_size(p->dtype);
  int64_t n = bytes > 0 ? (int64_t)(dev->l2_bytes / 2 / bytes) : 1;
  if (p->mask == ATTN_MASK_NONE)
    return group;
  if (n < streams / group)
    n = streams / group;
  return (n > 1 ? n : 1) * group;
}

static void plan_options(const struct attn_problem *p, struct flash_sm80_args *a)
{
  a->scale = 1;
  a->scale_log2 = M_LOG2E;
  a->threshold = 8 / M_LOG2E;
  a->softcap = p->softcap;
  a->inv_softcap = p->softcap > 0 ? 1 / p->softcap : 0;
  a->alibi = p->alibi;
  a->drop_threshold = attn_dropout_threshold(p->dropout_p);
  a->drop_seed = p->dropout_seed;
  a->keep_scale = attn_dropout_scale(a->drop_threshold);
}

static int by_keys(const void *x, const void *y)
{
  const struct attn_run *a = x, *b = y;
  return a->sk < b->sk ? 1 : a->sk > b->sk ? -1 : 0;
}

struct numbered_run {
  struct attn_run run; /* first, for by_keys */
  int64_t seq0;
};

/* Longest sequences first, so that the last blocks to start are short. */
static int sorted_runs(const struct attn_problem *p, struct numbered_run *r)
{
  if (!p->nruns) {
    r[0] = (struct numbered_run){{p->b, p->sq, p->sk}, 0};
    return 1;
  }
  int64_t seq = 0;
  for (int i = 0; i < p->nruns; i++) {
    r[i] = (struct numbered_run){p->runs[i], seq};
    seq += p->runs[i].count;
  }
  qsort(r, p->nruns, sizeof *r, by_keys);
  return p->nruns;
}

int64_t attn_flash_sm80_plan(const struct attn_problem *p, const struct attn_device *dev,
                             const struct flash_sm80_kernel *k, struct flash_sm80_args *a)
{
  struct numbered_run runs[ATTN_MAX_RUNS];
  double scale = attn_problem_scale(p);
  *a = (struct flash_sm80_args){
      .total_q = attn_problem_total_q(p),
      .sq = p->sq,
      .sk = p->sk,
      .hq = p->hq,
      .group = p->hq / p->hkv,
      .d = p->d,
      .dv = p->dv,
      .page = p->page,
      .scale = scale,
      .raw_scale = scale,
      .scale_log2 = scale * M_LOG2E,
      .threshold = 8 / (scale * M_LOG2E),
  };
  plan_mask(p, a);
  if (k->options)
    plan_options(p, a);
  int64_t tiles = 0;
  int n = sorted_runs(p, runs), used = 0;
  for (int i = 0; i < n; i++) {
    int64_t q_tiles = (runs[i].run.sq + k->bm - 1) / k->bm, heads = runs[i].run.count * p->hq;
    int64_t section = section_heads(p, dev, k, runs[i].run.sk);
    if (q_tiles == 0)
      continue;
    tiles += q_tiles * heads;
    if (tiles > INT32_MAX)
      return 0;
    a->runs[used++] = (struct flash_sm80_run){.tile_end = tiles,
                                              .seq0 = runs[i].seq0,
                                              .tiles = q_tiles,
                                              .heads = heads,
                                              .section = section < heads ? section : heads};
  }
  return tiles;
}

static int prepare_forward(const struct attn_problem *p, const struct attn_device *dev,
                           struct forward_plan *q)
{
  q->kernel = attn_flash_sm80_choose(p, dev);
  q->blocks = attn_flash_sm80_plan(p, dev, q->kernel, &q->args);
  return cudaFuncSetAttribute(q->kernel->func, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)q->kernel->smem)
             ? ATTN_EDEVICE
             : ATTN_OK;
}

static int prepare_backward(const struct attn_problem *p, const struct attn_device *dev,
                            struct flash_bwd_sm80_plan *q)
{
  int status = attn_flash_bwd_sm80_plan(p, dev, q);
  if (!status && cudaFuncSetAttribute(q->kernel->main, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)q->kernel->smem))
    status = ATTN_EDEVICE;
  return status;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct plan *q = malloc(sizeof *q);
  if (!q)
    return ATTN_ENOMEM;
  q->backward = p->op == ATTN_BWD;
  int status = q->backward ? prepare_backward(p, dev, &q->bwd) : prepare_forward(p, dev, &q->fwd);
  if (status) {
    free(q);
    return status;
  }
  *plan = q;
  return ATTN_OK;
}

/* 16-byte loads and stores want every row of every head on a 16-byte boundary. */
static bool aligned(const struct attn_tensor *t)
{
  return (uintptr_t)t->data % 16 == 0 && t->sb % 8 == 0 && t->ss % 8 == 0 && t->sh % 8 == 0;
}

int attn_flash_sm80_launch(const struct flash_sm80_kernel *k, int64_t blocks,
                           struct flash_sm80_args *a, const struct attn_args *args, void *stream)
{
  if (!aligned(&args->q) || !aligned(&args->k) || !aligned(&args->v) || !aligned(&args->o))
    return ATTN_EINVAL;
  int step = k->threads / (k->d / 8);
  a->q = args->q;
  a->k = args->k;
  a->v = args->v;
  a->o = args->o;
  a->lse = args->lse;
  a->cu_seqlens_q = args->cu_seqlens_q;
  a->cu_seqlens_k = args->cu_seqlens_k;
  a->seqlens_k = args->seqlens_k;
  a->block_table = args->block_table;
  a->table_stride = args->block_table_stride;
  a->k_step = 2 * step * a->k.ss;
  a->v_step = 2 * step * a->v.ss;
  a->k_tile = 2 * k->bn * a->k.ss;
  a->v_tile = 2 * k->bn * a->v.ss;
  dim3 grid = {(unsigned)blocks, 1, 1}, block = {(unsigned)k->threads, 1, 1};
  void *params[] = {a};
  return cudaLaunchKernel(k->func, grid, block, params, k->smem, stream) ? ATTN_EDEVICE : ATTN_OK;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  const struct plan *q = plan;
  if (q->backward)
    return attn_flash_bwd_sm80_run(&q->bwd, args, stream);
  struct flash_sm80_args a = q->fwd.args;
  return attn_flash_sm80_launch(q->fwd.kernel, q->fwd.blocks, &a, args, stream);
}

static void finish(void *plan)
{
  free(plan);
}

/* Tiles of one section stay in L2, so each tensor moves once. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  if (p->op == ATTN_BWD) {
    attn_flash_bwd_sm80_traffic(p, dev, t);
    return;
  }
  t->read_bytes = attn_problem_compulsory_read(p);
  t->write_bytes = attn_problem_compulsory_write(p);
}

const struct attn_impl attn_cuda_flash_sm80 = {
    .abi = ATTN_ABI,
    .name = SM80_NAME,
    .device = ATTN_CUDA,
    .summary = "fused forward and backward, portable: mma.sync, ldmatrix, cp.async, online softmax",
    .provenance = "attnbench; after FlashAttention-2 (Dao 2023)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_STORAGE, .accum_truncates = true},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .variant = attn_flash_sm80_variant,
};
