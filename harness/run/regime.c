/* SPDX-License-Identifier: Apache-2.0
 *
 * regime.c - kinds of inputs. Each hides some mistakes and shows others: a wrong rescaling needs a
 * maximum that moves, a wrong mask needs keys that matter, a sum in 16 bits needs values with a
 * mean.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/regime.h"
#include "impl/convert.h"

static void scale(float *x, int64_t n, double by)
{
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(x[i] * by);
}

static void scores_x6(const struct attn_problem *p, enum operand op, double at, bool first,
                      int64_t n, float *x)
{
  if (op == OP_Q)
    scale(x, n, 6);
}

static void v_mean_8(const struct attn_problem *p, enum operand op, double at, bool first,
                     int64_t n, float *x)
{
  for (int64_t i = 0; op == OP_V && i < n; i++)
    x[i] += 8;
}

/* Adds logit to the scores of this key: the first element of q is 4, that of k follows. */
static void add_logit(const struct attn_problem *p, enum operand op, double logit, float *x)
{
  if (op == OP_Q)
    x[0] = 4;
  if (op == OP_K)
    x[0] = (float)(logit / (4 * attn_problem_scale(p)));
}

static void sink(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                 float *x)
{
  add_logit(p, op, first ? 12 : 0, x);
  if (op == OP_V && first)
    scale(x, n, 1 / 16.0);
}

static void rising(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                   float *x)
{
  add_logit(p, op, 40 * at, x);
}

static void falling(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                    float *x)
{
  add_logit(p, op, 40 * (1 - at), x);
}

static void large(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                  float *x)
{
  if (op <= OP_K)
    scale(x, n, 32);
}

/* All scores are near -55000: below what is taken for minus infinity in places. */
static void low(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                float *x)
{
  double k = 55000 / (32 * (double)p->d * attn_problem_scale(p));
  for (int64_t i = 0; op <= OP_K && i < n; i++)
    x[i] = op == OP_Q ? 32 : (float)(-k * (1 + x[i] / 64));
}

static void subnormal(const struct attn_problem *p, enum operand op, double at, bool first,
                      int64_t n, float *x)
{
  if (op == OP_V)
    scale(x, n, p->dtype == ATTN_F16 ? 0x1p-18 : 0x1p-128);
}

static const struct regime regimes[] = {
    {"normal", "standard normal numbers", NULL},
    {"scores-x6", "queries six times as large: few keys win", scores_x6},
    {"v-mean-8", "values around 8: sums grow", v_mean_8},
    {"sink", "the first key takes nearly all weight, and has small values", sink},
    {"rising", "logits rise by 40 along the keys: the maximum moves in every tile", rising},
    {"falling", "logits fall by 40 along the keys: the maximum is found first", falling},
    {"large", "logits of a thousand", large},
    {"low", "all logits near -55000", low},
    {"subnormal", "values below the normal range", subnormal},
};
#define REGIMES ((int)(sizeof regimes / sizeof *regimes))

const struct regime *regime_at(int i)
{
  return i >= 0 && i < REGIMES ? &regimes[i] : NULL;
}

const struct regime *regime_find(const char *name)
{
  for (int i = 0; i < REGIMES; i++)
    if (!strcmp(regimes[i].name, name))
      return &regimes[i];
  return NULL;
}

/* Rows of a dense operand: sequences, their lengths, heads, elements. Of a paged pool the pages are
 * sequences. */
struct rows {
  int64_t n, heads, width;
  bool query, pool;
};

static int64_t length_of(const struct attn_problem *p, const struct rows *r, int64_t seq)
{
  int64_t sq, sk;
  if (r->pool)
    return p->page;
  attn_problem_seq(p, seq, &sq, &sk);
  return r->query ? sq : sk;
}

/* One row of one head, whose stored numbers mean themselves times factor. */
static void apply_row(const struct regime *r, const struct tensors *t, enum operand op,
                      int64_t from, const struct rows *rows, int64_t row, int64_t len, float factor,
                      float *x)
{
  enum attn_dtype type = operand_type(t->p, op);
  for (int64_t c = 0; c < rows->width; c++)
    x[c] = factor * attn_load(type, t->host[op], from + c);
  enum operand like = op == OP_K_NEW ? OP_K : op == OP_V_NEW ? OP_V : op;
  r->change(t->p, like, len > 1 ? (double)row / (double)(len - 1) : 1, row == 0, rows->width, x);
  for (int64_t c = 0; c < rows->width; c++)
    attn_store(type, t->host[op], from + c, x[c] / factor);
}

void regime_apply(const struct regime *r, struct tensors *tensors, enum operand op)
{
  const struct attn_problem *p = tensors->p;
  const float *scale = op == OP_K   ? tensors->host_scale[0]
                       : op == OP_V ? tensors->host_scale[1]
                                    : NULL;
  struct attn_tensor t = operand_strides(p, op);
  bool heads = op == OP_Q || op == OP_DOUT, fresh = op == OP_K_NEW || op == OP_V_NEW;
  bool keyed = op == OP_Q || op == OP_K || op == OP_K_NEW;
  struct rows rows = {p->b, heads ? p->hq : p->hkv, keyed ? p->d : p->dv, heads || fresh, false};
  rows.pool = p->page && !rows.query;
  rows.n = rows.pool ? tensors_pool_pages(p) : p->b;
  float *x = r->change ? malloc((size_t)rows.width * sizeof *x) : NULL;
  for (int64_t seq = 0, before = 0; x && seq < rows.n; seq++) {
    int64_t len = length_of(p, &rows, seq), first = t.sb ? 0 : before;
    for (int64_t row = 0; row < len; row++)
      for (int64_t h = 0; h < rows.heads; h++) {
        int64_t from = seq * t.sb + (first + row) * t.ss + h * t.sh;
        apply_row(r, tensors, op, from, &rows, row, len, scale ? scale[h] : 1, x);
      }
    before += len;
  }
  free(x);
}
