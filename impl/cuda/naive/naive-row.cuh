/* SPDX-License-Identifier: Apache-2.0
 *
 * naive-row.cuh - one row of scores of cuda/naive: vectors of 16 bytes, options and masks,
 * reductions.
 */
#ifndef IMPL_CUDA_NAIVE_ROW_CUH
#define IMPL_CUDA_NAIVE_ROW_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "impl/cuda/alibi.cuh"
#include "impl/cuda/naive/naive.h"
#include "impl/dropout.h"

#define LOG2E 1.4426950408889634f
#define VECTORS 4 /* of 16 bytes that a thread keeps */

/* ---- 16-byte vectors of the storage types ---------------------------------------------------- */

template <class T>
struct vec {
  static constexpr int N = 16 / sizeof(T);
  alignas(16) T x[N];
};

template <class T>
__device__ __forceinline__ void unpack(const vec<T> &v, float *x)
{
#pragma unroll
  for (int i = 0; i < vec<T>::N; i++)
    x[i] = (float)v.x[i];
}

template <class T>
__device__ __forceinline__ vec<T> packed(const float *x)
{
  vec<T> v;
#pragma unroll
  for (int i = 0; i < vec<T>::N; i++)
    v.x[i] = (T)x[i];
  return v;
}

__device__ __forceinline__ float exp2_approx(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* ---- one row -------------------------------------------------------------------------------- */

/* What a team knows of its row. */
template <class T>
struct row_place {
  int64_t row;
  int64_t seq, head, i; /* sequence within the stack, query head, query */
  int lo, hi;           /* visible keys */
  float slope;
  uint32_t drop_key;
};

template <class T, bool OPTIONS>
__device__ __forceinline__ row_place<T> locate(const naive_rows &a, int64_t row)
{
  row_place<T> at;
  int64_t bh = row / a.sq;
  at.row = row;
  at.i = row - bh * a.sq;
  at.seq = bh / a.hq;
  at.head = bh - at.seq * a.hq;
  int64_t lo = at.i + a.diagonal - a.left, hi = at.i + a.diagonal + a.right + 1;
  at.lo = (int)max((int64_t)0, min(lo, (int64_t)a.sk));
  at.hi = (int)max((int64_t)at.lo, min(hi, (int64_t)a.sk));
  at.slope = 0;
  at.drop_key = 0;
  if (OPTIONS) {
    at.slope = a.alibi ? alibi_slope(a.hq, (int)at.head) : 0;
    at.drop_key = attn_dropout_key(a.drop_seed, a.seq0 + at.seq, a.hq, at.head);
  }
  return at;
}

/* Softcap and bias of score x at key j; *t is tanh(x / cap). */
template <class T>
__device__ __forceinline__ float optioned(const naive_rows &a, const row_place<T> &at, int j,
                                          float x, float *t)
{
  *t = 0;
  if (a.softcap > 0) {
    *t = tanhf(x / a.softcap);
    x = a.softcap * *t;
  }
  if (a.alibi)
    x -= at.slope * fabsf((float)(at.i + a.sk - a.sq - j));
  return x;
}

/* Factor that dropout puts on the weight of key j. */
template <class T>
__device__ __forceinline__ float dropout(const naive_rows &a, const row_place<T> &at, int j)
{
  if (a.drop_threshold == 0)
    return 1;
  bool kept = attn_dropout_slice(a.drop_seed, at.drop_key, at.i, j) >= a.drop_threshold;
  return kept ? attn_dropout_scale(a.drop_threshold) : 0;
}

/* Scores of vector n of the row, -inf where hidden. */
template <class T, bool OPTIONS>
__device__ __forceinline__ void load_scores(const naive_rows &a, const row_place<T> &at, int n,
                                            float *x)
{
  constexpr int N = vec<T>::N;
  bool any = n * N < at.hi && n * N + N > at.lo;
  if (any)
    unpack(((const vec<T> *)a.s)[at.row * (a.ld / N) + n], x);
#pragma unroll
  for (int e = 0; e < N; e++) {
    int j = n * N + e;
    float t;
    if (OPTIONS && any)
      x[e] = optioned(a, at, j, x[e], &t);
    if (!any || j < at.lo || j >= at.hi)
      x[e] = -INFINITY;
  }
}

template <bool MAX>
__device__ __forceinline__ float combine(float x, float y)
{
  return MAX ? fmaxf(x, y) : x + y;
}

/* Maximum or sum over the team's threads. */
template <int WARPS, bool MAX>
__device__ __forceinline__ float team_reduce(float x, float *shared)
{
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    x = combine<MAX>(x, __shfl_xor_sync(~0u, x, d));
  if (WARPS == 1)
    return x;
  int warp = threadIdx.x / 32, first = warp / WARPS * WARPS;
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared[warp] = x;
  __syncthreads();
  x = shared[first];
#pragma unroll
  for (int w = 1; w < WARPS; w++)
    x = combine<MAX>(x, shared[first + w]);
  return x;
}

#endif
