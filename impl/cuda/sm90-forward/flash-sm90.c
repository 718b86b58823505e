/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90.c - cuda/flash-sm90, the Hopper flash kernel's host half: what it takes, its tensor
 * maps.  Which tile variant: flash-sm90-variants.c.  The backward's host half is flash-bwd-sm90.c.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"
#include "impl/cuda/tensor-map.h"
#include "impl/dropout.h"

/* Head of the workspace: the claim counter, the number of items, whether rows were lost.  The items
 * follow. */
#define WORKSPACE_HEAD 256
/* K and V of the heads that are scheduled together: half of a Hopper's L2, the rest is for Q, O. */
#define SECTION_BYTES (32 << 20)
/* Tiles that a section has at least, if there are as many. */
#define SECTION_TILES 64
/* Warps that load the boxes of a paged cache, a box at least for each; a power of two. */
#define FEEDERS 4

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  struct sm90_plan plan;
  if (p->op == ATTN_BWD)
    return attn_flash_bwd_sm90_unsupported(p, dev);
  if (dev->sm != 90)
    return "needs compute capability 9.0 (Hopper)";
  if (p->op == ATTN_DECODE)
    return "its tiles of 128 and more query rows suit no decoding";
  if (p->dtype != ATTN_BF16 && p->dtype != ATTN_F16)
    return "takes bf16 and fp16 only";
  if (p->d > 256 || p->dv > 256)
    return "head dim above 256";
  if (p->d % 8 || p->dv % 8)
    return "head dim must be a multiple of 8 (16-byte rows)";
  if (p->page % 8)
    return "pages must be multiples of 8 tokens (swizzled tiles)";
  if (p->page > SM90_UNLIMITED)
    return "pages of more than 2^29 tokens";
  if (p->page && (p->softcap > 0 || p->alibi || p->dropout_p > 0))
    return "paged KV without softcap, ALiBi and dropout only";
  if (p->scale < 0)
    return "a negative scale turns the maximum into a minimum";
  if (p->sq >= SM90_UNLIMITED / 2 || p->sk >= SM90_UNLIMITED / 2)
    return "sequence of 2^28 tokens or more";
  if (!attn_flash_sm90_choose(p, dev))
    return "no tile for this head dim";
  if (!attn_flash_sm90_plan(p, dev, attn_flash_sm90_choose(p, dev), &plan))
    return "more than 2^31 - 1 tiles";
  return NULL;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

static int64_t row_blocks(const struct attn_problem *p, int km)
{
  int64_t n = 0;
  if (!p->nruns)
    return p->b * ceil_div(p->sq, km);
  for (int i = 0; i < p->nruns; i++)
    n += p->runs[i].count * ceil_div(p->runs[i].sq, km);
  return n;
}

int64_t attn_flash_sm90_tiles(const struct attn_problem *p, const struct sm90_kernel *k)
{
  return row_blocks(p, k->km) * p->hq;
}

size_t attn_flash_sm90_workspace(const struct attn_problem *p, const struct sm90_kernel *k)
{
  return WORKSPACE_HEAD + (p->nruns ? row_blocks(p, k->km) * sizeof(struct sm90_item) : 0);
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->op == ATTN_BWD ? attn_flash_bwd_sm90_workspace(p, dev)
                           : attn_flash_sm90_workspace(p, attn_flash_sm90_choose(p, dev));
}

static int32_t window_side(int64_t n)
{
  return n < 0 || n > SM90_UNLIMITED ? SM90_UNLIMITED : (int32_t)n;
}

static void plan_mask(const struct attn_problem *p, struct sm90_params *a)
{
  a->topleft = p->mask == ATTN_MASK_CAUSAL_TOPLEFT;
  a->left = a->right = SM90_UNLIMITED;
  if (p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    a->right = 0;
  if (p->mask == ATTN_MASK_WINDOW) {
    a->left = window_side(p->window_left);
    a->right = window_side(p->window_right);
  }
}

/* Without a mask row blocks cost the same, unless the last of a sequence leaves warpgroups idle. */
static bool equal_blocks(const struct attn_problem *p, int km)
{
  return p->mask == ATTN_MASK_NONE && !p->nruns && (p->sq <= km || (p->sq - 1) % km >= km - 64);
}

/* Equal tiles go head after head; unequal ones longest first, as many K/V heads together as L2
 * holds (a power of two: sections of equal size), but of one sequence, of two under a mask: more at
 * a time read K and V in bursts. */
static int64_t section_heads(const struct attn_problem *p, bool equal, int64_t blocks)
{
  int64_t group = p->hq / p->hkv, heads = p->nruns ? p->hq : p->b * p->hq, n = 1;
  int64_t rows = p->nruns ? attn_problem_total_k(p) : p->sk;
  int64_t enough = p->mask == ATTN_MASK_NONE ? p->hq : 2 * p->hq;
  double bytes = (double)rows * (p->d + p->dv) * 2;
  if (equal)
    return 1;
  while (2 * n * bytes <= SECTION_BYTES && 2 * n * group < 2 * heads &&
         (n * group < enough || n * group * blocks < SECTION_TILES))
    n *= 2;
  return n * group < heads ? n * group : heads;
}

/* The largest box that neither a page nor a tile cuts. */
static int32_t box_rows(int64_t page, int64_t kn)
{
  while (page) {
    int64_t rest = kn % page;
    kn = page;
    page = rest;
  }
  return (int32_t)kn;
}

/* Keys are fewer than 2^28, pages multiples of 8: exact, since 2^25 (magic page/8 - 2^shift) <
 * 2^shift. */
static void plan_pages(int64_t page, int64_t kn, struct sm90_params *a)
{
  int shift = 25;
  a->page = (int32_t)page;
  a->box = box_rows(page, kn);
  if (!page)
    return;
  for (a->feeders = 1; 2 * a->feeders <= kn / a->box && a->feeders < FEEDERS;)
    a->feeders *= 2;
  while (INT64_C(1) << (shift - 25) < page / 8)
    shift++;
  a->page_shift = shift;
  a->page_magic = (uint32_t)((INT64_C(1) << shift) / (page / 8) + 1);
}

static void plan_options(const struct attn_problem *p, struct sm90_params *a)
{
  double scale = attn_problem_scale(p);
  a->c = 1;
  a->cap = (float)(p->softcap * M_LOG2E);
  a->cap_scale = (float)(p->softcap > 0 ? scale / p->softcap : scale * M_LOG2E);
  a->alibi = p->alibi;
  a->drop_threshold = attn_dropout_threshold(p->dropout_p);
  a->drop_seed = p->dropout_seed;
  a->keep_scale = attn_dropout_scale(a->drop_threshold);
}

bool attn_flash_sm90_plan(const struct attn_problem *p, const struct attn_device *dev,
                          const struct sm90_kernel *k, struct sm90_plan *plan)
{
  int64_t tiles = attn_flash_sm90_tiles(p, k);
  int64_t resident = (int64_t)k->ctas * dev->multiprocessors;
  bool equal = equal_blocks(p, k->km);
  if (tiles + resident > INT32_MAX)
    return false;
  *plan = (struct sm90_plan){
      .kernel = k,
      .dtype = p->dtype,
      .d = p->d,
      .hkv = p->hkv,
      .total_q = attn_problem_total_q(p),
      .total_k = attn_problem_total_k(p),
      .grid = (int)(tiles < resident ? tiles : resident),
      .ragged = p->nruns > 0,
      .dynamic = !equal && tiles > resident,
  };
  struct sm90_params *a = &plan->params;
  a->b = (int32_t)p->b;
  a->hq = (int32_t)p->hq;
  a->group = (int32_t)(p->hq / p->hkv);
  a->sq = (int32_t)p->sq;
  a->sk = (int32_t)p->sk;
  a->d = (int32_t)p->d;
  a->dv = (int32_t)p->dv;
  a->blocks = (int32_t)ceil_div(p->sq, k->km);
  a->section = (int32_t)section_heads(p, equal, a->blocks);
  plan_pages(p->page, k->kn, a);
  a->c = (float)(attn_problem_scale(p) * M_LOG2E);
  a->lse_sb = plan->ragged ? 0 : p->hq * p->sq;
  a->lse_sh = plan->ragged ? plan->total_q : p->sq;
  plan_mask(p, a);
  if (k->score)
    plan_options(p, a);
  return true;
}

/* ---- tensor maps ---------------------------------------------------------------------------- */

static int encode(CUtensorMap *map, const struct sm90_plan *plan, const struct attn_tensor *t,
                  int64_t width, int64_t heads, int64_t max, int64_t total, int box_rows)
{
  struct attn_map_shape s = {plan->dtype, width, heads, max, plan->ragged ? total : plan->params.b,
                             plan->ragged};
  return attn_map_encode(map, t, &s, box_rows);
}

static int encode_kv(CUtensorMap *map, const struct sm90_plan *plan, const struct attn_tensor *t,
                     int64_t width)
{
  const struct sm90_params *a = &plan->params;
  if (a->page)
    return attn_map_encode_pages(map, t, plan->dtype, width, plan->hkv, a->page, a->box);
  return encode(map, plan, t, width, plan->hkv, a->sk, plan->total_k, plan->kernel->kn);
}

/* ---- enqueueing ----------------------------------------------------------------------------- */

static int schedule(const struct sm90_plan *plan, const struct attn_args *args,
                    struct sm90_params *a, cudaStream_t stream)
{
  int32_t *head = args->workspace;
  a->counter = plan->dynamic ? head : NULL;
  a->lost = plan->kernel->careful ? head + 2 : NULL;
  a->token = plan->token;
  if (plan->ragged) {
    a->cu_q = args->cu_seqlens_q;
    a->cu_k = args->cu_seqlens_k;
    a->items = head + 1;
    a->item = (struct sm90_item *)((char *)args->workspace + WORKSPACE_HEAD);
    return attn_flash_sm90_schedule(a, plan->kernel->km, plan->kernel->kn, stream);
  }
  if (plan->dynamic && cudaMemsetAsync(a->counter, 0, sizeof *a->counter, stream))
    return ATTN_EDEVICE;
  return ATTN_OK;
}

/* Its CTAs are there before the first kernel ends, and wait for that: a launch's latency less. */
static int launch_careful(const struct sm90_kernel *k, dim3 grid, dim3 block, void **params,
                          cudaStream_t stream)
{
  cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  cudaLaunchConfig_t config = {.gridDim = grid,
                               .blockDim = block,
                               .dynamicSmemBytes = k->smem,
                               .stream = stream,
                               .attrs = &early,
                               .numAttrs = 1};
  early.val.programmaticStreamSerializationAllowed = 1;
  return cudaLaunchKernelExC(&config, k->careful, params) ? ATTN_EDEVICE : ATTN_OK;
}

/* Where the tensors are. */
static void place(const struct attn_args *args, struct sm90_params *a)
{
  a->q = args->q.data;
  a->q_sb = args->q.sb;
  a->q_ss = args->q.ss;
  a->q_sh = args->q.sh;
  a->k = args->k.data;
  a->k_sb = args->k.sb;
  a->k_ss = args->k.ss;
  a->k_sh = args->k.sh;
  a->o = args->o.data;
  a->o_sb = args->o.sb;
  a->o_ss = args->o.ss;
  a->o_sh = args->o.sh;
  a->lse = args->lse;
  a->block_table = args->block_table;
  a->table_stride = args->block_table_stride;
  a->seqlens_k = args->seqlens_k;
}

int attn_flash_sm90_launch(struct sm90_plan *plan, const struct attn_args *args,
                           cudaStream_t stream)
{
  const struct sm90_kernel *k = plan->kernel;
  struct sm90_params a = plan->params;
  CUtensorMap q, key, v;
  int st;
  if (!attn_map_aligned(&args->q) || !attn_map_aligned(&args->k) || !attn_map_aligned(&args->v) ||
      !attn_map_aligned(&args->o))
    return ATTN_EINVAL;
  if (plan->grid == 0)
    return ATTN_OK;
  place(args, &a);
  plan->token++;
  if ((st = encode(&q, plan, &args->q, plan->d, a.hq, a.sq, plan->total_q, k->km)) ||
      (st = encode_kv(&key, plan, &args->k, plan->d)) ||
      (st = encode_kv(&v, plan, &args->v, a.dv)) || (st = schedule(plan, args, &a, stream)))
    return st;
  dim3 grid = {(unsigned)plan->grid, 1, 1}, block = {(unsigned)k->threads, 1, 1};
  void *params[] = {&q, &key, &v, &a};
  if (cudaLaunchKernel(k->func, grid, block, params, k->smem, stream))
    return ATTN_EDEVICE;
  a.counter = NULL; /* spent */
  return k->careful ? launch_careful(k, grid, block, params, stream) : ATTN_OK;
}

/* ---- the descriptor ------------------------------------------------------------------------- */

struct plan {
  enum attn_op op;
  union {
    struct sm90_plan forward;
    struct bwd90_plan backward;
  };
};

static int fill(const struct attn_problem *p, const struct attn_device *dev, struct plan *q)
{
  const struct sm90_kernel *k;
  q->op = p->op;
  if (p->op == ATTN_BWD)
    return attn_flash_bwd_sm90_plan(p, dev, attn_flash_bwd_sm90_choose(p, dev), &q->backward);
  k = attn_flash_sm90_choose(p, dev);
  attn_flash_sm90_plan(p, dev, k, &q->forward);
  return cudaFuncSetAttribute(k->func, cudaFuncAttributeMaxDynamicSharedMemorySize, k->smem) ||
                 (k->careful &&
                  cudaFuncSetAttribute(k->careful, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       k->smem))
             ? ATTN_EDEVICE
             : ATTN_OK;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct plan *q = malloc(sizeof *q);
  int st;
  if (!q)
    return ATTN_ENOMEM;
  if ((st = fill(p, dev, q))) {
    free(q);
    return st;
  }
  *plan = q;
  return ATTN_OK;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  struct plan *q = plan;
  return q->op == ATTN_BWD ? attn_flash_bwd_sm90_run(&q->backward, args, stream)
                           : attn_flash_sm90_launch(&q->forward, args, stream);
}

static void finish(void *plan)
{
  free(plan);
}

/* Sections keep K and V in L2, so each tensor moves once. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  t->read_bytes = attn_problem_compulsory_read(p);
  t->write_bytes = attn_problem_compulsory_write(p);
}

const struct attn_impl attn_cuda_flash_sm90 = {
    .abi = ATTN_ABI,
    .name = SM90_NAME,
    .device = ATTN_CUDA,
    .summary = "fused forward and backward for Hopper: wgmma, TMA, warp specialisation",
    .provenance = "attnbench; after FlashAttention-3 (Shah et al. 2024)",
    .numerics = {.score = ATTN_ROUND_F32,
                 .prob = ATTN_ROUND_STORAGE,
                 .accum_truncates = true,
                 .tanh_rel = 1e-6},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .variant = attn_flash_sm90_variant,
};
