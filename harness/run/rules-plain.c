/* SPDX-License-Identifier: Apache-2.0
 *
 * rules-plain.c - attention and its gradients as a framework computes them in 16 bits: one matrix
 * after the other, each rounded to the problem's type.  Over all cores; only the rules use it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/run/rules.h"
#include "impl/convert.h"
#include "reference/clones.h"

/* One sequence and query head. Rows of doubles: x scores, p weights, z dropout, ds. */
struct head {
  struct law_set *s;
  int64_t seq, h, sk;
  double *q, *g, *sum;     /* a row each: of Q, of dO, of O or dQ */
  double *k, *v, *kt, *vt; /* all keys, all values; and transposed */
  double *dk, *dv;         /* of the group's heads so far */
  double *t, *p, *z, *ds;
};

static double store(const struct law_set *s, double x)
{
  if (s->p.dtype == ATTN_F32)
    return (float)x;
  return s->p.dtype == ATTN_BF16 ? attn_from_bf16(attn_to_bf16((float)x))
                                 : attn_from_f16(attn_to_f16((float)x));
}

/* sum += x y, n columns. */
CLONES static void add(double *restrict sum, double x, const double *restrict y, int64_t n)
{
  for (int64_t c = 0; c < n; c++)
    sum[c] += x * y[c];
}

/* to[j] = a . column j of m, which has n rows; each sum in the order of the rows. */
static void dots(double *to, const double *a, const double *m, int64_t n, int64_t columns)
{
  memset(to, 0, (size_t)columns * sizeof *to);
  for (int64_t c = 0; c < n; c++)
    add(to, a[c], m + c * columns, columns);
}

/* p of row i; rounded scores, rounded softmax, rounded dropout in z * p. */
static void weights(const struct head *w, int64_t i)
{
  const struct law_set *s = w->s;
  const struct ref_shape *p = &s->r.shape;
  const struct ref_seq *q = &s->r.seqs[w->seq];
  double slope = p->alibi ? ref_alibi_slope(p->hq, w->h) : 0, top = -INFINITY, sum = 0;
  dots(w->p, w->q, w->kt, p->d, w->sk);
  for (int64_t j = 0; j < w->sk; j++) {
    double x = store(s, p->scale * w->p[j]);
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

static void put(const struct head *w, enum law_operand op, const struct law_place *at,
                const double *row, double scale)
{
  for (int64_t c = 0; c < law_width(w->s, op); c++)
    law_put(w->s, op, at, c, scale * row[c]);
}

static void forward_row(const struct head *w, const struct law_place *at)
{
  int64_t n = w->s->p.dv;
  memset(w->sum, 0, (size_t)n * sizeof *w->sum);
  for (int64_t j = 0; j < w->sk; j++)
    add(w->sum, store(w->s, w->z[j] * w->p[j]), w->v + j * n, n);
  put(w, LAW_O, at, w->sum, 1);
}

/* Adds to dK and dV, which are doubles until the group's last head. */
static void backward_row(const struct head *w, const struct law_place *at)
{
  const struct law_set *s = w->s;
  int64_t d = s->p.d, n = s->p.dv;
  double delta = 0, scale = s->r.shape.scale;
  dots(w->ds, w->g, w->vt, n, w->sk);
  for (int64_t j = 0; j < w->sk; j++) {
    w->ds[j] = store(s, w->z[j] * store(s, w->ds[j]));
    delta += w->p[j] * w->ds[j];
  }
  memset(w->sum, 0, (size_t)d * sizeof *w->sum);
  for (int64_t j = 0; j < w->sk; j++) {
    double x = store(s, w->p[j] * (w->ds[j] - delta));
    w->ds[j] = s->r.shape.cap > 0 ? store(s, x * (1 - w->t[j] * w->t[j])) : x;
    add(w->dv + j * n, store(s, w->z[j] * w->p[j]), w->g, n);
    add(w->dk + j * d, scale * w->ds[j], w->q, d);
    add(w->sum, w->ds[j], w->k + j * d, d);
  }
  put(w, LAW_DQ, at, w->sum, scale);
}

static void read_keys(const struct head *w, int64_t hkv)
{
  int64_t d = w->s->p.d, n = w->s->p.dv;
  for (int64_t j = 0; j < w->sk; j++) {
    struct law_place at = {w->seq, hkv, j};
    law_read(w->s, LAW_K, &at, w->k + j * d);
    law_read(w->s, LAW_V, &at, w->v + j * n);
    for (int64_t c = 0; c < d; c++)
      w->kt[c * w->sk + j] = w->k[j * d + c];
    for (int64_t c = 0; c < n; c++)
      w->vt[c * w->sk + j] = w->v[j * n + c];
  }
}

static void one_head(const struct head *w)
{
  for (int64_t i = 0; i < w->s->r.seqs[w->seq].sq; i++) {
    struct law_place at = {w->seq, w->h, i};
    law_read(w->s, LAW_Q, &at, w->q);
    weights(w, i);
    if (w->s->p.op != ATTN_BWD) {
      forward_row(w, &at);
      continue;
    }
    law_read(w->s, LAW_DOUT, &at, w->g);
    backward_row(w, &at);
  }
}

static void put_keys(const struct head *w, int64_t hkv)
{
  for (int64_t j = 0; j < w->sk && w->s->p.op == ATTN_BWD; j++) {
    struct law_place at = {w->seq, hkv, j};
    put(w, LAW_DK, &at, w->dk + j * w->s->p.d, 1);
    put(w, LAW_DV, &at, w->dv + j * w->s->p.dv, 1);
  }
}

struct all {
  struct law_set *s;
  volatile uint64_t *beats;
};

/* One sequence and head of keys, with the query heads that share it. */
static int one_group(int64_t i, void *ctx)
{
  const struct all *a = ctx;
  struct law_set *s = a->s;
  const struct ref_shape *p = &s->r.shape;
  int64_t hkv = i % s->p.hkv, d = s->p.d, n = s->p.dv, most = d > n ? d : n;
  struct head w = {.s = s, .seq = i / s->p.hkv};
  w.sk = s->r.seqs[w.seq].sk;
  double *x = calloc((size_t)(w.sk * (3 * (d + n) + 4) + 3 * most), sizeof *x);
  double **const part[] = {&w.k, &w.kt, &w.dk, &w.v, &w.vt, &w.dv, &w.t,
                           &w.p, &w.z,  &w.ds, &w.q, &w.g,  &w.sum};
  if (!(*part[0] = x))
    return ATTN_ENOMEM;
  for (size_t k = 0; k + 1 < sizeof part / sizeof *part; k++)
    *part[k + 1] = *part[k] + (k < 3 ? w.sk * d : k < 6 ? w.sk * n : k < 10 ? w.sk : most);
  read_keys(&w, hkv);
  for (int64_t k = 0; k < p->group; k++) {
    w.h = hkv * p->group + k;
    one_head(&w);
    __atomic_fetch_add(a->beats, 1, __ATOMIC_RELAXED);
  }
  put_keys(&w, hkv);
  free(x);
  return ATTN_OK;
}

int rules_plain(struct law_set *s, volatile uint64_t *beats)
{
  struct all a = {s, beats};
  return ref_parallel(s->r.shape.b * s->p.hkv, one_group, &a);
}
