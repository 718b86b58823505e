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
 * Tiles and what each step gave: H200, bf16, 16k tokens, 2048 columns of heads, TFLOP/s
 * full/causal. d  128  128x64, 2 stages, 255 registers, 98 KB   400/406 (2k: 380/340) d   64
 * 128x128, 2 stages, 255 registers, 82 KB  354/354 d  256  64x64, 1 stage, 241 registers, 98 KB
 * 337/337 at d = 128: rescale at every tile 380/336; where a row's maximum grew 392/345; where it
 * grew by more than 8 400/355; causal tiles by length over all heads 400/406. Against that: 1 stage
 *   390/345, 128x48 405/356 but slower below 4k, 128x32 358/316, 64x64 331/321, 8 warps 339/327;
 *   Q kept in registers at d = 64 spills: 320/321.
 */
#ifndef IMPL_CUDA_FLASH_SM80_CUH
#define IMPL_CUDA_FLASH_SM80_CUH

#include "impl/cuda/sm80-forward/flash-sm80.h"
#include "impl/cuda/mma.cuh"
#include "impl/dropout.h"

template <class T, int D_, int BM_, int BN_, int STAGES_, int BLOCKS_ = 2,
          bool Q_IN_REGISTERS_ = false, int WARPS_ = 4, bool OPTIONS_ = false, bool PAGED_ = false>
struct flash_config {
  using elem = T;
  static constexpr int D = D_, BM = BM_, BN = BN_, STAGES = STAGES_, WARPS = WARPS_;
  static constexpr int BLOCKS = BLOCKS_; /* on an SM at least */
  static constexpr bool Q_IN_REGISTERS = Q_IN_REGISTERS_;
  static constexpr bool OPTIONS = OPTIONS_; /* softcap, ALiBi, dropout */
  static constexpr bool PAGED = PAGED_;
  static constexpr int Q_KEPT = Q_IN_REGISTERS ? D_ / 16 : 1; /* k-steps */
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int ROWS = BM / WARPS; /* query rows of a warp */
  static constexpr int MB = ROWS / 16, NB = BN / 8, DB = D / 8;
  static constexpr int Q_BYTES = BM * D * 2, KV_BYTES = BN * D * 2;
  static constexpr int PLACE = Q_BYTES + 2 * STAGES * KV_BYTES; /* where flash_place lies */
  static constexpr int SMEM = PLACE + 128;
};

/* Key tiles [begin, end) are visited; those in [clean_begin, clean_end) need no mask. */
struct flash_range {
  int begin, end, clean_begin, clean_end;
};

/* What a block works on; kept in shared memory, for the main loop needs the registers. */
struct flash_place {
  const char *k, *v;    /* row 0 of the sequence's KV head; paged: slot 0 of page 0 */
  int seq, head, m0;    /* m0: first query row */
  int sq, sk;           /* of this sequence */
  int64_t q_row, k_row; /* where it starts in a packed tensor */
  flash_range keys;
  float slope;       /* ALiBi */
  uint32_t drop_key; /* dropout */
};

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

/* ---- where ---------------------------------------------------------------------------------- */

/* Row `row` of a head. */
__device__ __forceinline__ char *flash_row(const attn_tensor &t, int seq, int head, int64_t row)
{
  return (char *)t.data + 2 * (seq * t.sb + row * t.ss + head * t.sh);
}

/* ALiBi slope of a query head. */
__device__ __forceinline__ float flash_slope(int hq, int head)
{
  int pow2 = 1;
  while (pow2 * 2 <= hq)
    pow2 *= 2;
  return head < pow2 ? exp2f(-8.0f * (head + 1) / pow2)
                     : exp2f(-4.0f * (2 * (head - pow2) + 1) / pow2);
}

/* Tile number x of a table of runs: its sequence, its head of `heads` each, its rank. */
struct flash_rank {
  int seq, head, rank, tiles;

  __device__ __forceinline__ flash_rank(const flash_sm80_run *runs, int heads, int x)
  {
    int r = 0, first = 0;
    while (x >= runs[r].tile_end)
      first = runs[r++].tile_end;
    const flash_sm80_run &run = runs[r];
    x -= first;
    int section = x / (run.section * run.tiles);
    x -= section * (run.section * run.tiles);
    int here = min(run.section, run.heads - section * run.section);
    rank = x / here;
    int h = section * run.section + x - rank * here;
    tiles = run.tiles;
    seq = run.seq0 + h / heads;
    head = h % heads;
  }
};

/* The block's tile; false if the sequence ends before it. */
template <class C, bool PAGED = false>
__device__ __forceinline__ bool flash_locate(const flash_sm80_args &a, flash_place &at)
{
  const flash_rank r(a.runs, a.hq, blockIdx.x);
  at.seq = r.seq;
  at.head = r.head;
  at.m0 = (r.tiles - 1 - r.rank) * C::BM;
  at.sq = a.sq;
  at.sk = a.sk;
  at.q_row = at.k_row = 0;
  if (a.cu_seqlens_q) {
    at.q_row = a.cu_seqlens_q[at.seq];
    at.sq = a.cu_seqlens_q[at.seq + 1] - (int)at.q_row;
  }
  if (a.cu_seqlens_k && !PAGED) {
    at.k_row = a.cu_seqlens_k[at.seq];
    at.sk = a.cu_seqlens_k[at.seq + 1] - (int)at.k_row;
  }
  if (PAGED)
    at.sk = a.seqlens_k[at.seq];
  at.k = flash_row(a.k, PAGED ? 0 : at.seq, at.head / a.group, at.k_row);
  at.v = flash_row(a.v, PAGED ? 0 : at.seq, at.head / a.group, at.k_row);
  if (C::OPTIONS) {
    at.slope = a.alibi ? flash_slope(a.hq, at.head) : 0;
    at.drop_key = attn_dropout_key(a.drop_seed, at.seq, a.hq, at.head);
  }
  return at.m0 < at.sq;
}

template <class C>
__device__ __forceinline__ flash_range flash_key_tiles(const flash_sm80_args &a,
                                                       const flash_place &at)
{
  int diagonal = a.bottom_right ? at.sk - at.sq : 0;
  int first = at.m0 + diagonal, last = min(at.m0 + C::BM, at.sq) - 1 + diagonal;
  flash_range r;
  r.begin = max(0, first - a.left) / C::BN;
  r.end = (max(0, min(at.sk, last + a.right + 1)) + C::BN - 1) / C::BN;
  r.clean_begin = (max(0, last - a.left) + C::BN - 1) / C::BN;
  r.clean_end = max(0, min(at.sk, first + a.right + 1)) / C::BN;
  return r;
}

/* ---- one tile ------------------------------------------------------------------------------- */

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

/* Offset of tile n's buffers from those of stage 0. */
template <class C>
__device__ __forceinline__ uint32_t flash_stage(int n)
{
  return C::STAGES == 2 ? (n & 1) * (2 * C::KV_BYTES) : 0;
}

/* Tile n of a paged K or V; from: slot 0 of page 0. Every lane looks up one of the warp's rows and
 * computes its address, the lanes that copy it get that by shuffle. */
template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_pages(const flash_sm80_args &a, const flash_place &at,
                                                 const attn_tensor &t, const char *from,
                                                 int head_dim, int n, uint32_t to)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  constexpr int ROWS = 32 / copy::CHUNKS, OWN = ROWS * copy::N; /* of a warp: in a copy, in all */
  static_assert(OWN <= 32, "a lane for each row");
  const copy tile(head_dim);
  int lane = threadIdx.x % 32, own = lane % OWN;
  int key = n * C::BN + own / ROWS * copy::STEP + threadIdx.x / 32 * ROWS + own % ROWS;
  int64_t offset = 0;
  if (!TAIL || key < at.sk) {
    int slot = key % a.page;
    int64_t page = __ldg(a.block_table + at.seq * a.table_stride + key / a.page);
    offset = 2 * (page * t.sb + slot * t.ss);
  }
  from += lane % copy::CHUNKS * 16;
#pragma unroll
  for (int i = 0; i < copy::N; i++) {
    int64_t row = __shfl_sync(~0u, offset, i * ROWS + lane / copy::CHUNKS);
    bool none = TAIL && n * C::BN + tile.row + i * copy::STEP >= at.sk;
    copy16(((to + tile.to) ^ ((i * copy::STEP % 8) << 4)) + i * copy::STEP * 128, from + row,
           none ? 0 : tile.bytes);
  }
}

/* K of tile n; TAIL: it may reach past the end. */
template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_k(const flash_sm80_args &a, const flash_place &at, int n,
                                             uint32_t smem)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  uint32_t to = smem + C::Q_BYTES + flash_stage<C>(n);
  if (C::PAGED)
    flash_load_pages<C, TAIL>(a, at, a.k, at.k, a.d, n, to);
  else
    copy(a.d).template issue<TAIL>(to, copy::first(at.k + n * a.k_tile, a.k.ss), a.k_step,
                                   TAIL ? at.sk - n * C::BN : 0);
}

template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_v(const flash_sm80_args &a, const flash_place &at, int n,
                                             uint32_t smem)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  uint32_t to = smem + C::Q_BYTES + C::KV_BYTES + flash_stage<C>(n);
  if (C::PAGED)
    flash_load_pages<C, TAIL>(a, at, a.v, at.v, a.dv, n, to);
  else
    copy(a.dv).template issue<TAIL>(to, copy::first(at.v + n * a.v_tile, a.v.ss), a.v_step,
                                    TAIL ? at.sk - n * C::BN : 0);
}

/* Q, and of the last key tile K and, if there is room, V. */
template <class C>
__device__ __forceinline__ void flash_first_loads(const flash_sm80_args &a, const flash_place &at,
                                                  uint32_t smem)
{
  using copy = tile_copy<C::BM, C::D, C::THREADS>;
  const char *q = flash_row(a.q, at.seq, at.head, at.q_row + at.m0);
  copy(a.d).template issue<true>(smem, copy::first(q, a.q.ss), 2 * copy::STEP * a.q.ss,
                                 at.sq - at.m0);
  flash_load_k<C, true>(a, at, at.keys.end - 1, smem);
  if (C::STAGES == 2)
    flash_load_v<C, true>(a, at, at.keys.end - 1, smem);
  copy_commit();
}

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
