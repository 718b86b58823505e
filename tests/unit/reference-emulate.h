/* SPDX-License-Identifier: Apache-2.0
 *
 * reference-emulate.h - a correct tiled kernel in fp32 with P and dS in the storage type, emulated
 * row by row with the arithmetic of a tensor core, and the faults that can be planted in it.  It is
 * the subject of the tests of the bound, and shares no code with the reference.
 */
#ifndef TESTS_REFERENCE_EMULATE_H
#define TESTS_REFERENCE_EMULATE_H

#include "tests/unit/reference-fixture.h"

enum fault {
  NO_FAULT,
  DROP_LAST_KEY,     /* the tail of the last tile is cut by one */
  CAUSAL_OFF_BY_ONE, /* j < i + sk - sq */
  SCALE_1_PERCENT,
  WRONG_KV_HEAD, /* h % hkv */
  LSE_BASE_2,
  NOT_NORMALISED,
  WRITES_NAN, /* one element */
  WRITES_ZERO,
  NO_RESCALE,       /* O is not rescaled when the maximum moves */
  SUM_16_BIT,       /* the denominator is kept in the storage type */
  O_16_BIT,         /* the accumulator of O is kept in the storage type */
  HEADS_NOT_SUMMED, /* dK, dV of the last query head of the group only */
  NO_D,             /* dS = P dP */
  NO_SCALE_DK,      /* dK without the softmax scale */
  FAULTS
};

__attribute__((unused)) static const char *const fault_name[] = {
    "none",       "last key dropped", "causal off by one", "scale 1 % off", "wrong kv head",
    "LSE base 2", "not normalised",   "one NaN",           "zero output",   "no rescale",
    "16-bit sum", "16-bit O",         "heads not summed",  "D missing",     "dK without scale"};

struct emulation {
  struct attn_numerics num;
  int64_t tile;
  bool backwards; /* keys from the last tile to the first */
  enum fault fault;
};

static float emu_round(const struct fixture *f, double x)
{
  if (f->p.dtype == ATTN_F32)
    return (float)x;
  return f->p.dtype == ATTN_BF16 ? attn_from_bf16(attn_to_bf16((float)x))
                                 : attn_from_f16(attn_to_f16((float)x));
}

/* fp32 multiply-add, to nearest or towards zero */
static inline float emu_fma(const struct emulation *e, float a, float b, float c)
{
  double x = (double)a * b + c;
  float y = (float)x;
  if (e->num.accum_truncates && fabs((double)y) > fabs(x))
    y = nextafterf(y, 0);
  return y;
}

/* Test's own mask: SEMANTICS section 2. */
static bool emu_sees(const struct fixture *f, const struct emulation *e, int64_t s, int64_t i,
                     int64_t j)
{
  int64_t shift = f->sk[s] - f->sq[s];
  int64_t cut = e->fault == CAUSAL_OFF_BY_ONE;
  if (e->fault == DROP_LAST_KEY && j == f->sk[s] - 1 && j > 0)
    return false;
  if (f->p.mask == ATTN_MASK_CAUSAL)
    return j + cut <= i + shift;
  if (f->p.mask == ATTN_MASK_CAUSAL_TOPLEFT)
    return j + cut <= i;
  if (f->p.mask == ATTN_MASK_WINDOW)
    return (f->p.window_left < 0 || j >= i + shift - f->p.window_left) &&
           (f->p.window_right < 0 || j + cut <= i + shift + f->p.window_right);
  return true;
}

static double emu_scale(const struct fixture *f, const struct emulation *e)
{
  double scale = f->p.scale != 0 ? f->p.scale : 1 / sqrt((double)f->p.d);
  return e->fault == SCALE_1_PERCENT ? scale * 1.01 : scale;
}

static int64_t emu_kv(const struct fixture *f, const struct emulation *e, int64_t h)
{
  return e->fault == WRONG_KV_HEAD ? h % f->p.hkv : h / (f->p.hq / f->p.hkv);
}

static float emu_dot(const struct fixture *f, const struct emulation *e,
                     const struct attn_tensor *x, int64_t xat, const struct attn_tensor *y,
                     int64_t yat, int64_t n)
{
  float sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum = emu_fma(e, (float)get(f, x, xat + c), (float)get(f, y, yat + c), sum);
  return sum;
}

/* The masked, biased, capped score, in fp32. */
static float emu_score(const struct fixture *f, const struct emulation *e, int64_t s, int64_t h,
                       int64_t i, int64_t j)
{
  float x = (float)emu_scale(f, e) * emu_dot(f, e, &f->a.q, at_q(f, &f->a.q, s, h, i), &f->a.k,
                                             at_k(f, &f->a.k, s, emu_kv(f, e, h), j), f->p.d);
  if (f->p.softcap > 0)
    x = (float)f->p.softcap * tanhf(x / (float)f->p.softcap);
  if (f->p.alibi) /* powers of two only */
    x -= exp2f(-8.0f * (float)(h + 1) / (float)f->p.hq) *
         fabsf((float)(i + f->sk[s] - f->sq[s] - j));
  return e->num.score == ATTN_ROUND_STORAGE ? emu_round(f, x) : x;
}

struct emu_row {
  float m, l, o[256];
};

/* Test's own dropout, from the published constants. */
static double emu_kept(const struct fixture *f, int64_t s, int64_t h, int64_t i, int64_t j)
{
  double p = f->p.dropout_p;
  if (p == 0)
    return 1;
  uint32_t t = (uint32_t)(p * 65536 + 0.5), seed = (uint32_t)f->p.dropout_seed;
  uint32_t k = seed + (uint32_t)(s * f->p.hq + h) * 2654435769u;
  uint32_t x = (uint32_t)((i >> 4) * 8 + (i & 7)) ^ (uint32_t)(f->p.dropout_seed >> 32);
  uint32_t y = (uint32_t)((j >> 4) * 8 + (j & 7));
  for (int r = 0; r < 7; r++, k += 2654435769u) {
    uint64_t w = 3528905107u * (uint64_t)x;
    x = (uint32_t)(w >> 32) ^ k ^ y;
    y = (uint32_t)w;
  }
  uint16_t slice[4] = {(uint16_t)x, (uint16_t)(x >> 16), (uint16_t)y, (uint16_t)(y >> 16)};
  bool kept = slice[(i >> 3 & 1) * 2 + (j >> 3 & 1)] >= t;
  return kept ? 65536.0 / (double)(65536 - t) : 0;
}

static void emu_tile(const struct fixture *f, const struct emulation *e, int64_t s, int64_t h,
                     int64_t i, int64_t j0, int64_t j1, struct emu_row *r)
{
  bool rounds = e->num.prob == ATTN_ROUND_STORAGE;
  float x[256], m = r->m, log2e = 1.44269504f;
  for (int64_t j = j0; j < j1; j++) {
    x[j - j0] = emu_sees(f, e, s, i, j) ? emu_score(f, e, s, h, i, j) : -INFINITY;
    m = fmaxf(m, x[j - j0]);
  }
  if (m == -INFINITY)
    return;
  float alpha = exp2f((r->m - m) * log2e), part = 0;
  for (int64_t c = 0; c < f->p.dv && e->fault != NO_RESCALE; c++)
    r->o[c] *= alpha;
  for (int64_t j = j0; j < j1; j++) {
    float p = exp2f(fmaf(x[j - j0], log2e, -m * log2e)), q = p * (float)emu_kept(f, s, h, i, j);
    part += e->num.sum_of_rounded ? emu_round(f, p) : p;
    if (q == 0)
      continue;
    int64_t v = at_k(f, &f->a.v, s, emu_kv(f, e, h), j);
    for (int64_t c = 0; c < f->p.dv; c++) {
      r->o[c] = emu_fma(e, rounds ? emu_round(f, q) : q, (float)get(f, &f->a.v, v + c), r->o[c]);
      if (e->fault == O_16_BIT)
        r->o[c] = emu_round(f, r->o[c]);
    }
  }
  r->l = r->l * alpha + part;
  if (e->fault == SUM_16_BIT)
    r->l = emu_round(f, r->l);
  r->m = m;
}

/* P divided by its sum, then rounded, then times V: the materialising order. */
static void emu_normalised(const struct fixture *f, const struct emulation *e, int64_t s, int64_t h,
                           int64_t i, struct emu_row *r)
{
  memset(r->o, 0, sizeof r->o);
  for (int64_t j = 0; j < f->sk[s]; j++) {
    if (!emu_sees(f, e, s, i, j))
      continue;
    float w = expf(emu_score(f, e, s, h, i, j) - r->m) / r->l;
    int64_t v = at_k(f, &f->a.v, s, emu_kv(f, e, h), j);
    w = emu_round(f, w * (float)emu_kept(f, s, h, i, j));
    for (int64_t c = 0; c < f->p.dv; c++)
      r->o[c] = emu_fma(e, w, (float)get(f, &f->a.v, v + c), r->o[c]);
  }
}

static void emu_row(struct fixture *f, const struct emulation *e, int64_t s, int64_t h, int64_t i)
{
  struct emu_row r = {-INFINITY, 0, {0}};
  int64_t tiles = (f->sk[s] + e->tile - 1) / e->tile, at = at_q(f, &f->a.o, s, h, i);
  for (int64_t k = 0; k < tiles; k++) {
    int64_t j0 = (e->backwards ? tiles - 1 - k : k) * e->tile;
    int64_t j1 = j0 + e->tile < f->sk[s] ? j0 + e->tile : f->sk[s];
    emu_tile(f, e, s, h, i, j0, j1, &r);
  }
  if (e->num.normalize_first)
    emu_normalised(f, e, s, h, i, &r);
  for (int64_t c = 0; c < f->p.dv; c++) {
    float o = r.l == 0 || e->num.normalize_first ? r.o[c]
              : e->fault == NOT_NORMALISED       ? r.o[c]
                                                 : r.o[c] / r.l;
    put(f, &f->a.o, at + c, e->fault == WRITES_ZERO ? 0 : o);
  }
  float lse = r.m + logf(r.l);
  f->a.lse[at_lse(f, s, h, i)] = e->fault == LSE_BASE_2 ? lse * 1.44269504f : lse;
}

/* Fills o and lse. */
__attribute__((unused)) static void emulate_forward(struct fixture *f, const struct emulation *e)
{
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++)
        emu_row(f, e, s, h, i);
  if (e->fault == WRITES_NAN)
    put(f, &f->a.o, at_q(f, &f->a.o, 0, f->p.hq - 1, f->sq[0] - 1) + f->p.dv - 1, NAN);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct emu_grads {
  float *dq, *dk, *dv; /* fp32 accumulators, as the tensors */
};

static void emu_axpy(const struct fixture *f, const struct emulation *e, float a,
                     const struct attn_tensor *x, int64_t xat, int64_t n, float *y)
{
  for (int64_t c = 0; c < n; c++)
    y[c] = emu_fma(e, a, (float)get(f, x, xat + c), y[c]);
}

static void emu_pair(struct fixture *f, const struct emulation *e, int64_t s, int64_t h, int64_t i,
                     int64_t j, float d, struct emu_grads *g)
{
  bool rounds = e->num.prob == ATTN_ROUND_STORAGE;
  const struct attn_args *a = &f->a;
  int64_t kv = emu_kv(f, e, h), qi = at_q(f, &a->q, s, h, i), kj = at_k(f, &a->k, s, kv, j);
  int64_t oi = at_q(f, &a->dout, s, h, i), vj = at_k(f, &a->v, s, kv, j);
  float x = emu_score(f, e, s, h, i, j), z = (float)emu_kept(f, s, h, i, j), t = 0;
  float scale = (float)emu_scale(f, e);
  float p = exp2f((x - a->lse[at_lse(f, s, h, i)]) * 1.44269504f);
  float dp = z * emu_dot(f, e, &a->dout, oi, &a->v, vj, f->p.dv);
  if (f->p.softcap > 0)
    t = tanhf(scale * emu_dot(f, e, &a->q, qi, &a->k, kj, f->p.d) / (float)f->p.softcap);
  float ds = p * (e->fault == NO_D ? dp : dp - d) * (1 - t * t), pz = p * z;
  if (rounds) {
    ds = emu_round(f, ds);
    pz = emu_round(f, pz);
  }
  if (e->fault == HEADS_NOT_SUMMED && (h + 1) % (f->p.hq / f->p.hkv) != 0)
    return;
  emu_axpy(f, e, ds, &a->k, kj, f->p.d, g->dq + at_q(f, &a->dq, s, h, i));
  emu_axpy(f, e, ds, &a->q, qi, f->p.d, g->dk + at_k(f, &a->dk, s, kv, j));
  emu_axpy(f, e, pz, &a->dout, oi, f->p.dv, g->dv + at_k(f, &a->dv, s, kv, j));
}

static void emu_store(struct fixture *f, const struct attn_tensor *t, int64_t at, const float *x,
                      float scale, int64_t n)
{
  for (int64_t c = 0; c < n; c++)
    put(f, t, at + c, x[at + c] * scale);
}

/* Fills dq, dk, dv from o and lse. */
__attribute__((unused)) static void emulate_backward(struct fixture *f, const struct emulation *e)
{
  float scale = (float)emu_scale(f, e);
  struct emu_grads g = {calloc((size_t)(f->total_q * f->p.hq * f->p.d + 1), 4),
                        calloc((size_t)(f->total_k * f->p.hkv * f->p.d + 1), 4),
                        calloc((size_t)(f->total_k * f->p.hkv * f->p.dv + 1), 4)};
  for (int64_t s = 0; s < f->nseq; s++) {
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++) {
        float d = emu_dot(f, e, &f->a.dout, at_q(f, &f->a.dout, s, h, i), &f->a.o,
                          at_q(f, &f->a.o, s, h, i), f->p.dv);
        for (int64_t j = 0; j < f->sk[s]; j++)
          if (emu_sees(f, e, s, i, j))
            emu_pair(f, e, s, h, i, j, d, &g);
        emu_store(f, &f->a.dq, at_q(f, &f->a.dq, s, h, i), g.dq, scale, f->p.d);
      }
    for (int64_t h = 0; h < f->p.hkv; h++)
      for (int64_t j = 0; j < f->sk[s]; j++) {
        emu_store(f, &f->a.dk, at_k(f, &f->a.dk, s, h, j), g.dk,
                  e->fault == NO_SCALE_DK ? 1 : scale, f->p.d);
        emu_store(f, &f->a.dv, at_k(f, &f->a.dv, s, h, j), g.dv, 1, f->p.dv);
      }
  }
  free(g.dq);
  free(g.dk);
  free(g.dv);
}

#endif
