/* SPDX-License-Identifier: Apache-2.0
 *
 * rules-plain.c - attention and its gradients as a framework computes them in 16 bits: one matrix
 * after the other, each rounded to the problem's type. Slow and short; only the rules use it.
 */
#include "config.h"

#include <stdlib.h>

#include "harness/run/rules.h"
#include "impl/convert.h"

/* One sequence and query head. Rows of doubles: x scores, p weights, z dropout, ds. */
struct head {
  const struct law_set *s;
  int64_t seq, h, sk;
  double *q, *k, *v, *g; /* one row; all keys; all values; one row of dO */
  double *t, *p, *z, *ds;
};

static double store(const struct law_set *s, double x)
{
  if (s->p.dtype == ATTN_F32)
    return (float)x;
  return s->p.dtype == ATTN_BF16 ? attn_from_bf16(attn_to_bf16((float)x))
                                 : attn_from_f16(attn_to_f16((float)x));
}

static double dot(const double *a, const double *b, int64_t n)
{
  double sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum += a[c] * b[c];
  return sum;
}

/* p of row i; rounded scores, rounded softmax, rounded dropout in z * p. */
static void weights(const struct head *w, int64_t i)
{
  const struct law_set *s = w->s;
  const struct ref_shape *p = &s->r.shape;
  const struct ref_seq *q = &s->r.seqs[w->seq];
  double slope = p->alibi ? ref_alibi_slope(p->hq, w->h) : 0, top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < w->sk; j++) {
    double x = store(s, p->scale * dot(w->q, w->k + j * p->d, p->d));
    w->t[j] = p->cap > 0 ? store(s, tanh(store(s, x / p->cap))) : 0;
    x = p->cap > 0 ? store(s, p->cap * w->t[j]) : x;
    if (p->alibi)
      x = store(s, x - slope * fabs((double)(i + q->sk - q->sq - j)));
    w->p[j] = ref_visible(p, q->sq, q->sk, i, j) ? x : -INFINITY;
    w->z[j] = ref_dropout(p, w->seq, w->h, i, j);
    top = fmax(top, w->p[j]);
  }
  for (int64_t j = 0; j < w->sk; j++) {
    w->p[j] = top > -INFINITY ? exp(w->p[j] - top) : 0;
    sum += w->p[j];
  }
  for (int64_t j = 0; j < w->sk; j++)
    w->p[j] = sum > 0 ? store(s, w->p[j] / sum) : 0;
}

static void forward_row(const struct head *w, struct law_set *s, const struct law_place *at)
{
  for (int64_t c = 0; c < s->p.dv; c++) {
    double sum = 0;
    for (int64_t j = 0; j < w->sk; j++)
      sum += store(s, w->z[j] * w->p[j]) * w->v[j * s->p.dv + c];
    law_put(s, LAW_O, at, c, sum);
  }
}

/* Adds to dK and dV, which are doubles until the head's last row. */
static void backward_row(const struct head *w, struct law_set *s, const struct law_place *at,
                         double *dk, double *dv)
{
  int64_t d = s->p.d, n = s->p.dv;
  double delta = 0;
  for (int64_t j = 0; j < w->sk; j++) {
    w->ds[j] = store(s, w->z[j] * store(s, dot(w->g, w->v + j * n, n)));
    delta += w->p[j] * w->ds[j];
  }
  for (int64_t j = 0; j < w->sk; j++) {
    double x = store(s, w->p[j] * (w->ds[j] - delta));
    w->ds[j] = s->r.shape.cap > 0 ? store(s, x * (1 - w->t[j] * w->t[j])) : x;
    for (int64_t c = 0; c < n; c++)
      dv[j * n + c] += store(s, w->z[j] * w->p[j]) * w->g[c];
    for (int64_t c = 0; c < d; c++)
      dk[j * d + c] += s->r.shape.scale * w->ds[j] * w->q[c];
  }
  for (int64_t c = 0; c < d; c++) {
    double sum = 0;
    for (int64_t j = 0; j < w->sk; j++)
      sum += w->ds[j] * w->k[j * d + c];
    law_put(s, LAW_DQ, at, c, s->r.shape.scale * sum);
  }
}

static void one_head(struct head *w, struct law_set *s, double *dk, double *dv)
{
  int64_t hkv = w->h / s->r.shape.group;
  for (int64_t j = 0; j < w->sk; j++) {
    struct law_place at = {w->seq, hkv, j};
    law_read(s, LAW_K, &at, w->k + j * s->p.d);
    law_read(s, LAW_V, &at, w->v + j * s->p.dv);
  }
  for (int64_t i = 0; i < s->r.seqs[w->seq].sq; i++) {
    struct law_place at = {w->seq, w->h, i};
    law_read(s, LAW_Q, &at, w->q);
    weights(w, i);
    if (s->p.op != ATTN_BWD) {
      forward_row(w, s, &at);
      continue;
    }
    law_read(s, LAW_DOUT, &at, w->g);
    backward_row(w, s, &at, dk, dv);
  }
}

static void put_keys(struct law_set *s, int64_t seq, int64_t hkv, double *dk, double *dv)
{
  for (int64_t j = 0; j < s->r.seqs[seq].sk && s->p.op == ATTN_BWD; j++) {
    struct law_place at = {seq, hkv, j};
    for (int64_t c = 0; c < s->p.d; c++) {
      law_put(s, LAW_DK, &at, c, dk[j * s->p.d + c]);
      dk[j * s->p.d + c] = 0;
    }
    for (int64_t c = 0; c < s->p.dv; c++) {
      law_put(s, LAW_DV, &at, c, dv[j * s->p.dv + c]);
      dv[j * s->p.dv + c] = 0;
    }
  }
}

int rules_plain(struct law_set *s, volatile uint64_t *beats)
{
  size_t sk = (size_t)s->r.shape.max_sk, d = (size_t)s->p.d, n = (size_t)s->p.dv;
  double *all = calloc(sk * (2 * d + 2 * n + 4) + d + n + 1, sizeof *all);
  if (!all)
    return ATTN_ENOMEM;
  double *dk = all + sk * (d + n), *dv = dk + sk * d, *t = dv + sk * n;
  struct head w = {.s = s, .k = all, .v = all + sk * d, .t = t, .p = t + sk};
  w.z = w.p + sk;
  w.ds = w.z + sk;
  w.q = w.ds + sk;
  w.g = w.q + d;
  for (w.seq = 0; w.seq < s->r.shape.b; w.seq++)
    for (w.h = 0; w.h < s->p.hq; w.h++) {
      w.sk = s->r.seqs[w.seq].sk;
      one_head(&w, s, dk, dv);
      ++*beats;
      if ((w.h + 1) % s->r.shape.group == 0)
        put_keys(s, w.seq, w.h / s->r.shape.group, dk, dv);
    }
  free(all);
  return ATTN_OK;
}
