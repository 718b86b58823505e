/* SPDX-License-Identifier: Apache-2.0
 *
 * reference-fixture.h - tensors for the tests of reference/: allocated as the layout says, filled
 * with a regime of random inputs, outputs poisoned with NaN.
 */
#ifndef TESTS_REFERENCE_FIXTURE_H
#define TESTS_REFERENCE_FIXTURE_H

#include <math.h>

#include "impl/convert.h"
#include "reference/reference.h"
#include "tests/tap.h"

enum regime { IID, LARGE_SCORES, V_MEAN_8, REGIMES };

__attribute__((unused)) static const char *const regime_name[] = {"iid", "scores x6", "V mean 8"};

struct fixture {
  struct attn_problem p;
  struct attn_args a;
  int64_t nseq, total_q, total_k, rows_q, rows_k; /* rows: allocated, per tensor */
  int64_t sq[64], sk[64], q0[64], k0[64];         /* per sequence */
};

static uint64_t fixture_state;

static inline double uniform(void)
{
  fixture_state = fixture_state * 6364136223846793005u + 1442695040888963407u;
  return ((double)(fixture_state >> 11) + 0.5) * 0x1p-53;
}

static inline double normal(void)
{
  return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static inline int64_t offset_of(const struct fixture *f, const struct attn_tensor *t, int64_t s,
                                int64_t first, int64_t h, int64_t i)
{
  return s * t->sb + (first + i) * t->ss + h * t->sh;
}

/* element (s, i, h, c) of a tensor of queries, or of keys */
static inline int64_t at_q(const struct fixture *f, const struct attn_tensor *t, int64_t s,
                           int64_t h, int64_t i)
{
  return offset_of(f, t, s, f->q0[s], h, i);
}

static inline int64_t at_k(const struct fixture *f, const struct attn_tensor *t, int64_t s,
                           int64_t h, int64_t j)
{
  return offset_of(f, t, s, f->k0[s], h, j);
}

static inline int64_t at_lse(const struct fixture *f, int64_t s, int64_t h, int64_t i)
{
  int64_t first = 0;
  if (f->p.nruns == 0)
    return (s * f->p.hq + h) * f->p.sq + i;
  for (int64_t k = 0; k < s; k++)
    first += f->sq[k];
  return h * f->total_q + first + i;
}

static inline double get(const struct fixture *f, const struct attn_tensor *t, int64_t at)
{
  return attn_load(f->p.dtype, t->data, at);
}

static inline void put(const struct fixture *f, const struct attn_tensor *t, int64_t at, double x)
{
  attn_store(f->p.dtype, t->data, at, (float)x);
}

static void make_tensor(const struct fixture *f, struct attn_tensor *t, bool query, int64_t heads,
                        int64_t width)
{
  int64_t len = query ? f->p.sq : f->p.sk, rows = query ? f->total_q : f->total_k;
  bool packed = f->p.nruns > 0 || f->p.layout == ATTN_PACKED;
  int64_t n = (rows + 1) * heads * width;
  *t = (struct attn_tensor){NULL, packed ? 0 : len * heads * width, heads * width, width};
  if (f->p.layout == ATTN_BHSD && !packed) {
    t->ss = width;
    t->sh = len * width;
  }
  t->data = calloc((size_t)n, 4);
  for (int64_t i = 0; i < n; i++)
    put(f, t, i, NAN);
}

static void fill(struct fixture *f, struct attn_tensor *t, bool query, int64_t heads, int64_t width,
                 double gain, double mean)
{
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t i = 0; i < (query ? f->sq[s] : f->sk[s]); i++)
      for (int64_t h = 0; h < heads; h++)
        for (int64_t c = 0; c < width; c++)
          put(f, t, (query ? at_q(f, t, s, h, i) : at_k(f, t, s, h, i)) + c,
              gain * normal() + mean);
}

static void lay_out(struct fixture *f)
{
  struct attn_run one = {f->p.b, f->p.sq, f->p.sk};
  const struct attn_run *runs = f->p.nruns ? f->p.runs : &one;
  bool packed = f->p.nruns > 0 || f->p.layout == ATTN_PACKED;
  for (int r = 0; r < (f->p.nruns ? f->p.nruns : 1); r++)
    for (int64_t k = 0; k < runs[r].count; k++) {
      f->sq[f->nseq] = runs[r].sq;
      f->sk[f->nseq] = runs[r].sk;
      f->q0[f->nseq] = packed ? f->total_q : 0;
      f->k0[f->nseq] = packed ? f->total_k : 0;
      f->total_q += runs[r].sq;
      f->total_k += runs[r].sk;
      f->nseq++;
    }
}

/* Allocates and fills everything; with op=bwd also dout, and o and lse by the reference. */
static void fixture_open(struct fixture *f, const struct attn_problem *p, enum regime regime,
                         uint64_t seed)
{
  double gain = regime == LARGE_SCORES ? sqrt(6) : 1;
  memset(f, 0, sizeof *f);
  f->p = *p;
  fixture_state = seed * 2654435761u + 12345;
  lay_out(f);
  make_tensor(f, &f->a.q, true, p->hq, p->d);
  make_tensor(f, &f->a.k, false, p->hkv, p->d);
  make_tensor(f, &f->a.v, false, p->hkv, p->dv);
  make_tensor(f, &f->a.o, true, p->hq, p->dv);
  make_tensor(f, &f->a.dout, true, p->hq, p->dv);
  make_tensor(f, &f->a.dq, true, p->hq, p->d);
  make_tensor(f, &f->a.dk, false, p->hkv, p->d);
  make_tensor(f, &f->a.dv, false, p->hkv, p->dv);
  f->a.lse = malloc((size_t)(f->total_q * p->hq + 1) * sizeof *f->a.lse);
  for (int64_t i = 0; i < f->total_q * p->hq; i++)
    f->a.lse[i] = NAN;
  fill(f, &f->a.q, true, p->hq, p->d, gain, 0);
  fill(f, &f->a.k, false, p->hkv, p->d, gain, 0);
  fill(f, &f->a.v, false, p->hkv, p->dv, 1, regime == V_MEAN_8 ? 8 : 0);
  fill(f, &f->a.dout, true, p->hq, p->dv, 1, 0);
}

__attribute__((unused)) static void fixture_close(struct fixture *f)
{
  struct attn_tensor *t[] = {&f->a.q,    &f->a.k,  &f->a.v,  &f->a.o,
                             &f->a.dout, &f->a.dq, &f->a.dk, &f->a.dv};
  for (int i = 0; i < 8; i++)
    free(t[i]->data);
  free(f->a.lse);
}

#endif
