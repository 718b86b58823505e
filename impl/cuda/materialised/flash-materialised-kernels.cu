/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-materialised-kernels.cu - standard attention in the order of cuda/flash-sm80: three kernels
 * with S and P in HBM between them.
 *
 *   q, o (b, seqlen_q, hq, d|dv)   k (b, seqlen_k, hkv, d)   v (b, seqlen_k, hkv, dv)
 *   S, P, alpha, m, l: flash-materialised.h
 *
 *   scores    S = Q K^T, scaled and biased where there are options
 *   softmax   P = exp(S - m) under the running maximum m of flash's step, alpha, l
 *   outputs   O = P V with the alpha of every step, O / l, LSE
 *
 * Each step is the very function of flash-sm80-tile.cuh, or does what one there does between two
 * matrix products, so on any input the bits are those of cuda/flash-sm80: flash rearranges standard
 * attention and approximates nothing.  Tiles have fewer query rows than flash's, for a row's bits
 * depend on no other row; the width of a key tile is flash's.
 */
#include "config.h"

#include "impl/cuda/materialised/flash-materialised.h"
#include "impl/cuda/sm80-forward/flash-sm80.cuh"

#define TILE_ROWS 64

/* Where this lane's elements are: of query row `row` of the block's tile. */
struct flash_stored {
  int64_t first; /* row m0 of this head in (b, hq, rows) */

  __device__ __forceinline__ flash_stored(const flash_materialised_args &x, const flash_place &at)
  {
    first = ((int64_t)at.seq * x.flash.hq + at.head) * x.rows + at.m0;
  }
};

/* First row of the lane's pair of rows. */
template <class C>
__device__ __forceinline__ int flash_lane_row(int mb, int half)
{
  return threadIdx.x / 32 * C::ROWS + mb * 16 + half * 8 + threadIdx.x % 32 / 4;
}

/* Offset of the lane's two elements of key block nb in a (rows, keys) matrix. */
template <class C>
__device__ __forceinline__ int64_t flash_pair(const flash_materialised_args &x,
                                              const flash_stored &to, int mb, int half, int n,
                                              int nb)
{
  return (to.first + flash_lane_row<C>(mb, half)) * x.keys + n * C::BN + nb * 8 +
         threadIdx.x % 4 * 2;
}

/* The block's tile and its key tiles; false if there is nothing to do. */
template <class C>
__device__ __forceinline__ bool flash_where(const flash_sm80_args &a, flash_place &at)
{
  if (!flash_locate<C>(a, at))
    return false;
  at.keys = flash_key_tiles<C>(a, at);
  return true;
}

template <class C>
__global__ __launch_bounds__(C::THREADS, C::BLOCKS) void flash_materialised_scores(
    const __grid_constant__ flash_materialised_args x)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  using copy = tile_copy<C::BM, C::D, C::THREADS>;
  const flash_sm80_args &a = x.flash;
  const uint32_t smem = shared_address(shared);
  flash_place at;
  if (!flash_where<C>(a, at))
    return;
  const flash_stored to(x, at);
  const flash_lane<C> lane(smem);
  const char *q = flash_row(a.q, at.seq, at.head, at.q_row + at.m0);
  copy(a.d).template issue<true>(smem, copy::first(q, a.q.ss), 2 * copy::STEP * a.q.ss,
                                 at.sq - at.m0);
  for (int n = at.keys.end - 1; n >= at.keys.begin; n--) {
    flash_rows<C> st;
    flash_scores<C> s;
    flash_load_k<C, true>(a, at, n, smem);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    flash_qk<C>(s, st, lane.q, lane.k);
    if (C::OPTIONS)
      flash_options<C>(s, a, at, n * C::BN);
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
      for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          *(float2 *)(x.s + flash_pair<C>(x, to, mb, half, n, nb)) =
              make_float2(s[mb][nb][2 * half], s[mb][nb][2 * half + 1]);
    __syncthreads();
  }
}

/* P of one tile from S, as flash_pv makes it. */
template <class C>
__device__ __forceinline__ void flash_weights(flash_rows<C> &st, const flash_scores<C> &s,
                                              const flash_materialised_args &x,
                                              const flash_place &at, const flash_stored &to, int n)
{
  const flash_sm80_args &a = x.flash;
#pragma unroll
  for (int kb = 0; kb < C::BN / 16; kb++)
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++) {
      float p[2][4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int nb = 2 * kb + j / 2, half = j % 2;
        float shift = st.m[mb][half] == -INFINITY ? 0 : st.m[mb][half] * a.scale_log2;
#pragma unroll
        for (int e = 0; e < 2; e++)
          p[e][j] = exp2_approx(fmaf(s[mb][nb][2 * half + e], a.scale_log2, -shift));
        st.l[mb][half] += p[0][j] + p[1][j];
      }
      if (C::OPTIONS && a.drop_threshold)
        flash_drop<C>(p, a, at, mb, n * C::BN + kb * 16);
#pragma unroll
      for (int j = 0; j < 4; j++)
        *(uint32_t *)(x.p + 2 * flash_pair<C>(x, to, mb, j % 2, n, 2 * kb + j / 2)) =
            pack<typename C::elem>(p[0][j], p[1][j]);
    }
}

/* What a row keeps of one step: o[..][0] of a row that was 1 is the factor of its rescaling. */
template <class C>
__device__ __forceinline__ void flash_ones(flash_rows<C> &st)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
    st.o[mb][0][0] = st.o[mb][0][1] = st.o[mb][0][2] = st.o[mb][0][3] = 1;
}

template <class C>
__global__ __launch_bounds__(C::THREADS, C::BLOCKS) void flash_materialised_softmax(
    const __grid_constant__ flash_materialised_args x)
{
  const flash_sm80_args &a = x.flash;
  flash_place at;
  if (!flash_where<C>(a, at))
    return;
  const flash_stored to(x, at);
  int lane = threadIdx.x % 32;
  flash_rows<C> st;
  flash_clear<C>(st);
  for (int n = at.keys.end - 1; n >= at.keys.begin; n--) {
    flash_scores<C> s;
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
      for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float2 two = *(const float2 *)(x.s + flash_pair<C>(x, to, mb, half, n, nb));
          s[mb][nb][2 * half] = two.x;
          s[mb][nb][2 * half + 1] = two.y;
        }
    if (n < at.keys.clean_begin || n >= at.keys.clean_end)
      flash_mask<C>(s, a, at, n * C::BN);
    flash_ones<C>(st);
    flash_rescale<C>(st, s, a);
    flash_weights<C>(st, s, x, at, to, n);
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (lane % 4 == 0)
          x.alpha[(to.first + flash_lane_row<C>(mb, half)) * x.steps + n] = st.o[mb][0][2 * half];
  }
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int64_t row = to.first + flash_lane_row<C>(mb, half);
      x.l[row * 4 + lane % 4] = st.l[mb][half];
      if (lane % 4 == 0)
        x.m[row] = st.m[mb][half];
    }
}

/* o = alpha o + P V of tile n; v: the lane's first address. */
template <class C>
__device__ __forceinline__ void flash_output(flash_rows<C> &st, uint32_t v,
                                             const flash_materialised_args &x,
                                             const flash_stored &to, int n)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float alpha = x.alpha[(to.first + flash_lane_row<C>(mb, half)) * x.steps + n];
#pragma unroll
      for (int db = 0; db < C::DB; db++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          st.o[mb][db][2 * half + e] *= alpha;
    }
#pragma unroll
  for (int kb = 0; kb < C::BN / 16; kb++) {
    uint32_t pa[C::MB][4];
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        pa[mb][j] =
            *(const uint32_t *)(x.p + 2 * flash_pair<C>(x, to, mb, j % 2, n, 2 * kb + j / 2));
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

template <class C>
__global__ __launch_bounds__(C::THREADS, C::BLOCKS) void flash_materialised_outputs(
    const __grid_constant__ flash_materialised_args x)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  const flash_sm80_args &a = x.flash;
  const uint32_t smem = shared_address(shared);
  flash_place at;
  if (!flash_where<C>(a, at))
    return;
  const flash_stored to(x, at);
  const flash_lane<C> lane(smem);
  flash_rows<C> st;
  flash_clear<C>(st);
  for (int n = at.keys.end - 1; n >= at.keys.begin; n--) {
    flash_load_v<C, true>(a, at, n, smem);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    flash_output<C>(st, lane.v, x, to, n);
    __syncthreads();
  }
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int64_t row = to.first + flash_lane_row<C>(mb, half);
      st.l[mb][half] = x.l[row * 4 + threadIdx.x % 4];
      st.m[mb][half] = x.m[row];
    }
  flash_finish<C>(st, a, at, smem);
  __syncwarp();
  flash_store<C>(a, at, smem);
}

/* BN: the key tile of flash's own variants. */
template <class T, int D, int BN, bool OPTIONS>
constexpr flash_materialised_kernel flash_materialised_row()
{
  using C = flash_config<T, D, TILE_ROWS, BN, 1, 1, false, 4, OPTIONS>;
  return {{C::elem::dtype, C::D, C::BM, C::BN, C::STAGES, C::BLOCKS, C::OPTIONS, C::PAGED,
           C::THREADS, (size_t)C::SMEM, (const void *)flash_materialised_scores<C>},
          (const void *)flash_materialised_softmax<C>,
          (const void *)flash_materialised_outputs<C>};
}

extern "C" const flash_materialised_kernel attn_flash_materialised_kernels[] = {
    flash_materialised_row<bf16, 64, 128, false>(),
    flash_materialised_row<bf16, 64, 64, true>(),
    flash_materialised_row<bf16, 128, 64, false>(),
    flash_materialised_row<bf16, 128, 32, true>(),
    flash_materialised_row<bf16, 256, 64, false>(),
    flash_materialised_row<bf16, 256, 32, true>(),
    flash_materialised_row<fp16, 64, 128, false>(),
    flash_materialised_row<fp16, 64, 64, true>(),
    flash_materialised_row<fp16, 128, 64, false>(),
    flash_materialised_row<fp16, 128, 32, true>(),
    flash_materialised_row<fp16, 256, 64, false>(),
    flash_materialised_row<fp16, 256, 32, true>(),
    {},
};
