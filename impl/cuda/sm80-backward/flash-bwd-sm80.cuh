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

#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"
#include "impl/cuda/sm80-forward/flash-sm80.cuh"

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
    h.slope = a.f.alibi ? flash_slope(a.f.hq, head) : 0;
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
