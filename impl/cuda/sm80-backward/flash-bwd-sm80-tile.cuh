/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-tile.cuh - the portable backward: what a tile variant is, where a block's tiles
 * and rows lie, turns, loads to shared memory, products of tiles in it.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM80_TILE_CUH
#define IMPL_CUDA_FLASH_BWD_SM80_TILE_CUH

#include "impl/cuda/mma.cuh"
#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"
#include "impl/cuda/sm80-forward/flash-sm80-place.cuh"

/* WS, WKV, WDQ: how many of the warps lie along the rows of S, of dK and dV, and of dQ; BLOCKS: on
 * an SM at least. */
template <class T, int D_, int BM_, int BN_, int STAGES_, int WS_, int WKV_, int WDQ_,
          bool OPTIONS_ = false, int WARPS_ = 8, int BLOCKS_ = 1>
struct bwd_config {
  using elem = T;
  static constexpr int D = D_, BM = BM_, BN = BN_, STAGES = STAGES_;
  static constexpr bool OPTIONS = OPTIONS_;
  static constexpr int WARPS = WARPS_, THREADS = 32 * WARPS, BLOCKS = BLOCKS_;
  /* rows and columns of a warp's part */
  static constexpr int S_ROWS = BM / WS_, S_COLS = BN / (WARPS / WS_);
  static constexpr int KV_ROWS = BN / WKV_, KV_COLS = D / (WARPS / WKV_);
  static constexpr int DQ_ROWS = BM / WDQ_, DQ_COLS = D / (WARPS / WDQ_);
  static constexpr int S_MB = S_ROWS / 16, S_NB = S_COLS / 8;
  static constexpr int KV_MB = KV_ROWS / 16, KV_NB = KV_COLS / 8;
  static constexpr int DQ_MB = DQ_ROWS / 16, DQ_NB = DQ_COLS / 8;
  static_assert(S_COLS <= 64 && KV_COLS <= 64 && DQ_COLS <= 64, "columns within a panel");
  static constexpr int Q_BYTES = BM * D * 2, KV_BYTES = BN * D * 2, P_BYTES = BM * BN * 2;
  /* K, V, stages of (Q, dO), P, dS, stages of (lse2, dsum) */
  static constexpr int STAGE0 = 2 * KV_BYTES, STAGE_BYTES = 2 * Q_BYTES;
  static constexpr int P_AT = STAGE0 + STAGES * STAGE_BYTES, DS_AT = P_AT + P_BYTES;
  static constexpr int ROWS_AT = DS_AT + P_BYTES, ROWS_BYTES = 8 * BM;
  static constexpr int PLACE = ROWS_AT + STAGES * ROWS_BYTES, SMEM = PLACE + 128;
  /* Each warp reads both operands of its part of a product: S and dP, dV and dK, dQ. P and dS are
   * written, and Q and dO. */
  static constexpr int STEP_SMEM =
      2 * WARPS *
          (2 * (S_ROWS + S_COLS) * D + 2 * (KV_ROWS + KV_COLS) * BM + (DQ_ROWS + DQ_COLS) * BN) +
      2 * P_BYTES + 2 * Q_BYTES;
};

/* What a block works on. */
struct bwd_place {
  int seq, kv_head, n, n0; /* n0: first key */
  int sq, sk, diagonal;
  int64_t q_row, k_row; /* of the sequence in a packed tensor */
  int lo, count, start; /* query tiles lo ... lo + count - 1, begun at lo + start */
  int tiles;            /* key tiles of this sequence */
};

/* One step of the walk: query tile m of a head. */
struct bwd_step {
  int head, index, m;
};

/* ---- where ---------------------------------------------------------------------------------- */

/* First padded row of a head. */
template <class C>
__device__ __forceinline__ int64_t bwd_acc_row(const flash_bwd_sm80_args &a, int seq, int head,
                                               int64_t q_row)
{
  int64_t of_seq =
      a.f.cu_seqlens_q ? (q_row + (int64_t)seq * C::BM) / C::BM * C::BM : seq * a.acc_seq;
  return of_seq + head * a.acc_head;
}

/* Query tiles that see a key of the block's tile. */
template <class C>
__device__ __forceinline__ void bwd_query_tiles(const flash_bwd_sm80_args &a, bwd_place &at)
{
  int last_key = min(at.n0 + C::BN, at.sk) - 1;
  int first = max(0, at.n0 - at.diagonal - a.f.right);
  int last = min(at.sq - 1, last_key - at.diagonal + a.f.left);
  at.lo = at.count = at.start = 0;
  if (at.n0 < at.sk && first <= last) {
    at.lo = first / C::BM;
    at.count = last / C::BM + 1 - at.lo;
  }
  if (a.wave > 0) {
    int rank = at.n % a.wave, size = min(a.wave, at.tiles - (at.n - rank));
    at.start = (int)((int64_t)rank * at.count / size);
  }
}

/* The block's key tile; false if the sequence ends before it. */
template <class C>
__device__ __forceinline__ bool bwd_locate(const flash_bwd_sm80_args &a, int x, bwd_place &at)
{
  const flash_rank r(a.runs, a.hkv, x);
  at.seq = r.seq;
  at.kv_head = r.head;
  at.n = a.descending ? r.tiles - 1 - r.rank : r.rank;
  at.n0 = at.n * C::BN;
  at.sq = a.f.sq;
  at.sk = a.f.sk;
  at.q_row = at.k_row = 0;
  if (a.f.cu_seqlens_q) {
    at.q_row = a.f.cu_seqlens_q[at.seq];
    at.k_row = a.f.cu_seqlens_k[at.seq];
    at.sq = a.f.cu_seqlens_q[at.seq + 1] - (int)at.q_row;
    at.sk = a.f.cu_seqlens_k[at.seq + 1] - (int)at.k_row;
  }
  at.tiles = (at.sk + C::BN - 1) / C::BN;
  at.diagonal = a.f.bottom_right ? at.sk - at.sq : 0;
  bwd_query_tiles<C>(a, at);
  return at.n0 < at.sk;
}

__device__ __forceinline__ bwd_step bwd_next(const bwd_place &at, bwd_step s)
{
  if (++s.index == at.count) {
    s.index = 0;
    s.head++;
  }
  int m = at.start + s.index;
  s.m = at.lo + (m < at.count ? m : m - at.count);
  return s;
}

/* How many contributions to query tile m come before this block's. */
template <class C>
__device__ __forceinline__ int bwd_turn(const flash_bwd_sm80_args &a, const bwd_place &at, int m)
{
  if (a.wave > 0) {
    int rank = at.n % a.wave, first = at.n - rank, size = min(a.wave, at.tiles - first);
    /* tiles of the wave that start at m or before it have come by, the latest first */
    int started = (int)min((int64_t)size, ((int64_t)(m + 1) * size + at.count - 1) / at.count);
    return first + (rank < started ? started - 1 - rank : started + size - 1 - rank);
  }
  int last_query = min((m + 1) * C::BM, at.sq) - 1;
  int last_key = min(at.sk - 1, last_query + at.diagonal + a.f.right);
  return last_key / C::BN - at.n;
}

/* ---- turns ---------------------------------------------------------------------------------- */

__device__ __forceinline__ void bwd_wait_turn(const int32_t *turn, int n)
{
  int32_t now;
  do
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  while (now != n);
}

__device__ __forceinline__ void bwd_end_turn(int32_t *turn)
{
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

/* ---- loads ---------------------------------------------------------------------------------- */

template <class C>
__device__ __forceinline__ uint32_t bwd_stage(int n)
{
  return C::STAGES == 2 ? (n & 1) : 0;
}

/* K and V of the block. */
template <class C>
__device__ __forceinline__ void bwd_load_keys(const flash_bwd_sm80_args &a, const bwd_place &at,
                                              uint32_t smem)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  const char *k = flash_row(a.f.k, at.seq, at.kv_head, at.k_row + at.n0);
  const char *v = flash_row(a.f.v, at.seq, at.kv_head, at.k_row + at.n0);
  copy(a.f.d).template issue<true>(smem, copy::first(k, a.f.k.ss), 2 * copy::STEP * a.f.k.ss,
                                   at.sk - at.n0);
  copy(a.f.dv).template issue<true>(smem + C::KV_BYTES, copy::first(v, a.f.v.ss),
                                    2 * copy::STEP * a.f.v.ss, at.sk - at.n0);
}

/* Q, dO, lse2 and dsum of a step. */
template <class C>
__device__ __forceinline__ void bwd_load_queries(const flash_bwd_sm80_args &a, const bwd_place &at,
                                                 const bwd_step &s, int stage, uint32_t smem)
{
  using copy = tile_copy<C::BM, C::D, C::THREADS>;
  uint32_t to = smem + C::STAGE0 + stage * C::STAGE_BYTES;
  int m0 = s.m * C::BM, rows = at.sq - m0;
  const char *q = flash_row(a.f.q, at.seq, s.head, at.q_row + m0);
  const char *o = flash_row(a.dout, at.seq, s.head, at.q_row + m0);
  copy(a.f.d).template issue<true>(to, copy::first(q, a.f.q.ss), 2 * copy::STEP * a.f.q.ss, rows);
  copy(a.f.dv).template issue<true>(to + C::Q_BYTES, copy::first(o, a.dout.ss),
                                    2 * copy::STEP * a.dout.ss, rows);
  if (threadIdx.x < C::BM / 2) {
    int64_t row = bwd_acc_row<C>(a, at.seq, s.head, at.q_row) + m0;
    int chunk = threadIdx.x % (C::BM / 4);
    const float *from = (threadIdx.x < C::BM / 4 ? a.lse2 : a.dsum) + row + 4 * chunk;
    copy16(smem + C::ROWS_AT + stage * C::ROWS_BYTES + 16 * threadIdx.x, from, 16);
  }
  copy_commit();
}

/* ---- products ------------------------------------------------------------------------------- */

/* Address of 16-column block i, from that of block 0 of a part that lies within a panel or spans
 * whole ones, in a tile of ROWS rows. */
template <int ROWS>
__device__ __forceinline__ uint32_t bwd_columns(uint32_t at, int i)
{
  return (at ^ (i % 4 * 32)) + i / 4 * (ROWS * 128);
}

/* acc (MB 16 x NB 8) += A (rows x K) B (K x columns), of tiles that have A_ROWS and B_ROWS rows. An
 * operand that is TRANSposed has k along its rows. a, b: the lane's first ldmatrix addresses. */
template <class T, int MB, int NB, int K, bool A_TRANS, int A_ROWS, bool B_TRANS, int B_ROWS>
__device__ __forceinline__ void bwd_product(float (&acc)[MB][NB][4], uint32_t a, uint32_t b)
{
#pragma unroll
  for (int step = 0; step < K / 16; step++) {
    uint32_t af[MB][4];
#pragma unroll
    for (int mb = 0; mb < MB; mb++)
      if (A_TRANS)
        ldmatrix_trans(af[mb], bwd_columns<A_ROWS>(a, mb) + step * 2048);
      else
        ldmatrix(af[mb], bwd_columns<A_ROWS>(a, step) + mb * 2048);
#pragma unroll
    for (int nb = 0; nb < NB; nb += 2) {
      uint32_t bf[4];
      if (B_TRANS)
        ldmatrix_trans(bf, bwd_columns<B_ROWS>(b, nb / 2) + step * 2048);
      else
        ldmatrix(bf, bwd_columns<B_ROWS>(b, step) + nb * 1024);
#pragma unroll
      for (int mb = 0; mb < MB; mb++) {
        mma<T>(acc[mb][nb], af[mb], bf[0], bf[1]);
        mma<T>(acc[mb][nb + 1], af[mb], bf[2], bf[3]);
      }
    }
  }
}

template <int MB, int NB>
__device__ __forceinline__ void bwd_clear(float (&x)[MB][NB][4])
{
#pragma unroll
  for (int mb = 0; mb < MB; mb++)
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
      x[mb][nb][0] = x[mb][nb][1] = x[mb][nb][2] = x[mb][nb][3] = 0;
}

/* A lane's first addresses. ldmatrix of an operand with k along its columns, whose matrices lie
 * rows first (A) or columns first (B); with k along its rows it is the other way round. */
template <class C>
struct bwd_lane {
  uint32_t s_q, s_k;    /* S and, a tile further on, dP */
  uint32_t p;           /* where the warp's part of P begins: this lane's row and column */
  uint32_t kv_p, kv_q;  /* dV from P and dO, dK from dS and Q */
  uint32_t dq_ds, dq_k; /* dQ */
  int row, col;         /* of S: this lane's first */

  template <int ROWS>
  static __device__ __forceinline__ uint32_t rows_first(int row, int col)
  {
    int lane = threadIdx.x % 32;
    return tile_offset<ROWS>(row + lane % 16, col / 8 + lane / 16);
  }

  template <int ROWS>
  static __device__ __forceinline__ uint32_t columns_first(int row, int col)
  {
    int lane = threadIdx.x % 32;
    return tile_offset<ROWS>(row + lane / 16 * 8 + lane % 8, col / 8 + lane / 8 % 2);
  }

  __device__ __forceinline__ bwd_lane(uint32_t smem)
  {
    constexpr int WS = C::BM / C::S_ROWS, WKV = C::BN / C::KV_ROWS, WDQ = C::BM / C::DQ_ROWS;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int s_row = warp % WS * C::S_ROWS, s_col = warp / WS * C::S_COLS;
    int kv_row = warp % WKV * C::KV_ROWS, kv_col = warp / WKV * C::KV_COLS;
    int dq_row = warp % WDQ * C::DQ_ROWS, dq_col = warp / WDQ * C::DQ_COLS;
    row = s_row + lane / 4;
    col = s_col + lane % 4 * 2;
    s_q = smem + C::STAGE0 + rows_first<C::BM>(s_row, 0);
    s_k = smem + columns_first<C::BN>(s_col, 0);
    p = smem + C::P_AT + tile_offset<C::BM>(row, s_col / 8) + lane % 4 * 4;
    kv_p = smem + C::P_AT + columns_first<C::BM>(0, kv_row);
    kv_q = smem + C::STAGE0 + rows_first<C::BM>(0, kv_col);
    dq_ds = smem + C::DS_AT + rows_first<C::BM>(dq_row, 0);
    dq_k = smem + rows_first<C::BN>(0, dq_col);
  }
};

/* What a warp carries along the query tiles. */
template <class C>
struct bwd_sums {
  float dk[C::KV_MB][C::KV_NB][4], dv[C::KV_MB][C::KV_NB][4];
};

template <class C>
using bwd_scores = float[C::S_MB][C::S_NB][4];

#endif
