/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix.h - the prefix cache: full pages of prompts, found again by their tokens.
 *
 * A page's key is a hash over its tokens, chained to the key of the page before it.  A hit is a
 * page whose key, whose tokens, and whose page before are the same, so by induction the whole
 * prefix is compared and a collision of keys never serves another's page.  Pages stay as long as
 * there is room and go least recently released first; a sequence releases its last page first, so a
 * page never outlives the page before it.
 */
#ifndef HARNESS_SERVE_PREFIX_H
#define HARNESS_SERVE_PREFIX_H

#include "harness/serve/kv.h"

/* Of one page: n tokens behind a prefix whose key is `before` (0: none). */
typedef uint64_t (*prefix_hash)(uint64_t before, const int32_t *token, int64_t n);

struct prefix {
  struct kv *kv;
  prefix_hash hash;
  int32_t *token;  /* (pages, page) */
  uint64_t *key;   /* (pages) */
  int32_t *before; /* (pages) the page before, or PAGE_NONE */
  int32_t *next;   /* (pages) in the same bucket */
  int32_t *bucket; /* (nbuckets), a power of two */
  uint64_t nbuckets;
  int64_t collisions; /* entries with the key that was looked for and other tokens */
};

/* Takes over kv's idle list. hash NULL: the built-in one. ATTN_OK or ATTN_ENOMEM. */
int prefix_init(struct prefix *px, struct kv *kv, prefix_hash hash);
void prefix_free(struct prefix *px);

/* How many pages of the longest cached prefix of n tokens there are, and how many of them idle. */
int64_t prefix_probe(struct prefix *px, const int32_t *token, int64_t n, int64_t *idle);
/* Gives that prefix to s, which must be empty; *tokens is its length. ATTN_OK or ATTN_ENOMEM. */
int prefix_match(struct prefix *px, struct kv_seq *s, const int32_t *token, int64_t n,
                 int64_t *tokens);
/* Enters the pages first .. end - 1 of s, which are full, and of which the page before the first is
 * entered already. token is the sequence from its start. Stops at a page that is there already
 * under another number, and returns where: end, if all are entered. */
int64_t prefix_insert(struct prefix *px, const struct kv_seq *s, const int32_t *token,
                      int64_t first, int64_t end);

/* NULL, or what is wrong; O(pages^2) at worst. */
const char *prefix_check(const struct prefix *px);

#endif
