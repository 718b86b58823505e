/* SPDX-License-Identifier: Apache-2.0
 *
 * semantics.h - reference/SEMANTICS as code, for the host and for CUDA: which key a query sees,
 * what a score is, which weights dropout keeps.  One predicate per (i, j), no tiles and no ranges:
 * it is written apart from every kernel's mask and from impl/problem.c, so that a shared mistake
 * cannot hide.  Numbers in brackets are the sentences of SEMANTICS.
 */
#ifndef REFERENCE_SEMANTICS_H
#define REFERENCE_SEMANTICS_H

#include <math.h>

#include "impl/attn.h"

#ifdef __CUDACC__
#define REF_FN static inline __host__ __device__
#else
#define REF_FN static inline
#endif

/* A problem with its defaults resolved; a plain value that a kernel can take by copy. */
struct ref_shape {
  enum attn_dtype dtype;
  int64_t b, hq, hkv, group, d, dv;
  enum attn_mask mask;
  int64_t left, right;
  double scale, cap;
  bool alibi, packed, ragged;
  uint32_t drop_threshold; /* of 65536; 0: no dropout */
  uint64_t drop_seed;
  int64_t total_q, total_k, max_sq, max_sk;
  int64_t page;         /* tokens; 0: keys and values are contiguous */
  const int32_t *table; /* (b, table_stride) */
  int64_t table_stride;
  bool e4m3;                      /* keys and values are e4m3, times the scale of their head */
  const float *k_scale, *v_scale; /* (hkv) */
};

/* One sequence: lengths, first row in the packed tensors (0 when not packed), and the first row of
 * all sequences counted in order. */
struct ref_seq {
  int64_t sq, sk, q0, k0, qfirst, kfirst;
};

/* [2.1]-[2.6] does query i of sq see key j of sk? */
REF_FN bool ref_visible(const struct ref_shape *p, int64_t sq, int64_t sk, int64_t i, int64_t j)
{
  int64_t diagonal = i + sk - sq;
  switch (p->mask) {
  case ATTN_MASK_NONE: return true;
  case ATTN_MASK_CAUSAL: return j <= diagonal;
  case ATTN_MASK_CAUSAL_TOPLEFT: return j <= i;
  case ATTN_MASK_WINDOW:
    return (p->left < 0 || diagonal - j <= p->left) && (p->right < 0 || j - diagonal <= p->right);
  }
  return false;
}

/* [2.7] does query i see no key? The keys that it sees, if any, include key 0 or the key nearest to
 * its diagonal. */
REF_FN bool ref_row_empty(const struct ref_shape *p, int64_t sq, int64_t sk, int64_t i)
{
  int64_t near = i + sk - sq;
  if (sk == 0)
    return true;
  near = near < 0 ? 0 : near >= sk ? sk - 1 : near;
  return !ref_visible(p, sq, sk, i, 0) && !ref_visible(p, sq, sk, i, near);
}

/* [4.2], [4.3] slope of query head h */
REF_FN double ref_alibi_slope(int64_t hq, int64_t h)
{
  int64_t pow2 = 1;
  while (pow2 * 2 <= hq)
    pow2 *= 2;
  if (h < pow2)
    return exp2(-8.0 * (double)(h + 1) / (double)pow2);
  return exp2(-4.0 * (double)(2 * (h - pow2) + 1) / (double)pow2);
}

/* A score on its way: x = scale q.k, t = tanh(x / cap) or 0, bias, and s, their sum. */
struct ref_score {
  double x, t, bias, s;
};

/* [3.1], [3.2], [4.1] */
REF_FN struct ref_score ref_score_of(const struct ref_shape *p, double slope, int64_t diagonal,
                                     int64_t j, double dot)
{
  struct ref_score r = {p->scale * dot, 0, 0, 0};
  r.s = r.x;
  if (p->cap > 0) {
    r.t = tanh(r.x / p->cap);
    r.s = p->cap * r.t;
  }
  if (p->alibi) {
    r.bias = -slope * fabs((double)(diagonal - j));
    r.s += r.bias;
  }
  return r;
}

/* [5.2] Philox-2x32 of 7 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC11). */
REF_FN void ref_philox2x32(int rounds, uint32_t key, uint32_t *c0, uint32_t *c1)
{
  for (int r = 0; r < rounds; r++) {
    uint64_t product = (uint64_t)0xD256D193u * *c0;
    *c0 = (uint32_t)(product >> 32) ^ key ^ *c1;
    *c1 = (uint32_t)product;
    key += 0x9E3779B9u;
  }
}

/* [5.3]-[5.5] factor on weight (i, j) of head h, sequence b: 0 or 65536 / (65536 - threshold) */
REF_FN double ref_dropout(const struct ref_shape *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
  if (p->drop_threshold == 0)
    return 1;
  if (p->drop_threshold >= 65536)
    return 0;
  uint32_t row = (uint32_t)((i / 16) * 8 + i % 8), col = (uint32_t)((j / 16) * 8 + j % 8);
  uint32_t key = (uint32_t)p->drop_seed + (uint32_t)(b * p->hq + h) * 0x9E3779B9u;
  uint32_t word[2] = {row ^ (uint32_t)(p->drop_seed >> 32), col};
  ref_philox2x32(7, key, &word[0], &word[1]);
  bool low_row = i % 16 < 8, low_col = j % 16 < 8;
  uint32_t slice = word[low_row ? 0 : 1] >> (low_col ? 0 : 16) & 0xffff;
  return slice >= p->drop_threshold ? 65536.0 / (double)(65536 - p->drop_threshold) : 0;
}

#endif
