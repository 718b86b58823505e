/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.c - block tables over the page allocator.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/serve/kv.h"
#include "impl/attn.h"

int kv_init(struct kv *kv, int32_t npages, int64_t page)
{
  *kv = (struct kv){.page = page};
  return pages_init(&kv->pages, npages);
}

void kv_free(struct kv *kv)
{
  pages_free(&kv->pages);
}

/* The last page is partly filled and somebody else's, too. */
static bool copies_first(const struct kv *kv, const struct kv_seq *s)
{
  return s->length % kv->page && kv->pages.refs[s->table[s->npages - 1]] > 1;
}

static int64_t pages_for(const struct kv *kv, int64_t tokens)
{
  return (tokens + kv->page - 1) / kv->page;
}

int64_t kv_needs(const struct kv *kv, const struct kv_seq *s, int64_t n)
{
  if (n <= 0)
    return 0;
  return pages_for(kv, s->length + n) - s->npages + copies_first(kv, s);
}

static int reserve(struct kv_seq *s, int64_t npages)
{
  if (npages <= s->room)
    return ATTN_OK;
  int64_t room = s->room ? s->room : 8;
  while (room < npages)
    room *= 2;
  int32_t *table = realloc(s->table, (size_t)room * sizeof *table);
  if (!table)
    return ATTN_ENOMEM;
  s->table = table;
  s->room = room;
  return ATTN_OK;
}

int kv_append(struct kv *kv, struct kv_seq *s, int64_t n, struct kv_copy *copy)
{
  *copy = (struct kv_copy){PAGE_NONE, PAGE_NONE, 0};
  int64_t npages = pages_for(kv, s->length + n);
  if (kv_needs(kv, s, n) > pages_available(&kv->pages) || reserve(s, npages))
    return ATTN_ENOMEM;
  if (n > 0 && copies_first(kv, s)) {
    int32_t *last = &s->table[s->npages - 1];
    *copy = (struct kv_copy){*last, pages_take(&kv->pages), s->length % kv->page};
    pages_unref(&kv->pages, *last);
    *last = copy->to;
    kv->copies++;
    kv->copied += copy->slots;
  }
  while (s->npages < npages)
    s->table[s->npages++] = pages_take(&kv->pages);
  s->length += n;
  return ATTN_OK;
}

int kv_fork(struct kv *kv, const struct kv_seq *s, struct kv_seq *child)
{
  if (reserve(child, s->npages))
    return ATTN_ENOMEM;
  for (int64_t i = 0; i < s->npages; i++) {
    child->table[i] = s->table[i];
    pages_ref(&kv->pages, s->table[i]);
  }
  child->npages = s->npages;
  child->length = s->length;
  return ATTN_OK;
}

int kv_adopt(struct kv *kv, struct kv_seq *s, int32_t page)
{
  if (reserve(s, s->npages + 1))
    return ATTN_ENOMEM;
  pages_ref(&kv->pages, page);
  s->table[s->npages++] = page;
  s->length += kv->page;
  return ATTN_OK;
}

void kv_release(struct kv *kv, struct kv_seq *s)
{
  while (s->npages > 0)
    pages_unref(&kv->pages, s->table[--s->npages]);
  free(s->table);
  memset(s, 0, sizeof *s);
}
