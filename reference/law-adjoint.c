/* SPDX-License-Identifier: Apache-2.0
 *
 * law-adjoint.c - the adjoint test: gradients against a derivative that runs the other way.
 */
#include "config.h"

#include <stdlib.h>

#include "reference/law-scene.h"

/* A sequence and key head in fp64: keys, values, and a direction for each. */
struct tangent {
  double *k, *v, *dk, *dv; /* (sk, d|dv); the direction */
  double *q, *dq, *g;      /* of one row: query, its direction, dO */
  double *p, *ds;          /* weights, directions of the scores */
  double k_norm, v_norm;   /* of the directions */
  uint64_t seed;
};

static double direction(const struct tangent *x, enum law_operand op, int64_t i)
{
  return law_random(x->seed + 1000 + op, (uint64_t)i);
}

static double dot(const double *a, const double *b, int64_t n)
{
  double sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum += a[c] * b[c];
  return sum;
}

/* Weights of a row and the directions of its scores. */
static double row_weights(const struct law_scene *w, struct tangent *x, const struct law_place *at)
{
  const struct ref_shape *p = &w->s->r.shape;
  const struct ref_seq *q = &w->s->r.seqs[w->seq];
  double slope = p->alibi ? ref_alibi_slope(p->hq, at->head) : 0, top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < q->sk; j++) {
    x->p[j] = -INFINITY;
    x->ds[j] = 0;
    if (!ref_visible(p, q->sq, q->sk, at->row, j))
      continue;
    const double *k = x->k + j * p->d, *dk = x->dk + j * p->d;
    struct ref_score r = ref_score_of(p, slope, at->row + q->sk - q->sq, j, dot(x->q, k, p->d));
    x->p[j] = r.s;
    x->ds[j] = p->scale * (dot(x->dq, k, p->d) + dot(x->q, dk, p->d)) * (1 - r.t * r.t);
    top = fmax(top, r.s);
  }
  for (int64_t j = 0; j < q->sk && top > -INFINITY; j++)
    sum += x->p[j] = exp(x->p[j] - top);
  return sum;
}

/* <dO, derivative of O along the direction> of one row. */
static double row_derivative(const struct law_scene *w, struct tangent *x,
                             const struct law_place *at)
{
  const struct ref_shape *p = &w->s->r.shape;
  int64_t sk = w->s->r.seqs[w->seq].sk;
  double sum = row_weights(w, x, at), mean = 0, all = 0;
  if (!(sum > 0))
    return 0;
  for (int64_t j = 0; j < sk; j++) {
    x->p[j] /= sum;
    mean += x->p[j] * x->ds[j];
  }
  for (int64_t j = 0; j < sk; j++) {
    double z = ref_dropout(p, w->seq, at->head, at->row, j);
    all += z * x->p[j] * (x->ds[j] - mean) * dot(x->g, x->v + j * p->dv, p->dv);
    all += z * x->p[j] * dot(x->g, x->dv + j * p->dv, p->dv);
  }
  return all;
}

static void read_keys(const struct law_scene *w, struct tangent *x)
{
  const struct law_set *s = w->s;
  x->k_norm = x->v_norm = 0;
  for (int64_t j = 0; j < s->r.seqs[w->seq].sk; j++) {
    struct law_place at = {w->seq, w->head, j};
    int64_t d = s->p.d, dv = s->p.dv;
    law_read(s, LAW_K, &at, x->k + j * d);
    law_read(s, LAW_V, &at, x->v + j * dv);
    for (int64_t c = 0; c < d; c++)
      x->dk[j * d + c] = direction(x, LAW_K, law_at(s, LAW_K, &at) + c);
    for (int64_t c = 0; c < dv; c++)
      x->dv[j * dv + c] = direction(x, LAW_V, law_at(s, LAW_V, &at) + c);
    x->k_norm = fmax(x->k_norm, sqrt(dot(x->dk + j * d, x->dk + j * d, d)));
    x->v_norm = fmax(x->v_norm, sqrt(dot(x->dv + j * dv, x->dv + j * dv, dv)));
  }
}

static double largest_key(const struct law_scene *w, const struct tangent *x)
{
  double most = 0;
  for (int64_t j = 0; j < w->s->r.seqs[w->seq].sk; j++)
    most = fmax(most, dot(x->k + j * w->s->p.d, x->k + j * w->s->p.d, w->s->p.d));
  return sqrt(most);
}

static void adjoint_row(const struct law_scene *w, struct tangent *x, const struct law_place *at,
                        double key, struct law_balance *sum)
{
  const struct law_set *s = w->s;
  const struct ref_shape *p = &s->r.shape;
  int64_t i = ref_stats_index(&s->r, at->seq, at->head, at->row);
  law_read(s, LAW_Q, at, x->q);
  law_read(s, LAW_DOUT, at, x->g);
  for (int64_t c = 0; c < p->d; c++) {
    x->dq[c] = direction(x, LAW_Q, law_at(s, LAW_Q, at) + c);
    law_add_product(sum, w, 1, law_get(s, LAW_DQ, at, c), x->dq[c]);
  }
  sum->sum -= row_derivative(w, x, at);
  double q = sqrt(dot(x->q, x->q, p->d)), dq = sqrt(dot(x->dq, x->dq, p->d));
  double g = sqrt(dot(x->g, x->g, p->dv)), lever = fabs(p->scale) * (dq * key + q * x->k_norm);
  double kept = p->drop_threshold < 65536 ? 65536.0 / (65536 - p->drop_threshold) : 0;
  sum->bound += lever * (w->t.grad[i] + law_sums(w, w->t.total[i]));
  sum->bound += kept * g * x->v_norm * w->t.weight[i] + law_sums(w, kept * g * x->v_norm);
}

static void adjoint_scene(const struct law_scene *w, struct tangent *x, struct law_result *res)
{
  const struct law_set *s = w->s;
  int64_t group = s->r.shape.group;
  struct law_balance sum = {0, 0};
  read_keys(w, x);
  double key = largest_key(w, x);
  for (int64_t h = w->head * group; h < (w->head + 1) * group; h++)
    for (int64_t i = 0; i < s->r.seqs[w->seq].sq; i++)
      adjoint_row(w, x, &(struct law_place){w->seq, h, i}, key, &sum);
  for (int64_t j = 0; j < s->r.seqs[w->seq].sk; j++) {
    struct law_place at = {w->seq, w->head, j};
    for (int64_t c = 0; c < s->p.d; c++)
      law_add_product(&sum, w, 1, law_get(s, LAW_DK, &at, c), x->dk[j * s->p.d + c]);
    for (int64_t c = 0; c < s->p.dv; c++)
      law_add_product(&sum, w, 1, law_get(s, LAW_DV, &at, c), x->dv[j * s->p.dv + c]);
  }
  law_settle(w, &sum, "<gradient,x>-<dout,J x>", 0, res);
}

static void check_adjoint(const struct law_scene *w, struct law_result *res)
{
  const struct ref_shape *p = &w->s->r.shape;
  size_t keys = (size_t)p->max_sk + 1, d = (size_t)p->d, dv = (size_t)p->dv;
  double *all = calloc(keys * (2 * d + 2 * dv + 2) + 2 * d + dv, sizeof *all);
  struct tangent x = {.k = all, .seed = 11};
  if (!all)
    return;
  x.dk = x.k + keys * d;
  x.v = x.dk + keys * d;
  x.dv = x.v + keys * dv;
  x.p = x.dv + keys * dv;
  x.ds = x.p + keys;
  x.q = x.ds + keys;
  x.dq = x.q + d;
  x.g = x.dq + d;
  adjoint_scene(w, &x, res);
  free(all);
}

/* <dQ, q'> + <dK, k'> + <dV, v'> = <dO, O'>, O' the derivative of O along (q', k', v'), in fp64 by
 * forward differentiation. */
int law_adjoint(struct law_bench *b, struct law_result *res)
{
  return law_each_scene(b, res, check_adjoint);
}
