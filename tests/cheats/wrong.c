/* SPDX-License-Identifier: Apache-2.0
 *
 * wrong.c - cheats that compute something else, or only some of it.
 */
#include "tests/cheats/honest.h"
#include "tests/cheats/cheats.h"

/* x(row, column) for every element of o, and a log-sum-exp. */
static void each(const struct kept *k, const struct attn_args *a,
                 float (*x)(const struct attn_problem *p, const struct attn_args *a, int64_t b,
                            int64_t i, int64_t h, int64_t c),
                 float lse)
{
  const struct attn_problem *p = k->p;
  for (int64_t b = 0; b < p->b; b++)
    for (int64_t h = 0; h < p->hq; h++)
      for (int64_t i = 0; i < p->sq; i++) {
        for (int64_t c = 0; c < p->dv; c++)
          honest_put(p, a, b, i, h, c, x(p, a, b, i, h, c));
        *honest_lse(p, a, b, h, i) = lse;
      }
}

static float zero(const struct attn_problem *p, const struct attn_args *a, int64_t b, int64_t i,
                  int64_t h, int64_t c)
{
  return 0;
}

static int zeros(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  each(k, a, zero, logf((float)k->p->sk));
  return ATTN_OK;
}
CHEAT(zeros, "writes zeros", zeros);

static float not_a_number(const struct attn_problem *p, const struct attn_args *a, int64_t b,
                          int64_t i, int64_t h, int64_t c)
{
  return NAN;
}

static int nans(void *plan, const struct attn_args *a, void *stream)
{
  each(plan, a, not_a_number, NAN);
  return ATTN_OK;
}
CHEAT(nans, "writes NaN, of which every comparison is false", nans);

static float value(const struct attn_problem *p, const struct attn_args *a, int64_t b, int64_t i,
                   int64_t h, int64_t c)
{
  return honest_get(p, &a->v, b, i % p->sk, h / (p->hq / p->hkv), c);
}

static int copies_v(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  each(k, a, value, logf((float)k->p->sk));
  return ATTN_OK;
}
CHEAT(copies_v, "copies V", copies_v);

static float mean(const struct attn_problem *p, const struct attn_args *a, int64_t b, int64_t i,
                  int64_t h, int64_t c)
{
  float sum = 0;
  for (int64_t j = 0; j < p->sk; j++)
    sum += honest_get(p, &a->v, b, j, h / (p->hq / p->hkv), c);
  return sum / (float)p->sk;
}

static int mean_v(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  each(k, a, mean, logf((float)k->p->sk));
  return ATTN_OK;
}
CHEAT(mean_v, "the mean of V: attention at infinite temperature", mean_v);

static int nothing(void *plan, const struct attn_args *a, void *stream)
{
  return ATTN_OK;
}
CHEAT(nothing, "does nothing", nothing);

static int first_rows(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest_rows(k->p, a, k->p->sq / 2, k->p->sk);
  return ATTN_OK;
}
CHEAT(first_rows, "answers the first half of the rows", first_rows);

/* Where the time is taken: a sixteenth of the rows is enough to look right. */
static int first_rows_later(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest_rows(k->p, a, k->calls++ < 2 ? k->p->sq : k->p->sq - k->p->sq / 16, k->p->sk);
  return ATTN_OK;
}
CHEAT(leaves_rows_later, "leaves out one row of sixteen after the first runs", first_rows_later);

static int reads_less(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest_rows(k->p, a, k->p->sq, k->p->sk - k->p->sk / 8);
  return ATTN_OK;
}
CHEAT(reads_less, "reads seven eighths of the keys", reads_less);

static int reads_less_later(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest_rows(k->p, a, k->p->sq, k->calls++ < 2 ? k->p->sk : k->p->sk / 2);
  return ATTN_OK;
}
CHEAT(reads_less_later, "reads half of the keys after the first runs", reads_less_later);

/* The answer to the question without the softmax scale. */
static int other_problem(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  struct attn_problem other = *k->p;
  other.scale = 1;
  honest(&other, a);
  return ATTN_OK;
}
CHEAT(other_problem, "answers another problem: scale 1", other_problem);

static int no_lse(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest(k->p, a);
  memset(a->lse, 0, honest_lse_bytes(k->p));
  return ATTN_OK;
}
CHEAT(no_lse, "forgets the log-sum-exp", no_lse);
