/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-step.cuh - the portable backward: from scores to P and dS, and dQ of a step.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM80_STEP_CUH
#define IMPL_CUDA_FLASH_BWD_SM80_STEP_CUH

#include "impl/cuda/sm80-backward/flash-bwd-sm80-tile.cuh"

/* ---- P and dS ------------------------------------------------------------------------------- */

/* What the options of a head need. */
struct bwd_head {
  float slope;
  uint32_t drop_key;
};

/* A raw score becomes a scaled, softcapped and biased one; *lever: its slope against the raw one.
 * far: distance of query and key on the diagonal. */
__device__ __forceinline__ float bwd_option(const flash_sm80_args &a, const bwd_head &h, float x,
                                            int far, float *lever)
{
  *lever = 1;
  x *= a.raw_scale;
  if (a.softcap > 0) {
    float t = tanhf(x * a.inv_softcap);
    x = a.softcap * t;
    *lever = 1 - t * t;
  }
  return x - h.slope * fabsf((float)far);
}

/* Which of four weights dropout keeps, bit j % 2 + 2 (j / 2): row + 8 (j % 2), col + 8 (j / 2). */
__device__ __forceinline__ uint32_t bwd_kept(const flash_sm80_args &a, const bwd_head &h, int row,
                                             int col)
{
  uint32_t low, high;
  if (a.drop_threshold == 0)
    return 15;
  attn_dropout_words(a.drop_seed, h.drop_key, row, col, &low, &high);
  return ((low & 0xffff) >= a.drop_threshold) | ((high & 0xffff) >= a.drop_threshold) << 1 |
         (low >> 16 >= a.drop_threshold) << 2 | (high >> 16 >= a.drop_threshold) << 3;
}

/* P of the warp's part from its raw scores; the weights that dropout keeps go to shared memory. On
 * return s holds P, times the slope of softcap, negative where dropout drops. */
template <class C, bool MASKED>
__device__ __forceinline__ void
bwd_weights(bwd_scores<C> &s, const flash_bwd_sm80_args &a, const bwd_place &at,
            const bwd_lane<C> &lane, const bwd_head &head, int m0, const float (&lse)[C::S_MB][2])
{
  int row = m0 + lane.row, col = at.n0 + lane.col;
#pragma unroll
  for (int mb = 0; mb < C::S_MB; mb++)
#pragma unroll
    for (int kb = 0; kb < C::S_NB / 2; kb++) {
      float p[4][2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        uint32_t kept = C::OPTIONS ? bwd_kept(a.f, head, row + mb * 16, col + kb * 16 + e) : 15;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int half = j % 2, nb = 2 * kb + j / 2;
          int i = row + mb * 16 + half * 8 + at.diagonal, key = col + nb * 8 + e;
          float &x = s[mb][nb][2 * half + e], lever = 1;
          if (C::OPTIONS)
            x = bwd_option(a.f, head, x, row + mb * 16 + half * 8 + at.sk - at.sq - key, &lever);
          if (MASKED && (key < i - a.f.left || key > i + a.f.right || key >= at.sk))
            x = -INFINITY;
          x = exp2_approx(fmaf(x, a.f.scale_log2, -lse[mb][half]));
          p[j][e] = kept >> j & 1 ? x : 0;
          if (C::OPTIONS)
            x = (kept >> j & 1 ? x : -x) * lever;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j++)
        store_shared((lane.p ^ ((2 * kb + j / 2) << 4)) + mb * 2048 + j % 2 * 1024,
                     pack<typename C::elem>(p[j][0], p[j][1]));
    }
}

/* dS from s, as bwd_weights left it, and dP, to shared memory. */
template <class C>
__device__ __forceinline__ void bwd_gradients(const bwd_scores<C> &s, const bwd_scores<C> &dp,
                                              const flash_bwd_sm80_args &a, const bwd_lane<C> &lane,
                                              const float (&dsum)[C::S_MB][2])
{
#pragma unroll
  for (int mb = 0; mb < C::S_MB; mb++)
#pragma unroll
    for (int nb = 0; nb < C::S_NB; nb++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float ds[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float x = s[mb][nb][2 * half + e], y = dp[mb][nb][2 * half + e];
          if (C::OPTIONS)
            y = x < 0 ? 0 : y * a.f.keep_scale;
          ds[e] = (C::OPTIONS ? fabsf(x) : x) * (y - dsum[mb][half]);
        }
        store_shared((lane.p ^ (nb << 4)) + C::P_BYTES + mb * 2048 + half * 1024,
                     pack<typename C::elem>(ds[0], ds[1]));
      }
}

/* Two statistics of each of the lane's rows. */
template <class C>
__device__ __forceinline__ void bwd_row_values(float (&x)[C::S_MB][2], const float *of_row)
{
#pragma unroll
  for (int mb = 0; mb < C::S_MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      x[mb][half] = of_row[mb * 16 + half * 8];
}

/* Do all the queries of tile m0 see all the keys of the block? */
template <class C>
__device__ __forceinline__ bool bwd_clean(const flash_bwd_sm80_args &a, const bwd_place &at, int m0)
{
  int first = m0 + at.diagonal, last = min(m0 + C::BM, at.sq) - 1 + at.diagonal;
  return at.n0 + C::BN <= at.sk && at.n0 + C::BN - 1 <= first + a.f.right &&
         at.n0 >= last - a.f.left;
}

/* ---- dQ ------------------------------------------------------------------------------------- */

/* Where fragment f of the lane's warp lies in a tile's accumulators: its four values together, or
 * where memory adds one at a time, those of the 32 lanes. */
#if __CUDA_ARCH__ >= 900
#define BWD_ACC_VECTOR 1
#else
#define BWD_ACC_VECTOR 0
#endif

__device__ __forceinline__ int bwd_acc_index(int f, int e)
{
  int lane = threadIdx.x % 32;
  return BWD_ACC_VECTOR ? (f * 32 + lane) * 4 + e : (f * 4 + e) * 32 + lane;
}

__device__ __forceinline__ void bwd_add(float *tile, int f, const float (&x)[4])
{
#if BWD_ACC_VECTOR
  asm volatile(
      "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(tile + bwd_acc_index(f, 0)),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
      : "memory");
#else
#pragma unroll
  for (int e = 0; e < 4; e++)
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(tile + bwd_acc_index(f, e)),
                 "f"(x[e])
                 : "memory");
#endif
}

/* Adds dS K to the accumulators of query tile m of a head, in its turn if there are turns. */
template <class C>
__device__ __forceinline__ void bwd_dq(const flash_bwd_sm80_args &a, const bwd_place &at,
                                       const bwd_step &s, const bwd_lane<C> &lane)
{
  float dq[C::DQ_MB][C::DQ_NB][4];
  bwd_clear(dq);
  bwd_product<typename C::elem, C::DQ_MB, C::DQ_NB, C::BN, false, C::BM, true, C::BN>(
      dq, lane.dq_ds, lane.dq_k);
  int64_t row = bwd_acc_row<C>(a, at.seq, s.head, at.q_row) + s.m * C::BM;
  if (a.turns) {
    if (threadIdx.x == 0)
      bwd_wait_turn(a.turns + row / C::BM, bwd_turn<C>(a, at, s.m));
    __syncthreads();
  }
  float *tile = a.acc + row * C::D;
  int first = threadIdx.x / 32 * (C::DQ_MB * C::DQ_NB);
#pragma unroll
  for (int mb = 0; mb < C::DQ_MB; mb++)
#pragma unroll
    for (int nb = 0; nb < C::DQ_NB; nb++)
      bwd_add(tile, first + mb * C::DQ_NB + nb, dq[mb][nb]);
  if (a.turns) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      bwd_end_turn(a.turns + row / C::BM);
  }
}

#endif
