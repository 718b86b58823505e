/* SPDX-License-Identifier: Apache-2.0
 *
 * law-relation.c - laws of forward that hold within bounds: two runs, or one run and its inputs.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reference/law.h"

static bool forward(const struct law_bench *b)
{
  return b->base.p.op != ATTN_BWD;
}

static bool no_dropout(const struct law_bench *b)
{
  return forward(b) && b->base.p.dropout_p == 0;
}

/* Keys may be moved, repeated and split; not those that sequences share. */
static bool keys_alike(const struct law_bench *b)
{
  const struct attn_problem *p = &b->base.p;
  return no_dropout(b) && p->mask == ATTN_MASK_NONE && !p->alibi && p->nruns == 0 && p->sk > 0 &&
         !p->prefix;
}

/* Runs y and compares it with the base; frees y. */
static int conclude(struct law_bench *b, struct law_set *y, int status, law_match *match,
                    const void *ctx, double (*shift)(const void *, const struct law_place *),
                    struct law_result *res)
{
  if (status)
    return status; /* no set was made */
  status = law_run(b, y);
  if (!status)
    status = law_compare(b, &b->base, y, match, ctx, shift, res);
  law_set_free(y);
  return law_refused(status);
}

/* ---- order, repetition, shifts --------------------------------------------------------------- */

static void backwards(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct law_set *s = ctx;
  if (op == LAW_K || op == LAW_V)
    at->row = s->p.sk - 1 - at->row;
}

/* Precondition: no mask, ALiBi or dropout. The order of the keys does not matter. */
static int key_order(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  int status = law_set_like(&y, &b->base.p, &b->base, backwards, &b->base, false);
  return conclude(b, &y, status, NULL, NULL, NULL, res);
}

static void again(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct law_set *s = ctx;
  if (op == LAW_K || op == LAW_V)
    at->row %= s->p.sk;
}

static double ln2(const void *ctx, const struct law_place *at)
{
  return M_LN2;
}

/* Precondition: as above. Every key twice: O the same, LSE + ln 2. */
static int keys_twice(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.sk *= 2;
  int status = law_set_like(&y, &p, &b->base, again, &b->base, false);
  return conclude(b, &y, status, NULL, NULL, ln2, res);
}

#define SHIFT 2.0 /* what is added to one element of every key */

static double shift_of(const void *ctx, const struct law_place *at)
{
  const struct law_set *s = ctx;
  return s->r.shape.scale * SHIFT * law_get(s, LAW_Q, at, s->p.d - 1);
}

static bool shifts(const struct law_bench *b)
{
  return no_dropout(b) && b->base.p.softcap == 0;
}

/* Precondition: no softcap, no dropout. The last element of every key is 0, then SHIFT: O the same,
 * LSE + scale * SHIFT * q. */
static int logit_shift(struct law_bench *b, struct law_result *res)
{
  struct law_set x, y;
  int status = law_set_like(&x, &b->base.p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
  if (status)
    goto out;
  for (struct law_place at = law_first(&x, LAW_K); law_there(&x, &at); law_next(&x, LAW_K, &at)) {
    law_put(&x, LAW_K, &at, x.p.d - 1, 0);
    law_put(&y, LAW_K, &at, x.p.d - 1, SHIFT);
  }
  status = law_run(b, &x);
  if (!status)
    status = law_run(b, &y);
  if (!status)
    status = law_compare(b, &x, &y, NULL, &x, shift_of, res);
  law_set_free(&y);
out:
  law_set_free(&x);
  return law_refused(status);
}

/* ---- heads, layouts, batches ----------------------------------------------------------------- */

static void own_head(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct law_set *s = ctx;
  if (op == LAW_K || op == LAW_V)
    at->head /= s->r.shape.group;
}

static bool shares_heads(const struct law_bench *b)
{
  return forward(b) && b->base.p.hq != b->base.p.hkv;
}

/* Precondition: query heads share key heads. A copy of the keys for every query head: the same. */
static int expanded_heads(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.hkv = p.hq;
  int status = law_set_like(&y, &p, &b->base, own_head, &b->base, false);
  return conclude(b, &y, status, NULL, NULL, NULL, res);
}

static bool uniform(const struct law_bench *b)
{
  return forward(b) && b->base.p.nruns == 0;
}

/* Precondition: a uniform batch. Another layout of the same numbers: the same. */
static int layout(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.layout = p.layout == ATTN_BHSD ? ATTN_BSHD : ATTN_BHSD;
  int status = law_set_like(&y, &p, &b->base, NULL, NULL, false);
  return conclude(b, &y, status, NULL, NULL, NULL, res);
}

struct one {
  int64_t seq;
};

static void from_one(const void *ctx, enum law_operand op, struct law_place *at)
{
  at->seq = ((const struct one *)ctx)->seq;
}

static bool to_one(const void *ctx, enum law_operand op, struct law_place *at)
{
  bool mine = at->seq == ((const struct one *)ctx)->seq;
  at->seq = 0;
  return mine;
}

static bool batched(const struct law_bench *b)
{
  return no_dropout(b) && b->base.p.b > 1;
}

/* Precondition: several sequences, no dropout. Each sequence alone: the same. */
static int one_by_one(struct law_bench *b, struct law_result *res)
{
  int status = ATTN_OK;
  for (int64_t n = 0; n < b->base.p.b && !status && res->state != LAW_FAIL; n++) {
    struct law_set y;
    struct one x = {n};
    struct attn_problem p = b->base.p;
    p.b = 1;
    p.sq = b->base.r.seqs[n].sq;
    p.sk = b->base.r.seqs[n].sk;
    if (p.nruns) {
      p.nruns = 0;
      p.layout = ATTN_BSHD;
    }
    if (p.sq == 0 || p.sk == 0)
      continue;
    status = law_set_like(&y, &p, &b->base, from_one, &x, false);
    status = conclude(b, &y, status, to_one, &x, NULL, res);
  }
  return status;
}

static void last(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct law_set *s = ctx;
  if (op == LAW_Q)
    at->row = s->p.sq - 1;
}

static bool is_last(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct law_set *s = ctx;
  bool yes = at->row == s->p.sq - 1;
  at->row = 0;
  return yes;
}

static bool aligned_below(const struct law_bench *b)
{
  const struct attn_problem *p = &b->base.p;
  return no_dropout(b) && p->mask != ATTN_MASK_CAUSAL_TOPLEFT && p->nruns == 0 && p->sq > 1;
}

/* Precondition: a uniform batch, the last query aligned with the last key, no dropout. The last
 * query alone: the same. */
static int last_row(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.sq = 1;
  int status = law_set_like(&y, &p, &b->base, last, &b->base, false);
  return conclude(b, &y, status, is_last, &b->base, NULL, res);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static void behind(const void *ctx, enum law_operand op, struct law_place *at)
{
  if (op == LAW_K || op == LAW_V)
    at->row += *(const int64_t *)ctx;
}

/* O and LSE of two halves, merged in fp64, against those of the whole. */
static bool merged(const struct law_bench *b, const struct law_set part[2],
                   const struct law_bounds t[3], const struct law_place *at, struct law_result *res)
{
  int64_t i = ref_stats_index(&b->base.r, at->seq, at->head, at->row);
  double l0 = law_get(&part[0], LAW_LSE, at, 0), l1 = law_get(&part[1], LAW_LSE, at, 0);
  double m = fmax(l0, l1), lse = m + log(exp(l0 - m) + exp(l1 - m));
  double w0 = exp(l0 - lse), w1 = exp(l1 - lse), apart = t[0].lse[i] + t[1].lse[i];
  if (!law_near(res, "lse", at, 0, law_get(&b->base, LAW_LSE, at, 0), lse, apart + t[2].lse[i]))
    return false;
  int64_t of[2] = {law_at(&part[0], LAW_O, at), law_at(&part[1], LAW_O, at)};
  for (int64_t c = 0; c < b->base.p.dv; c++) {
    double o0 = law_load(&part[0], LAW_O, of[0] + c), o1 = law_load(&part[1], LAW_O, of[1] + c);
    double bound = t[0].o[i] + t[1].o[i] + t[2].o[i] + 2 * apart * (fabs(o0) + fabs(o1));
    if (!law_near(res, "o", at, c, law_get(&b->base, LAW_O, at, c), w0 * o0 + w1 * o1, bound))
      return false;
  }
  return true;
}

static bool splits(const struct law_bench *b)
{
  return keys_alike(b) && b->base.p.sk > 1;
}

static int merge(struct law_bench *b, struct law_set part[2], struct law_result *res)
{
  struct law_bounds t[3] = {{NULL}, {NULL}, {NULL}};
  const struct law_set *of[3] = {&part[0], &part[1], &b->base};
  int status = ATTN_OK;
  for (int i = 0; i < 3 && !status; i++)
    status = law_bounds_make(of[i], b->subject->numerics, &t[i]);
  struct law_place at = law_first(&b->base, LAW_O);
  for (; !status && law_there(&b->base, &at); law_next(&b->base, LAW_O, &at))
    if (!merged(b, part, t, &at, res))
      break;
  for (int i = 0; i < 3; i++)
    law_bounds_free(&t[i]);
  return status;
}

/* Precondition: no mask, ALiBi or dropout. The keys in two parts: O and LSE of the whole are those
 * of the parts, merged by their LSE. */
static int split_merge(struct law_bench *b, struct law_result *res)
{
  struct law_set part[2];
  struct attn_problem p[2] = {b->base.p, b->base.p};
  int64_t from[2] = {0,
                     1 + (int64_t)(law_hash(b->subject->seed, 5) % (uint64_t)(b->base.p.sk - 1))};
  int status = ATTN_OK, made = 0;
  p[0].sk = from[1];
  p[1].sk -= from[1];
  for (; made < 2 && !status; made += !status)
    status = law_set_like(&part[made], &p[made], &b->base, behind, &from[made], false);
  for (int i = 0; i < 2 && !status; i++)
    status = law_run(b, &part[i]);
  if (!status)
    status = merge(b, part, res);
  while (made-- > 0)
    law_set_free(&part[made]);
  return law_refused(status);
}

const struct law law_relations[] = {{"key-order", keys_alike, key_order, 1},
                                    {"keys-twice", keys_alike, keys_twice, 2},
                                    {"logit-shift", shifts, logit_shift, 2},
                                    {"expanded-heads", shares_heads, expanded_heads, 1},
                                    {"layout", uniform, layout, 1},
                                    {"one-by-one", batched, one_by_one, 1},
                                    {"last-row", aligned_below, last_row, 1},
                                    {"split-merge", splits, split_merge, 1},
                                    {NULL, NULL, NULL, 0}};
