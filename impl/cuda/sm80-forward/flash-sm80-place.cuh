/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-place.cuh - what a block of the portable kernels works on: sequence, head, rows, keys.
 */
#ifndef IMPL_CUDA_FLASH_SM80_PLACE_CUH
#define IMPL_CUDA_FLASH_SM80_PLACE_CUH

#include "impl/cuda/alibi.cuh"
#include "impl/cuda/sm80-forward/flash-sm80.h"
#include "impl/dropout.h"

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

/* Row `row` of a head. */
__device__ __forceinline__ char *flash_row(const attn_tensor &t, int seq, int head, int64_t row)
{
  return (char *)t.data + 2 * (seq * t.sb + row * t.ss + head * t.sh);
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
    at.slope = a.alibi ? alibi_slope(a.hq, at.head) : 0;
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

#endif
