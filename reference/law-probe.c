/* SPDX-License-Identifier: Apache-2.0
 *
 * law-probe.c - inputs for which every correct algorithm gives the same bits.
 *
 * If all weights are equal, or exactly 0 or 1, the values are small integers, and the exact mean is
 * a number of the output's format, then any order of summation, tiling, split or packing of heads
 * gives that number: a few ulps of fp32 do not cross half an ulp of a 16-bit format.  fp32 outputs
 * are allowed these few ulps.
 */
#include "config.h"

#include <stdlib.h>

#include "reference/law.h"

#define GAP 112.0 /* exp(-112) is 0 in fp32, subnormals and all */
#define MAX_KEYS 1024
#define ROUNDS 4
#define WINNERS 4

/* Where P is stored in 16 bits after division, 1/n must be exact. */
static bool exact_share(const struct law_bench *b, int64_t n)
{
  const struct attn_numerics *num = b->subject->numerics;
  bool rounds = num->normalize_first && num->prob == ATTN_ROUND_STORAGE;
  return n > 0 && n <= MAX_KEYS && (!rounds || (n & (n - 1)) == 0 || b->base.p.dtype == ATTN_F32);
}

static double slack(const struct law_bench *b, double n, double largest)
{
  return b->base.p.dtype == ATTN_F32 ? (n + 8) * 4 * REF_U * largest : 0;
}

static bool forward_without(const struct law_bench *b, bool softcap_too)
{
  const struct attn_problem *p = &b->base.p;
  return p->op != ATTN_BWD && !p->alibi && p->dropout_p == 0 && !(softcap_too && p->softcap > 0);
}

static bool plain(const struct law_bench *b)
{
  return forward_without(b, false);
}

static bool representable(enum attn_dtype t, double x)
{
  int bits = t == ATTN_BF16 ? 8 : t == ATTN_F16 ? 11 : 24, e;
  double m = frexp(x, &e) * (double)(1 << bits);
  return m == floor(m);
}

/* ---- equal scores ---------------------------------------------------------------------------- */

/* Value of key j of sk: 16 plus what its mirror image takes away. */
static double balanced(const struct law_bench *b, int64_t sk, const struct law_place *at, int64_t c)
{
  int64_t mirror = sk - 1 - at->row, j = at->row < mirror ? at->row : mirror;
  uint64_t draw = law_hash(b->subject->seed, (uint64_t)((at->head * 1024 + j) * 512 + c));
  double e = (double)(draw % 17) - 8;
  return 16 + (at->row < mirror ? e : at->row > mirror ? -e : 0);
}

static void equal_inputs(const struct law_bench *b, struct law_set *s)
{
  struct law_place at;
  for (at = law_first(s, LAW_Q); law_there(s, &at); law_next(s, LAW_Q, &at))
    for (int64_t c = 0, i = law_at(s, LAW_Q, &at); c < s->p.d; c++)
      law_store(s, LAW_Q, i + c, 0);
  for (at = law_first(s, LAW_K); law_there(s, &at); law_next(s, LAW_K, &at)) {
    int64_t i = law_at(s, LAW_K, &at), from = law_at(&b->base, LAW_K, &at);
    for (int64_t c = 0; c < s->p.d; c++)
      law_store(s, LAW_K, i + c, law_load(&b->base, LAW_K, from + c));
  }
  for (at = law_first(s, LAW_V); law_there(s, &at); law_next(s, LAW_V, &at))
    for (int64_t c = 0, i = law_at(s, LAW_V, &at); c < s->p.dv; c++)
      law_store(s, LAW_V, i + c, balanced(b, s->r.seqs[at.seq].sk, &at, c));
}

/* The sums of the values that a row sees. */
static void sum_visible(const struct law_set *s, const struct law_place *at, double *sum)
{
  struct law_place key = {at->seq, at->head / s->r.shape.group, 0};
  int64_t width = s->p.dv;
  for (int64_t c = 0; c < width; c++)
    sum[c] = 0;
  for (; key.row < s->r.seqs[at->seq].sk; key.row++) {
    if (!law_sees(s, at->seq, at->row, key.row))
      continue;
    int64_t from = law_at(s, LAW_V, &key);
    for (int64_t c = 0; c < width; c++)
      sum[c] += law_load(s, LAW_V, from + c);
  }
}

static void equal_row(const struct law_bench *b, const struct law_set *s,
                      const struct law_place *at, double *sum, struct law_result *res)
{
  int64_t n = law_visible(s, at->seq, at->row);
  if (!exact_share(b, n))
    return;
  law_near(res, "lse", at, 0, law_get(s, LAW_LSE, at, 0), log((double)n),
           16 * REF_U * (1 + log((double)n)));
  sum_visible(s, at, sum);
  for (int64_t c = 0; c < s->p.dv && res->state == LAW_PASS; c++) {
    double mean = sum[c] / (double)n;
    if (representable(s->p.dtype, mean))
      law_near(res, "o", at, c, law_get(s, LAW_O, at, c), mean, slack(b, (double)n, 24));
  }
}

/* Precondition: no ALiBi, no dropout. q = 0 makes all scores equal; a row that sees n keys with
 * integer values has their mean as O, where the format holds it, and ln n as LSE. */
static int equal_scores(struct law_bench *b, struct law_result *res)
{
  struct law_set s;
  double *sum = calloc((size_t)b->base.p.dv, sizeof *sum);
  int status = sum ? law_set_make(&s, &b->base.p, false) : ATTN_ENOMEM;
  if (status)
    goto out;
  equal_inputs(b, &s);
  status = law_run(b, &s);
  struct law_place at = law_first(&s, LAW_O);
  for (; !status && res->state != LAW_FAIL && law_there(&s, &at); law_next(&s, LAW_O, &at))
    if (law_looks(b, &at))
      equal_row(b, &s, &at, sum, res);
  law_set_free(&s);
out:
  free(sum);
  return law_refused(status);
}

/* ---- one key takes all ----------------------------------------------------------------------- */

/* Length of q and bits of the keys' names; 0: no such probe. */
static double winning_length(const struct law_bench *b, int *bits)
{
  const struct ref_shape *p = &b->base.r.shape;
  double length = exp2(ceil(log2(GAP / (2 * fabs(p->scale)))));
  *bits = 1;
  while (*bits < 62 && INT64_C(1) << *bits < p->max_sk)
    ++*bits;
  double most = p->dtype == ATTN_F16 ? 32768 : 0x1p60;
  return *bits > p->d || !(length * *bits <= most) ? 0 : length;
}

static bool names_fit(const struct law_bench *b)
{
  int bits;
  return forward_without(b, true) && b->base.p.scale >= 0 && winning_length(b, &bits) > 0;
}

/* The key that a row of round `round` shall name: all that it sees in turn; -1: it sees none. */
static int64_t named(const struct law_bench *b, const struct law_set *s, const struct law_place *at,
                     int64_t round)
{
  int64_t n = law_looks(b, at) ? law_visible(s, at->seq, at->row) : 0, group = s->r.shape.group;
  int64_t rows = s->r.seqs[at->seq].sq * group;
  if (n == 0)
    return -1;
  int64_t rank = (round * rows + at->row * group + at->head % group) % n;
  for (int64_t j = 0; j < s->r.seqs[at->seq].sk; j++)
    if (law_sees(s, at->seq, at->row, j) && rank-- == 0)
      return j;
  return -1;
}

static double name_bit(int64_t j, int64_t c, int bits)
{
  return c < bits ? (j >> c & 1 ? 1 : -1) : 0;
}

static void named_inputs(const struct law_bench *b, struct law_set *s, int64_t round, double length,
                         int bits)
{
  struct law_place at;
  for (at = law_first(s, LAW_Q); law_there(s, &at); law_next(s, LAW_Q, &at)) {
    int64_t t = named(b, s, &at, round), i = law_at(s, LAW_Q, &at);
    for (int64_t c = 0; c < s->p.d; c++)
      law_store(s, LAW_Q, i + c, t < 0 ? 0 : length * name_bit(t, c, bits));
  }
  for (at = law_first(s, LAW_K); law_there(s, &at); law_next(s, LAW_K, &at))
    for (int64_t c = 0, i = law_at(s, LAW_K, &at); c < s->p.d; c++)
      law_store(s, LAW_K, i + c, name_bit(at.row, c, bits));
}

static bool named_row(const struct law_bench *b, const struct law_set *s,
                      const struct law_place *at, int64_t round, double score, bool lse,
                      struct law_result *res)
{
  int64_t t = named(b, s, at, round);
  struct law_place key = {at->seq, at->head / s->r.shape.group, t};
  if (t < 0)
    return true;
  if (lse)
    return law_near(res, "lse", at, 0, law_get(s, LAW_LSE, at, 0), score,
                    (8 * REF_U + b->score_unit) * score);
  for (int64_t c = 0; c < s->p.dv; c++)
    if (!law_near(res, "o", at, c, law_get(s, LAW_O, at, c), law_get(s, LAW_V, &key, c), 0))
      return false;
  return true;
}

static int one_winner(struct law_bench *b, bool lse, struct law_result *res)
{
  struct law_set s;
  int bits, status = law_set_like(&s, &b->base.p, &b->base, NULL, NULL, false);
  double length = winning_length(b, &bits);
  if (status)
    return status;
  double score = length * bits * s.r.shape.scale;
  int64_t rows = s.r.shape.max_sq * s.r.shape.group;
  for (int64_t k = 0; k < ROUNDS && k * rows <= s.r.shape.max_sk && !status; k++) {
    named_inputs(b, &s, k, length, bits);
    status = law_run(b, &s);
    struct law_place at = law_first(&s, LAW_O);
    for (; !status && law_there(&s, &at); law_next(&s, LAW_O, &at))
      if (!named_row(b, &s, &at, k, score, lse, res))
        break;
    if (res->state == LAW_FAIL)
      break;
  }
  law_set_free(&s);
  return law_refused(status);
}

/* Precondition: no softcap, ALiBi or dropout. Every key has a name in signs, and each query is the
 * name of one visible key, so long that all others weigh exp(-112) or less: O is that key's value,
 * bit for bit. The queries name all keys in turn. */
static int one_hot(struct law_bench *b, struct law_result *res)
{
  return one_winner(b, false, res);
}

/* Precondition: as above. The LSE is the score of the named key, to a few ulps of fp32. */
static int dominating_lse(struct law_bench *b, struct law_result *res)
{
  return one_winner(b, true, res);
}

/* ---- winners that tie ------------------------------------------------------------------------ */

/* Keys that sequences share cannot be winners of one alone. */
static bool winners_fit(const struct law_bench *b)
{
  return names_fit(b) && !(b->base.p.prefix && b->base.p.nruns);
}

/* Which winner key j of a head is, from 1; 0: none. */
static int winner(const struct law_set *s, int64_t seq, int64_t head, int64_t j)
{
  int64_t sk = s->r.seqs[seq].sk;
  for (int w = 0; w < WINNERS; w++)
    if (j == (w * (sk - 1) / (WINNERS - 1) + head) % sk)
      return w + 1;
  return 0;
}

static void tied_inputs(struct law_set *s, double length)
{
  struct law_place at;
  for (at = law_first(s, LAW_Q); law_there(s, &at); law_next(s, LAW_Q, &at))
    for (int64_t c = 0, i = law_at(s, LAW_Q, &at); c < s->p.d; c++)
      law_store(s, LAW_Q, i + c, c ? 0 : length);
  for (at = law_first(s, LAW_K); law_there(s, &at); law_next(s, LAW_K, &at))
    for (int64_t c = 0, i = law_at(s, LAW_K, &at); c < s->p.d; c++)
      law_store(s, LAW_K, i + c, c ? 0 : winner(s, at.seq, at.head, at.row) ? 1 : -1);
  for (at = law_first(s, LAW_V); law_there(s, &at); law_next(s, LAW_V, &at)) {
    int64_t i = law_at(s, LAW_V, &at);
    int w = winner(s, at.seq, at.head, at.row);
    for (int64_t c = 0; c < s->p.dv; c++)
      law_store(s, LAW_V, i + c, w ? 12 * (w + (double)(c % 3)) : at.row % 2 ? 512 : -512);
  }
}

static void tied_row(const struct law_bench *b, const struct law_set *s, const struct law_place *at,
                     double score, struct law_result *res)
{
  int64_t n = 0, sk = s->r.seqs[at->seq].sk;
  double sum = 0;
  for (int64_t j = 0; j < sk; j++) {
    int w = winner(s, at->seq, at->head / s->r.shape.group, j);
    if (w && law_sees(s, at->seq, at->row, j)) {
      sum += 12 * w;
      n++;
    }
  }
  if (!exact_share(b, n))
    return;
  law_near(res, "lse", at, 0, law_get(s, LAW_LSE, at, 0), score + log((double)n),
           16 * REF_U * (score + 1) + b->score_unit * score);
  for (int64_t c = 0; c < s->p.dv && res->state != LAW_FAIL; c++)
    law_near(res, "o", at, c, law_get(s, LAW_O, at, c), sum / (double)n + 12 * (double)(c % 3),
             slack(b, 8, 72));
}

/* Precondition: as above. A few keys have the same score, all others none to speak of; the values
 * of the former are multiples of 12, so that O is an integer that names the visible ones among
 * them, and LSE = score + ln of their number. The values of the others are 512 and -512. */
static int tied_winners(struct law_bench *b, struct law_result *res)
{
  struct law_set s;
  int bits, status = law_set_make(&s, &b->base.p, false);
  double length = winning_length(b, &bits);
  if (status)
    return status;
  tied_inputs(&s, length);
  status = law_run(b, &s);
  struct law_place at = law_first(&s, LAW_O);
  for (; !status && res->state != LAW_FAIL && law_there(&s, &at); law_next(&s, LAW_O, &at))
    if (law_looks(b, &at))
      tied_row(b, &s, &at, length * s.r.shape.scale, res);
  law_set_free(&s);
  return law_refused(status);
}

const struct law law_probes[] = {{"equal-scores", plain, equal_scores, 1},
                                 {"one-hot", names_fit, one_hot, 4},
                                 {"dominating-lse", names_fit, dominating_lse, 4},
                                 {"tied-winners", winners_fit, tied_winners, 1},
                                 {NULL, NULL, NULL, 0}};
