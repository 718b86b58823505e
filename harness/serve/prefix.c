/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix.c - a hash table over pages; entries are indexed by page number, so nothing is allocated
 * after the start.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/serve/prefix.h"
#include "impl/attn.h"

static uint64_t default_hash(uint64_t before, const int32_t *token, int64_t n)
{
  uint64_t h = rng_at(before, (uint64_t)n);
  for (int64_t i = 0; i < n; i++)
    h = rng_at(h, (uint32_t)token[i]);
  return h;
}

static int32_t *bucket_of(const struct prefix *px, uint64_t key)
{
  return &px->bucket[key & (px->nbuckets - 1)];
}

static void forget(void *ctx, int32_t page)
{
  struct prefix *px = ctx;
  int32_t *link = bucket_of(px, px->key[page]);
  while (*link != page)
    link = &px->next[*link];
  *link = px->next[page];
}

int prefix_init(struct prefix *px, struct kv *kv, prefix_hash hash)
{
  size_t n = (size_t)(kv->pages.n > 0 ? kv->pages.n : 1);
  *px = (struct prefix){.kv = kv, .hash = hash ? hash : default_hash, .nbuckets = 1};
  while (px->nbuckets < n)
    px->nbuckets *= 2;
  px->token = malloc(n * (size_t)kv->page * sizeof *px->token);
  px->key = malloc(n * sizeof *px->key);
  px->before = malloc(n * sizeof *px->before);
  px->next = malloc(n * sizeof *px->next);
  px->bucket = malloc(px->nbuckets * sizeof *px->bucket);
  if (!px->token || !px->key || !px->before || !px->next || !px->bucket) {
    prefix_free(px);
    return ATTN_ENOMEM;
  }
  for (uint64_t i = 0; i < px->nbuckets; i++)
    px->bucket[i] = PAGE_NONE;
  kv->pages.on_evict = forget;
  kv->pages.ctx = px;
  return ATTN_OK;
}

void prefix_free(struct prefix *px)
{
  free(px->token);
  free(px->key);
  free(px->before);
  free(px->next);
  free(px->bucket);
  memset(px, 0, sizeof *px);
}

static int32_t *tokens_of(const struct prefix *px, int32_t page)
{
  return px->token + page * px->kv->page;
}

/* The entry with these tokens behind page before; PAGE_NONE if there is none. */
static int32_t find(struct prefix *px, uint64_t key, int32_t before, const int32_t *token)
{
  size_t bytes = (size_t)px->kv->page * sizeof *token;
  for (int32_t i = *bucket_of(px, key); i != PAGE_NONE; i = px->next[i]) {
    if (px->key[i] != key)
      continue;
    if (px->before[i] == before && !memcmp(tokens_of(px, i), token, bytes))
      return i;
    px->collisions++;
  }
  return PAGE_NONE;
}

int64_t prefix_probe(struct prefix *px, const int32_t *token, int64_t n, int64_t *idle)
{
  int64_t page = px->kv->page, i = 0;
  uint64_t key = 0;
  int32_t before = PAGE_NONE;
  *idle = 0;
  for (; (i + 1) * page <= n; i++) {
    key = px->hash(key, token + i * page, page);
    before = find(px, key, before, token + i * page);
    if (before == PAGE_NONE)
      break;
    *idle += !px->kv->pages.refs[before];
  }
  return i;
}

int prefix_match(struct prefix *px, struct kv_seq *s, const int32_t *token, int64_t n,
                 int64_t *tokens)
{
  int64_t page = px->kv->page;
  uint64_t key = 0;
  int32_t before = PAGE_NONE;
  int status = ATTN_OK;
  for (int64_t i = 0; !status && (i + 1) * page <= n; i++) {
    key = px->hash(key, token + i * page, page);
    before = find(px, key, before, token + i * page);
    if (before == PAGE_NONE)
      break;
    status = kv_adopt(px->kv, s, before);
  }
  *tokens = s->length;
  return status;
}

static void enter(struct prefix *px, int32_t page, uint64_t key, int32_t before,
                  const int32_t *token)
{
  int32_t *bucket = bucket_of(px, key);
  memcpy(tokens_of(px, page), token, (size_t)px->kv->page * sizeof *token);
  px->key[page] = key;
  px->before[page] = before;
  px->next[page] = *bucket;
  *bucket = page;
  pages_keep(&px->kv->pages, page);
}

int64_t prefix_insert(struct prefix *px, const struct kv_seq *s, const int32_t *token,
                      int64_t first, int64_t end)
{
  int64_t page = px->kv->page;
  int32_t before = first ? s->table[first - 1] : PAGE_NONE;
  uint64_t key = first ? px->key[before] : 0;
  for (int64_t i = first; i < end; i++) {
    key = px->hash(key, token + i * page, page);
    if (find(px, key, before, token + i * page) != PAGE_NONE)
      return i;
    enter(px, s->table[i], key, before, token + i * page);
    before = s->table[i];
  }
  return end;
}

const char *prefix_check(const struct prefix *px)
{
  const struct pages *p = &px->kv->pages;
  int32_t entries = 0, kept = 0;
  for (uint64_t b = 0; b < px->nbuckets; b++)
    for (int32_t i = px->bucket[b]; i != PAGE_NONE && entries <= p->n; i = px->next[i], entries++) {
      int32_t before = px->before[i];
      if (!p->kept[i])
        return "an entry names a page that is not kept";
      if (bucket_of(px, px->key[i]) != &px->bucket[b])
        return "an entry is in another's bucket";
      if (before != PAGE_NONE && !p->kept[before])
        return "a page outlives the page before it";
      if (before != PAGE_NONE && p->refs[before] < p->refs[i])
        return "a page has more users than the page before it";
    }
  for (int32_t i = 0; i < p->n; i++)
    kept += p->kept[i];
  return entries == kept ? NULL : "a page is kept that no lookup can find";
}
