/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80.cuh - the portable flash forward kernel: mma.sync, ldmatrix, cp.async; bf16 and fp16.
 *
 *   q, o (b, seqlen_q, hq, d|dv)   k (b, seqlen_k, hkv, d)   v (b, seqlen_k, hkv, dv)
 *   lse (b, hq, seqlen_q), ragged (hq, total_q)
 *
 * After FlashAttention-2 (Dao 2023). One block computes BM query rows of one head; each of its
 * warps owns BM/WARPS whole rows, so that the row statistics need no shared memory, and P goes from
 * the accumulators of Q K^T to the operands of P V in the same registers. Key tiles are visited
 * from the last to the first; only tiles that the mask or the end of the sequence cuts run the code
 * that masks. Key and value rows past the end are zeros in shared memory, never stale bytes, for
 * 0 * NaN is NaN. Head dimensions between 64, 128 and 256 are padded with zeros in shared memory.
 *
 * Numerics: scores and statistics in fp32, P rounded to the storage type as an operand while its
 * sum is taken unrounded, one division at the end. The maximum that a row subtracts is only moved
 * when it has grown by more than 8 (log2), so P <= 256: that depends on the row alone, so a row's
 * bits do not depend on its neighbours.
 *
 * STAGES = 2: K and V of the next tile are in flight during a whole tile; one barrier a tile.
 * STAGES = 1: V_j is loaded during Q K_j, K_(j-1) during P V_j; two barriers, half the memory.
 *
 * Tiles and what each step gave: H200, bf16, 16k tokens, 2048 columns, TFLOP/s full/causal
 *   d  128   128x64,  2 stages, 255 registers, 98 KB   400/406 (2k: 380/340)
 *   d   64   128x128, 2 stages, 255 registers, 82 KB   354/354
 *   d  256   64x64,   1 stage,  241 registers, 98 KB   337/337
 * d = 128, O rescaled
 *   at every tile                           380/336
 *   where a row's maximum grew              392/345
 *   where it grew by more than 8            400/355
 *   and causal tiles by length over all heads   400/406
 * Against that: 1 stage 390/345, 128x48 405/356 but slower below 4k, 128x32 358/316, 64x64
 * 331/321, 8 warps 339/327; Q kept in registers at d = 64 spills: 320/321.
 */
#ifndef IMPL_CUDA_FLASH_SM80_CUH
#define IMPL_CUDA_FLASH_SM80_CUH

#include "impl/cuda/sm80-forward/flash-sm80-tile.cuh"

/* ---- epilogue ------------------------------------------------------------------------------- */

/* Normalises, writes LSE, and leaves the warp's rows of O in its own rows of the Q tile. */
template <class C>
__device__ __forceinline__ void flash_finish(flash_rows<C> &st, const flash_sm80_args &a,
                                             const flash_place &at, uint32_t tile)
{
  int lane = threadIdx.x % 32, first = threadIdx.x / 32 * C::ROWS + lane / 4;
  int64_t lse_row =
      a.cu_seqlens_q ? at.head * a.total_q + at.q_row : ((int64_t)at.seq * a.hq + at.head) * a.sq;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = st.l[mb][half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      float inv = sum == 0 ? 0 : (C::OPTIONS ? a.keep_scale : 1) / sum;
      int row = first + mb * 16 + half * 8;
      if (lane % 4 == 0 && at.m0 + row < at.sq)
        a.lse[lse_row + at.m0 + row] = sum == 0 ? -INFINITY : st.m[mb][half] * a.scale + logf(sum);
#pragma unroll
      for (int db = 0; db < C::DB; db++)
        store_shared(
            tile + tile_offset<C::BM>(row, db) + lane % 4 * 4,
            pack<typename C::elem>(st.o[mb][db][2 * half] * inv, st.o[mb][db][2 * half + 1] * inv));
    }
}

/* The warp's rows from shared memory to O, 16 bytes a lane. */
template <class C>
__device__ __forceinline__ void flash_store(const flash_sm80_args &a, const flash_place &at,
                                            uint32_t tile)
{
  constexpr int CHUNKS = C::D / 8, STEP = 32 / CHUNKS;
  int lane = threadIdx.x % 32, c = lane % CHUNKS;
  int first = threadIdx.x / 32 * C::ROWS + lane / CHUNKS;
  char *to = flash_row(a.o, at.seq, at.head, at.q_row + at.m0 + first) + 16 * c;
#pragma unroll
  for (int i = 0; i < C::ROWS / STEP; i++) {
    uint4 x = load_shared16(tile + tile_offset<C::BM>(first + i * STEP, c));
    if (at.m0 + first + i * STEP < at.sq && c * 8 < a.dv)
      *(uint4 *)(to + 2 * i * STEP * a.o.ss) = x;
  }
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* One key tile. On entry its K is in shared memory, and if STAGES == 2 its V too. Only
 * the first tile of all, a masked one, can reach past the end. */
template <class C, bool MASKED>
__device__ __forceinline__ void flash_tile(const flash_sm80_args &a, const flash_place &at,
                                           const flash_lane<C> &lane, flash_rows<C> &st, int n,
                                           uint32_t smem)
{
  flash_scores<C> s;
  if (C::STAGES == 1) {
    flash_load_v<C, MASKED>(a, at, n, smem);
    copy_commit();
  }
  flash_qk<C>(s, st, lane.q, lane.k + flash_stage<C>(n));
  if (C::STAGES == 1) {
    copy_wait<0>();
    __syncthreads();
    if (n > at.keys.begin)
      flash_load_k<C, false>(a, at, n - 1, smem);
    copy_commit();
  }
  if (C::OPTIONS)
    flash_options<C>(s, a, at, n * C::BN);
  if (MASKED)
    flash_mask<C>(s, a, at, n * C::BN);
  flash_rescale<C>(st, s, a);
  flash_pv<C, MASKED>(st, s, lane.v + flash_stage<C>(n), a, at, n * C::BN);
}

template <class C>
__global__
__launch_bounds__(C::THREADS,
                  C::BLOCKS) void flash_sm80_forward(const __grid_constant__ flash_sm80_args a)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t smem = shared_address(shared);
  flash_place &at = *(flash_place *)(shared + C::PLACE);
  flash_place here;
  if (!flash_locate<C, C::PAGED>(a, here))
    return;
  here.keys = flash_key_tiles<C>(a, here);
  if (threadIdx.x == 0)
    at = here;
  if (here.keys.end > here.keys.begin)
    flash_first_loads<C>(a, here, smem);
  const flash_lane<C> lane(smem);
  flash_rows<C> st;
  flash_clear<C>(st);
  if (C::Q_IN_REGISTERS)
    copy_wait<0>();
  __syncthreads();
  if (C::Q_IN_REGISTERS)
#pragma unroll
    for (int step = 0; step < C::Q_KEPT; step++)
      flash_load_q<C>(st.q[step], lane.q, step);

  for (int n = here.keys.end - 1; n >= at.keys.begin; n--) {
    copy_wait<0>();
    __syncthreads();
    if (C::STAGES == 2 && n > at.keys.begin) {
      flash_load_k<C, false>(a, at, n - 1, smem);
      flash_load_v<C, false>(a, at, n - 1, smem);
      copy_commit();
    }
    if (n < at.keys.clean_begin || n >= at.keys.clean_end)
      flash_tile<C, true>(a, at, lane, st, n, smem);
    else
      flash_tile<C, false>(a, at, lane, st, n, smem);
  }
  flash_finish<C>(st, a, at, smem);
  __syncwarp();
  flash_store<C>(a, at, smem);
}

template <class C>
constexpr flash_sm80_kernel flash_sm80_row()
{
  return {C::elem::dtype,
          C::D,
          C::BM,
          C::BN,
          C::STAGES,
          C::BLOCKS,
          C::OPTIONS,
          C::PAGED,
          C::THREADS,
          (size_t)C::SMEM,
          (const void *)flash_sm80_forward<C>};
}

#endif
