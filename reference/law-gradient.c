/* SPDX-License-Identifier: Apache-2.0
 *
 * law-gradient.c - identities of the gradients, each for one sequence and key head, whose query
 * heads it sums over.  None needs an exact gradient.
 */
#include "config.h"

#include "reference/law-scene.h"

/* Adds sign * sum over rows of the head (and columns) of <gradient, with>. */
static void add_rows(struct law_balance *x, const struct law_scene *w, double sign,
                     enum law_operand grad, enum law_operand with)
{
  const struct law_set *s = w->s;
  bool query = grad == LAW_DQ || grad == LAW_DOUT;
  int64_t group = s->r.shape.group, first = query ? w->head * group : w->head;
  for (int64_t h = first; h < first + (query ? group : 1); h++)
    for (int64_t i = 0; i < law_rows(s, grad, w->seq); i++) {
      struct law_place at = {w->seq, h, i};
      int64_t of_grad = law_at(s, grad, &at), of_with = law_at(s, with, &at);
      for (int64_t c = 0; c < law_width(s, grad); c++)
        law_add_product(x, w, sign, law_load(s, grad, of_grad + c), law_load(s, with, of_with + c));
    }
}

/* Calls body for every query row of the scene's heads. */
static void each_row(const struct law_scene *w, struct law_balance *x,
                     void (*body)(const struct law_scene *w, struct law_balance *x,
                                  const struct law_place *at, int64_t i))
{
  int64_t group = w->s->r.shape.group;
  for (int64_t h = w->head * group; h < (w->head + 1) * group; h++)
    for (int64_t row = 0; row < w->s->r.seqs[w->seq].sq; row++) {
      struct law_place at = {w->seq, h, row};
      body(w, x, &at, ref_stats_index(&w->s->r, w->seq, h, row));
    }
}

static void trace_bound(const struct law_scene *w, struct law_balance *x,
                        const struct law_place *at, int64_t i)
{
  x->bound += 2 * w->t.reach[i] * (w->t.grad[i] + law_sums(w, w->t.total[i]));
}

static void value_bound(const struct law_scene *w, struct law_balance *x,
                        const struct law_place *at, int64_t i)
{
  x->bound += w->t.total[i] * w->t.weight[i] + law_sums(w, w->t.total[i]);
}

bool law_settle(const struct law_scene *w, const struct law_balance *x, const char *what, int64_t c,
                struct law_result *res)
{
  struct law_place at = {w->seq, 0, w->head};
  return law_near(res, what, &at, c, x->sum, 0, x->bound);
}

/* Calls check for every sequence and key head. */
int law_each_scene(struct law_bench *b, struct law_result *res,
                   void (*check)(const struct law_scene *w, struct law_result *res))
{
  struct ref_problem r;
  struct law_scene w = {.s = &b->base};
  int status = law_bounds_make(&b->base, b->subject->numerics, &w.t);
  if (status || (status = law_open(&b->base.p, b->subject->numerics, &r)))
    goto out;
  w.u = r.units;
  for (w.seq = 0; w.seq < r.shape.b; w.seq++)
    for (w.head = 0; w.head < r.shape.hkv && res->state != LAW_FAIL; w.head++) {
      w.terms = (double)(r.seqs[w.seq].sq * r.shape.group + r.seqs[w.seq].sk);
      check(&w, res);
    }
  ref_close(&r);
out:
  law_bounds_free(&w.t);
  return status;
}

static bool backward(const struct law_bench *b)
{
  return b->base.p.op == ATTN_BWD;
}

static void check_trace(const struct law_scene *w, struct law_result *res)
{
  struct law_balance x = {0, 0};
  add_rows(&x, w, 1, LAW_DQ, LAW_Q);
  add_rows(&x, w, -1, LAW_DK, LAW_K);
  each_row(w, &x, trace_bound);
  law_settle(w, &x, "<dq,q>-<dk,k>", 0, res);
}

/* <dQ, Q> = <dK, K>: both are the sum of dX * x. */
static int trace_of_scores(struct law_bench *b, struct law_result *res)
{
  return law_each_scene(b, res, check_trace);
}

static void check_values(const struct law_scene *w, struct law_result *res)
{
  struct law_balance x = {0, 0};
  add_rows(&x, w, 1, LAW_DV, LAW_V);
  add_rows(&x, w, -1, LAW_DOUT, LAW_O);
  each_row(w, &x, value_bound);
  law_settle(w, &x, "<dv,v>-<dout,o>", 0, res);
}

/* <dV, V> = <dO, O>: both are the sum of z p dO.V. */
static int trace_of_values(struct law_bench *b, struct law_result *res)
{
  return law_each_scene(b, res, check_values);
}

/* ---- sums over the keys ---------------------------------------------------------------------- */

static void check_key_sum(const struct law_scene *w, struct law_result *res)
{
  const struct law_set *s = w->s;
  int64_t group = s->r.shape.group;
  for (int64_t c = 0; c < s->p.d && res->state != LAW_FAIL; c++) {
    struct law_balance x = {0, 0};
    for (int64_t j = 0; j < s->r.seqs[w->seq].sk; j++) {
      struct law_place at = {w->seq, w->head, j};
      law_add_product(&x, w, 1, law_get(s, LAW_DK, &at, c), 1);
    }
    for (int64_t h = w->head * group; h < (w->head + 1) * group; h++)
      for (int64_t i = 0; i < s->r.seqs[w->seq].sq; i++) {
        struct law_place at = {w->seq, h, i};
        int64_t n = ref_stats_index(&s->r, w->seq, h, i);
        double q = fabs(s->r.shape.scale * law_get(s, LAW_Q, &at, c));
        x.bound += q * (w->t.grad[n] + law_sums(w, w->t.total[n]));
      }
    law_settle(w, &x, "sum of dk", c, res);
  }
}

static bool no_softcap(const struct law_bench *b)
{
  return backward(b) && b->base.p.softcap == 0;
}

/* Precondition: no softcap. The sum of dK over the keys is 0: softmax ignores a common shift. */
static int key_sum(struct law_bench *b, struct law_result *res)
{
  return law_each_scene(b, res, check_key_sum);
}

static void check_value_sum(const struct law_scene *w, struct law_result *res)
{
  const struct law_set *s = w->s;
  int64_t group = s->r.shape.group;
  for (int64_t c = 0; c < s->p.dv && res->state != LAW_FAIL; c++) {
    struct law_balance x = {0, 0};
    for (int64_t j = 0; j < s->r.seqs[w->seq].sk; j++) {
      struct law_place at = {w->seq, w->head, j};
      law_add_product(&x, w, 1, law_get(s, LAW_DV, &at, c), 1);
    }
    for (int64_t h = w->head * group; h < (w->head + 1) * group; h++)
      for (int64_t i = 0; i < s->r.seqs[w->seq].sq; i++) {
        struct law_place at = {w->seq, h, i};
        const struct ref_seq *q = &s->r.seqs[w->seq];
        if (ref_row_empty(&s->r.shape, q->sq, q->sk, i))
          continue;
        double g = law_get(s, LAW_DOUT, &at, c);
        x.sum -= g;
        x.bound += fabs(g) * w->t.weight[ref_stats_index(&s->r, w->seq, h, i)];
        x.bound += law_sums(w, fabs(g));
      }
    law_settle(w, &x, "sum of dv - sum of dout", c, res);
  }
}

static bool no_dropout(const struct law_bench *b)
{
  return backward(b) && b->base.p.dropout_p == 0;
}

/* Precondition: no dropout. The sum of dV over the keys is that of dO over the queries that see
 * any: their weights add up to 1. */
static int value_gradient_sum(struct law_bench *b, struct law_result *res)
{
  return law_each_scene(b, res, check_value_sum);
}

/* dO = 0 makes all gradients 0, exactly. */
static int no_gradient(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  int status = law_set_like(&y, &b->base.p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  law_scale(&y, LAW_DOUT, 0);
  status = law_run(b, &y);
  for (int op = LAW_DQ; op <= LAW_DV && !status; op++)
    for (struct law_place at = law_first(&y, op); law_there(&y, &at); law_next(&y, op, &at))
      for (int64_t c = 0; c < law_width(&y, op) && res->state != LAW_FAIL; c++)
        law_near(res, law_operand_name(op), &at, c, law_get(&y, op, &at, c), 0, 0);
  law_set_free(&y);
  return law_refused(status);
}

const struct law law_gradients[] = {{"trace-of-scores", backward, trace_of_scores, 1},
                                    {"trace-of-values", backward, trace_of_values, 1},
                                    {"key-sum", no_softcap, key_sum, 1},
                                    {"value-gradient-sum", no_dropout, value_gradient_sum, 1},
                                    {"no-gradient", backward, no_gradient, 1},
                                    {"adjoint", backward, law_adjoint, 1},
                                    {NULL, NULL, NULL, 0}};
