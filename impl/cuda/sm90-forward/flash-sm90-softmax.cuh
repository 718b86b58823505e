/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-softmax.cuh - online softmax: row maxima, those left out, sums, and the weights P.
 */
#ifndef IMPL_CUDA_FLASH_SM90_SOFTMAX_CUH
#define IMPL_CUDA_FLASH_SM90_SOFTMAX_CUH

#include <float.h>

#include "impl/cuda/sm90-forward/flash-sm90-score.cuh"

SM90_DEV float quad_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

SM90_DEV float quad_sum(float x)
{
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/* Two rows' state: the maximum in use, in log2 units, and the sum of this thread's part. */
struct sm90_rows {
  float m[2], l[2];
};

/* Moves the maxima up to those of S, unless they grew by 8 or less; alpha: what that does to O. */
template <int N>
SM90_DEV bool sm90_raise(const float (&S)[N], sm90_rows &s, float (&alpha)[2], float c)
{
  float top[2][4];
#pragma unroll
  for (int i = 0; i < N; i++) {
    float &x = top[i / 2 % 2][i / 4 % 2 * 2 + i % 2];
    x = i < 8 ? S[i] : fmaxf(x, S[i]);
  }
  bool grew = false;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float *t = top[h], m = quad_max(fmaxf(fmaxf(t[0], t[1]), fmaxf(t[2], t[3]))) * c;
    const bool grow = m - s.m[h] > 8.f;
    alpha[h] = grow ? ex2(s.m[h] - m) : 1.f;
    s.m[h] = grow ? m : s.m[h];
    grew |= grow;
  }
  return __any_sync(~0u, grew);
}

/* S becomes P = 2^(S c - m); t: this thread's sums. */
template <int N>
SM90_DEV void sm90_exp(float (&S)[N], const sm90_rows &s, float (&t)[2], float c)
{
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float m = fmaxf(s.m[h], -FLT_MAX);
    float sum[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      float &x = S[i / 2 * 4 + 2 * h + i % 2];
      x = ex2(fmaf(x, c, -m));
      sum[i % 2] += x;
    }
    t[h] = sum[0] + sum[1];
  }
}

/* K of a key that its sequence has, from column 0.  Of a paged cache 8 keys in a row share a page.
 */
template <class C>
SM90_DEV const uint16_t *sm90_key(const sm90_params &p, const sm90_tile &t, int key)
{
  const uint16_t *k = (const uint16_t *)p.k + t.head / p.group * p.k_sh;
  if (C::PAGED) {
    const int nth = sm90_nth(p, key);
    return k + p.block_table[t.seq * p.table_stride + nth] * p.k_sb +
           (int64_t)(key - nth * p.page) * p.k_ss;
  }
  return k + (p.items ? 0 : t.seq * p.k_sb) + ((p.items ? p.cu_k[t.seq] : 0) + key) * p.k_ss;
}

/* S = Q K^T once more, from global memory, for a tile without masked keys.  Few registers count
 * here, not time: the parameters are read through a pointer whose origin is hidden, lest what
 * follows from them be kept in registers all along. */
template <class C>
static __device__ __forceinline__ void sm90_again(const sm90_lane &w, const sm90_params &params,
                                                  int n, int count, float (&S)[C::KN / 2])
{
  const sm90_params *hidden = &params;
  asm volatile("" : "+l"(hidden));
  const sm90_params &p = *hidden;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const int seq = p.items ? 0 : t.seq, col = 2 * (w.lane & 3), row = t.m0 + w.row;
  const int key = n * C::KN + w.lane / 4;
  const uint16_t *q = (const uint16_t *)p.q + seq * p.q_sb + t.head * p.q_sh + col +
                      (int64_t)(t.row0 + min(row, t.sq - 1)) * p.q_ss;
  const int64_t down = (min(row + 8, t.sq - 1) - min(row, t.sq - 1)) * p.q_ss;
  const uint16_t *k = sm90_key<C>(p, t, key) + col;
#pragma unroll
  for (int j = 0; j < C::KN / 8; j++) {
    float *s = &S[4 * j];
    s[0] = s[1] = s[2] = s[3] = 0.f;
#pragma unroll 1
    for (int i = 0; i < p.d; i += 16) {
      const bool two = i + 8 < p.d;
      const uint32_t a[4] = {ldg32(q + i), ldg32(q + down + i), two ? ldg32(q + i + 8) : 0,
                             two ? ldg32(q + down + i + 8) : 0};
      mma_m16n8k16(typename C::T(), s, a, ldg32(k + i), two ? ldg32(k + i + 8) : 0);
    }
    if (j + 1 < C::KN / 8)
      k = C::PAGED ? sm90_key<C>(p, t, key + 8 * j + 8) + col : k + 8 * p.k_ss;
  }
}

/* Below it, sums of 2^(S c - m) are taken as they are: the maximum in use may be 8 below the true
 * one.  Above the second, they may have overflowed. */
#define SM90_HIGH 16384.f
#define SM90_LOST 1.329228e36f

/* The maxima in use turned out low, but nothing overflowed: moves them by powers of two.  A sum has
 * at most 64 terms, so that no maximum in use gets above the true one. */
template <int N>
SM90_DEV void sm90_shrink(float (&S)[N], sm90_rows &s, float (&t)[2], float (&alpha)[2])
{
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float top = quad_max(t[h]), by = top < SM90_HIGH ? 0.f : floorf(lg2(top)) - 7.f;
    const float f = ex2(-by);
    s.m[h] += by;
    alpha[h] *= f;
    t[h] *= f;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
      S[i / 2 * 4 + 2 * h + i % 2] *= f;
  }
}

/* What a softmax step leaves to be done when the P V beside it has finished. */
struct sm90_step {
  float t[2], alpha[2]; /* this step's sums; what O must be multiplied by */
  bool rescale;         /* alpha is not 1 */
  bool low;             /* the maximum in use was too low */
};

/* S becomes P.  Without a careful step's maximum it may turn out that one was needed; after a
 * careful step every row that sees a key has one. */
template <class C>
SM90_DEV void sm90_softmax(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                           bool first, float (&S)[C::KN / 2], sm90_rows &s, sm90_step &x)
{
  const bool careful = !C::GUARD || first || k.n >= k.right - 1 || k.n < k.left;
  x.alpha[0] = x.alpha[1] = 1.f;
  x.rescale = false;
  if (careful) {
    if (C::SCORE)
      sm90_score<C>(w, p, k.n, count, S);
    sm90_mask<C>(w, p, k, count, S);
    x.rescale = sm90_raise(S, s, x.alpha, p.c);
  }
  sm90_exp(S, s, x.t, p.c);
  if (C::DROP)
    sm90_drop<C>(w, p, k.n, count, S);
  x.low = C::GUARD && !careful && !__all_sync(~0u, fmaxf(x.t[0], x.t[1]) < SM90_HIGH);
}

/* Mends a step whose maximum was too low, and adds its sums. */
template <class C>
SM90_DEV void sm90_settle(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                          float (&S)[C::KN / 2], sm90_rows &s, sm90_step &x)
{
  if (x.low) {
    x.rescale = true;
    const bool kept = __all_sync(~0u, x.t[0] < SM90_LOST && x.t[1] < SM90_LOST);
    if (C::TWICE && !kept && w.lane == 0)
      *p.lost = p.token;
    if (C::TWICE || kept) {
      sm90_shrink(S, s, x.t, x.alpha);
    } else {
      sm90_again<C>(w, p, k.n, count, S);
      sm90_raise(S, s, x.alpha, p.c);
      sm90_exp(S, s, x.t, p.c);
    }
  }
  s.l[0] = fmaf(s.l[0], x.alpha[0], x.t[0]);
  s.l[1] = fmaf(s.l[1], x.alpha[1], x.t[1]);
}

/* Waits for V, after softmax and before the wait for the P V that runs beside it.  The parity seems
 * to depend on the sums (which are never negative), and the wait is a branch: otherwise ptxas moves
 * the wait for P V up in front of softmax, which serialises the two. */
template <class C>
SM90_DEV void sm90_await_v(const sm90_lane &w, const sm90_params &p, const sm90_ring<C::STAGES> &r,
                           const sm90_step &x)
{
  mbar_wait(w.smem + C::V_FULL + 8 * r.slot(), r.phase() ^ (fminf(x.t[0], x.t[1]) < -p.c));
}

template <class T, int N>
SM90_DEV void sm90_pack(uint32_t (&P)[N / 2], const float (&S)[N])
{
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    P[i] = pack2(T(), S[2 * i], S[2 * i + 1]);
}

template <int N>
SM90_DEV void sm90_rescale(float (&O)[N], const float (&alpha)[2])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    O[i] *= alpha[i >> 1 & 1];
}

#endif
