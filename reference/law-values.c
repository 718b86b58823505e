/* SPDX-License-Identifier: Apache-2.0
 *
 * law-values.c - laws about the values: O is a mean of them, and linear.
 */
#include "config.h"

#include <stdlib.h>

#include "reference/law.h"

static bool forward(const struct law_bench *b)
{
  return b->base.p.op != ATTN_BWD;
}

static bool no_dropout(const struct law_bench *b)
{
  return forward(b) && b->base.p.dropout_p == 0;
}

/* Numbers of a grid so coarse that sums of two are exact in every type. */
static void grid_values(struct law_set *s, uint64_t seed, double factor[2])
{
  for (struct law_place at = law_first(s, LAW_V); law_there(s, &at); law_next(s, LAW_V, &at))
    for (int64_t c = 0, i = law_at(s, LAW_V, &at); c < s->p.dv; c++) {
      uint64_t u = law_hash(seed, (uint64_t)(i + c));
      double x = (double)(u % 121) - 60, y = (double)(u / 128 % 121) - 60;
      law_store(s, LAW_V, i + c, (factor[0] * x + factor[1] * y) / 16);
    }
}

/* O of sum against the sum of O of parts. */
static int compare_sums(struct law_bench *b, struct law_set s[3], struct law_result *res)
{
  struct law_bounds t[3] = {{NULL}, {NULL}, {NULL}};
  int status = ATTN_OK;
  for (int i = 0; i < 3 && !status; i++)
    status = law_bounds_make(&s[i], b->subject->numerics, &t[i]);
  struct law_place at = law_first(s, LAW_O);
  for (; !status && law_there(s, &at) && res->state != LAW_FAIL; law_next(s, LAW_O, &at)) {
    int64_t i = ref_stats_index(&s->r, at.seq, at.head, at.row);
    for (int64_t c = 0; c < s->p.dv; c++)
      if (!law_near(res, "o", &at, c, law_get(&s[2], LAW_O, &at, c),
                    law_get(&s[0], LAW_O, &at, c) + law_get(&s[1], LAW_O, &at, c),
                    t[0].o[i] + t[1].o[i] + t[2].o[i]))
        break;
  }
  for (int i = 0; i < 3; i++)
    law_bounds_free(&t[i]);
  return status;
}

/* O is linear in V: O(V + W) = O(V) + O(W). */
static int value_sum(struct law_bench *b, struct law_result *res)
{
  static double factor[3][2] = {{1, 0}, {0, 1}, {1, 1}};
  struct law_set s[3];
  int status = ATTN_OK, made = 0;
  for (; made < 3 && !status; made += !status)
    status = law_set_like(&s[made], &b->base.p, &b->base, NULL, NULL, false);
  for (int i = 0; i < 3 && !status; i++) {
    grid_values(&s[i], b->subject->seed, factor[i]);
    status = law_run(b, &s[i]);
  }
  if (!status)
    status = compare_sums(b, s, res);
  while (made-- > 0)
    law_set_free(&s[made]);
  return law_refused(status);
}

/* Least and largest value that a row sees, of each column; 0 if it sees nothing. */
static bool range_of(const struct law_set *s, const struct law_place *at, double *lo, double *hi)
{
  bool any = false;
  for (int64_t j = 0; j < s->r.seqs[at->seq].sk; j++) {
    struct law_place key = {at->seq, at->head / s->r.shape.group, j};
    if (!law_sees(s, at->seq, at->row, j))
      continue;
    int64_t from = law_at(s, LAW_V, &key);
    for (int64_t c = 0; c < s->p.dv; c++) {
      double v = law_load(s, LAW_V, from + c);
      lo[c] = any && lo[c] < v ? lo[c] : v;
      hi[c] = any && hi[c] > v ? hi[c] : v;
    }
    any = true;
  }
  for (int64_t c = 0; c < s->p.dv && !any; c++)
    lo[c] = hi[c] = 0;
  return any;
}

/* Precondition: no dropout. O is a mean: no smaller than the least visible value, no larger than
 * the largest. Rows that see nothing are 0. */
static int value_range(struct law_bench *b, struct law_result *res)
{
  struct law_bounds t;
  const struct law_set *s = &b->base;
  double *lo = calloc((size_t)(2 * s->p.dv), sizeof *lo), *hi = lo + s->p.dv;
  int status = lo ? law_bounds_make(s, b->subject->numerics, &t) : ATTN_ENOMEM;
  if (status)
    goto out;
  for (struct law_place at = law_first(s, LAW_O); law_there(s, &at); law_next(s, LAW_O, &at)) {
    if (!law_looks(b, &at))
      continue;
    bool any = range_of(s, &at, lo, hi);
    double bound = t.o[ref_stats_index(&s->r, at.seq, at.head, at.row)];
    for (int64_t c = 0; c < s->p.dv && res->state != LAW_FAIL; c++) {
      double o = law_get(s, LAW_O, &at, c);
      law_near(res, "o", &at, c, o, fmin(fmax(o, lo[c]), hi[c]), any ? bound : 0);
    }
  }
  law_bounds_free(&t);
out:
  free(lo);
  return status;
}

/* Precondition: no dropout. V = 1 makes O = 1, to the rounding of P and the sums. */
static int unit_values(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct ref_problem r;
  int status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  for (struct law_place at = law_first(&y, LAW_V); law_there(&y, &at); law_next(&y, LAW_V, &at))
    for (int64_t c = 0; c < y.p.dv; c++)
      law_put(&y, LAW_V, &at, c, 1);
  status = law_run(b, &y);
  if (status || (status = law_open(&y.p, b->subject->numerics, &r)))
    goto out;
  for (struct law_place at = law_first(&y, LAW_O); law_there(&y, &at); law_next(&y, LAW_O, &at)) {
    if (!law_looks(b, &at))
      continue;
    double n = (double)law_visible(&y, at.seq, at.row), sums = 4 * (n + 8) * REF_U;
    double bound = r.units.store + r.units.prob + n * fmax(r.units.eta, REF_TINY) +
                   (r.units.truncates ? 2 : 1) * sums;
    for (int64_t c = 0; n > 0 && c < y.p.dv && res->state != LAW_FAIL; c++)
      law_near(res, "o", &at, c, law_get(&y, LAW_O, &at, c), 1, bound);
  }
  ref_close(&r);
out:
  law_set_free(&y);
  return law_refused(status);
}

const struct law law_values[] = {{"value-sum", forward, value_sum, 3},
                                 {"value-range", no_dropout, value_range, 1},
                                 {"unit-values", no_dropout, unit_values, 1},
                                 {NULL, NULL, NULL, 0}};
