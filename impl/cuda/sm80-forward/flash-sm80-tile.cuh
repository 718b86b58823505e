/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-tile.cuh - the portable forward kernel on one tile of keys: scores, options, masks,
 * online softmax, P V.
 */
#ifndef IMPL_CUDA_FLASH_SM80_TILE_CUH
#define IMPL_CUDA_FLASH_SM80_TILE_CUH

#include "impl/cuda/sm80-forward/flash-sm80-load.cuh"

/* What a warp carries along the key tiles. */
template <class C>
struct flash_rows {
  float o[C::MB][C::DB][4];        /* unnormalised */
  float m[C::MB][2];               /* maximum that P refers to, raw scores */
  float l[C::MB][2];               /* this lane's share of the sum of P */
  uint32_t q[C::Q_KEPT][C::MB][4]; /* operands, if they are kept */
};

template <class C>
using flash_scores = float[C::MB][C::NB][4];

/* A lane's first ldmatrix addresses: Q rows, K and V of stage 0. */
template <class C>
struct flash_lane {
  uint32_t q, k, v;

  __device__ __forceinline__ flash_lane(uint32_t smem)
  {
    int lane = threadIdx.x % 32;
    q = smem + tile_offset<C::BM>(threadIdx.x / 32 * C::ROWS + lane % 16, lane / 16);
    k = smem + C::Q_BYTES + tile_offset<C::BN>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    v = smem + C::Q_BYTES + C::KV_BYTES + tile_offset<C::BN>(lane % 16, lane / 16);
  }
};

template <class C>
__device__ __forceinline__ void flash_clear(flash_rows<C> &st)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++) {
    st.m[mb][0] = st.m[mb][1] = -INFINITY;
    st.l[mb][0] = st.l[mb][1] = 0;
#pragma unroll
    for (int db = 0; db < C::DB; db++)
      st.o[mb][db][0] = st.o[mb][db][1] = st.o[mb][db][2] = st.o[mb][db][3] = 0;
  }
}

/* Operands of k-step `step` of the warp's rows; q: this lane's first ldmatrix address. */
template <class C>
__device__ __forceinline__ void flash_load_q(uint32_t (&qa)[C::MB][4], uint32_t q, int step)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
    ldmatrix(qa[mb], (q ^ (step % 4 * 32)) + step / 4 * (C::BM * 128) + mb * 16 * 128);
}

/* s = Q K^T of the warp's rows; q, k: this lane's first ldmatrix addresses. */
template <class C>
__device__ __forceinline__ void flash_qk(flash_scores<C> &s, flash_rows<C> &st, uint32_t q,
                                         uint32_t k)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int nb = 0; nb < C::NB; nb++)
      s[mb][nb][0] = s[mb][nb][1] = s[mb][nb][2] = s[mb][nb][3] = 0;
#pragma unroll
  for (int step = 0; step < C::D / 16; step++) {
    uint32_t(&qa)[C::MB][4] = st.q[C::Q_IN_REGISTERS ? step : 0];
    uint32_t kk = (k ^ (step % 4 * 32)) + step / 4 * (C::BN * 128);
    if (!C::Q_IN_REGISTERS)
      flash_load_q<C>(qa, q, step);
#pragma unroll
    for (int nb = 0; nb < C::NB; nb += 2) {
      uint32_t kb[4];
      ldmatrix(kb, kk + nb * 8 * 128);
#pragma unroll
      for (int mb = 0; mb < C::MB; mb++) {
        mma<typename C::elem>(s[mb][nb], qa[mb], kb[0], kb[1]);
        mma<typename C::elem>(s[mb][nb + 1], qa[mb], kb[2], kb[3]);
      }
    }
  }
}

/* Raw scores become scaled, softcapped and biased ones. n0: first key of the tile. */
template <class C>
__device__ __forceinline__ void flash_options(flash_scores<C> &s, const flash_sm80_args &a,
                                              const flash_place &at, int n0)
{
  int lane = threadIdx.x % 32, row = at.m0 + threadIdx.x / 32 * C::ROWS + lane / 4;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      /* distance to the lane's first key */
      float far = (float)(row + mb * 16 + half * 8 + at.sk - at.sq - n0 - lane % 4 * 2);
#pragma unroll
      for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float &x = s[mb][nb][2 * half + e];
          x *= a.raw_scale;
          if (a.softcap > 0)
            x = a.softcap * tanhf(x * a.inv_softcap);
          x -= at.slope * fabsf(far - (nb * 8 + e));
        }
    }
}

/* Zeroes the weights of 16 keys, from n0 on, that dropout drops: one call of the generator decides
 * four of the lane's. p[e][j]: column 2(lane%4)+e, of row half j%2 and key block j/2. */
template <class C>
__device__ __forceinline__ void flash_drop(float (&p)[2][4], const flash_sm80_args &a,
                                           const flash_place &at, int mb, int n0)
{
  int lane = threadIdx.x % 32;
  int row = at.m0 + threadIdx.x / 32 * C::ROWS + mb * 16 + lane / 4;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    uint32_t low, high; /* rows of the first half, of the second */
    attn_dropout_words(a.drop_seed, at.drop_key, row, n0 + lane % 4 * 2 + e, &low, &high);
    p[e][0] = (low & 0xffff) >= a.drop_threshold ? p[e][0] : 0;
    p[e][1] = (high & 0xffff) >= a.drop_threshold ? p[e][1] : 0;
    p[e][2] = low >> 16 >= a.drop_threshold ? p[e][2] : 0;
    p[e][3] = high >> 16 >= a.drop_threshold ? p[e][3] : 0;
  }
}

/* Scores that a row does not see become -inf. n0: first key of the tile. */
template <class C>
__device__ __forceinline__ void flash_mask(flash_scores<C> &s, const flash_sm80_args &a,
                                           const flash_place &at, int n0)
{
  int lane = threadIdx.x % 32, row = at.m0 + threadIdx.x / 32 * C::ROWS + lane / 4;
  int diagonal = a.bottom_right ? at.sk - at.sq : 0;
  n0 += lane % 4 * 2;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int i = row + mb * 16 + half * 8 + diagonal;
      int lo = i - a.left - n0, hi = min(at.sk, i + a.right + 1) - n0;
#pragma unroll
      for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (nb * 8 + e < lo || nb * 8 + e >= hi)
            s[mb][nb][2 * half + e] = -INFINITY;
    }
}

/* Moves the rows' maxima up to the tile's where those grew by more than the threshold. */
template <class C>
__device__ __forceinline__ void flash_rescale(flash_rows<C> &st, const flash_scores<C> &s,
                                              const flash_sm80_args &a)
{
  float alpha[C::MB][2];
  bool grew = false;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = st.m[mb][half];
#pragma unroll
      for (int nb = 0; nb < C::NB; nb++)
        top = fmaxf(top, fmaxf(s[mb][nb][2 * half], s[mb][nb][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      /* -inf - -inf is NaN, which is not greater */
      bool up = top - st.m[mb][half] > a.threshold;
      alpha[mb][half] = up ? exp2_approx((st.m[mb][half] - top) * a.scale_log2) : 1;
      st.m[mb][half] = up ? top : st.m[mb][half];
      grew |= up;
    }
  if (!__any_sync(~0u, grew))
    return;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++) {
    st.l[mb][0] *= alpha[mb][0];
    st.l[mb][1] *= alpha[mb][1];
#pragma unroll
    for (int db = 0; db < C::DB; db++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        st.o[mb][db][e] *= alpha[mb][e / 2];
  }
}

/* o += P V, P = 2^(scale_log2 (s - m)) made 16 keys at a time; v: the lane's first address, n0:
 * first key. */
template <class C, bool MASKED>
__device__ __forceinline__ void flash_pv(flash_rows<C> &st, const flash_scores<C> &s, uint32_t v,
                                         const flash_sm80_args &a, const flash_place &at, int n0)
{
  float shift[C::MB][2];
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      shift[mb][half] = MASKED && st.m[mb][half] == -INFINITY ? 0 : st.m[mb][half] * a.scale_log2;
#pragma unroll
  for (int kb = 0; kb < C::BN / 16; kb++) {
    uint32_t pa[C::MB][4];
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++) {
      float p[2][4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int nb = 2 * kb + j / 2, half = j % 2;
#pragma unroll
        for (int e = 0; e < 2; e++)
          p[e][j] = exp2_approx(fmaf(s[mb][nb][2 * half + e], a.scale_log2, -shift[mb][half]));
        st.l[mb][half] += p[0][j] + p[1][j];
      }
      if (C::OPTIONS && a.drop_threshold)
        flash_drop<C>(p, a, at, mb, n0 + kb * 16);
#pragma unroll
      for (int j = 0; j < 4; j++)
        pa[mb][j] = pack<typename C::elem>(p[0][j], p[1][j]);
    }
#pragma unroll
    for (int db = 0; db < C::DB; db += 2) {
      uint32_t vb[4];
      ldmatrix_trans(vb, (v ^ (db / 2 % 4 * 32)) + db / 8 * (C::BN * 128) + kb * 16 * 128);
#pragma unroll
      for (int mb = 0; mb < C::MB; mb++) {
        mma<typename C::elem>(st.o[mb][db], pa[mb], vb[0], vb[1]);
        mma<typename C::elem>(st.o[mb][db + 1], pa[mb], vb[2], vb[3]);
      }
    }
  }
}

#endif
