/* SPDX-License-Identifier: Apache-2.0
 *
 * law.c - all laws on one problem; what is observed without being judged; and their numbers.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/law.h"

static const struct law *const tables[] = {law_probes, law_bits,      law_relations,
                                           law_values, law_gradients, law_rotations,
                                           law_caches, law_eight_bit};
#define TABLES (sizeof tables / sizeof *tables)

static const struct law *law_of(int i)
{
  for (size_t t = 0; t < TABLES; t++)
    for (const struct law *l = tables[t]; l->name; l++)
      if (i-- == 0)
        return l;
  return NULL;
}

int law_count(void)
{
  int n = 0;
  while (law_of(n))
    n++;
  return n;
}

const char *law_name(int i)
{
  const struct law *l = law_of(i);
  return l ? l->name : NULL;
}

/* ---- how much work ----------------------------------------------------------------------------
 */

#define LOOKS 1e8       /* pairs of a row and a key that a law may look at */
#define FEW_SCORES 256. /* a token */

/* Of op=rope, which has none, elements of the operands. */
static double scores_of(const struct attn_problem *p)
{
  double rows = (double)(attn_problem_total_q(p) * p->hq + attn_problem_total_k(p) * p->hkv);
  if (p->op == ATTN_ROPE)
    return rows * (double)(p->d + p->dv);
  return attn_problem_pairs(p) * (double)p->hq;
}

static double looks_of(const struct attn_problem *p)
{
  double looks = 0;
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk;
    attn_problem_seq(p, s, &sq, &sk);
    looks += (double)p->hq * (double)sq * (double)sk;
  }
  return looks;
}

static bool is_short(const struct attn_problem *p, const struct law_subject *subject)
{
  return scores_of(p) <= subject->scores_max;
}

static int64_t stride_of(const struct attn_problem *p, const struct law_subject *subject)
{
  double looks = is_short(p, subject) ? 0 : looks_of(p);
  return looks <= LOOKS ? 1 : 1 + (int64_t)(looks / LOOKS);
}

/* NULL, or why a law of so many runs is not tried. */
static const char *too_long(const struct attn_problem *p, const struct law_subject *subject,
                            int runs)
{
  double queries = (double)(attn_problem_total_q(p) * p->hq);
  double keys = (double)(attn_problem_total_k(p) * p->hkv), width = (double)(p->d + p->dv);
  double work = (1 + runs) * width * (scores_of(p) / 4 + 8 * (queries + keys));
  if (is_short(p, subject))
    return NULL;
  if (p->op == ATTN_ROPE)
    return "too many elements to rotate";
  if (p->op == ATTN_BWD)
    return "backward of many scores: its laws look at all of them";
  if (scores_of(p) > FEW_SCORES * (queries + keys))
    return "too many scores a token";
  return work > subject->work_max ? "too many tokens for the runs that it takes" : NULL;
}

const char *law_too_long(const struct attn_problem *p, const struct law_subject *subject, int i)
{
  return too_long(p, subject, law_of(i)->runs);
}

static int score_unit(const struct attn_problem *p, const struct attn_numerics *num, double *unit)
{
  struct ref_problem r;
  int status = law_open(p, num, &r);
  if (status)
    return status;
  *unit = r.units.score;
  ref_close(&r);
  return ATTN_OK;
}

/* The base runs twice: what does not repeat its bits is not asked for bits. */
static int bench_open(struct law_bench *b, const struct attn_problem *p,
                      const struct law_subject *subject)
{
  struct law_set again;
  memset(b, 0, sizeof *b);
  b->subject = subject;
  b->stride = stride_of(p, subject);
  int status = score_unit(p, subject->numerics, &b->score_unit);
  if (!status)
    status = law_set_make(&b->base, p, false);
  if (status)
    return status;
  subject->fill(subject->ctx, &b->base);
  status = law_set_forward(&b->base);
  if (!status)
    status = law_run(b, &b->base);
  if (!status)
    status = law_set_like(&again, p, &b->base, NULL, NULL, false);
  if (status)
    goto out;
  status = law_run(b, &again);
  for (int op = 0; op < LAW_OPERANDS; op++)
    b->repeats[op] = !subject->unordered && law_same_bits(&b->base, &again, op);
  law_set_free(&again);
out:
  if (status)
    law_set_free(&b->base);
  return status;
}

/* Those whose numbers e4m3 holds, or that go by what it holds. */
static bool knows_eight_bit(const struct law *l)
{
  static const char *const those[] = {"equal-scores", "one-hot",    "dominating-lse", "unseen-keys",
                                      "unseen-huge",  "strides",    "layout",         "batch-order",
                                      "head-order",   "one-by-one", "last-row",       "value-range",
                                      "page-size",    "unshared",   "shorter-prefix"};
  for (const struct law *r = law_eight_bit; r->name; r++)
    if (r == l)
      return true;
  for (size_t i = 0; i < sizeof those / sizeof *those; i++)
    if (!strcmp(l->name, those[i]))
      return true;
  return false;
}

/* op=rope has laws of its own, and those about where things lie. */
static bool concerns(const struct law *l, const struct law_bench *b)
{
  static const char *const of_both[] = {"strides", "batch-order", "head-order"};
  bool own = false, both = false;
  for (const struct law *r = law_rotations; r->name; r++)
    own = own || r == l;
  for (size_t i = 0; i < sizeof of_both / sizeof *of_both; i++)
    both = both || !strcmp(l->name, of_both[i]);
  if (b->base.p.kv && !knows_eight_bit(l))
    return false;
  return (both || own == (b->base.p.op == ATTN_ROPE)) && l->applies(b);
}

int law_check(const struct attn_problem *p, const struct law_subject *subject,
              struct law_result result[LAWS_MAX])
{
  struct law_bench b;
  for (int i = 0; i < LAWS_MAX; i++)
    result[i] = (struct law_result){LAW_NONE, ""};
  if (too_long(p, subject, 1)) {
    for (int i = 0; law_of(i); i++)
      result[i].state = LAW_UNTRIED;
    return ATTN_OK;
  }
  int status = bench_open(&b, p, subject);
  if (status)
    return law_refused(status);
  for (int i = 0; law_of(i) && !status; i++) {
    if (!concerns(law_of(i), &b))
      continue;
    if (law_too_long(p, subject, i))
      result[i].state = LAW_UNTRIED;
    else
      status = law_of(i)->check(&b, &result[i]);
  }
  law_set_free(&b.base);
  return status;
}

/* ---- properties ------------------------------------------------------------------------------ */

static void first_sequence(const void *ctx, enum law_operand op, struct law_place *at)
{
}

int law_batch_invariance(const struct law_bench *b, int *answer)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  bool same = true;
  if (p.b < 2 || p.nruns || p.op == ATTN_BWD || p.op == ATTN_ROPE)
    return ATTN_OK;
  p.b = 1;
  int status = law_set_like(&y, &p, &b->base, first_sequence, NULL, false);
  if (status)
    return status;
  status = law_run(b, &y);
  for (struct law_place at = law_first(&y, LAW_O); !status && law_there(&y, &at) && same;
       law_next(&y, LAW_O, &at)) {
    same = law_get(&y, LAW_LSE, &at, 0) == law_get(&b->base, LAW_LSE, &at, 0);
    for (int64_t c = 0; c < p.dv; c++)
      same = same && law_get(&y, LAW_O, &at, c) == law_get(&b->base, LAW_O, &at, c);
  }
  if (!status)
    *answer = same;
  law_set_free(&y);
  return law_refused(status);
}

static bool sees_from(const struct law_set *s, const struct law_place *at, int64_t from)
{
  for (int64_t j = from; j < s->r.seqs[at->seq].sk; j++)
    if (law_sees(s, at->seq, at->row, j))
      return true;
  return false;
}

/* Do NaN in masked keys and between rows leave all other rows alone? */
static int nan_robustness(const struct law_bench *b, int *answer)
{
  struct law_set y;
  bool same = true;
  if (b->base.p.op == ATTN_BWD)
    return ATTN_OK;
  int status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, true);
  if (status)
    return status;
  law_fill_gaps(&y, 0x7fffdead);
  for (int op = LAW_K; op <= LAW_V; op++)
    for (struct law_place at = law_first(&y, op); law_there(&y, &at); law_next(&y, op, &at))
      for (int64_t c = 0; b->base.p.mask && c < law_width(&y, op); c++)
        if (at.row >= y.r.seqs[at.seq].sk / 2)
          law_put(&y, op, &at, c, NAN);
  status = law_run(b, &y);
  for (struct law_place at = law_first(&y, LAW_O); !status && law_there(&y, &at) && same;
       law_next(&y, LAW_O, &at)) {
    if (b->base.p.mask && sees_from(&y, &at, y.r.seqs[at.seq].sk / 2))
      continue;
    for (int64_t c = 0; c < y.p.dv; c++)
      same = same && law_get(&y, LAW_O, &at, c) == law_get(&b->base, LAW_O, &at, c);
  }
  if (!status)
    *answer = same;
  law_set_free(&y);
  return law_refused(status);
}

int law_observe(const struct attn_problem *p, const struct law_subject *subject,
                struct law_properties *out)
{
  struct law_bench b;
  *out = (struct law_properties){-1, -1, ""};
  if (p->op == ATTN_ROPE || too_long(p, subject, 1) || stride_of(p, subject) > 1)
    return ATTN_OK;
  int status = bench_open(&b, p, subject);
  if (status)
    return law_refused(status);
  status = law_batch_invariance(&b, &out->batch_invariant);
  if (!status)
    status = nan_robustness(&b, &out->nan_robust);
  if (!status)
    status = law_reduction(&b, out->reduction, sizeof out->reduction);
  law_set_free(&b.base);
  return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) */
uint64_t law_hash(uint64_t seed, uint64_t i)
{
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Four uniform numbers added up: variance 4/12, scaled to 1. */
double law_random(uint64_t seed, uint64_t i)
{
  uint64_t u = law_hash(seed, i);
  uint32_t sum = (uint32_t)(u & 0xffff) + (uint32_t)(u >> 16 & 0xffff) +
                 (uint32_t)(u >> 32 & 0xffff) + (uint32_t)(u >> 48);
  return ((double)sum - 131070) * (1.7320508075688772 / 65536);
}
