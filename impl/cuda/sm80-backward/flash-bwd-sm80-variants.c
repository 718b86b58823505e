/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-variants.c - the portable backward: which tile variants take a problem, and which
 * of them it gets.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"

static const struct flash_bwd_sm80_kernel *const tables[] = {
    attn_flash_bwd_sm80_d64, attn_flash_bwd_sm80_d128, attn_flash_bwd_sm80_d256};

/* Row i of all tables; NULL behind the last. */
static const struct flash_bwd_sm80_kernel *row(int i)
{
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct flash_bwd_sm80_kernel *k = tables[t]; k->main; k++)
      if (i-- == 0)
        return k;
  return NULL;
}

static bool takes(const struct flash_bwd_sm80_kernel *k, const struct attn_problem *p,
                  const struct attn_device *dev)
{
  int64_t d = p->d > p->dv ? p->d : p->dv, width = d <= 64 ? 64 : d <= 128 ? 128 : 256;
  bool options = p->softcap > 0 || p->alibi || p->dropout_p > 0;
  return k->dtype == p->dtype && k->d == width && k->options == options &&
         k->smem <= dev->sram_bytes;
}

static void name_of(const struct flash_bwd_sm80_kernel *k, char name[ATTN_VARIANT_NAME])
{
  snprintf(name, ATTN_VARIANT_NAME, "%dx%dx%d", k->bm, k->bn, k->stages);
}

const struct flash_bwd_sm80_kernel *attn_flash_bwd_sm80_choose(const struct attn_problem *p,
                                                               const struct attn_device *dev)
{
  const struct flash_bwd_sm80_kernel *k, *own = NULL;
  const char *wanted = attn_wanted(dev, SM80_NAME, p);
  char name[ATTN_VARIANT_NAME];
  for (int i = 0; (k = row(i)); i++) {
    if (!takes(k, p, dev))
      continue;
    own = own ? own : k;
    name_of(k, name);
    if (wanted && !strcmp(name, wanted))
      return k;
  }
  return own;
}

static const struct flash_bwd_sm80_kernel *nth(const struct attn_problem *p,
                                               const struct attn_device *dev, int n)
{
  const struct flash_bwd_sm80_kernel *k, *first = attn_flash_bwd_sm80_choose(p, dev);
  for (int i = 0; first && n > 0 && (k = row(i)); i++)
    if (k != first && takes(k, p, dev) && --n == 0)
      return k;
  return n == 0 ? first : NULL;
}

int attn_flash_bwd_sm80_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                                struct attn_variant *v)
{
  const struct flash_bwd_sm80_kernel *k = p ? nth(p, dev, i) : row(i);
  if (!k)
    return -1;
  *v = (struct attn_variant){.rows = k->bm,
                             .keys = k->bn,
                             .stages = k->stages,
                             .threads = k->threads,
                             .smem_bytes = (int)k->smem,
                             .step_smem_bytes = k->step_smem,
                             .tile_smem_bytes = 4.0 * k->bn * k->d}; /* K and V */
  name_of(k, v->name);
  return 0;
}
