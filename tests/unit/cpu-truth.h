/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-truth.h - an fp64 answer that shares nothing with the implementations: plain loops over (i,
 * j), one predicate for the mask.
 */
#ifndef TESTS_UNIT_CPU_TRUTH_H
#define TESTS_UNIT_CPU_TRUTH_H

#include "tests/unit/cpu-fixture.h"

/* ---- truth ----------------------------------------------------------------------------------- */

static inline bool sees(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i, int64_t j)
{
  int64_t x = j - (i + sk - sq); /* how far the key lies after the query's own place */
  switch (p->mask) {
  case ATTN_MASK_NONE: return true;
  case ATTN_MASK_CAUSAL: return x <= 0;
  case ATTN_MASK_CAUSAL_TOPLEFT: return j <= i;
  case ATTN_MASK_WINDOW:
    return (p->window_left < 0 || -x <= p->window_left) &&
           (p->window_right < 0 || x <= p->window_right);
  }
  return false;
}

static inline double slope_of(int64_t hq, int64_t h)
{
  int64_t n = 1;
  while (2 * n <= hq)
    n *= 2;
  return h < n ? pow(2, -8.0 * (double)(h + 1) / (double)n)
               : pow(2, -4.0 * (double)(2 * (h - n) + 1) / (double)n);
}

/* Score of (i, j), -inf where masked, and its derivative by the product times scale. */
static inline double score_of(const struct fixture *f, int64_t s, int64_t h, int64_t i, int64_t j,
                              double *derivative)
{
  const struct attn_problem *p = &f->p;
  int64_t sq, sk, hkv = h / (p->hq / p->hkv);
  attn_problem_seq(p, s, &sq, &sk);
  *derivative = 1;
  if (!sees(p, sq, sk, i, j))
    return -INFINITY;
  double x = 0;
  for (int64_t c = 0; c < p->d; c++)
    x += value(f, B_Q, s, i, h, c) * value(f, B_K, s, j, hkv, c);
  x *= p->scale > 0 ? p->scale : 1 / sqrt((double)p->d);
  if (p->softcap > 0) {
    double t = tanh(x / p->softcap);
    *derivative = 1 - t * t;
    x = p->softcap * t;
  }
  return p->alibi ? x - slope_of(p->hq, h) * fabs((double)(i + sk - sq - j)) : x;
}

static inline double kept(const struct attn_problem *p, int64_t s, int64_t h, int64_t i, int64_t j)
{
  uint32_t threshold = attn_dropout_threshold(p->dropout_p);
  uint32_t key = attn_dropout_key(p->dropout_seed, s, p->hq, h);
  if (!threshold)
    return 1;
  return attn_dropout_slice(p->dropout_seed, key, i, j) >= threshold
             ? 65536.0 / (65536.0 - threshold)
             : 0;
}

/* How far an element may be off: the storage format's rounding, and fp32 arithmetic on terms whose
 * absolute values sum to size, with scores up to top. The constant covers sums of these lengths. */
static inline bool close_to(const struct fixture *f, double got, double want, double size,
                            double top)
{
  double u = f->p.dtype == ATTN_F32 ? 0x1p-24 : f->p.dtype == ATTN_F16 ? 0x1p-11 : 0x1p-8;
  double tiny = f->p.dtype == ATTN_F16 ? 0x1p-24 : 0;
  return fabs(got - want) <= u * fabs(want) + tiny + 0x1p-24 * size * (100 + 8 * top) + 1e-36;
}

/* Worst element that is not close, for the message. */
struct miss {
  int count;
  const char *what;
  int64_t s, i, h, c;
  double got, want;
};

static inline void check(struct miss *m, const struct fixture *f, const char *what, int64_t s,
                         int64_t i, int64_t h, int64_t c, double got, double want, double size,
                         double top)
{
  if (close_to(f, got, want, size, top) || (isinf(want) && got == want))
    return;
  if (!m->count++)
    *m = (struct miss){1, what, s, i, h, c, got, want};
}

/* O and LSE of row (s, h, i) against the definition. */
static inline void check_row(struct miss *m, const struct fixture *f, int64_t s, int64_t h,
                             int64_t i)
{
  const struct attn_problem *p = &f->p;
  int64_t sq, sk, hkv = h / (p->hq / p->hkv);
  attn_problem_seq(p, s, &sq, &sk);
  double top = -INFINITY, l = 0, unused, *w = malloc(sizeof *w * (size_t)(sk + 1));
  for (int64_t j = 0; j < sk; j++)
    top = fmax(top, w[j] = score_of(f, s, h, i, j, &unused));
  for (int64_t j = 0; j < sk; j++)
    l += w[j] = isinf(top) ? 0 : exp(w[j] - top);
  double lse = top + log(l), high = isinf(top) ? 0 : fabs(top);
  check(m, f, "lse", s, i, h, 0, *lse_at(f, s, h, i), lse, high + 1, high);
  for (int64_t c = 0; c < p->dv; c++) {
    double o = 0, size = 0;
    for (int64_t j = 0; j < sk; j++) {
      double x = w[j] > 0 ? w[j] / l * kept(p, s, h, i, j) * value(f, B_V, s, j, hkv, c) : 0;
      o += x;
      size += fabs(x);
    }
    check(m, f, "o", s, i, h, c, value(f, B_O, s, i, h, c), o, size, high);
  }
  free(w);
}

static inline struct miss check_forward(const struct fixture *f)
{
  struct miss m = {0};
  for (int64_t s = 0; s < f->p.b; s++) {
    int64_t sq, sk;
    attn_problem_seq(&f->p, s, &sq, &sk);
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < sq; i++)
        check_row(&m, f, s, h, i);
  }
  return m;
}

/* Gradients of one tensor and the sums of absolute values of their terms. */
struct truth {
  double *grad[3], *size[3]; /* dq, dk, dv, indexed as the tensors */
  double top;
};

/* Adds what pair (i, j) of head h gives. */
static inline void add_pair(const struct fixture *f, struct truth *t, int64_t s, int64_t h,
                            int64_t i, int64_t j, double delta, double delta_size)
{
  const struct attn_problem *p = &f->p;
  int64_t hkv = h / (p->hq / p->hkv);
  double slope, score = score_of(f, s, h, i, j, &slope), keep = kept(p, s, h, i, j);
  double scale = p->scale > 0 ? p->scale : 1 / sqrt((double)p->d), dp = 0, dp_size = 0;
  if (isinf(score))
    return;
  t->top = fmax(t->top, fabs(score));
  double w = exp(score - *lse_at(f, s, h, i));
  for (int64_t c = 0; c < p->dv; c++) {
    double g = value(f, B_DOUT, s, i, h, c), v = value(f, B_V, s, j, hkv, c);
    int64_t e = element(f, B_DV, s, j, hkv, c);
    t->grad[2][e] += w * keep * g;
    t->size[2][e] += fabs(w * keep * g);
    dp += keep * g * v;
    dp_size += fabs(keep * g * v);
  }
  double ds = w * (dp - delta) * slope * scale, ds_size = w * (dp_size + delta_size) * scale;
  for (int64_t c = 0; c < p->d; c++) {
    double q = value(f, B_Q, s, i, h, c), k = value(f, B_K, s, j, hkv, c);
    int64_t eq = element(f, B_DQ, s, i, h, c), ek = element(f, B_DK, s, j, hkv, c);
    t->grad[0][eq] += ds * k;
    t->size[0][eq] += fabs(ds_size * k);
    t->grad[1][ek] += ds * q;
    t->size[1][ek] += fabs(ds_size * q);
  }
}

static inline void add_row(const struct fixture *f, struct truth *t, int64_t s, int64_t h,
                           int64_t i)
{
  int64_t sq, sk;
  double delta = 0, size = 0;
  attn_problem_seq(&f->p, s, &sq, &sk);
  for (int64_t c = 0; c < f->p.dv; c++) {
    double x = value(f, B_DOUT, s, i, h, c) * value(f, B_O, s, i, h, c);
    delta += x;
    size += fabs(x);
  }
  for (int64_t j = 0; j < sk; j++)
    add_pair(f, t, s, h, i, j, delta, size);
}

/* dQ, dK, dV for the O and LSE that the implementation was given. */
static inline struct miss check_backward(const struct fixture *f)
{
  static const char *const names[] = {"dq", "dk", "dv"};
  struct truth t = {.top = 0};
  struct miss m = {0};
  for (int g = 0; g < 3; g++) {
    t.grad[g] = calloc((size_t)f->b[B_DQ + g].elements + 1, sizeof(double));
    t.size[g] = calloc((size_t)f->b[B_DQ + g].elements + 1, sizeof(double));
  }
  for (int64_t s = 0; s < f->p.b; s++) {
    int64_t sq, sk;
    attn_problem_seq(&f->p, s, &sq, &sk);
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < sq; i++)
        add_row(f, &t, s, h, i);
  }
  for (int g = 0; g < 3; g++) {
    FOR_ELEMENTS(f, B_DQ + g, s, r, h, c)
    {
      int64_t e = element(f, B_DQ + g, s, r, h, c);
      check(&m, f, names[g], s, r, h, c, value(f, B_DQ + g, s, r, h, c), t.grad[g][e], t.size[g][e],
            t.top);
    }
    free(t.grad[g]);
    free(t.size[g]);
  }
  return m;
}

#endif
