/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-plan.c - cuda/flash-sm90's forward: what of a launch depends on the problem alone, and
 * in which order row blocks and heads are taken.
 */
#include "config.h"

#include <math.h>

#include "impl/cuda/mask-sides.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"
#include "impl/dropout.h"

/* K and V of the heads that are scheduled together: a quarter of a Hopper's L2, so that what is
 * read again and again stays there.  Where that makes too few tiles for the last to be short ones,
 * half of it, the rest being for Q and O; without a mask, where all heads' keys are read all the
 * time, an eighth, but for short sequences. */
#define L2_BYTES (64 << 20)
#define SHORT_KEYS 2048
#define BALANCED_TILES 264
/* Tiles that a section has at least, if there are as many. */
#define SECTION_TILES 64
/* Warps that load the boxes of a paged K, and of V; a box at least for each, a power of two. */
#define FEEDERS 2

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
  return SM90_WORKSPACE_HEAD + (p->nruns ? row_blocks(p, k->km) * sizeof(struct sm90_item) : 0);
}

static void plan_mask(const struct attn_problem *p, struct sm90_params *a)
{
  struct mask_sides sides = mask_sides_of(p, SM90_UNLIMITED);
  a->topleft = p->mask == ATTN_MASK_CAUSAL_TOPLEFT;
  a->left = sides.left;
  a->right = sides.right;
}

/* Without a mask row blocks cost the same, unless the last of a sequence leaves warpgroups idle. */
static bool equal_blocks(const struct attn_problem *p, int km)
{
  return p->mask == ATTN_MASK_NONE && !p->nruns && (p->sq <= km || (p->sq - 1) % km >= km - 64);
}

static double section_bytes(const struct attn_problem *p, int64_t tiles)
{
  if (p->mask == ATTN_MASK_NONE)
    return p->sk > SHORT_KEYS ? L2_BYTES / 8 : L2_BYTES / 4;
  return tiles < BALANCED_TILES ? L2_BYTES / 2 : L2_BYTES / 4;
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
  while (2 * n * bytes <= section_bytes(p, n * group * blocks) && n * group < heads &&
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
