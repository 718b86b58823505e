/* SPDX-License-Identifier: Apache-2.0
 *
 * law-eight-bit.c - laws of caches that hold e4m3: the numbers are what the format says, whichever
 * code, and the scales of the heads act as factors.
 */
#include "config.h"

#include "reference/law.h"

#define HEADS 2 /* whose scales change in turn */

static bool eight_bit(const struct law_bench *b)
{
  return b->base.p.kv == ATTN_KV_E4M3;
}

/* Precondition: an e4m3 cache. The same numbers in a cache of the problem's type: the same. */
static int as_numbers(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.kv = ATTN_KV_DTYPE;
  int status = law_set_like(&y, &p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  status = law_run(b, &y);
  if (!status)
    status = law_compare(b, &b->base, &y, NULL, NULL, NULL, res);
  law_set_free(&y);
  return law_refused(status);
}

struct of_head {
  int64_t head, group;
};

static bool of_kv_head(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct of_head *x = ctx;
  return at->head / x->group == x->head;
}

static void double_queries(struct law_set *y, const struct of_head *x)
{
  for (struct law_place at = law_first(y, LAW_Q); law_there(y, &at); law_next(y, LAW_Q, &at))
    for (int64_t c = 0, i = law_at(y, LAW_Q, &at); at.head / x->group == x->head && c < y->p.d; c++)
      law_store(y, LAW_Q, i + c, 2 * law_load(y, LAW_Q, i + c));
}

/* Precondition: likewise. The keys' scale of one key head halved, its queries doubled: the same
 * bits of O and LSE. */
static int key_scale(struct law_bench *b, struct law_result *res)
{
  struct of_head x = {0, b->base.r.shape.group};
  int status = ATTN_OK;
  for (; x.head < b->base.p.hkv && x.head < HEADS && !status; x.head++) {
    struct law_set y;
    status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
    if (status)
      return status;
    y.scale[0][x.head] /= 2;
    double_queries(&y, &x);
    status = law_run(b, &y);
    for (int op = 0; op < LAW_OPERANDS && !status; op++)
      law_compare_bits(b, &b->base, &y, op, 1, NULL, NULL, res);
    law_set_free(&y);
  }
  return law_refused(status);
}

/* Precondition: likewise. The values' scale of one key head doubled: O of its query heads doubles,
 * every other O keeps its bits, and so does LSE. */
static int value_scale(struct law_bench *b, struct law_result *res)
{
  struct of_head x = {0, b->base.r.shape.group};
  int status = ATTN_OK;
  for (int64_t loud = 0; loud < b->base.p.hkv && loud < HEADS && !status; loud++) {
    struct law_set y;
    status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
    if (status)
      return status;
    y.scale[1][loud] *= 2;
    status = law_run(b, &y);
    for (x.head = 0; x.head < b->base.p.hkv && !status; x.head++) {
      law_compare_bits(b, &b->base, &y, LAW_O, x.head == loud ? 2 : 1, of_kv_head, &x, res);
      law_compare_bits(b, &b->base, &y, LAW_LSE, 1, of_kv_head, &x, res);
    }
    law_set_free(&y);
  }
  return law_refused(status);
}

/* ---- every code ------------------------------------------------------------------------------ */

#define CODES 256
#define NAN_CODE 0x7f /* and with the sign */

/* Less than half of what lies between two codes, and more than any rounding. */
#define APART 0x1p-6

static bool keeps_values(const struct law_bench *b)
{
  return eight_bit(b) && b->base.p.dropout_p == 0;
}

/* Column c of all keys has the same code. */
static void fill_codes(struct law_set *y, int round)
{
  for (struct law_place at = law_first(y, LAW_V); law_there(y, &at); law_next(y, LAW_V, &at))
    for (int64_t c = 0, i = law_at(y, LAW_V, &at); c < y->p.dv; c++) {
      int code = (int)(round + c) % CODES;
      ((uint8_t *)y->t[LAW_V].data)[i + c] = (code & NAN_CODE) == NAN_CODE ? 0 : (uint8_t)code;
    }
}

static bool is_code(const struct law_set *y, const struct law_place *at, struct law_result *res)
{
  struct law_place key = {at->seq, at->head / y->r.shape.group, 0};
  if (!law_visible(y, at->seq, at->row))
    return true;
  for (int64_t c = 0; c < y->p.dv; c++) {
    double want = law_get(y, LAW_V, &key, c);
    if (!law_near(res, "o", at, c, law_get(y, LAW_O, at, c), want, APART * fabs(want)))
      return false;
  }
  return true;
}

/* Precondition: an e4m3 cache, no dropout. Values alike in all keys: O, a mean of them, is their
 * number, so near that it is no other code's. Every code but NaN in turn. */
static int codes(struct law_bench *b, struct law_result *res)
{
  int status = ATTN_OK;
  int64_t step = b->base.p.dv < CODES ? b->base.p.dv : CODES;
  for (int round = 0; round < CODES && !status && res->state != LAW_FAIL; round += (int)step) {
    struct law_set y;
    status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
    if (status)
      return status;
    fill_codes(&y, round);
    status = law_run(b, &y);
    struct law_place at = law_first(&y, LAW_O);
    for (; !status && law_there(&y, &at); law_next(&y, LAW_O, &at))
      if (!is_code(&y, &at, res))
        break;
    law_set_free(&y);
  }
  return law_refused(status);
}

const struct law law_eight_bit[] = {{"e4m3-as-numbers", eight_bit, as_numbers, 1},
                                    {"e4m3-key-scale", eight_bit, key_scale, 2},
                                    {"e4m3-value-scale", eight_bit, value_scale, 2},
                                    {"e4m3-codes", keeps_values, codes, 4},
                                    {NULL, NULL, NULL, 0}};
