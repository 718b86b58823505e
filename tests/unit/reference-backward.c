/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference's gradients, by three laws that do not know their formula: central differences of
 * its own forward, the adjoint test <J u, w> = <u, J^T w> with J u by forward differentiation here,
 * and identities that the gradients of attention obey.  Numbers are sentences of
 * reference/SEMANTICS.
 */
#include "config.h"

#include "reference/reference.h"
#include "tests/unit/reference-emulate.h"

struct grads {
  double *dq, *dk, *dv;
};

static struct grads gradients(struct fixture *f)
{
  struct grads g = {calloc((size_t)(f->total_q * f->p.hq * f->p.d + 1), 8),
                    calloc((size_t)(f->total_k * f->p.hkv * f->p.d + 1), 8),
                    calloc((size_t)(f->total_k * f->p.hkv * f->p.dv + 1), 8)};
  ref_backward_host(&f->p, &f->a, g.dq, g.dk, g.dv);
  return g;
}

static void forget(struct grads *g)
{
  free(g->dq);
  free(g->dk);
  free(g->dv);
}

/* ---- central differences --------------------------------------------------------------------- */

static double loss(const struct fixture *f)
{
  double sum = 0;
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++) {
        double o[64], lse;
        ref_row_host(&f->p, &f->a, s, h, i, o, &lse);
        for (int64_t c = 0; c < f->p.dv; c++)
          sum += o[c] * get(f, &f->a.dout, at_q(f, &f->a.dout, s, h, i) + c);
      }
  return sum;
}

/* (loss(x + h) - loss(x - h)) / 2h, for the h that float allows */
static double slope_at(const struct fixture *f, float *x, float h)
{
  float x0 = *x, up, down;
  double high, low;
  *x = up = x0 + h;
  high = loss(f);
  *x = down = x0 - h;
  low = loss(f);
  *x = x0;
  return (high - low) / ((double)up - (double)down);
}

/* Largest difference over all elements of one input, Richardson-extrapolated. */
static double difference(const struct fixture *f, const struct attn_tensor *t, int64_t n,
                         const double *grad)
{
  double worst = 0;
  for (int64_t i = 0; i < n; i++) {
    float *x = (float *)t->data + i;
    if (isnan(*x))
      continue;
    double coarse = slope_at(f, x, 0x1p-8f), fine = slope_at(f, x, 0x1p-9f);
    worst = fmax(worst, fabs((4 * fine - coarse) / 3 - grad[i]));
  }
  return worst;
}

static void check_differences(struct attn_problem p, const char *name)
{
  struct fixture f;
  fixture_open(&f, &p, IID, 11);
  ref_forward_host(&p, &f.a);
  struct grads g = gradients(&f);
  double q = difference(&f, &f.a.q, f.total_q * p.hq * p.d, g.dq);
  double k = difference(&f, &f.a.k, f.total_k * p.hkv * p.d, g.dk);
  double v = difference(&f, &f.a.v, f.total_k * p.hkv * p.dv, g.dv);
  ok(fmax(q, fmax(k, v)) < 1e-7, "7.1-7.6 central differences, %s (%.0e %.0e %.0e)", name, q, k, v);
  forget(&g);
  fixture_close(&f);
}

static const struct attn_problem tiny = {.op = ATTN_BWD,
                                         .dtype = ATTN_F32,
                                         .b = 1,
                                         .hq = 4,
                                         .hkv = 2,
                                         .sq = 5,
                                         .sk = 7,
                                         .d = 3,
                                         .dv = 2};

static void differences(void)
{
  struct attn_problem p = tiny;
  check_differences(p, "no mask, GQA");
  p.mask = ATTN_MASK_CAUSAL;
  check_differences(p, "causal");
  p.sq = 8;
  check_differences(p, "causal, sq > sk");
  p.mask = ATTN_MASK_CAUSAL_TOPLEFT;
  check_differences(p, "causal-topleft");
  p = tiny;
  p.mask = ATTN_MASK_WINDOW;
  p.window_left = 2;
  p.window_right = 1;
  p.alibi = true;
  check_differences(p, "window, ALiBi");
  p = tiny;
  p.softcap = 0.8;
  p.scale = 0.9;
  check_differences(p, "softcap, scale");
  p.dropout_p = 0.25;
  p.dropout_seed = 99;
  p.layout = ATTN_BHSD;
  check_differences(p, "softcap, dropout, bhsd");
  p = tiny;
  p.layout = ATTN_PACKED;
  p.mask = ATTN_MASK_CAUSAL;
  p.nruns = 3;
  p.b = 4;
  p.runs[0] = (struct attn_run){2, 3, 2};
  p.runs[1] = (struct attn_run){1, 2, 0};
  p.runs[2] = (struct attn_run){1, 1, 5};
  check_differences(p, "ragged");
}

/* ---- the adjoint test ------------------------------------------------------------------------ */

/* A direction in the space of inputs, and of outputs. */
struct direction {
  double *q, *k, *v, *o;
};

static double *random_array(int64_t n)
{
  double *x = malloc((size_t)(n + 1) * sizeof *x);
  for (int64_t i = 0; i < n; i++)
    x[i] = normal();
  return x;
}

/* d->o of one row: the derivative of O along the direction. */
static void push_row(const struct fixture *f, int64_t s, int64_t h, int64_t i, struct direction *d)
{
  struct emulation none = {{0}, 64, false, NO_FAULT};
  double scale = f->p.scale != 0 ? f->p.scale : 1 / sqrt((double)f->p.d), o[64] = {0}, sum = 0;
  double mean = 0, p[64], ds[64];
  int64_t kv = h / (f->p.hq / f->p.hkv), qi = at_q(f, &f->a.q, s, h, i);
  double *out = d->o + at_q(f, &f->a.dout, s, h, i);
  for (int64_t j = 0; j < f->sk[s]; j++) {
    int64_t kj = at_k(f, &f->a.k, s, kv, j);
    double x = 0, dx = 0;
    for (int64_t c = 0; c < f->p.d; c++) {
      double a = get(f, &f->a.q, qi + c), b = get(f, &f->a.k, kj + c);
      x += a * b;
      dx += d->q[qi + c] * b + a * d->k[kj + c];
    }
    double t = f->p.softcap > 0 ? tanh(scale * x / f->p.softcap) : 0;
    x = f->p.softcap > 0 ? f->p.softcap * t : scale * x;
    ds[j] = scale * dx * (1 - t * t);
    p[j] = emu_sees(f, &none, s, i, j) ? exp(x) : 0;
    sum += p[j];
  }
  for (int64_t j = 0; j < f->sk[s] && sum > 0; j++)
    mean += (p[j] /= sum) * ds[j];
  for (int64_t j = 0; j < f->sk[s] && sum > 0; j++) {
    int64_t vj = at_k(f, &f->a.v, s, kv, j);
    double z = emu_kept(f, s, h, i, j);
    for (int64_t c = 0; c < f->p.dv; c++)
      o[c] += p[j] * z * ((ds[j] - mean) * get(f, &f->a.v, vj + c) + d->v[vj + c]);
  }
  for (int64_t c = 0; c < f->p.dv; c++)
    out[c] = o[c];
}

static double inner(const double *x, const double *y, int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * y[i];
  return sum;
}

static void check_adjoint(struct attn_problem p, const char *name)
{
  struct fixture f;
  fixture_open(&f, &p, IID, 5);
  ref_forward_host(&p, &f.a);
  struct grads g = gradients(&f);
  int64_t nq = f.total_q * p.hq * p.d, nk = f.total_k * p.hkv * p.d, nv = f.total_k * p.hkv * p.dv;
  int64_t no = f.total_q * p.hq * p.dv;
  struct direction d = {random_array(nq), random_array(nk), random_array(nv), random_array(no)};
  double left = 0, right, size = 0;
  for (int64_t s = 0; s < f.nseq; s++)
    for (int64_t h = 0; h < p.hq; h++)
      for (int64_t i = 0; i < f.sq[s]; i++)
        push_row(&f, s, h, i, &d);
  for (int64_t i = 0; i < no; i++) {
    left += d.o[i] * get(&f, &f.a.dout, i);
    size += fabs(d.o[i] * get(&f, &f.a.dout, i));
  }
  right = inner(d.q, g.dq, nq) + inner(d.k, g.dk, nk) + inner(d.v, g.dv, nv);
  ok(fabs(left - right) < 1e-12 * size, "7.1 adjoint test, %s (%.1e of %.1e)", name,
     fabs(left - right), size);
  free(d.q);
  free(d.k);
  free(d.v);
  free(d.o);
  forget(&g);
  fixture_close(&f);
}

static void adjoints(void)
{
  struct attn_problem p = {.op = ATTN_BWD,
                           .dtype = ATTN_BF16,
                           .b = 2,
                           .hq = 6,
                           .hkv = 2,
                           .sq = 37,
                           .sk = 43,
                           .d = 24,
                           .dv = 40,
                           .mask = ATTN_MASK_CAUSAL};
  check_adjoint(p, "causal bf16 GQA");
  p.softcap = 1.5;
  p.dtype = ATTN_F16;
  p.layout = ATTN_BHSD;
  check_adjoint(p, "softcap fp16 bhsd");
  p.dropout_p = 0.4;
  p.dropout_seed = 3;
  p.mask = ATTN_MASK_NONE;
  check_adjoint(p, "softcap, dropout");
  p.mask = ATTN_MASK_WINDOW;
  p.window_left = 5;
  p.window_right = -1;
  p.sq = 50;
  check_adjoint(p, "window, dropout, sq > sk");
}

/* ---- identities ------------------------------------------------------------------------------ */

static double with_input(const struct fixture *f, const struct attn_tensor *t, const double *x,
                         int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * get(f, t, i);
  return sum;
}

static void identities(void)
{
  struct attn_problem p = {.op = ATTN_BWD,
                           .dtype = ATTN_F32,
                           .b = 1,
                           .hq = 4,
                           .hkv = 2,
                           .sq = 33,
                           .sk = 29,
                           .d = 8,
                           .dv = 12,
                           .mask = ATTN_MASK_CAUSAL};
  struct fixture f;
  fixture_open(&f, &p, IID, 21);
  ref_forward_host(&p, &f.a);
  struct grads g = gradients(&f);
  int64_t nk = p.sk * p.hkv * p.d;
  double a = with_input(&f, &f.a.q, g.dq, p.sq * p.hq * p.d);
  double b = with_input(&f, &f.a.k, g.dk, nk), worst = 0, zero = 0;
  ok(fabs(a - b) < 1e-11, "<dQ, Q> = <dK, K> (%g %g)", a, b);
  a = with_input(&f, &f.a.v, g.dv, p.sk * p.hkv * p.dv);
  b = loss(&f);
  ok(fabs(a - b) < 1e-11, "<dV, V> = <dO, O> (%g %g)", a, b);
  for (int64_t h = 0; h < p.hkv; h++)
    for (int64_t c = 0; c < p.d; c++) {
      double sum = 0;
      for (int64_t j = 0; j < p.sk; j++)
        sum += g.dk[at_k(&f, &f.a.k, 0, h, j) + c];
      worst = fmax(worst, fabs(sum));
    }
  ok(worst < 1e-12, "sum of dK over the keys is 0 (%.1e)", worst);
  for (int64_t h = 0; h < p.hq; h++)
    for (int64_t i = 0; i < 4; i++) /* sq - sk empty rows */
      for (int64_t c = 0; c < p.d; c++)
        zero = fmax(zero, fabs(g.dq[at_q(&f, &f.a.q, 0, h, i) + c]));
  ok(zero == 0, "7.6 rows that see no key have dQ = 0, exactly");
  forget(&g);
  fixture_close(&f);

  p.mask = ATTN_MASK_CAUSAL_TOPLEFT;
  p.sk = 40;
  fixture_open(&f, &p, IID, 22);
  ref_forward_host(&p, &f.a);
  g = gradients(&f);
  for (int64_t j = 33; j < 40; j++)
    for (int64_t c = 0; c < p.d; c++)
      zero = fmax(zero, fmax(fabs(g.dk[at_k(&f, &f.a.k, 0, 1, j) + c]),
                             fabs(g.dv[at_k(&f, &f.a.v, 0, 1, j) + c])));
  ok(zero == 0, "7.6 keys that no query sees have dK = dV = 0, exactly");
  forget(&g);
  fixture_close(&f);
}

/* 7.7: the gradients do not depend on the o and lse that are given. */
static void given(void)
{
  struct attn_problem p = tiny;
  struct fixture f;
  fixture_open(&f, &p, IID, 1);
  ref_forward_host(&p, &f.a);
  struct grads g = gradients(&f);
  put(&f, &f.a.o, 0, 100);
  f.a.lse[0] = 100;
  struct grads g2 = gradients(&f);
  ok(!memcmp(g.dq, g2.dq, sizeof(double) * 60) && !memcmp(g.dk, g2.dk, sizeof(double) * 42),
     "7.7 gradients are those of the exact O and lse");
  forget(&g);
  forget(&g2);
  fixture_close(&f);
}

int main(void)
{
  differences();
  adjoints();
  identities();
  given();
  return done_testing();
}
