/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-variants.c - the Hopper backward: which tile variants take a problem, and which of
 * them it gets.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"

/* Mean number of keys that a query sees, up to which a problem is short: sequence 1k is. */
#define SHORT_KEYS 1024

static int kind_of(const struct attn_problem *p)
{
  if (p->deterministic)
    return p->mask == ATTN_MASK_NONE && !p->nruns ? BWD90_ROTATED : BWD90_ORDERED;
  if (attn_problem_pairs(p) <= (double)SHORT_KEYS * attn_problem_total_q(p))
    return BWD90_SHORT;
  if (p->mask != ATTN_MASK_NONE || p->nruns)
    return attn_flash_bwd_sm90_few_keys(p) ? BWD90_FEW : BWD90_MANY;
  return attn_flash_bwd_sm90_few_keys(p) ? BWD90_EQUAL_FEW : BWD90_EQUAL_MANY;
}

static const struct bwd90_kernel *const tables[] = {
    attn_flash_bwd_sm90_d64,         attn_flash_bwd_sm90_d128,
    attn_flash_bwd_sm90_d256,        attn_flash_bwd_sm90_d256_twopass,
    attn_flash_bwd_sm90_d64_options, attn_flash_bwd_sm90_d128_options,
    attn_flash_bwd_sm90_d256_options};

/* Row i of all tables; NULL behind the last. */
static const struct bwd90_kernel *row(int i)
{
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct bwd90_kernel *k = tables[t]; k->main; k++)
      if (i-- == 0)
        return k;
  return NULL;
}

/* What is deterministic in some kinds of problem alone is never asked for in others, nor what is
 * made for problems without a mask. */
static bool takes(const struct bwd90_kernel *k, const struct attn_problem *p)
{
  bool drop = p->dropout_p > 0, score = drop || p->softcap > 0 || p->alibi;
  return k->dtype == p->dtype && p->d <= k->d && p->dv <= k->d && k->score == score &&
         k->drop == drop && (!(p->deterministic || k->only) || (k->uses & kind_of(p)));
}

static const struct bwd90_kernel *own_choice(const struct attn_problem *p)
{
  const struct bwd90_kernel *k;
  int kind = kind_of(p);
  for (int i = 0; (k = row(i)); i++)
    if (takes(k, p) && (k->uses & kind))
      return k;
  return NULL;
}

static bool rivals(const struct bwd90_kernel *k, const struct bwd90_kernel *own,
                   const struct attn_problem *p)
{
  return takes(k, p) && k->d == own->d;
}

const struct bwd90_kernel *attn_flash_bwd_sm90_choose(const struct attn_problem *p,
                                                      const struct attn_device *dev)
{
  const struct bwd90_kernel *k, *own = own_choice(p);
  const char *wanted = own ? attn_wanted(dev, SM90_NAME, p) : NULL;
  for (int i = 0; wanted && (k = row(i)); i++)
    if (rivals(k, own, p) && !strcmp(k->name, wanted))
      return k;
  return own;
}

static const struct bwd90_kernel *nth(const struct attn_problem *p, const struct attn_device *dev,
                                      int n)
{
  const struct bwd90_kernel *k, *first = attn_flash_bwd_sm90_choose(p, dev);
  for (int i = 0; first && n > 0 && (k = row(i)); i++)
    if (k != first && rivals(k, first, p) && --n == 0)
      return k;
  return n == 0 ? first : NULL;
}

int attn_flash_bwd_sm90_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                                struct attn_variant *v)
{
  const struct bwd90_kernel *k = p ? nth(p, dev, i) : row(i);
  if (!k)
    return -1;
  *v = (struct attn_variant){.rows = k->km,
                             .keys = k->kn,
                             .stages = k->stages,
                             .threads = k->threads,
                             .smem_bytes = k->smem,
                             .step_smem_bytes = k->step_smem,
                             .tile_smem_bytes = 4.0 * k->kn * k->d}; /* K and V */
  snprintf(v->name, sizeof v->name, "%s", k->name);
  return 0;
}
