/* SPDX-License-Identifier: Apache-2.0
 *
 * law-pages.c - keys and values of a law in the pages of a cache, in an order of their own, and
 * laws of caches: how the same numbers lie in memory does not matter.
 */
#include "config.h"

#include <stdlib.h>

#include "reference/law.h"

#define SPARE 2            /* pages of nobody */
#define NO_PAGE 0x7fffde00 /* a table entry that leads outside of everything */
#define ORDER 77           /* seed of the order of pages */

/* ---- pages ----------------------------------------------------------------------------------- */

static int64_t pages_of(const struct law_set *s)
{
  int64_t shared = s->p.prefix / s->p.page, n = shared + SPARE;
  for (int64_t i = 0; i < s->r.shape.b; i++)
    n += attn_problem_pages(&s->p, s->r.seqs[i].sk) - shared;
  return n;
}

static void give_pages(struct law_set *s, const int32_t *page)
{
  int64_t stride = s->table_stride, shared = s->p.prefix / s->p.page, next = shared;
  for (int64_t n = 0; n < s->r.shape.b; n++) {
    int64_t own = attn_problem_pages(&s->p, s->r.seqs[n].sk);
    s->lengths[n] = (int32_t)s->r.seqs[n].sk;
    for (int64_t i = 0; i < stride; i++)
      s->table[n * stride + i] = i >= own ? NO_PAGE : i < shared ? page[i] : page[next++];
  }
}

int law_pages_make(struct law_set *s)
{
  int64_t b = s->r.shape.b;
  s->pages = pages_of(s);
  s->table_stride = attn_problem_pages(&s->p, s->r.shape.max_sk);
  s->table = malloc((size_t)(b * s->table_stride + 1) * sizeof *s->table);
  s->lengths = malloc((size_t)b * sizeof *s->lengths);
  int32_t *page = malloc((size_t)s->pages * sizeof *page);
  int status = s->table && s->lengths && page ? ATTN_OK : ATTN_ENOMEM;
  for (int64_t i = 0; !status && i < s->pages; i++) { /* Fisher and Yates */
    int64_t j = (int64_t)(law_hash(ORDER, (uint64_t)i) % (uint64_t)(i + 1));
    page[i] = page[j];
    page[j] = (int32_t)i;
  }
  if (!status)
    give_pages(s, page);
  free(page);
  s->r.shape.table = s->table;
  s->r.shape.table_stride = s->table_stride;
  return status;
}

/* ---- laws ------------------------------------------------------------------------------------ */

static bool on_pages(const struct law_bench *b)
{
  return b->base.p.page > 0;
}

static int elsewhere(struct law_bench *b, const struct attn_problem *p, struct law_result *res)
{
  struct law_set y;
  int status = law_set_like(&y, p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  status = law_run(b, &y);
  if (!status)
    status = law_compare(b, &b->base, &y, NULL, NULL, NULL, res);
  law_set_free(&y);
  return law_refused(status);
}

/* Precondition: a paged cache. The same keys and values contiguous: the same. */
static int contiguous(struct law_bench *b, struct law_result *res)
{
  struct attn_problem p = b->base.p;
  p.page = p.prefix = 0;
  return elsewhere(b, &p, res);
}

/* Precondition: likewise. Pages of another size: the same. */
static int page_size(struct law_bench *b, struct law_result *res)
{
  struct attn_problem p = b->base.p;
  p.page = p.page % 16 ? 16 : p.page / 16 + 3;
  p.prefix = 0;
  return elsewhere(b, &p, res);
}

static bool shares(const struct law_bench *b)
{
  return b->base.p.prefix > 0;
}

/* Precondition: sequences share a prefix. In pages of their own: the same. */
static int unshared(struct law_bench *b, struct law_result *res)
{
  struct attn_problem p = b->base.p;
  p.prefix = 0;
  return elsewhere(b, &p, res);
}

/* Precondition: likewise. The prefix ends a page earlier, the pages are as they were: the same. */
static int shorter_prefix(struct law_bench *b, struct law_result *res)
{
  struct attn_problem p = b->base.p;
  p.prefix -= p.page;
  return elsewhere(b, &p, res);
}

const struct law law_caches[] = {{"contiguous", on_pages, contiguous, 1},
                                 {"page-size", on_pages, page_size, 1},
                                 {"unshared", shares, unshared, 1},
                                 {"shorter-prefix", shares, shorter_prefix, 1},
                                 {NULL, NULL, NULL, 0}};
