/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-variants.c - cuda/decode: the compiled kernels, and which a problem gets.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/cuda/decode/decode.h"

#define RESERVED_SMEM 1024 /* shared memory that the system keeps of each block */
#define WIDE_FROM 16       /* rows up to these are better off with warps of their own */
#define HEADS_TO_END 2     /* a block that ends more is better off with another beside it */

/* Blocks of a variant that an SM holds. */
int64_t attn_decode_resident(const struct decode_kernel *k, const struct attn_device *dev)
{
  int64_t n = (int64_t)((dev->sram_bytes + RESERVED_SMEM) / (k->smem + RESERVED_SMEM));
  return n < k->blocks ? n : k->blocks;
}

/* Packed query rows of a KV head that are one sequence's to the kernel, at most. */
int64_t attn_decode_rows(const struct attn_problem *p, enum decode_pass pass)
{
  return p->hq / p->hkv * (pass == DECODE_PREFIX ? attn_problem_total_q(p) : p->sq);
}

static const struct decode_kernel *const tables[] = {
    attn_decode_d64, attn_decode_d128, attn_decode_d256, attn_decode_e4m3, attn_decode_sm90};

/* Row i of all tables; NULL behind the last. */
static const struct decode_kernel *row(int i)
{
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct decode_kernel *k = tables[t]; k->func; k++)
      if (i-- == 0)
        return k;
  return NULL;
}

/* The form that a problem is of. */
static enum decode_form form_of(const struct attn_problem *p, enum decode_pass pass)
{
  if (pass != DECODE_ALL || p->softcap > 0 || p->alibi)
    return DECODE_ANY;
  if (p->page)
    return p->page % DECODE_PIECE ? DECODE_ANY : DECODE_PAGED;
  return p->nruns ? DECODE_ANY : DECODE_EVEN;
}

static bool fits(const struct decode_kernel *k, const struct attn_problem *p,
                 const struct attn_device *dev, enum decode_pass pass)
{
  int64_t d = p->d > p->dv ? p->d : p->dv;
  return k->dtype == p->dtype && k->kv == p->kv && k->d >= d && (!k->wide || dev->sm == 90) &&
         (k->form == DECODE_ANY || k->form == form_of(p, pass)) && attn_decode_resident(k, dev);
}

/* A variant of any form is out of the question where one of the same tiles knows the problem's. */
static bool takes(const struct decode_kernel *k, const struct attn_problem *p,
                  const struct attn_device *dev, enum decode_pass pass)
{
  const struct decode_kernel *other;
  bool yes = fits(k, p, dev, pass);
  for (int i = 0; yes && k->form == DECODE_ANY && (other = row(i)); i++)
    yes = other->form == DECODE_ANY || other->d != k->d || other->rows != k->rows ||
          other->threads != k->threads || other->blocks != k->blocks || !fits(other, p, dev, pass);
  return yes;
}

/* Do blocks with pages to look up end several heads each? */
static bool many_heads(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->page && (p->nruns || p->b * p->hkv > (int64_t)HEADS_TO_END * dev->multiprocessors);
}

/* The narrowest heads, then the fewest rows that take the group's queries in one tile, or else as
 * many as there are, which come last in a table; then one block an SM, which has fewer parts to
 * merge, but two where they would often wait at the end of a head. */
static bool better(const struct decode_kernel *k, const struct decode_kernel *best,
                   const struct attn_problem *p, const struct attn_device *dev,
                   enum decode_pass pass)
{
  if (k->d != best->d)
    return k->d < best->d;
  if (k->wide != best->wide)
    return k->wide == (attn_decode_rows(p, pass) > WIDE_FROM);
  if (k->rows != best->rows)
    return best->rows < attn_decode_rows(p, pass);
  return many_heads(p, dev) ? k->blocks > best->blocks : k->blocks < best->blocks;
}

static void name_of(const struct decode_kernel *k, char name[ATTN_VARIANT_NAME])
{
  snprintf(name, ATTN_VARIANT_NAME, "%dx%d-%dw", k->rows, k->tile, k->threads / 32);
}

const struct decode_kernel *attn_decode_choose(const struct attn_problem *p,
                                               const struct attn_device *dev, enum decode_pass pass)
{
  const struct decode_kernel *k, *best = NULL;
  const char *wanted = pass == DECODE_ALL ? attn_wanted(dev, "cuda/decode", p) : NULL;
  char name[ATTN_VARIANT_NAME];
  for (int i = 0; (k = row(i)); i++)
    if (takes(k, p, dev, pass) && (!best || better(k, best, p, dev, pass)))
      best = k;
  for (int i = 0; wanted && best && (k = row(i)); i++) {
    name_of(k, name);
    if (takes(k, p, dev, pass) && k->d == best->d && !strcmp(name, wanted))
      return k;
  }
  return best;
}

static const struct decode_kernel *nth(const struct attn_problem *p, const struct attn_device *dev,
                                       int n)
{
  const struct decode_kernel *k, *first = attn_decode_choose(p, dev, DECODE_ALL);
  for (int i = 0; first && n > 0 && (k = row(i)); i++)
    if (k != first && takes(k, p, dev, DECODE_ALL) && k->d == first->d && --n == 0)
      return k;
  return n == 0 ? first : NULL;
}

/* Row i of those of any form, whose names are those of all. */
static const struct decode_kernel *general(int i)
{
  const struct decode_kernel *k;
  for (int n = 0; (k = row(n)); n++)
    if (k->form == DECODE_ANY && i-- == 0)
      return k;
  return NULL;
}

int attn_decode_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                        struct attn_variant *v)
{
  const struct decode_kernel *k = p ? nth(p, dev, i) : general(i);
  if (!k)
    return -1;
  *v = (struct attn_variant){.rows = k->rows,
                             .keys = k->tile,
                             .packed = true,
                             .threads = k->threads,
                             .smem_bytes = (int)k->smem};
  name_of(k, v->name);
  return 0;
}
