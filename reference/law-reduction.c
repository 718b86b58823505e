/* SPDX-License-Identifier: Apache-2.0
 *
 * law-reduction.c - the tree by which an implementation adds up P V, seen from outside.
 *
 * Equal scores make P V a plain sum of the values.  M at key i, -M at key j and ones elsewhere: the
 * ones that are added to a partial sum of size M are absorbed, so that n minus the result counts
 * the leaves below the lowest common ancestor of i and j.  All pairs together determine the tree; a
 * hash of the counts is its fingerprint.  Every column and head of V takes a pair of its own.
 *
 * After FPRev (Xie et al., USENIX ATC 2025).
 */
#include "config.h"

#include <stdio.h>

#include "reference/law.h"

#define KEYS 32
#define UNIT 0x1p-10
#define LARGE 0x1p15 /* UNIT is lost beside it in fp32 */

/* Pair number n of all i < j. */
static void pair_of(int64_t n, int64_t *i, int64_t *j)
{
  for (*j = 1; n >= *j; ++*j)
    n -= *j;
  *i = n;
}

static void fill(struct law_set *s, int64_t first)
{
  struct law_place at;
  for (at = law_first(s, LAW_Q); law_there(s, &at); law_next(s, LAW_Q, &at))
    for (int64_t c = 0; c < s->p.d; c++)
      law_put(s, LAW_Q, &at, c, 0);
  for (at = law_first(s, LAW_K); law_there(s, &at); law_next(s, LAW_K, &at))
    for (int64_t c = 0; c < s->p.d; c++)
      law_put(s, LAW_K, &at, c, 0);
  for (at = law_first(s, LAW_V); law_there(s, &at); law_next(s, LAW_V, &at))
    for (int64_t c = 0; c < s->p.dv; c++) {
      int64_t i, j;
      pair_of((first + at.head * s->p.dv + c) % (KEYS * (KEYS - 1) / 2), &i, &j);
      law_put(s, LAW_V, &at, c, at.row == i ? LARGE : at.row == j ? -LARGE : UNIT);
    }
}

int law_reduction(const struct law_bench *b, char *text, size_t len)
{
  struct law_set s;
  struct attn_problem p = b->base.p;
  uint64_t hash = 0xcbf29ce484222325u, pairs = KEYS * (KEYS - 1) / 2;
  if (p.op == ATTN_BWD || p.nruns || p.alibi || p.dropout_p > 0 || p.mask)
    return ATTN_OK;
  p.b = 1;
  p.prefix = 0;
  p.sq = 16;
  p.sk = KEYS;
  int status = law_set_make(&s, &p, false);
  if (status)
    return status;
  for (uint64_t n = 0; n < pairs && !status; n += (uint64_t)(p.hkv * p.dv)) {
    fill(&s, (int64_t)n);
    status = law_run(b, &s);
    for (int64_t h = 0; h < p.hkv && !status; h++)
      for (int64_t c = 0; c < p.dv; c++) {
        struct law_place at = {0, h * s.r.shape.group, 0};
        double kept = law_get(&s, LAW_O, &at, c) * KEYS / UNIT;
        if (n + (uint64_t)(h * p.dv + c) < pairs)
          hash = (hash ^ (uint64_t)(int64_t)llround(kept)) * 0x100000001b3u;
      }
  }
  if (!status)
    snprintf(text, len, "%d keys: %016llx", KEYS, (unsigned long long)hash);
  law_set_free(&s);
  return law_refused(status);
}
