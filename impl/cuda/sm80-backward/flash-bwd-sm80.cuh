/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80.cuh - the portable flash backward kernels: mma.sync, ldmatrix, cp.async; bf16 and
 * fp16.
 *
 *   q, dq (b, seqlen_q, hq, d)    o, dout (b, seqlen_q, hq, dv)    lse (b, hq, seqlen_q)
 *   k, dk (b, seqlen_k, hkv, d)   v, dv   (b, seqlen_k, hkv, dv)
 *
 *   S = Q K^T   P = 2^(scale_log2 S - lse2)   dP = dO V^T   dS = P * (dP - dsum)
 *   dV = P^T dO   dK = scale dS^T Q   dQ = scale dS K
 *
 *   pre    dsum = rowsum(dO * O), lse2, zeros in the accumulators of dQ
 *   main   a block owns BN keys of one KV head and walks the tiles of BM queries that see any of
 *          them, for every query head of the group: dK and dV stay in fp32 registers from first to
 *          last. Its part of dQ is added to fp32 accumulators in HBM, which lie as the threads hold
 *          them, so that a warp adds 512 contiguous bytes.
 *   post   dQ from the accumulators
 *
 * P and dS go through shared memory, for three products need them with other rows in a warp. Two
 * barriers a tile: after the loads of Q and dO, the next tile's then start; after P and dS.
 *
 * Deterministic: the parts of a query tile's dQ are added in a fixed order of the key tiles, by
 * turns. Blocks take tickets, so that a key tile only waits for those that have begun: under a mask
 * for higher key tiles, which go first and reach a query tile first; without one, key tiles start
 * at query tiles apart and wrap around, within waves that are resident together.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM80_CUH
#define IMPL_CUDA_FLASH_BWD_SM80_CUH

#include "impl/cuda/sm80-backward/flash-bwd-sm80-step.cuh"

/* ---- main ----------------------------------------------------------------------------------- */

/* S, P, dP, dS of a step: everything up to the second barrier. */
template <class C>
__device__ __forceinline__ void
bwd_elements(const flash_bwd_sm80_args &a, const bwd_place &at, const bwd_step &s,
             const bwd_lane<C> &lane, const bwd_head &head, const float *rows, uint32_t stage)
{
  using T = typename C::elem;
  bwd_scores<C> sc, dp;
  float stat[C::S_MB][2];
  bwd_clear(sc);
  bwd_product<T, C::S_MB, C::S_NB, C::D, false, C::BM, false, C::BN>(sc, lane.s_q + stage,
                                                                     lane.s_k);
  bwd_row_values<C>(stat, rows + lane.row);
  if (bwd_clean<C>(a, at, s.m * C::BM))
    bwd_weights<C, false>(sc, a, at, lane, head, s.m * C::BM, stat);
  else
    bwd_weights<C, true>(sc, a, at, lane, head, s.m * C::BM, stat);
  bwd_clear(dp);
  bwd_product<T, C::S_MB, C::S_NB, C::D, false, C::BM, false, C::BN>(
      dp, lane.s_q + stage + C::Q_BYTES, lane.s_k + C::KV_BYTES);
  bwd_row_values<C>(stat, rows + C::BM + lane.row);
  bwd_gradients<C>(sc, dp, a, lane, stat);
}

/* Leaves x, times scale, in a tile of BN rows. */
template <class C>
__device__ __forceinline__ void bwd_store_shared(const float (&x)[C::KV_MB][C::KV_NB][4],
                                                 uint32_t tile, float scale)
{
  constexpr int WKV = C::BN / C::KV_ROWS;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t to = tile + lane % 4 * 4 +
                tile_offset<C::BN>(warp % WKV * C::KV_ROWS + lane / 4, warp / WKV * C::KV_NB);
#pragma unroll
  for (int mb = 0; mb < C::KV_MB; mb++)
#pragma unroll
    for (int nb = 0; nb < C::KV_NB; nb++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_shared(
            (to ^ (nb << 4)) + mb * 2048 + half * 1024,
            pack<typename C::elem>(x[mb][nb][2 * half] * scale, x[mb][nb][2 * half + 1] * scale));
}

/* Rows [0, rows) x columns [0, cols) of a shared tile to a matrix, all threads together. */
template <int ROWS, int D, int THREADS>
__device__ __forceinline__ void bwd_store(uint32_t tile, char *to, int64_t row_stride, int rows,
                                          int cols)
{
  constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;
  int c = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
#pragma unroll
  for (int i = 0; i < ROWS / STEP; i++) {
    int row = first + i * STEP;
    if (row < rows && c * 8 < cols)
      *(uint4 *)(to + 2 * (row * row_stride + c * 8)) =
          load_shared16(tile + tile_offset<ROWS>(row, c));
  }
}

template <class C>
__device__ __forceinline__ void bwd_finish(const bwd_sums<C> &sums, const flash_bwd_sm80_args &a,
                                           const bwd_place &at, uint32_t smem)
{
  copy_wait<0>();
  __syncthreads();
  bwd_store_shared<C>(sums.dk, smem, a.f.raw_scale);
  bwd_store_shared<C>(sums.dv, smem + C::KV_BYTES, C::OPTIONS ? a.f.keep_scale : 1);
  __syncthreads();
  bwd_store<C::BN, C::D, C::THREADS>(smem, flash_row(a.dk, at.seq, at.kv_head, at.k_row + at.n0),
                                     a.dk.ss, at.sk - at.n0, a.f.d);
  bwd_store<C::BN, C::D, C::THREADS>(smem + C::KV_BYTES,
                                     flash_row(a.dv, at.seq, at.kv_head, at.k_row + at.n0), a.dv.ss,
                                     at.sk - at.n0, a.f.dv);
}

template <class C>
__device__ __forceinline__ bwd_head bwd_head_of(const flash_bwd_sm80_args &a, int seq, int head)
{
  bwd_head h = {0, 0};
  if (C::OPTIONS) {
    h.slope = a.f.alibi ? alibi_slope(a.f.hq, head) : 0;
    h.drop_key = attn_dropout_key(a.f.drop_seed, seq, a.f.hq, head);
  }
  return h;
}

/* Number of the block's key tile in the order of work. */
__device__ __forceinline__ int bwd_number(const flash_bwd_sm80_args &a, int *shared)
{
  if (!a.ticket)
    return blockIdx.x;
  if (threadIdx.x == 0)
    *shared = atomicAdd(a.ticket, 1);
  __syncthreads();
  return *shared;
}

template <class C>
__global__
__launch_bounds__(C::THREADS,
                  C::BLOCKS) void flash_bwd_sm80_main(const __grid_constant__ flash_bwd_sm80_args a)
{
  using T = typename C::elem;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t smem = shared_address(shared);
  bwd_place &at = *(bwd_place *)(shared + C::PLACE);
  bwd_place here;
  if (!bwd_locate<C>(a, bwd_number(a, (int *)(shared + C::PLACE + sizeof at)), here))
    return;
  if (threadIdx.x == 0)
    at = here;
  const bwd_lane<C> lane(smem);
  const int total = here.count * a.f.group;
  bwd_step now = {here.kv_head * a.f.group, 0, here.lo + here.start};
  bwd_sums<C> sums;
  bwd_clear(sums.dk);
  bwd_clear(sums.dv);
  if (total > 0) {
    bwd_load_keys<C>(a, here, smem);
    bwd_load_queries<C>(a, here, now, 0, smem);
  }
  for (int i = 0; i < total; i++) {
    const uint32_t stage = bwd_stage<C>(i);
    const float *rows = (const float *)(shared + C::ROWS_AT + stage * C::ROWS_BYTES);
    copy_wait<0>();
    __syncthreads();
    const bwd_step next = bwd_next(at, now);
    if (C::STAGES == 2 && i + 1 < total)
      bwd_load_queries<C>(a, at, next, stage ^ 1, smem);
    bwd_elements<C>(a, at, now, lane, bwd_head_of<C>(a, at.seq, now.head), rows,
                    stage * C::STAGE_BYTES);
    __syncthreads();
    bwd_product<T, C::KV_MB, C::KV_NB, C::BM, true, C::BM, true, C::BM>(
        sums.dv, lane.kv_p, lane.kv_q + stage * C::STAGE_BYTES + C::Q_BYTES);
    bwd_dq<C>(a, at, now, lane);
    bwd_product<T, C::KV_MB, C::KV_NB, C::BM, true, C::BM, true, C::BM>(
        sums.dk, lane.kv_p + C::P_BYTES, lane.kv_q + stage * C::STAGE_BYTES);
    if (C::STAGES == 1 && i + 1 < total) {
      __syncthreads();
      bwd_load_queries<C>(a, at, next, 0, smem);
    }
    now = next;
  }
  bwd_finish<C>(sums, a, at, smem);
}

/* ---- before and after ----------------------------------------------------------------------- */

/* dO . O of a row, 8 elements a lane of D / 8. */
template <class C>
__device__ __forceinline__ float bwd_row_dot(const flash_bwd_sm80_args &a, const flash_place &at,
                                             int row)
{
  constexpr int LANES = C::D / 8;
  int c = threadIdx.x % LANES;
  float sum = 0;
  if (row < at.sq && c * 8 < a.f.dv) {
    uint4 o = *(const uint4 *)(flash_row(a.f.o, at.seq, at.head, at.q_row + row) + 16 * c);
    uint4 g = *(const uint4 *)(flash_row(a.dout, at.seq, at.head, at.q_row + row) + 16 * c);
    const uint32_t x[4] = {o.x, o.y, o.z, o.w}, y[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 u = unpack<typename C::elem>(x[i]), v = unpack<typename C::elem>(y[i]);
      sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
    }
  }
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2)
    sum += __shfl_xor_sync(~0u, sum, d);
  return sum;
}

template <class C>
__global__
__launch_bounds__(C::THREADS) void flash_bwd_sm80_pre(const __grid_constant__ flash_bwd_sm80_args a)
{
  constexpr int LANES = C::D / 8, STEP = C::THREADS / LANES;
  flash_place at;
  if (blockIdx.x == 0 && threadIdx.x == 0 && a.ticket)
    *a.ticket = 0;
  if (!flash_locate<C>(a.f, at))
    return;
  int64_t acc_row = bwd_acc_row<C>(a, at.seq, at.head, at.q_row) + at.m0;
  int64_t lse_row = a.f.cu_seqlens_q ? at.head * a.f.total_q + at.q_row
                                     : ((int64_t)at.seq * a.f.hq + at.head) * a.f.sq;
  if (a.turns && threadIdx.x == 0)
    a.turns[acc_row / C::BM] = 0;
  for (int i = threadIdx.x / LANES; i < C::BM; i += STEP) {
    int row = at.m0 + i;
    float sum = bwd_row_dot<C>(a, at, row);
    if (threadIdx.x % LANES == 0) {
      float lse = row < at.sq ? a.f.lse[lse_row + row] : -INFINITY;
      a.lse2[acc_row + i] = lse == -INFINITY ? INFINITY : lse * 1.4426950408889634f;
      a.dsum[acc_row + i] = sum;
    }
  }
  float4 *acc = (float4 *)(a.acc + acc_row * C::D);
  for (int i = threadIdx.x; i < C::BM * C::D / 4; i += C::THREADS)
    acc[i] = make_float4(0, 0, 0, 0);
}

template <class C>
__global__ __launch_bounds__(C::THREADS) void flash_bwd_sm80_post(
    const __grid_constant__ flash_bwd_sm80_args a)
{
  constexpr int WDQ = C::BM / C::DQ_ROWS;
  __shared__ __align__(1024) unsigned char shared[C::Q_BYTES];
  const uint32_t tile = shared_address(shared);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  flash_place at;
  if (!flash_locate<C>(a.f, at))
    return;
  const float *acc = a.acc + (bwd_acc_row<C>(a, at.seq, at.head, at.q_row) + at.m0) * C::D;
  uint32_t to = tile + lane % 4 * 4 +
                tile_offset<C::BM>(warp % WDQ * C::DQ_ROWS + lane / 4, warp / WDQ * C::DQ_NB);
#pragma unroll
  for (int f = 0; f < C::DQ_MB * C::DQ_NB; f++) {
    int mb = f / C::DQ_NB, nb = f % C::DQ_NB, at_f = warp * (C::DQ_MB * C::DQ_NB) + f;
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
      x[e] = acc[bwd_acc_index(at_f, e)] * a.f.raw_scale;
    store_shared((to ^ (nb << 4)) + mb * 2048, pack<typename C::elem>(x[0], x[1]));
    store_shared((to ^ (nb << 4)) + mb * 2048 + 1024, pack<typename C::elem>(x[2], x[3]));
  }
  __syncthreads();
  bwd_store<C::BM, C::D, C::THREADS>(tile, flash_row(a.dq, at.seq, at.head, at.q_row + at.m0),
                                     a.dq.ss, at.sq - at.m0, a.f.d);
}

template <class C>
constexpr flash_bwd_sm80_kernel flash_bwd_sm80_row()
{
  return {C::elem::dtype,
          C::D,
          C::BM,
          C::BN,
          C::STAGES,
          C::OPTIONS,
          C::THREADS,
          (size_t)C::SMEM,
          C::STEP_SMEM,
          (const void *)flash_bwd_sm80_pre<C>,
          (const void *)flash_bwd_sm80_main<C>,
          (const void *)flash_bwd_sm80_post<C>};
}

#endif
