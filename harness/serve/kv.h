/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.h - the KV cache manager: sequences as tables of pages; append, fork with copy-on-write, free.
 *
 * A page holds `page` tokens of all layers.  Forked sequences share all their pages; the first to
 * append to a shared, partly filled page gets its own copy of it, which the caller must make on the
 * device (struct kv_copy) before it writes.  Full pages are never written again, so they are shared
 * for as long as anyone likes, which is what the prefix cache does (prefix.h).
 */
#ifndef HARNESS_SERVE_KV_H
#define HARNESS_SERVE_KV_H

#include <stddef.h>

#include "harness/serve/pages.h"

struct kv {
  struct pages pages;
  int64_t page;           /* tokens a page */
  int64_t copies, copied; /* pages copied on write, and tokens in them */
};

struct kv_seq {
  int32_t *table; /* page numbers */
  int64_t npages, room;
  int64_t length; /* tokens */
};

/* The first `slots` tokens of page `from` are to be copied to page `to`; from == PAGE_NONE:
 * nothing.
 */
struct kv_copy {
  int32_t from, to;
  int64_t slots;
};

int kv_init(struct kv *kv, int32_t npages, int64_t page);
void kv_free(struct kv *kv);

/* Pages that appending n tokens takes. */
int64_t kv_needs(const struct kv *kv, const struct kv_seq *s, int64_t n);
/* Makes room for n tokens behind the last. ATTN_ENOMEM changes nothing: too few pages (or host
 * memory). */
int kv_append(struct kv *kv, struct kv_seq *s, int64_t n, struct kv_copy *copy);
/* child, which must be empty, becomes the same tokens in the same pages. */
int kv_fork(struct kv *kv, const struct kv_seq *s, struct kv_seq *child);
/* Appends a full page that holds the sequence's next tokens already; length must be a multiple of
 * the page. */
int kv_adopt(struct kv *kv, struct kv_seq *s, int32_t page);
/* Gives all pages back, last page first, so that a chain of kept pages ages from its end. */
void kv_release(struct kv *kv, struct kv_seq *s);

#endif
