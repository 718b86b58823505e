/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90.cuh - what the Hopper backward kernels share: which tiles a block computes, its
 * producer and its dQ writers, the passes before and after, the epilogue.
 *
 * Q, dO (b, sq, hq, d | dv), K, V (b, sk, hkv, d | dv); dQ, dK, dV like Q, K, V; fp32 inside:
 *   S = Q K^T            P = exp2(c S - lse2)        dP = dO V^T       dS = P * (dP - dsum)
 *   dV = P^T dO          dK = scale dS^T Q           dQ = scale dS K
 *
 *   pre    dsum = rowsum(dO * O), lse2, zero in the accumulators of dQ: in those of the first heads
 *          alone if main zeroes the others, in none if the first to add to them stores
 *   main   a block owns KN keys of one K/V head and walks the query blocks of KM rows that see any
 *          of them, for every query head of the group: dK and dV stay in registers from first to
 *          last.  Its part of dQ is added to the accumulator in global memory, which is laid out
 *          as the threads hold it.
 *   post   dQ from the accumulators, as far as main has not made it (flash-bwd-sm90-make-dq.cuh)
 *
 * Each is launched while the one before it ends, and waits for it.  What pre and post take on an
 * H200 is their traffic: 0.12 ms measured at head_dim 128, sequence 2k, batch 8; 470 MB at the peak
 * bandwidth of 4.8 TB/s are 0.10.
 *
 * Scores are computed transposed (keys x queries): what a thread then holds of P^T and dS^T is
 * already the register operand of dV = P^T dO and dK = dS^T Q.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_CUH

#include <math.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-backward/ptx-bwd-sm90.cuh"

SM90_DEV int bwd90_uniform(int x)
{
  return __shfl_sync(~0u, x, 0);
}

/* A consumer's thread. */
struct bwd90_lane {
  uint32_t smem;
  int wg, warp, lane;
  uint32_t slot; /* of K and V, from the first */
};

/* Lanes of a warp that arrive.  One is enough; all arrive for racecheck (tests/sanitize.sh), to
 * which an mbarrier orders nothing but what the arriving lane has done itself. */
#ifndef BWD90_LANES
#define BWD90_LANES 1
#endif

/* For the warp, when all of it is past this point. */
SM90_DEV void bwd90_arrive(const bwd90_lane &w, uint32_t bar)
{
  __syncwarp();
  if ((unsigned)w.lane < BWD90_LANES)
    mbar_arrive(w.smem + bar);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* One unit of work: keys n0.. of one K/V head, query blocks [lo, hi) of each head of its group. */
struct bwd90_tile {
  int id;                     /* below 0: there is no more work */
  int n, worked, first, last; /* of the block: turn, turns with steps before; steps of this turn */
  int n0, kv_head;
  int lo, hi, start; /* the walk over a head's query blocks begins at start and wraps around */
  int skip, from;    /* so many heads are left out, and of the first the blocks before that one */
  int sq, sk, shift;
  int seq, row_k; /* of the sequence: index in the batch (0 if packed), first row of K */
  int q_row, q_at, k_row, k_at; /* tensor map coordinates of the first row: row, batch */
  int acc, head;                /* of the first query head: padded row, index */
  int batch;                    /* sequence, packed or not */
  int place;                    /* of the key block in the order */
  int part, parts;              /* of a shared key block; else -1, 1 */
  int shared, sums;             /* its number, that of the first sum of its parts */
};

SM90_DEV int bwd90_acc(const bwd90_params &p, int seq, int row_q, int km)
{
  return p.cu_q ? (row_q / km + seq) * km : seq * p.acc_sb;
}

/* Which sequence, head and keys the key block is of that has this place in the order. */
template <class C>
SM90_DEV void bwd90_find(const bwd90_params &p, volatile bwd90_tile *t, int place)
{
  const int section = rederive(p.schedule.section), last = p.schedule.last;
  const int first = min(place / (section * p.blocks) * section, last), r = place - first * p.blocks;
  const int here = first < last ? section : p.b * p.hkv - first, block = r / here;
  const int head = first + r - block * here, seq = head / p.hkv;
  t->n0 = (p.backwards ? p.blocks - 1 - block : block) * C::KN;
  t->batch = seq;
  t->kv_head = head - seq * p.hkv;
  t->head = t->kv_head * p.group;
}

/* Which key block a unit of work is of, and which part of it. */
SM90_DEV void bwd90_unit(const bwd90_params &p, volatile bwd90_tile *t, int id)
{
  int i = 0;
#pragma unroll 1
  for (int end = p.schedule.stretches, k = end / 2; k > i; k = (i + end) / 2)
    if (p.schedule.stretch[k].unit <= id)
      i = k;
    else
      end = k;
  const bwd90_stretch &s = p.schedule.stretch[i];
  const int n = (id - s.unit) / s.parts;
  t->id = id;
  t->place = s.block + n;
  t->parts = s.parts;
  t->part = s.parts > 1 ? id - s.unit - n * s.parts : -1;
  t->shared = s.shared + n;
  t->sums = s.sums + n * (s.parts - 1);
}

/* Where the sequence lies.  A packed tensor's map has rows [0, max) of a sequence that ends at row
 * max, and the end of the sequence in the packed tensor as its last coordinate: what lies beyond
 * reads as zero. */
template <class C>
SM90_DEV void bwd90_locate(const bwd90_params &p, volatile bwd90_tile *t)
{
  const int seq = t->batch, row_q = p.cu_q ? p.cu_q[seq] : 0, row_k = p.cu_q ? p.cu_k[seq] : 0;
  t->seq = p.cu_q ? 0 : seq;
  t->row_k = row_k;
  t->q_at = p.cu_q ? p.cu_q[seq + 1] : seq;
  t->k_at = p.cu_q ? p.cu_k[seq + 1] : seq;
  t->acc = bwd90_acc(p, seq, row_q, C::KM) + t->head * p.acc_sh;
  t->sq = p.cu_q ? t->q_at - row_q : p.sq;
  t->sk = p.cu_q ? t->k_at - row_k : p.sk;
  t->shift = p.topleft ? 0 : t->sk - t->sq;
  t->q_row = p.cu_q ? p.sq - t->sq : 0;
}

/* Query blocks that see a key of [n0, n0 + kn). */
SM90_DEV void bwd90_range(const bwd90_params &p, volatile bwd90_tile *t, int km, int kn)
{
  const int from = t->n0, end = min(from + kn, t->sk);
  const int first = max(0, from - t->shift - p.right), last = min(t->sq, end - t->shift + p.left);
  const bool any = first < last && from < t->sk;
  t->lo = t->start = t->from = any ? first / km : 0;
  t->hi = any ? (last - 1) / km + 1 : 0;
  if (any && p.rotate) {
    const int n = from / kn, leader = n / p.rotate * p.rotate;
    t->start = t->from = (n - leader) * t->hi / min(p.rotate, (t->sk + kn - 1) / kn - leader);
  }
}

/* Leaves a block its part of a shared key block's steps. */
SM90_DEV void bwd90_share(volatile bwd90_tile *t)
{
  const int part = t->part, steps = t->last + 1, first = steps * part / t->parts;
  if (part < 0 || steps == 0)
    return;
  t->last = steps * (part + 1) / t->parts - first - 1;
  t->start = t->lo;
  t->skip = first / (t->hi - t->start);
  t->from = t->start + first - t->skip * (t->hi - t->start);
}

/* Step by step through shared memory, for it is computed by a thread that has few registers. */
template <class C>
SM90_DEV void bwd90_decode(const bwd90_params &p, volatile bwd90_tile *t, int id)
{
  bwd90_unit(p, t, id);
  bwd90_find<C>(p, t, t->place);
  bwd90_locate<C>(p, t);
  bwd90_range(p, t, C::KM, C::KN);
  t->k_row = (p.cu_q ? p.sk - t->sk : 0) + t->n0;
  t->n = t->worked = t->first = t->skip = 0;
  t->last = max(0, t->hi - t->lo) * p.group - 1;
  bwd90_share(t);
}

/* The tile is computed once and read from shared memory by those who need a part of it. */
#define BWD90_TILE_BYTES 128
static_assert(sizeof(bwd90_tile) <= BWD90_TILE_BYTES, "tile");

/* How many key blocks add to query block m before this one does.  At most 2^22 query blocks times
 * the blocks that a device holds: no product here needs more than 31 bits, and a 64-bit division
 * would cost the producer's warps more registers than they have. */
SM90_DEV int bwd90_turn(const bwd90_params &p, const volatile bwd90_tile *t, int m, int km, int kn)
{
  const int n = t->n0 / kn;
  if (p.rotate) {
    const int first = n / p.rotate * p.rotate;
    const int width = min(p.rotate, (t->sk + kn - 1) / kn - first);
    const int leader = min(width - 1, ((m + 1) * width - 1) / t->hi);
    return first + (leader - (n - first) + width) % width;
  }
  const int end = min(t->sk, min((m + 1) * km, t->sq) + t->shift + p.right);
  return (end + kn - 1) / kn - 1 - n;
}

SM90_DEV void bwd90_await_turn(const int *turn, int n)
{
  while (ld_acquire(turn) != n)
    ;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* What a mask needs to know of 64 keys: the query at which the first of them would be on the
 * diagonal, and how many of them there are. */
struct bwd90_band {
  int at, keys;
};

/* Do the queries [m, m + km) need a mask? */
SM90_DEV bool bwd90_masked(const bwd90_params &p, const bwd90_band &k, int m, int km)
{
  return k.keys < 64 || k.at + 63 - p.right > m || k.at + p.left < m + km - 1;
}

/* Hides the scores outside the mask; row: this thread's upper key of the 64, col: its first query.
 */
template <int N>
SM90_DEV void bwd90_mask(const bwd90_params &p, const bwd90_band &k, int row, int col,
                         float (&S)[N])
{
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = k.at + row + 8 * h - col;
    const int lo = row + 8 * h < k.keys ? at - p.right : BWD90_UNLIMITED, hi = at + p.left;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        if (8 * i + e < lo || 8 * i + e > hi)
          S[4 * i + 2 * h + e] = -INFINITY;
  }
}

/* Hides the scores of what lies behind the last of so many keys of 64. */
template <int N>
SM90_DEV void bwd90_mask_keys(int keys, int row, float (&S)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    if (row + i / 2 % 2 * 8 >= keys)
      S[i] = -INFINITY;
}

/* S becomes P; lse: of this thread's first query. */
template <int N>
SM90_DEV void bwd90_exp(float (&S)[N], float c, uint32_t lse)
{
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const float2 l = lds_v2(lse + 32 * i);
    S[4 * i] = ex2(fmaf(S[4 * i], c, -l.x));
    S[4 * i + 1] = ex2(fmaf(S[4 * i + 1], c, -l.y));
    S[4 * i + 2] = ex2(fmaf(S[4 * i + 2], c, -l.x));
    S[4 * i + 3] = ex2(fmaf(S[4 * i + 3], c, -l.y));
  }
}

/* dP becomes dS; dsum: of this thread's first query. */
template <int N>
SM90_DEV void bwd90_ds(float *dP, const float *P, uint32_t dsum)
{
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const float2 s = lds_v2(dsum + 32 * i);
    dP[4 * i] = P[4 * i] * (dP[4 * i] - s.x);
    dP[4 * i + 1] = P[4 * i + 1] * (dP[4 * i + 1] - s.y);
    dP[4 * i + 2] = P[4 * i + 2] * (dP[4 * i + 2] - s.x);
    dP[4 * i + 3] = P[4 * i + 3] * (dP[4 * i + 3] - s.y);
  }
}

template <class T, int N>
SM90_DEV void bwd90_pack(uint32_t (&r)[N], const float (&x)[2 * N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    r[i] = pack2(T(), x[2 * i], x[2 * i + 1]);
}

/* ---- products of tiles of 64 rows, for the wide heads ---------------------------------------- */

/* A B^T of two tiles, one group */
template <class C>
SM90_DEV void bwd90_issue_score(float (&S)[32], uint32_t rows, uint32_t cols)
{
  const uint32_t a = rederive(desc_lo(rows, 0)), b = rederive(desc_lo(cols, 0));
  undefine(S);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++)
    wgmma_tt<typename C::T, 64>::template ss<0, 0>(S, desc(a + k / 4 * C::PANEL / 16 + k % 4 * 2),
                                                   desc(b + k / 4 * C::PANEL / 16 + k % 4 * 2),
                                                   k > 0);
  wgmma_commit();
}

/* acc (64 x D) += X (64 x 64) tile, one group */
template <class C>
SM90_DEV void bwd90_issue_grad(float (&acc)[128], const uint32_t (&X)[16], uint32_t tile, int add)
{
  const uint32_t b = rederive(desc_lo(tile, C::PANEL));
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma<typename C::T, 256>::template rs<1>(acc, X + 4 * k, desc(b + k * 128), k > 0 ? 1 : add);
  wgmma_commit();
}

#endif
