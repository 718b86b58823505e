/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-score.cuh - from raw products to scores: masks, and the options softcap, ALiBi,
 * dropout.
 */
#ifndef IMPL_CUDA_FLASH_SM90_SCORE_CUH
#define IMPL_CUDA_FLASH_SM90_SCORE_CUH

#include "impl/cuda/alibi.cuh"
#include "impl/cuda/sm90-forward/flash-sm90-issue.cuh"
#include "impl/dropout.h"

/* Where this warpgroup is in the keys: steps n - 1 .. lo, which start where its last row sees its
 * last key; those >= right or < left need a mask. */
struct sm90_walk {
  int n, lo, right, left;
};

template <class C>
SM90_DEV sm90_walk sm90_start(const sm90_lane &w, const sm90_params &p, const sm90_tile &t)
{
  const int first = t.m0 + 64 * w.wg + sm90_shift(p, t.sq, t.sk);
  const int rows = min(64, t.sq - t.m0 - 64 * w.wg);
  const int end = rows > 0 ? max(0, min(t.sk, first + rows + p.right)) : 0;
  sm90_walk k;
  k.n = sm90_uniform(max(t.lo, min(t.hi, (end + C::KN - 1) / C::KN)));
  k.lo = sm90_uniform(t.lo);
  k.right = sm90_uniform(max(0, min(t.sk, first + p.right + 1)) / C::KN);
  k.left = sm90_uniform((max(0, first + 63 - p.left) + C::KN - 1) / C::KN);
  return k;
}

/* Every row sees all keys of step n. */
SM90_DEV bool sm90_clear(const sm90_walk &k)
{
  return k.n < k.right && k.n >= k.left;
}

/* Hides the keys of step n that this thread's rows do not see. */
template <class C>
SM90_DEV void sm90_mask(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                        float (&S)[C::KN / 2])
{
  if (sm90_clear(k))
    return;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const int base = k.n * C::KN + 2 * (w.lane & 3), at = t.m0 + w.row + sm90_shift(p, t.sq, t.sk);
  if (k.n >= k.right) {
    const int r0 = min(t.sk, at + p.right + 1) - base, r1 = min(t.sk, at + p.right + 9) - base;
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      if (i / 4 * 8 + i % 2 >= (i & 2 ? r1 : r0))
        S[i] = -INFINITY;
  }
  if (k.n < k.left) {
    const int r0 = at - p.left - base, r1 = r0 + 8;
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      if (i / 4 * 8 + i % 2 < (i & 2 ? r1 : r0))
        S[i] = -INFINITY;
  }
}

/* Raw products become scores in log2 units: scaled, capped, biased. */
template <class C>
SM90_DEV void sm90_score(const sm90_lane &w, const sm90_params &p, int n, int count,
                         float (&S)[C::KN / 2])
{
  if (p.cap > 0.f) {
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      S[i] = p.cap * sm90_tanh(S[i] * p.cap_scale);
  } else {
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      S[i] *= p.cap_scale;
  }
  if (!p.alibi)
    return;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const float slope = alibi_slope(p.hq, t.head) * -1.4426950408889634f;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float far = (float)(t.m0 + w.row + 8 * h + t.sk - t.sq - n * C::KN - 2 * (w.lane & 3));
#pragma unroll
    for (int i = 0; i < C::KN / 4; i++)
      S[i / 2 * 4 + 2 * h + i % 2] += slope * fabsf(far - (i / 2 * 8 + i % 2));
  }
}

/* Zeroes the weights that dropout drops; one call of the generator decides four of a thread's. */
template <class C>
SM90_DEV void sm90_drop(const sm90_lane &w, const sm90_params &p, int n, int count,
                        float (&S)[C::KN / 2])
{
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const uint32_t key = attn_dropout_key(p.drop_seed, t.seq, p.hq, t.head);
  const int row = t.m0 + w.row, col = n * C::KN + 2 * (w.lane & 3);
#pragma unroll
  for (int j = 0; j < C::KN / 16; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      uint32_t up, down;
      attn_dropout_words(p.drop_seed, key, row, col + 16 * j + e, &up, &down);
      float *s = &S[8 * j + e];
      s[0] = (up & 0xffff) >= p.drop_threshold ? s[0] : 0.f;
      s[2] = (down & 0xffff) >= p.drop_threshold ? s[2] : 0.f;
      s[4] = up >> 16 >= p.drop_threshold ? s[4] : 0.f;
      s[6] = down >> 16 >= p.drop_threshold ? s[6] : 0.f;
    }
}

#endif
