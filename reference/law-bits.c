/* SPDX-License-Identifier: Apache-2.0
 *
 * law-bits.c - laws that hold bit for bit, forward and backward.
 *
 * An output that does not repeat its bits from run to run (sums by atomics) is left out of them.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "reference/law.h"

static void compare_all(const struct law_bench *b, const struct law_set *y, law_match *match,
                        const void *ctx, struct law_result *res)
{
  for (int op = 0; op < LAW_OPERANDS; op++)
    law_compare_bits(b, &b->base, y, op, 1, match, ctx, res);
}

static int clone(const struct law_bench *b, struct law_set *y)
{
  return law_set_like(y, &b->base.p, &b->base, NULL, NULL, false);
}

static bool always(const struct law_bench *b)
{
  return true;
}

/* Numbers of the problem's type keep their bits when scores or dS are scaled by two: not where a
 * 16-bit format with subnormals holds them. */
static bool scales_exactly(const struct law_bench *b)
{
  const struct attn_numerics *num = b->subject->numerics;
  bool stored = num->score == ATTN_ROUND_STORAGE || num->grad == ATTN_ROUND_STORAGE ||
                (b->base.p.op == ATTN_BWD && num->prob == ATTN_ROUND_STORAGE);
  return !(b->base.p.dtype == ATTN_F16 && stored);
}

/* Doubles one input; outputs change by the factors given, the others not at all. */
static int doubled(struct law_bench *b, enum law_operand op, const struct attn_problem *p,
                   const double by[LAW_OPERANDS], struct law_result *res)
{
  struct law_set y;
  int status = law_set_like(&y, p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  law_scale(&y, op, 2);
  if (op == LAW_V && p->op == ATTN_BWD)
    law_scale(&y, LAW_O, 2);
  status = law_run(b, &y);
  for (int o = 0; o < LAW_OPERANDS && !status; o++)
    law_compare_bits(b, &b->base, &y, o, by[o] != 0 ? by[o] : 1, NULL, NULL, res);
  law_set_free(&y);
  return law_refused(status);
}

/* Precondition: no overflow and no subnormals. V * 2 makes O * 2, LSE the same; dQ * 2, dK * 2, dV
 * the same. */
static int value_power(struct law_bench *b, struct law_result *res)
{
  static const double by[LAW_OPERANDS] = {[LAW_O] = 2, [LAW_DQ] = 2, [LAW_DK] = 2};
  return doubled(b, LAW_V, &b->base.p, by, res);
}

/* Precondition: likewise. Q * 2 and scale / 2 change nothing but dQ, which halves. */
static int query_power(struct law_bench *b, struct law_result *res)
{
  static const double by[LAW_OPERANDS] = {[LAW_DQ] = 0.5};
  struct attn_problem p = b->base.p;
  p.scale = attn_problem_scale(&p) / 2;
  return doubled(b, LAW_Q, &p, by, res);
}

static bool scales_backward(const struct law_bench *b)
{
  return scales_exactly(b) && b->base.p.op == ATTN_BWD;
}

/* Precondition: likewise. dO * 2 makes all gradients * 2. */
static int gradient_power(struct law_bench *b, struct law_result *res)
{
  static const double by[LAW_OPERANDS] = {[LAW_DQ] = 2, [LAW_DK] = 2, [LAW_DV] = 2};
  return doubled(b, LAW_DOUT, &b->base.p, by, res);
}

/* ---- what a row does not see ----------------------------------------------------------------- */

/* Keys [from, to) of each sequence, in parts of its length. */
struct changed {
  const struct law_bench *b;
  const struct law_set *s;
  double from, to;
  bool queries; /* of the queries, that is */
};

static bool in_part(const struct changed *x, int64_t i, int64_t n)
{
  int64_t from = (int64_t)(x->from * (double)n), to = x->to < 1 ? (int64_t)(x->to * (double)n) : n;
  return i >= from && i < to;
}

/* Rows of queries that see no changed key; nothing else. */
static bool unaffected(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct changed *x = ctx;
  const struct ref_seq *q = &x->s->r.seqs[at->seq];
  if (op == LAW_DK || op == LAW_DV || !law_looks(x->b, at))
    return false;
  for (int64_t j = 0; j < q->sk; j++)
    if (in_part(x, j, q->sk) && law_sees(x->s, at->seq, at->row, j))
      return false;
  return true;
}

/* Keys that no changed query sees. */
static bool unaffected_keys(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct changed *x = ctx;
  const struct ref_seq *q = &x->s->r.seqs[at->seq];
  if (op != LAW_DK && op != LAW_DV)
    return false;
  for (int64_t i = 0; i < q->sq; i++)
    if (in_part(x, i, q->sq) && law_sees(x->s, at->seq, i, at->row))
      return false;
  return true;
}

/* huge 0: other random numbers. */
static void change(const struct law_bench *b, struct law_set *y, const struct changed *x,
                   enum law_operand op, double huge)
{
  for (struct law_place at = law_first(y, op); law_there(y, &at); law_next(y, op, &at)) {
    if (!in_part(x, at.row, law_rows(y, op, at.seq)))
      continue;
    int64_t from = law_at(y, op, &at), n = law_width(y, op);
    for (int64_t i = from; i < from + n; i++) {
      double z = law_random(b->subject->seed + 77 + op, (uint64_t)i);
      law_store(y, op, i, huge > 0 ? copysign(huge, z) : z);
    }
  }
}

static int change_part(struct law_bench *b, struct changed x, double huge, struct law_result *res)
{
  struct law_set y;
  int status = clone(b, &y);
  if (status)
    return status;
  x.b = b;
  x.s = &b->base;
  change(b, &y, &x, x.queries ? LAW_Q : LAW_K, huge);
  change(b, &y, &x, x.queries ? LAW_DOUT : LAW_V, huge);
  status = law_set_forward(&y);
  if (!status)
    status = law_run(b, &y);
  if (!status)
    compare_all(b, &y, x.queries ? unaffected_keys : unaffected, &x, res);
  law_set_free(&y);
  return law_refused(status);
}

static int change_parts(struct law_bench *b, bool queries, double huge, struct law_result *res)
{
  double t = (double)(law_hash(b->subject->seed, 3) % 1000) / 1000;
  const struct changed parts[] = {{NULL, NULL, 0.5, 1, queries},
                                  {NULL, NULL, 0, 0.5, queries},
                                  {NULL, NULL, t, 1, queries},
                                  {NULL, NULL, 0, t, queries}};
  int status = ATTN_OK;
  for (int i = 0; i < 4 && !status && res->state != LAW_FAIL; i++)
    status = change_part(b, parts[i], huge, res);
  return status;
}

/* A part of one sequence's keys may be another's, if pages are shared and lengths differ. */
static bool masks(const struct law_bench *b)
{
  return b->base.p.mask != ATTN_MASK_NONE && !(b->base.p.prefix && b->base.p.nruns);
}

/* Precondition: a mask. Rows that see none of the keys that change keep their bits: O, LSE, dQ. */
static int unseen_keys(struct law_bench *b, struct law_result *res)
{
  return change_parts(b, false, 0, res);
}

/* Precondition: a mask. The same with huge finite numbers in the keys that change. */
static int unseen_huge(struct law_bench *b, struct law_result *res)
{
  return change_parts(b, false, b->base.p.dtype == ATTN_F16 ? 16384 : 0x1p50, res);
}

static bool masks_backward(const struct law_bench *b)
{
  return masks(b) && b->base.p.op == ATTN_BWD;
}

/* Precondition: a mask, backward. dK and dV of keys that no changed query sees keep their bits. */
static int unseen_queries(struct law_bench *b, struct law_result *res)
{
  return change_parts(b, true, 0, res);
}

/* ---- layout and order ------------------------------------------------------------------------ */

/* Every tensor has strides of its own, huge finite numbers lie between its rows, and the strides of
 * axes of size 1 are arbitrary: the bits stay, and nothing is written between rows. What is
 * planned for the layout's own strides alone may refuse others. */
static int strides(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  enum law_operand op;
  int status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, true);
  if (status)
    return status;
  law_fill_gaps(&y, b->base.p.dtype == ATTN_F16 ? 0x7b007b00 : 0x70007000);
  status = law_run(b, &y);
  if (!status)
    compare_all(b, &y, NULL, NULL, res);
  if (!status && res->state != LAW_FAIL && !law_gaps_kept(&y, &op)) {
    res->state = LAW_FAIL;
    snprintf(res->text, sizeof res->text, "%s: something was written between its rows",
             law_operand_name(op));
  }
  law_set_free(&y);
  return law_refused(status);
}

struct order {
  const struct law_set *s;
  bool heads;
};

/* Heads that share a key head stay together and in order, which their sums depend on. */
static void reversed(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct order *x = ctx;
  int64_t hkv = x->s->p.hkv, share = law_heads(x->s, op) / hkv;
  if (x->heads)
    at->head = (hkv - 1 - at->head / share) * share + at->head % share;
  else
    at->seq = x->s->p.b - 1 - at->seq;
}

static bool reversed_match(const void *ctx, enum law_operand op, struct law_place *at)
{
  reversed(ctx, op, at);
  return true;
}

static int reverse(struct law_bench *b, bool heads, bool bits, struct law_result *res)
{
  struct law_set y;
  struct order x = {&b->base, heads};
  int status = law_set_like(&y, &b->base.p, &b->base, reversed, &x, false);
  if (status)
    return status;
  status = law_run(b, &y);
  if (!status && bits)
    compare_all(b, &y, reversed_match, &x, res);
  else if (!status)
    status = law_compare(b, &b->base, &y, reversed_match, &x, NULL, res);
  law_set_free(&y);
  return law_refused(status);
}

static bool several_sequences(const struct law_bench *b)
{
  const struct attn_problem *p = &b->base.p;
  return p->b > 1 && p->nruns == 0 && p->dropout_p == 0;
}

/* Whether the order of sequences and heads leaves the bits alone. Decode may cut the keys of a
 * whole batch into one share for each multiprocessor: then a row's sums depend on its place. */
static int order_keeps_bits(const struct law_bench *b, bool *bits)
{
  enum attn_op op = b->base.p.op;
  int invariant = op != ATTN_DECODE && op != ATTN_APPEND;
  int status = law_batch_invariance(b, &invariant);
  *bits = invariant;
  return status;
}

/* Precondition: a uniform batch, no dropout. The sequences in reverse give the outputs in reverse.
 */
static int batch_order(struct law_bench *b, struct law_result *res)
{
  bool bits;
  int status = order_keeps_bits(b, &bits);
  return status ? status : reverse(b, false, bits, res);
}

static bool several_heads(const struct law_bench *b)
{
  const struct attn_problem *p = &b->base.p;
  return p->hkv > 1 && !p->alibi && p->dropout_p == 0;
}

/* Precondition: no ALiBi, no dropout. The key heads in reverse, each with
 * its query heads, give the outputs in reverse. */
static int head_order(struct law_bench *b, struct law_result *res)
{
  bool bits;
  int status = order_keeps_bits(b, &bits);
  return status ? status : reverse(b, true, bits, res);
}

const struct law law_bits[] = {{"value-power", scales_exactly, value_power, 1},
                               {"query-power", scales_exactly, query_power, 1},
                               {"gradient-power", scales_backward, gradient_power, 1},
                               {"unseen-keys", masks, unseen_keys, 4},
                               {"unseen-huge", masks, unseen_huge, 4},
                               {"unseen-queries", masks_backward, unseen_queries, 4},
                               {"strides", always, strides, 1},
                               {"batch-order", several_sequences, batch_order, 1},
                               {"head-order", several_heads, head_order, 1},
                               {NULL, NULL, NULL, 0}};
