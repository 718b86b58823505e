/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors-cache.c - the cache that op=rope appends to: before each run it holds the old tokens, and
 * NaN where the new ones belong; after it nothing but those may have changed.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/tensors.h"

static const enum operand cached[] = {OP_K, OP_V};
#define CACHED (sizeof cached / sizeof *cached)

int tensors_cache_create(struct tensors *t)
{
  int status = ATTN_OK;
  for (size_t i = 0; i < CACHED && !status; i++)
    status = arena_alloc(t->arena, "cache before", t->bytes[cached[i]], &t->before[cached[i]]);
  return status;
}

/* ---- new tokens ------------------------------------------------------------------------------ */

int64_t tensors_cache_slot(const struct tensors *t, enum operand op, int64_t seq, int64_t k0,
                           int64_t token)
{
  struct attn_tensor x = operand_strides(t->p, op);
  int64_t page = t->p->page;
  if (!page)
    return seq * x.sb + (k0 + token) * x.ss;
  return t->host_table[seq * t->args.block_table_stride + token / page] * x.sb +
         token % page * x.ss;
}

/* Calls each(ctx, first element) for every head of every new token of an operand. */
static void each_new(const struct tensors *t, enum operand op, void (*each)(void *ctx, int64_t at),
                     void *ctx)
{
  const struct attn_problem *p = t->p;
  struct attn_tensor x = operand_strides(p, op);
  for (int64_t s = 0, k0 = 0; s < p->b; s++) {
    int64_t sq, sk;
    attn_problem_seq(p, s, &sq, &sk);
    for (int64_t j = sk - sq; j < sk; j++) {
      int64_t row = tensors_cache_slot(t, op, s, k0, j);
      for (int64_t h = 0; h < p->hkv; h++)
        each(ctx, row + h * x.sh);
    }
    k0 += p->layout == ATTN_PACKED ? sk : 0;
  }
}

/* Rows of so many bytes, elements of so many: from one image to another, or NaN. */
struct rows {
  char *to;
  const char *from; /* NULL: NaN */
  size_t element, bytes;
};

static void copy_row(void *ctx, int64_t at)
{
  struct rows *r = ctx;
  char *to = r->to + (size_t)at * r->element;
  if (r->from) {
    memcpy(to, r->from + (size_t)at * r->element, r->bytes);
    return;
  }
  uint32_t nan = r->element == 4 ? ARENA_POISON : ARENA_POISON >> 16;
  for (size_t i = 0; i < r->bytes; i += r->element)
    memcpy(to + i, &nan, r->element);
}

static void copy_new(const struct tensors *t, enum operand op, void *to, const void *from)
{
  size_t element = attn_dtype_size(t->p->dtype);
  size_t width = (size_t)(op == OP_K ? t->p->d : t->p->dv);
  struct rows r = {to, from, element, width * element};
  each_new(t, op, copy_row, &r);
}

/* ---- before and after a run ------------------------------------------------------------------ */

int tensors_cache_draw(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  int status = ATTN_OK;
  for (size_t i = 0; i < CACHED && !status; i++) {
    enum operand op = cached[i];
    copy_new(t, op, t->host[op], NULL);
    status = dev->ops->upload(dev, t->before[op]->data, t->host[op], t->bytes[op]);
  }
  return status;
}

int tensors_cache_reset(struct tensors *t, enum operand op)
{
  struct device *dev = t->arena->dev;
  return dev->ops->move(dev, t->buffer[op]->data, t->before[op]->data, t->bytes[op]);
}

/* Where element e of an operand is, in words. */
static void say_place(struct tensors *t, enum operand op, int64_t e)
{
  struct attn_tensor x = operand_strides(t->p, op);
  int64_t block = x.sb ? e / x.sb : 0, rest = x.sb ? e % x.sb : e;
  int64_t row = x.ss > x.sh ? rest / x.ss : rest % x.sh / x.ss;
  int64_t head = x.ss > x.sh ? rest % x.ss / x.sh : rest / x.sh;
  int64_t col = rest % (x.ss < x.sh ? x.ss : x.sh);
  snprintf(t->changed, sizeof t->changed,
           "%s[%s %lld, %s %lld, head %lld, col %lld], which is no new token", operand_name(op),
           t->p->page ? "page" : "seq", (long long)block, t->p->page ? "slot" : "row",
           (long long)row, (long long)head, (long long)col);
}

/* What the device has, its new tokens aside, against what was there. */
static int kept(struct tensors *t, enum operand op, char *got, char *want)
{
  struct device *dev = t->arena->dev;
  size_t element = attn_dtype_size(t->p->dtype), bytes = t->bytes[op], i = 0;
  if (dev->ops->download(dev, got, t->buffer[op]->data, bytes))
    return -1;
  memcpy(want, t->host[op], bytes);
  copy_new(t, op, want, got);
  if (!memcmp(got, want, bytes))
    return 1;
  while (got[i] == want[i])
    i++;
  say_place(t, op, (int64_t)(i / element));
  return 0;
}

int tensors_cache_kept(struct tensors *t)
{
  int same = 1;
  for (size_t i = 0; i < CACHED && same == 1; i++) {
    size_t bytes = t->bytes[cached[i]];
    char *got = malloc(2 * bytes + 1);
    same = got ? kept(t, cached[i], got, got + bytes) : -1;
    free(got);
  }
  return same;
}
