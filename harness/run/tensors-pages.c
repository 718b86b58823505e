/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors-pages.c - a paged KV cache laid out to catch what reads wrongly: pages in random order,
 * pages that nobody owns and slots past the end of a sequence full of NaN, and table entries past a
 * sequence's pages that point outside of everything.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/run/tensors.h"

#define SPARE_PART 16      /* one page in so many is nobody's */
#define SPARE_MAX 64       /* and at most so many, and two */
#define NO_PAGE 0x7fffde00 /* a table entry that leads outside of everything */

/* Pages of the prefix that all sequences share. */
static int64_t shared_pages(const struct attn_problem *p)
{
  return p->page ? p->prefix / p->page : 0;
}

static int64_t owned_pages(const struct attn_problem *p)
{
  int64_t sum = shared_pages(p);
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk;
    attn_problem_seq(p, s, &sq, &sk);
    sum += attn_problem_pages(p, sk) - shared_pages(p);
  }
  return sum;
}

int64_t tensors_pool_pages(const struct attn_problem *p)
{
  int64_t owned = owned_pages(p), spare = owned / SPARE_PART;
  return owned + (spare < SPARE_MAX ? spare : SPARE_MAX) + 2;
}

static size_t table_bytes(const struct attn_problem *p)
{
  return (size_t)(p->b * attn_problem_pages(p, p->sk)) * sizeof(int32_t);
}

int tensors_pages_create(struct tensors *t)
{
  const struct attn_problem *p = t->p;
  if (tensors_pool_pages(p) > INT32_MAX)
    return ATTN_ENOMEM;
  int status = arena_alloc(t->arena, "block_table", table_bytes(p), &t->table);
  if (!status)
    status = arena_alloc(t->arena, "seqlens_k", (size_t)p->b * sizeof(int32_t), &t->seqlens);
  if (status)
    return status;
  t->host_table = malloc(table_bytes(p) + 1);
  t->host_seqlens = malloc((size_t)p->b * sizeof(int32_t));
  if (!t->host_table || !t->host_seqlens)
    return ATTN_ENOMEM;
  t->args.block_table = t->table->data;
  t->args.block_table_stride = attn_problem_pages(p, p->sk);
  t->args.seqlens_k = t->seqlens->data;
  return ATTN_OK;
}

/* Page numbers 0 ... n-1 in random order (Fisher and Yates). */
static int32_t *shuffled(int64_t n, uint64_t seed)
{
  int32_t *page = malloc((size_t)n * sizeof *page);
  for (int64_t i = 0; page && i < n; i++) {
    int64_t j = rng_below(seed, (uint64_t)i, (uint32_t)(i + 1));
    page[i] = page[j];
    page[j] = (int32_t)i;
  }
  return page;
}

/* ---- NaN where nothing may be read -------------------------------------------------------------
 */

static void poison(enum attn_dtype type, void *data, int64_t from, int64_t n)
{
  for (int64_t i = from; i < from + n; i++) {
    if (type == ATTN_F32)
      ((uint32_t *)data)[i] = ARENA_POISON;
    else if (type == ATTN_E4M3)
      ((uint8_t *)data)[i] = ARENA_POISON >> 24;
    else
      ((uint16_t *)data)[i] = ARENA_POISON >> 16;
  }
}

/* Slots from slot on of a page. */
static void poison_slots(const struct tensors *t, enum operand op, int64_t page, int64_t slot)
{
  struct attn_tensor x = operand_strides(t->p, op);
  int64_t width = op == OP_K ? t->p->d : t->p->dv;
  for (; slot < t->p->page; slot++)
    for (int64_t h = 0; h < t->p->hkv; h++)
      poison(operand_type(t->p, op), t->host[op], page * x.sb + slot * x.ss + h * x.sh, width);
}

static void poison_page(const struct tensors *t, int64_t page, int64_t slot)
{
  if (t->host[OP_K])
    poison_slots(t, OP_K, page, slot);
  if (t->host[OP_V])
    poison_slots(t, OP_V, page, slot);
}

/* ---- a new layout ------------------------------------------------------------------------------
 */

static void give_pages(struct tensors *t, const int32_t *pages)
{
  const struct attn_problem *p = t->p;
  int64_t stride = t->args.block_table_stride, shared = shared_pages(p), next = shared;
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk;
    attn_problem_seq(p, s, &sq, &sk);
    int64_t n = attn_problem_pages(p, sk);
    t->host_seqlens[s] = (int32_t)sk;
    for (int64_t i = 0; i < stride; i++)
      t->host_table[s * stride + i] = i >= n       ? NO_PAGE
                                      : i < shared ? pages[i]
                                                   : pages[next + i - shared];
    next += n - shared;
    if (sk % p->page)
      poison_page(t, pages[next - 1], sk % p->page);
  }
  for (int64_t i = next; i < tensors_pool_pages(p); i++)
    poison_page(t, pages[i], 0);
}

int tensors_pages_draw(struct tensors *t, uint64_t seed)
{
  int32_t *pages = shuffled(tensors_pool_pages(t->p), seed);
  if (!pages)
    return ATTN_ENOMEM;
  give_pages(t, pages);
  free(pages);
  return tensors_pages_upload(t);
}

int tensors_pages_upload(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  size_t bytes = table_bytes(t->p);
  int status = bytes ? dev->ops->upload(dev, t->table->data, t->host_table, bytes) : ATTN_OK;
  return status ? status
                : dev->ops->upload(dev, t->seqlens->data, t->host_seqlens,
                                   (size_t)t->p->b * sizeof(int32_t));
}

int tensors_pages_unchanged(struct tensors *t)
{
  int same = tensors_same_bytes(t, t->table, t->host_table, table_bytes(t->p));
  if (same != 1)
    return same;
  return tensors_same_bytes(t, t->seqlens, t->host_seqlens, (size_t)t->p->b * sizeof(int32_t));
}

void tensors_pages_destroy(struct tensors *t)
{
  free(t->host_table);
  free(t->host_seqlens);
  if (t->table)
    arena_free(t->arena, t->table);
  if (t->seqlens)
    arena_free(t->arena, t->seqlens);
}
