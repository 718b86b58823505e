/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-variants.c - cuda/flash-sm80: which tile variants take a problem of forward, and which
 * of them it gets.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"

/* Shared memory that the system keeps of each block. */
#define RESERVED_SMEM 1024

static const struct flash_sm80_kernel *const tables[] = {attn_flash_sm80_d64, attn_flash_sm80_d128,
                                                         attn_flash_sm80_d256};

/* Row i of all tables; NULL behind the last. */
static const struct flash_sm80_kernel *row(int i)
{
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct flash_sm80_kernel *k = tables[t]; k->func; k++)
      if (i-- == 0)
        return k;
  return NULL;
}

static int64_t width(const struct attn_problem *p)
{
  int64_t d = p->d > p->dv ? p->d : p->dv;
  return d <= 64 ? 64 : d <= 128 ? 128 : 256;
}

static bool takes(const struct flash_sm80_kernel *k, const struct attn_problem *p,
                  const struct attn_device *dev)
{
  bool options = p->softcap > 0 || p->alibi || p->dropout_p > 0;
  return k->dtype == p->dtype && k->d == width(p) && k->options == options &&
         k->paged == (p->page > 0) && k->smem <= dev->sram_bytes;
}

/* The first whose blocks all fit an SM's shared memory, or else the smallest. */
static const struct flash_sm80_kernel *own_choice(const struct attn_problem *p,
                                                  const struct attn_device *dev)
{
  const struct flash_sm80_kernel *k, *smallest = NULL;
  for (int i = 0; (k = row(i)); i++) {
    if (!takes(k, p, dev))
      continue;
    if (k->blocks * (k->smem + RESERVED_SMEM) <= dev->sram_bytes + RESERVED_SMEM)
      return k;
    if (!smallest || k->smem < smallest->smem)
      smallest = k;
  }
  return smallest;
}

static void name_of(const struct flash_sm80_kernel *k, char name[ATTN_VARIANT_NAME])
{
  snprintf(name, ATTN_VARIANT_NAME, "%dx%dx%d", k->bm, k->bn, k->stages);
}

const struct flash_sm80_kernel *attn_flash_sm80_choose(const struct attn_problem *p,
                                                       const struct attn_device *dev)
{
  const struct flash_sm80_kernel *k, *own = own_choice(p, dev);
  const char *wanted = own ? attn_wanted(dev, SM80_NAME, p) : NULL;
  char name[ATTN_VARIANT_NAME];
  for (int i = 0; wanted && (k = row(i)); i++) {
    name_of(k, name);
    if (takes(k, p, dev) && !strcmp(name, wanted))
      return k;
  }
  return own;
}

static const struct flash_sm80_kernel *nth(const struct attn_problem *p,
                                           const struct attn_device *dev, int n)
{
  const struct flash_sm80_kernel *k, *first = attn_flash_sm80_choose(p, dev);
  for (int i = 0; first && n > 0 && (k = row(i)); i++)
    if (k != first && takes(k, p, dev) && --n == 0)
      return k;
  return n == 0 ? first : NULL;
}

/* A warp reads its rows of Q and all of K and V; what is loaded is written once. */
static void describe(const struct flash_sm80_kernel *k, struct attn_variant *v)
{
  double q = 2.0 * k->bm * k->d, kv = 4.0 * k->bn * k->d;
  *v = (struct attn_variant){.rows = k->bm,
                             .keys = k->bn,
                             .stages = k->stages,
                             .threads = k->threads,
                             .smem_bytes = (int)k->smem,
                             .step_smem_bytes = q + kv * (k->threads / 32 + 1),
                             .tile_smem_bytes = q};
  name_of(k, v->name);
}

/* Without a problem forward's come first. */
int attn_flash_sm80_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                            struct attn_variant *v)
{
  int forward = 0;
  if (p && p->op == ATTN_BWD)
    return attn_flash_bwd_sm80_variant(p, dev, i, v);
  const struct flash_sm80_kernel *k = p ? nth(p, dev, i) : row(i);
  if (k) {
    describe(k, v);
    return 0;
  }
  while (row(forward))
    forward++;
  return p ? -1 : attn_flash_bwd_sm80_variant(p, dev, i - forward, v);
}
