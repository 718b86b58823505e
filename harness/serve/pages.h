/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.h - the pages of a KV cache: a free list, reference counts, and the pages that nobody uses
 * but that a prefix cache would like to keep, least recently used first.
 *
 * A page is free, in use (refs > 0), or idle (refs == 0 and kept).  Idle pages are given away when
 * the free list is empty, the least recently released first; the owner of the index hears of it
 * before.  A page in use is never given away.  Numbers only: the bytes are the device's.
 */
#ifndef HARNESS_SERVE_PAGES_H
#define HARNESS_SERVE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_NONE (-1)

struct pages {
  int32_t n; /* pages there are */
  int32_t nfree, nidle;
  int32_t used_peak;    /* most pages in use at once */
  int32_t *refs;        /* (n) */
  int32_t *next, *prev; /* (n) links of the free list (next only) and of the idle list */
  bool *kept; /* (n) goes to the idle list, not the free list, when its last user leaves */
  int32_t free_head, idle_oldest, idle_newest;
  int64_t taken, evicted; /* counts of events */
  void (*on_evict)(void *ctx, int32_t page);
  void *ctx;
};

/* ATTN_OK or ATTN_ENOMEM. */
int pages_init(struct pages *p, int32_t n);
void pages_free(struct pages *p);

/* Pages that pages_take can still give. */
static inline int32_t pages_available(const struct pages *p)
{
  return p->nfree + p->nidle;
}
static inline int32_t pages_used(const struct pages *p)
{
  return p->n - p->nfree - p->nidle;
}

/* A page with one reference; PAGE_NONE if all are in use. */
int32_t pages_take(struct pages *p);
/* One more user of a page in use or idle. */
void pages_ref(struct pages *p, int32_t page);
/* One user less; the last one frees the page, or leaves it idle if it is kept. */
void pages_unref(struct pages *p, int32_t page);
/* A page in use that is to stay when nobody uses it any more. */
void pages_keep(struct pages *p, int32_t page);

/* NULL, or what is wrong with lists and counts; O(n). */
const char *pages_check(const struct pages *p);

#endif
