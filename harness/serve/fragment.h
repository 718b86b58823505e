/* SPDX-License-Identifier: Apache-2.0
 *
 * fragment.h - what is reserved, used and wasted of a KV cache's memory: one contiguous stretch of
 * the model's maximum length a sequence, against pages.
 */
#ifndef HARNESS_SERVE_FRAGMENT_H
#define HARNESS_SERVE_FRAGMENT_H

#include <stddef.h>
#include <stdint.h>

struct fragment {
  double reserved, used, wasted; /* bytes, all sequences at their full lengths at once */
  double wasted_share;           /* of what is reserved */
  double largest_batch;          /* sequences in memory_bytes: median over starts in the list */
};

struct fragment_task {
  const int64_t *length; /* (n) tokens of each sequence when it ends */
  size_t n;
  double token_bytes;  /* K and V of all layers */
  double memory_bytes; /* for the cache */
  int64_t max_length;  /* the model's */
  int64_t page;
};

/* A sequence longer than max_length is cut to it in both. */
struct fragment fragment_contiguous(const struct fragment_task *t);
/* By the allocator: every sequence is appended, and the allocator's count is what is reserved.
 * ATTN_OK or ATTN_ENOMEM. */
int fragment_paged(const struct fragment_task *t, struct fragment *f);

#endif
