/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.c - free list, reference counts, idle list. Every call but pages_check is O(1).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/serve/pages.h"
#include "impl/attn.h"

int pages_init(struct pages *p, int32_t n)
{
  size_t room = n > 0 ? (size_t)n : 1;
  *p = (struct pages){.n = n, .nfree = n, .free_head = n > 0 ? 0 : PAGE_NONE};
  p->idle_oldest = p->idle_newest = PAGE_NONE;
  p->refs = calloc(room, sizeof *p->refs);
  p->next = malloc(room * sizeof *p->next);
  p->prev = malloc(room * sizeof *p->prev);
  p->kept = calloc(room, sizeof *p->kept);
  if (!p->refs || !p->next || !p->prev || !p->kept) {
    pages_free(p);
    return ATTN_ENOMEM;
  }
  for (int32_t i = 0; i < n; i++) {
    p->next[i] = i + 1 < n ? i + 1 : PAGE_NONE;
    p->prev[i] = PAGE_NONE;
  }
  return ATTN_OK;
}

void pages_free(struct pages *p)
{
  free(p->refs);
  free(p->next);
  free(p->prev);
  free(p->kept);
  memset(p, 0, sizeof *p);
}

static void idle_unlink(struct pages *p, int32_t page)
{
  int32_t before = p->prev[page], after = p->next[page];
  if (before == PAGE_NONE)
    p->idle_oldest = after;
  else
    p->next[before] = after;
  if (after == PAGE_NONE)
    p->idle_newest = before;
  else
    p->prev[after] = before;
  p->nidle--;
}

static void idle_push(struct pages *p, int32_t page)
{
  p->prev[page] = p->idle_newest;
  p->next[page] = PAGE_NONE;
  if (p->idle_newest == PAGE_NONE)
    p->idle_oldest = page;
  else
    p->next[p->idle_newest] = page;
  p->idle_newest = page;
  p->nidle++;
}

int32_t pages_take(struct pages *p)
{
  int32_t page = p->free_head;
  if (page != PAGE_NONE) {
    p->free_head = p->next[page];
    p->nfree--;
  } else {
    page = p->idle_oldest;
    if (page == PAGE_NONE)
      return PAGE_NONE;
    if (p->on_evict)
      p->on_evict(p->ctx, page);
    idle_unlink(p, page);
    p->kept[page] = false;
    p->evicted++;
  }
  p->refs[page] = 1;
  p->taken++;
  if (pages_used(p) > p->used_peak)
    p->used_peak = pages_used(p);
  return page;
}

void pages_ref(struct pages *p, int32_t page)
{
  if (!p->refs[page])
    idle_unlink(p, page);
  p->refs[page]++;
  if (pages_used(p) > p->used_peak)
    p->used_peak = pages_used(p);
}

void pages_unref(struct pages *p, int32_t page)
{
  if (--p->refs[page])
    return;
  if (p->kept[page]) {
    idle_push(p, page);
    return;
  }
  p->next[page] = p->free_head;
  p->free_head = page;
  p->nfree++;
}

void pages_keep(struct pages *p, int32_t page)
{
  p->kept[page] = true;
}

/* Length of the list from head, no more than n + 1; counts pages that are not as it wants them. */
static int32_t walk(const struct pages *p, int32_t head, bool kept, int32_t *wrong)
{
  int32_t length = 0;
  for (int32_t i = head; i != PAGE_NONE && length <= p->n; i = p->next[i], length++)
    *wrong += p->refs[i] != 0 || p->kept[i] != kept;
  return length;
}

const char *pages_check(const struct pages *p)
{
  int32_t wrong = 0, in_use = 0;
  if (walk(p, p->free_head, false, &wrong) != p->nfree)
    return "the free list is not as long as counted";
  if (walk(p, p->idle_oldest, true, &wrong) != p->nidle)
    return "the idle list is not as long as counted";
  if (wrong)
    return "a listed page is in use, or in the wrong list";
  for (int32_t i = 0; i < p->n; i++)
    in_use += p->refs[i] > 0;
  if (in_use != pages_used(p))
    return "a page is in no list and in nobody's use";
  return NULL;
}
