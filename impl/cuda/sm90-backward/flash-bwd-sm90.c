/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90.c - the Hopper backward's host half: what it takes, its workspace, its schedule,
 * its tensor maps.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "impl/cuda/mask-sides.h"
#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/tensor-map.h"
#include "impl/dropout.h"

/* Q, dO and the accumulators of dQ of the heads that are scheduled together: they share a Hopper's
 * L2 with what streams through, and at first with those of the heads before. */
#define SECTION_BYTES (20 << 20)
#define LONG_SECTION_BYTES (40 << 20)
/* The former up to so many keys that a query sees in the mean: sequence 8k under a causal mask. */
#define SHORT_SECTION_KEYS 5120
/* Mean number of keys that a query sees, up to which it costs less to find out who is the first to
 * add to a part of dQ than to zero it: sequence 2k, under a causal mask 4k, not 8k. */
#define FEW_KEYS 2560
/* By turns, an addition to dQ and word of it take longer than a step: key blocks start so many
 * query blocks apart, and those of several heads run at the same time, of so many bytes together.
 */
#define SPACING 4
#define ROTATED_BYTES (36 << 20)
#define ALIGN 1024

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* Rows of the workspace for one head: of one sequence, or of all if they are packed. */
static int64_t padded_rows(const struct attn_problem *p, int km)
{
  return p->nruns ? (attn_problem_total_q(p) / km + p->b) * km : ceil_div(p->sq, km) * km;
}

static bool sees_at_most(const struct attn_problem *p, double keys)
{
  return attn_problem_pairs(p) <= keys * attn_problem_total_q(p);
}

bool attn_flash_bwd_sm90_few_keys(const struct attn_problem *p)
{
  return sees_at_most(p, FEW_KEYS);
}

static int64_t padded_total(const struct attn_problem *p, int km)
{
  return padded_rows(p, km) * p->hq * (p->nruns ? 1 : p->b);
}

const char *attn_flash_bwd_sm90_unsupported(const struct attn_problem *p,
                                            const struct attn_device *dev)
{
  const struct bwd90_kernel *k;
  if (dev->sm != 90)
    return "needs compute capability 9.0 (Hopper)";
  if (p->dtype != ATTN_BF16 && p->dtype != ATTN_F16)
    return "takes bf16 and fp16 only";
  if (p->d > 256 || p->dv > 256)
    return "head dim above 256";
  if (p->d % 8 || p->dv % 8)
    return "head dim must be a multiple of 8 (16-byte rows)";
  if (p->page)
    return "there is no gradient of paged KV";
  if (p->scale < 0)
    return "a negative scale turns the mask around";
  if (p->sq >= BWD90_UNLIMITED / 2 || p->sk >= BWD90_UNLIMITED / 2)
    return "sequence of 2^28 tokens or more";
  k = attn_flash_bwd_sm90_choose(p, dev);
  if (!k)
    return "no tile for this head dim";
  if (padded_total(p, k->km) > INT32_MAX || p->b * p->hkv * ceil_div(p->sk, k->kn) > INT32_MAX ||
      p->b * p->hq * ceil_div(p->sq, k->km) > INT32_MAX)
    return "more than 2^31 - 1 rows or tiles";
  return NULL;
}

/* ---- workspace ------------------------------------------------------------------------------ */

static size_t align_up(size_t bytes)
{
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Turn counters, lse2, dsum, dqacc, counters and sums of shared key blocks, in this order. */
struct layout {
  size_t lse2, dsum, dqacc, joined, shared, end;
};

static struct layout layout_of(const struct bwd90_kernel *k, int64_t padded, int64_t sums)
{
  struct layout l;
  l.lse2 = k->dq ? 0 : align_up(padded / k->km * BWD90_TURNS * sizeof(int32_t));
  l.dsum = l.lse2 + align_up(padded * sizeof(float));
  l.dqacc = l.dsum + align_up(padded * sizeof(float));
  l.joined = l.dqacc + (k->dq ? 0 : align_up(padded * k->d * sizeof(float)));
  l.shared = l.joined + align_up(BWD90_COUNTERS * sizeof(int32_t));
  l.end = l.shared + sums * 2 * k->kn * k->d * sizeof(float);
  return l;
}

/* Heads whose Q, dO and accumulators of dQ are not more than that; at least 1. */
static int32_t heads_within(const struct attn_problem *p, const struct bwd90_kernel *k,
                            double bytes)
{
  double head = (double)p->sq * (p->hq / p->hkv) * (2 * (p->d + p->dv) + 4 * k->d);
  int64_t heads = p->b * p->hkv, n = 1;
  while (n < heads && (n + 1) * head <= bytes)
    n++;
  return (int32_t)n;
}

/* Equal tiles go head after head; unequal ones longest first, as many heads together as L2 holds.
 */
static int32_t section_heads(const struct attn_problem *p, const struct bwd90_kernel *k)
{
  double most = sees_at_most(p, SHORT_SECTION_KEYS) ? SECTION_BYTES : LONG_SECTION_BYTES;
  return p->mask == ATTN_MASK_NONE && !p->nruns ? 1 : heads_within(p, k, most);
}

/* By turns, who shares a key block would have to know the turns of the others. */
static struct bwd90_schedule schedule_of(const struct attn_problem *p,
                                         const struct attn_device *dev,
                                         const struct bwd90_kernel *k, int64_t section)
{
  struct bwd90_jobs j = {p, dev->multiprocessors, k->km, k->kn, k->d, ceil_div(p->sk, k->kn)};
  struct bwd90_schedule s;
  if (p->deterministic && !k->dq)
    attn_flash_bwd_sm90_schedule_plain(&j, section, &s);
  else
    attn_flash_bwd_sm90_schedule(&j, section, &s);
  return s;
}

size_t attn_flash_bwd_sm90_workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  const struct bwd90_kernel *k = attn_flash_bwd_sm90_choose(p, dev);
  struct bwd90_schedule s = schedule_of(p, dev, k, section_heads(p, k));
  return layout_of(k, padded_total(p, k->km), s.sums).end;
}

/* ---- plan ----------------------------------------------------------------------------------- */

/* n, but at least 1 and at most `most`. */
static int32_t within(int64_t n, int64_t most)
{
  n = n < most ? n : most;
  return (int32_t)(n > 1 ? n : 1);
}

static void plan_mask(const struct attn_problem *p, struct bwd90_params *a)
{
  struct mask_sides sides = mask_sides_of(p, BWD90_UNLIMITED);
  a->topleft = p->mask == ATTN_MASK_CAUSAL_TOPLEFT;
  a->left = sides.left;
  a->right = sides.right;
}

static void plan_options(const struct attn_problem *p, struct bwd90_params *a)
{
  double scale = attn_problem_scale(p);
  a->cap = (float)(p->softcap * M_LOG2E);
  a->cap_scale = (float)(p->softcap > 0 ? scale / p->softcap : scale * M_LOG2E);
  a->alibi = p->alibi;
  a->drop_threshold = attn_dropout_threshold(p->dropout_p);
  a->drop_seed = p->dropout_seed;
  a->keep_scale = attn_dropout_scale(a->drop_threshold);
}

/* Key blocks that run at the same time start at different query blocks, so that nobody waits; at
 * most as many as the device holds, else those that run would wait for others that cannot start.
 * By turns it holds fewer of each of several heads, in equal groups, so that they are SPACING query
 * blocks apart. */
static void plan_rotation(const struct attn_problem *p, const struct attn_device *dev,
                          struct bwd90_plan *plan)
{
  struct bwd90_params *a = &plan->params;
  int64_t n = dev->multiprocessors, rotate = ceil_div(a->blocks, ceil_div(a->blocks, n));
  if (plan->turns) {
    int64_t heads = heads_within(p, plan->kernel, ROTATED_BYTES);
    while (rotate % 2 == 0 && rotate * SPACING > a->qblocks && 2 * n / rotate <= heads)
      rotate /= 2;
    a->schedule.section = within(n / rotate, heads);
  }
  a->rotate = (int32_t)rotate;
}

/* Who adds to a query block first.  Under a mask the rightmost key block reaches it first. */
static void plan_order(const struct attn_problem *p, const struct attn_device *dev,
                       struct bwd90_plan *plan)
{
  if (!plan->turns && !plan->kernel->spread)
    return;
  if (p->mask != ATTN_MASK_NONE || p->nruns || plan->params.blocks == 0)
    plan->params.backwards = 1;
  else
    plan_rotation(p, dev, plan);
}

/* Without a mask, if the device holds the key blocks of two heads (flash-bwd-sm90-make-dq.cuh). */
static bool makes_dq(const struct attn_problem *p, const struct attn_device *dev,
                     const struct bwd90_params *a)
{
  return p->mask == ATTN_MASK_NONE && !p->nruns && !p->deterministic &&
         2 * (int64_t)a->blocks <= dev->multiprocessors;
}

/* The units of work, and how many blocks do them.  By turns, every unit has its own block: they
 * wait for one another. */
static void plan_work(const struct attn_problem *p, const struct attn_device *dev,
                      struct bwd90_plan *plan)
{
  const struct bwd90_kernel *k = plan->kernel;
  struct bwd90_params *a = &plan->params;
  a->schedule = schedule_of(p, dev, k, a->schedule.section);
  plan->grid = a->schedule.units;
  plan->firsts = k->firsts && attn_flash_bwd_sm90_few_keys(p);
  plan->zeroes = k->ahead && a->blocks > 0;
  plan->makes = k->makes && makes_dq(p, dev, a);
  a->ahead = attn_flash_bwd_sm90_ahead(&a->schedule, p->b * p->hkv, a->blocks);
  if (k->claims && !plan->turns && p->sq > 0 && plan->grid > dev->multiprocessors)
    plan->grid = dev->multiprocessors;
}

int attn_flash_bwd_sm90_plan(const struct attn_problem *p, const struct attn_device *dev,
                             const struct bwd90_kernel *k, struct bwd90_plan *plan)
{
  *plan = (struct bwd90_plan){
      .kernel = k,
      .total_q = attn_problem_total_q(p),
      .total_k = attn_problem_total_k(p),
      .padded = padded_total(p, k->km),
      .ragged = p->nruns > 0,
      .turns = p->deterministic && !k->dq,
  };
  struct bwd90_params *a = &plan->params;
  a->b = (int32_t)p->b;
  a->hq = (int32_t)p->hq;
  a->hkv = (int32_t)p->hkv;
  a->group = (int32_t)(p->hq / p->hkv);
  a->sq = (int32_t)p->sq;
  a->sk = (int32_t)p->sk;
  a->d = (int32_t)p->d;
  a->dv_cols = (int32_t)p->dv;
  a->qblocks = (int32_t)ceil_div(p->sq, k->km);
  a->blocks = (int32_t)ceil_div(p->sk, k->kn);
  a->schedule.section = section_heads(p, k);
  a->acc_sh = (int32_t)padded_rows(p, k->km);
  a->acc_sb = plan->ragged ? 0 : (int32_t)(p->hq * a->acc_sh);
  a->lse_sb = plan->ragged ? 0 : p->hq * p->sq;
  a->lse_sh = plan->ragged ? plan->total_q : p->sq;
  a->scale = (float)attn_problem_scale(p);
  a->c = (float)(attn_problem_scale(p) * M_LOG2E);
  plan_mask(p, a);
  plan_options(p, a);
  plan_order(p, dev, plan);
  plan_work(p, dev, plan);
  if ((k->main &&
       cudaFuncSetAttribute(k->main, cudaFuncAttributeMaxDynamicSharedMemorySize, k->smem)) ||
      (k->dq &&
       cudaFuncSetAttribute(k->dq, cudaFuncAttributeMaxDynamicSharedMemorySize, k->dq_smem)))
    return ATTN_EDEVICE;
  return ATTN_OK;
}

/* ---- enqueueing ----------------------------------------------------------------------------- */

static void place(const struct bwd90_plan *plan, const struct attn_args *args,
                  struct bwd90_params *a)
{
  struct layout l = layout_of(plan->kernel, plan->padded, a->schedule.sums);
  char *w = args->workspace;
  a->o = args->o;
  a->dout = args->dout;
  a->dq = args->dq;
  a->dk = args->dk;
  a->dv = args->dv;
  a->lse = args->lse;
  a->states = (int32_t *)w;
  a->turns = plan->turns ? (int32_t *)w : NULL;
  a->firsts = plan->firsts && !plan->turns ? (int32_t *)w : NULL;
  a->zeroed = plan->zeroes && !plan->turns ? (int32_t *)w : NULL;
  a->lse2 = (float *)(w + l.lse2);
  a->dsum = (float *)(w + l.dsum);
  a->dqacc = (float *)(w + l.dqacc);
  a->joined = (int32_t *)(w + l.joined);
  a->next = plan->grid < a->schedule.units ? a->joined + 2 * BWD90_SHARED : NULL;
  a->queue = plan->makes && a->next ? a->next + 1 : NULL;
  a->shared = (float *)(w + l.shared);
  if (plan->ragged) {
    a->cu_q = args->cu_seqlens_q;
    a->cu_k = args->cu_seqlens_k;
  }
}

/* A map of an empty tensor is never read; it only has to be one. */
static int encode(CUtensorMap *map, const struct bwd90_plan *plan, const struct attn_tensor *t,
                  int64_t width, bool keys)
{
  const struct bwd90_params *a = &plan->params;
  int64_t total = keys ? plan->total_k : plan->total_q;
  struct attn_map_shape s = {plan->kernel->dtype,         width,
                             keys ? a->hkv : a->hq,       keys ? a->sk : a->sq,
                             plan->ragged ? total : a->b, plan->ragged};
  if (total == 0) {
    memset(map, 0, sizeof *map);
    return ATTN_OK;
  }
  return attn_map_encode(map, t, &s, keys ? plan->kernel->kn : plan->kernel->km);
}

/* overlap: may start while the kernel before it runs, and itself waits for what it needs. */
static int launch(const void *kernel, int64_t grid, int threads, int smem, bool overlap,
                  void **params, cudaStream_t stream)
{
  cudaLaunchAttribute attr = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                              .val = {.programmaticStreamSerializationAllowed = 1}};
  cudaLaunchConfig_t config = {.gridDim = {(unsigned)grid, 1, 1},
                               .blockDim = {(unsigned)threads, 1, 1},
                               .dynamicSmemBytes = smem,
                               .stream = stream,
                               .attrs = &attr,
                               .numAttrs = overlap};
  if (grid == 0 || !kernel)
    return ATTN_OK;
  return cudaLaunchKernelExC(&config, kernel, params) ? ATTN_EDEVICE : ATTN_OK;
}

static bool aligned(const struct attn_args *a)
{
  return attn_map_aligned(&a->q) && attn_map_aligned(&a->k) && attn_map_aligned(&a->v) &&
         attn_map_aligned(&a->o) && attn_map_aligned(&a->dout) && attn_map_aligned(&a->dq) &&
         attn_map_aligned(&a->dk) && attn_map_aligned(&a->dv) &&
         (uintptr_t)a->workspace % ALIGN == 0;
}

int attn_flash_bwd_sm90_run(const struct bwd90_plan *plan, const struct attn_args *args,
                            cudaStream_t stream)
{
  const struct bwd90_kernel *k = plan->kernel;
  struct bwd90_params a = plan->params;
  CUtensorMap q, key, v, dout;
  void *before_after[] = {&a}, *tiles[] = {&q, &key, &v, &dout, &a};
  int64_t rows = (int64_t)a.b * a.hq * a.qblocks, keys = plan->grid;
  int64_t dq = k->dq ? (int64_t)a.b * a.hq * ceil_div(a.sq, k->dq_rows) : 0;
  int st;
  if (!aligned(args))
    return ATTN_EINVAL;
  place(plan, args, &a);
  if ((st = encode(&q, plan, &args->q, a.d, false)) ||
      (st = encode(&key, plan, &args->k, a.d, true)) ||
      (st = encode(&v, plan, &args->v, a.dv_cols, true)) ||
      (st = encode(&dout, plan, &args->dout, a.dv_cols, false)) ||
      (st = launch(k->pre, rows, 256, 0, false, before_after, stream)) ||
      (st = launch(k->main, keys, k->threads, k->smem, rows > 0, tiles, stream)) ||
      (st = launch(k->dq, dq, k->threads, k->dq_smem, keys > 0, tiles, stream)))
    return st;
  return launch(k->post, rows, 256, 0, keys > 0, before_after, stream);
}
