/* SPDX-License-Identifier: Apache-2.0
 *
 * law-compare.c - bounds from norms, and the comparison of two runs.
 *
 * The bounds are those of reference/BOUNDS in their deterministic form, with every sum replaced by
 * what Cauchy and Schwarz allow: |q.k| and its rounding by |q||k|, sum w|v| by max |v|.  They cost
 * O(N d) and need no exact result; they are wider than those of the verdict, and laws look for
 * mistakes, not for roundings.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/law.h"

static double norm_of(const struct law_set *s, enum law_operand op, const struct law_place *at,
                      double *largest)
{
  int64_t from = law_at(s, op, at), n = law_width(s, op);
  double sum = 0, most = *largest;
  for (int64_t c = 0; c < n; c++) {
    double x = fabs(law_load(s, op, from + c));
    sum += x * x;
    most = x > most ? x : most;
  }
  *largest = most;
  return sqrt(sum);
}

/* Norms of the keys and values of one head. */
struct key_norms {
  double k, v, v_element; /* largest |k_j|, |v_j|, |v_jc| */
};

static struct key_norms keys_of(const struct law_set *s, int64_t seq, int64_t head)
{
  struct key_norms n = {0, 0, 0};
  double unused = 0;
  for (int64_t j = 0; j < s->r.seqs[seq].sk; j++) {
    struct law_place at = {seq, head, j};
    n.k = fmax(n.k, norm_of(s, LAW_K, &at, &unused));
    n.v = fmax(n.v, norm_of(s, LAW_V, &at, &n.v_element));
  }
  return n;
}

/* The error of any score of the row, and the largest |s|. */
static double score_error(const struct law_set *s, const struct ref_units *u, double reach,
                          const struct law_place *at, double *largest)
{
  const struct ref_shape *p = &s->r.shape;
  const struct ref_seq *q = &s->r.seqs[at->seq];
  double slope = p->alibi ? ref_alibi_slope(p->hq, at->head) : 0;
  double bias = slope * (double)(q->sq + q->sk), n = (double)q->sk;
  double capped = p->cap > 0 ? fmin(reach, p->cap) : reach, scale = fabs(p->scale);
  struct ref_score r = {reach, 0, bias, capped + bias};
  struct ref_dot qk = {reach / scale, reach / scale, reach / scale};
  *largest = capped + bias;
  struct ref_error e = ref_score_error(u, p, &r, &qk, *largest, n / 8 + 1, true);
  return e.det + (p->cap > 0 ? p->cap * (8 * REF_U + u->tanh_rel) : 0);
}

static void row_bounds(const struct law_set *s, const struct ref_units *u,
                       const struct key_norms *k, const struct law_place *at, struct law_bounds *t,
                       int64_t i)
{
  const struct ref_shape *p = &s->r.shape;
  double largest = 0, unused = 0, n = (double)s->r.seqs[at->seq].sk;
  double kept = p->drop_threshold < 65536 ? 65536.0 / (65536 - p->drop_threshold) : 0;
  t->reach[i] = fabs(p->scale) * norm_of(s, LAW_Q, at, &unused) * k->k;
  double e = score_error(s, u, t->reach[i], at, &largest), grown = expm1(fmin(2 * e, 600));
  double sums = (u->truncates ? 4 : 2) * (n + 8) * REF_U, v = kept * k->v_element;
  double o = v * (2 * grown + u->prob + n * fmax(u->eta, REF_TINY) + 2 * sums + u->descale);
  t->o[i] = o + u->store * (v + o) + u->floor;
  t->lse[i] =
      grown + (u->sum_of_rounded ? 2 * u->prob : 0) + sums + 8 * REF_U * (largest + log(n + 1) + 1);
  if (s->p.op != ATTN_BWD)
    return;
  double y = kept * norm_of(s, LAW_DOUT, at, &unused) * k->v;
  t->weight[i] = kept * (grown + 2 * largest * REF_U + u->prob + n * fmax(u->eta, REF_TINY) + sums);
  t->grad[i] = y * (4 * t->weight[i] + 2 * u->store + 2 * u->score +
                    4 * ((double)p->dv + 8) * REF_U * (u->truncates ? 2 : 1));
  if (p->cap > 0)
    t->grad[i] += 8 * y * (e / p->cap + u->tanh_rel + 4 * REF_U);
  t->total[i] = 2 * y;
}

int law_bounds_make(const struct law_set *s, const struct attn_numerics *num, struct law_bounds *t)
{
  struct ref_problem r;
  int status = law_open(&s->p, num, &r);
  if (status)
    return status;
  size_t rows = (size_t)(r.shape.total_q * r.shape.hq) + 1;
  memset(t, 0, sizeof *t);
  t->o = calloc(6 * rows, sizeof *t->o);
  if (!t->o) {
    ref_close(&r);
    return ATTN_ENOMEM;
  }
  t->lse = t->o + rows;
  t->reach = t->lse + rows;
  t->weight = t->reach + rows;
  t->grad = t->weight + rows;
  t->total = t->grad + rows;
  struct key_norms k = {0, 0, 0};
  for (int64_t seq = 0; seq < r.shape.b; seq++)
    for (int64_t h = 0; h < r.shape.hq; h++) {
      if (h % r.shape.group == 0)
        k = keys_of(s, seq, h / r.shape.group);
      for (int64_t i = 0; i < r.seqs[seq].sq; i++) {
        struct law_place at = {seq, h, i};
        row_bounds(s, &r.units, &k, &at, t, ref_stats_index(&s->r, seq, h, i));
      }
    }
  ref_close(&r);
  return ATTN_OK;
}

void law_bounds_free(struct law_bounds *t)
{
  free(t->o);
  memset(t, 0, sizeof *t);
}

/* ---- comparing ------------------------------------------------------------------------------- */

bool law_near(struct law_result *res, const char *what, const struct law_place *at, int64_t col,
              double got, double want, double bound)
{
  if (res->state == LAW_NONE)
    res->state = LAW_PASS;
  if (got == want || fabs(got - want) <= bound)
    return true;
  res->state = LAW_FAIL;
  snprintf(res->text, sizeof res->text,
           "%s[seq %lld, row %lld, head %lld, col %lld] is %.9g, the law wants %.9g +- %.3g", what,
           (long long)at->seq, (long long)at->row, (long long)at->head, (long long)col, got, want,
           bound);
  return false;
}

static bool near_row(const struct law_set *x, const struct law_set *y, const struct law_place *at,
                     const struct law_place *to, double shift, const struct law_bounds *tx,
                     const struct law_bounds *ty, struct law_result *res)
{
  int64_t i = ref_stats_index(&x->r, at->seq, at->head, at->row);
  int64_t j = ref_stats_index(&y->r, to->seq, to->head, to->row);
  double want = law_get(x, LAW_LSE, at, 0) + shift;
  if (!law_near(res, "lse", to, 0, law_get(y, LAW_LSE, to, 0), want,
                tx->lse[i] + ty->lse[j] + REF_U * fabs(shift)))
    return false;
  int64_t of_x = law_at(x, LAW_O, at), of_y = law_at(y, LAW_O, to);
  for (int64_t c = 0; c < x->p.dv; c++)
    if (!law_near(res, "o", to, c, law_load(y, LAW_O, of_y + c), law_load(x, LAW_O, of_x + c),
                  tx->o[i] + ty->o[j]))
      return false;
  return true;
}

int law_compare(const struct law_bench *b, const struct law_set *x, const struct law_set *y,
                law_match *match, const void *ctx,
                double (*shift)(const void *ctx, const struct law_place *at),
                struct law_result *res)
{
  const struct attn_numerics *num = b->subject->numerics;
  struct law_bounds tx = {NULL}, ty = {NULL};
  int status = law_bounds_make(x, num, &tx);
  if (!status)
    status = law_bounds_make(y, num, &ty);
  struct law_place at = law_first(x, LAW_O);
  for (; !status && law_there(x, &at); law_next(x, LAW_O, &at)) {
    struct law_place to = at;
    if (match && !match(ctx, LAW_O, &to))
      continue;
    if (!near_row(x, y, &at, &to, shift ? shift(ctx, &at) : 0, &tx, &ty, res))
      break;
  }
  law_bounds_free(&tx);
  law_bounds_free(&ty);
  return status;
}

#define TINY 0x1p-110 /* what leads here may have been subnormal on its way */

/* Below this the storage type loses bits when it is scaled down. */
static double least_exact(enum attn_dtype t)
{
  return t == ATTN_F16 ? 0x1p-12 : 0x1p-100;
}

static double most_exact(enum attn_dtype t)
{
  return t == ATTN_F16 ? 32000 : 0x1p120;
}

void law_compare_bits(const struct law_bench *b, const struct law_set *x, const struct law_set *y,
                      enum law_operand op, double factor, law_match *match, const void *ctx,
                      struct law_result *res)
{
  double lo = factor == 1 ? TINY : least_exact(x->p.dtype), hi = most_exact(x->p.dtype);
  int64_t width = law_width(x, op);
  if (!b->repeats[op] || !x->output[op] || res->state == LAW_FAIL)
    return;
  for (struct law_place at = law_first(x, op); law_there(x, &at); law_next(x, op, &at)) {
    struct law_place to = at;
    if (match && !match(ctx, op, &to))
      continue;
    int64_t of_x = law_at(x, op, &at), of_y = law_at(y, op, &to);
    for (int64_t c = 0; c < width; c++) {
      double want = law_load(x, op, of_x + c), got = law_load(y, op, of_y + c);
      if ((fabs(want) <= lo && fabs(got) <= 2 * lo) || (factor != 1 && fabs(want) > hi))
        continue;
      if (!law_near(res, law_operand_name(op), &to, c, got, factor * want, 0))
        return;
    }
  }
}
