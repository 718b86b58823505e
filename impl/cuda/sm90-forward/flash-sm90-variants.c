/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-variants.c - cuda/flash-sm90: which tile variants take a problem of forward, and which
 * of them it gets.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"

static const struct sm90_kernel *const tables[] = {
    attn_flash_sm90_d64,         attn_flash_sm90_d128,         attn_flash_sm90_d256,
    attn_flash_sm90_d64_options, attn_flash_sm90_d128_options, attn_flash_sm90_d256_options,
    attn_flash_sm90_d64_paged,   attn_flash_sm90_d128_paged,   attn_flash_sm90_d256_paged,
};

/* Row i of all tables; NULL behind the last. */
static const struct sm90_kernel *row(int i)
{
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct sm90_kernel *k = tables[t]; k->func; k++)
      if (i-- == 0)
        return k;
  return NULL;
}

static bool takes(const struct sm90_kernel *k, const struct attn_problem *p)
{
  bool drop = p->dropout_p > 0, score = drop || p->softcap > 0 || p->alibi;
  return k->dtype == p->dtype && k->score == score && k->drop == drop &&
         k->paged == (p->page > 0) && p->d <= k->d && p->dv <= k->dv;
}

static bool suits(const struct sm90_kernel *k, const struct attn_problem *p,
                  const struct attn_device *dev)
{
  bool mask = p->mask != ATTN_MASK_NONE;
  int64_t at_once = (int64_t)k->ctas * dev->multiprocessors;
  int64_t tiles = attn_flash_sm90_tiles(p, k);
  return (!k->most_sk || p->sk <= (mask ? 2 : 1) * k->most_sk) && p->sq >= k->least &&
         p->sk >= k->least && (!k->full || !mask) &&
         (!k->few || tiles <= (mask ? 2 : 1) * at_once) && (!k->many || tiles >= 8 * at_once);
}

/* The first that takes the problem, and is the fastest of its table as far as its size decides. */
static const struct sm90_kernel *own_choice(const struct attn_problem *p,
                                            const struct attn_device *dev)
{
  const struct sm90_kernel *k;
  for (int i = 0; (k = row(i)); i++)
    if (takes(k, p) && suits(k, p, dev))
      return k;
  return NULL;
}

static bool rivals(const struct sm90_kernel *k, const struct sm90_kernel *own,
                   const struct attn_problem *p)
{
  return takes(k, p) && k->d == own->d && k->dv == own->dv;
}

const struct sm90_kernel *attn_flash_sm90_choose(const struct attn_problem *p,
                                                 const struct attn_device *dev)
{
  const struct sm90_kernel *k, *own = own_choice(p, dev);
  const char *wanted = own ? attn_wanted(dev, SM90_NAME, p) : NULL;
  for (int i = 0; wanted && (k = row(i)); i++)
    if (rivals(k, own, p) && !strcmp(k->name, wanted))
      return k;
  return own;
}

static const struct sm90_kernel *nth(const struct attn_problem *p, const struct attn_device *dev,
                                     int n)
{
  const struct sm90_kernel *k, *first = attn_flash_sm90_choose(p, dev);
  for (int i = 0; first && n > 0 && (k = row(i)); i++)
    if (k != first && rivals(k, first, p) && --n == 0)
      return k;
  return n == 0 ? first : NULL;
}

static void describe(const struct sm90_kernel *k, struct attn_variant *v)
{
  *v = (struct attn_variant){.rows = k->km,
                             .keys = k->kn,
                             .stages = k->stages,
                             .threads = k->threads,
                             .smem_bytes = k->smem,
                             .step_smem_bytes = k->step_smem,
                             .tile_smem_bytes = k->tile_smem};
  snprintf(v->name, sizeof v->name, "%s", k->name);
}

/* Without a problem forward's come first. */
int attn_flash_sm90_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                            struct attn_variant *v)
{
  int forward = 0;
  if (p && p->op == ATTN_BWD)
    return attn_flash_bwd_sm90_variant(p, dev, i, v);
  const struct sm90_kernel *k = p ? nth(p, dev, i) : row(i);
  if (k) {
    describe(k, v);
    return 0;
  }
  while (row(forward))
    forward++;
  return p ? -1 : attn_flash_bwd_sm90_variant(p, dev, i - forward, v);
}
