/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-split-dq.cuh - dQ in the Hopper backward for head_dim up to 128: dS to shared
 * memory, dQ = dS K, and who adds it to the accumulator in global memory.
 *
 * Of few keys nobody zeroes the accumulator: the first who comes to a part of it stores, and the
 * others, who would add, wait until that is there; a kernel that is FULL no longer asks once it is
 * there for all queries of the head.
 *
 * By turns a thread awaits its turn before its dQ: 2 to 3 % at sequence 8k, against the other
 * order. While its dQ is on its way it computes the next turn and asks whether that has come; key
 * blocks start 4 query blocks apart, with those of other heads beside them (plan_rotation() in
 * flash-bwd-sm90.c); and kernels that know only one of both ways are faster.  With all three, TF/s
 * beside those before and without an order, sequence 8k: head_dim 64 515, 451, 601; causal 513,
 * 493, 569; head_dim 128 600, 548, 678; causal 562, 543, 627.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_SPLIT_DQ_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_SPLIT_DQ_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-load.cuh"

/* ---- computed -------------------------------------------------------------------------------- */

/* dQ = dS K of step i: this warpgroup's half, one group */
template <class C>
SM90_DEV void bwd90_issue_dq(const bwd90_lane &w, float (&dQ)[C::DQN / 2], int i)
{
  const uint32_t ds = w.smem + C::DS0 + (i & 1) * C::DS_BYTES;
  const uint32_t a = rederive(desc_lo(ds + (C::DQ_ROWS ? w.wg * 8192 : 0), 0));
  const uint32_t half = C::DQ_ROWS ? 0 : C::D == 64 ? 64 : C::KN * 128;
  const uint32_t b = rederive(desc_lo(w.smem + C::K0 + w.slot + w.wg * half, C::KN * 128));
  mbar_wait(w.smem + C::DS_FULL + 8 * (i & 1), i >> 1 & 1);
  undefine(dQ);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::KN / 16; k++) {
    const uint64_t x = desc(a + k / 4 * C::KM * 8 + k % 4 * 2), y = desc(b + k * 128);
    if (C::DQ_SWAPPED)
      wgmma_tt<typename C::T, C::DQN>::template ss<1, 0>(dQ, y, x, k > 0);
    else
      wgmma_tt<typename C::T, C::DQN>::template ss<0, 1>(dQ, x, y, k > 0);
  }
  wgmma_commit();
}

/* dS^T of step i, as the threads hold it, to rows of queries x columns of keys. */
template <class C>
SM90_DEV void bwd90_put_ds(const bwd90_lane &w, const uint32_t (&dS)[C::KM / 4], int i)
{
  const int row = w.lane & 7, key = 2 * w.warp + (w.lane >> 3 & 1), slot = i & 1;
  const uint32_t at = w.smem + C::DS0 + slot * C::DS_BYTES + w.wg * C::KM * 128 +
                      (w.lane >> 4) * 1024 + row * 128 + ((key ^ row) << 4);
  mbar_wait(w.smem + C::DS_EMPTY + 8 * slot, i >> 1 & 1 ^ 1);
#pragma unroll
  for (int j = 0; j < C::KM / 16; j++)
    stmatrix_x4_trans(at + j * 2048, dS + 4 * j);
  fence_proxy_async();
  bwd90_arrive(w, C::DS_FULL + 8 * slot);
}

/* dQ of step i, which has been computed, to the warpgroup's buffer, for its writer. */
template <class C>
SM90_DEV void bwd90_put_dq(const bwd90_lane &w, const float (&dQ)[C::DQN / 2], int i)
{
  const uint32_t at = w.smem + C::DQ0 + w.wg * 64 * C::DQN * 4 + (32 * w.warp + w.lane) * 16;
  bwd90_arrive(w, C::DS_EMPTY + 8 * (i & 1));
  mbar_wait(w.smem + C::DQ_EMPTY + 8 * w.wg, i % 2 ^ 1);
#pragma unroll
  for (int j = 0; j < C::DQN / 8; j++)
    sts_v4(at + j * 2048, dQ[4 * j], dQ[4 * j + 1], dQ[4 * j + 2], dQ[4 * j + 3]);
  fence_proxy_async();
  bwd90_arrive(w, C::DQ_FULL + 8 * w.wg);
}

/* ---- added ----------------------------------------------------------------------------------- */

/* Is this thread to store a part of dQ, to which nobody has added yet?  Else it is there. */
SM90_DEV bool bwd90_comes_first(int *state, int seen)
{
  if (seen == BWD90_UNTOUCHED)
    seen = claim(state, BWD90_CLAIMED);
  if (seen == BWD90_UNTOUCHED)
    return true;
  while (seen != BWD90_STORED)
    seen = ld_acquire(state);
  return false;
}

/* A query block of a head, whose first padded row is acc, as rows of the accumulator. */
template <class C>
SM90_DEV float *bwd90_out(const bwd90_params &p, int acc, int m, int part)
{
  return p.dqacc + (int64_t)(acc + m * C::KM) * C::D + part * 64 * C::DQN;
}

/* The warpgroup may leave the next dQ where this one was. */
template <class C>
SM90_DEV void bwd90_sent(uint32_t smem, int part)
{
  bulk_commit();
  bulk_wait_read<0>();
  mbar_arrive(smem + C::DQ_EMPTY + 8 * part);
}

/* 64 rows x DQN, which are there, in an order that is the same every time; turn: if it has come.
 * Result: the turn of the next step, if it has come, which is asked for while this is on its way.
 */
template <class C>
SM90_DEV int bwd90_write_by_turns(uint32_t smem, const volatile bwd90_tile *t,
                                  const bwd90_params &p, int acc, int m, int part, int i, int turn)
{
  const uint32_t in = smem + C::DQ0 + part * 64 * C::DQN * 4;
  if (turn < 0) {
    turn = bwd90_turn(p, t, m, C::KM, C::KN);
    bwd90_await_turn(bwd90_state<C>(p.turns, acc, m, part), turn);
    fence_proxy_async_all();
  }
  mbar_wait(smem + C::DQ_FULL + 8 * part, i % 2);
  if (turn > 0)
    bulk_add(bwd90_out<C>(p, acc, m, part), in, 64 * C::DQN * 4);
  else
    bulk_store(bwd90_out<C>(p, acc, m, part), in, 64 * C::DQN * 4);
  bwd90_sent<C>(smem, part);
  turn = -1;
  if (i < t->last) {
    const int next = m + 1 < t->hi ? m + 1 : t->lo;
    turn = bwd90_turn(p, t, next, C::KM, C::KN);
    if (ld_acquire(bwd90_state<C>(p.turns, acc + (next == t->start ? p.acc_sh : 0), next, part)) !=
        turn)
      turn = -1;
  }
  bulk_wait<0>();
  fence_proxy_async_all();
  red_release(bwd90_state<C>(p.turns, acc, m, part), 1);
  return turn;
}

/* How many query blocks of the head whose first padded row is acc have been stored. */
template <class C>
SM90_DEV int *bwd90_stored(const bwd90_params &p, int acc, int part)
{
  return bwd90_state<C>(p.firsts, acc, 0, part + 2);
}

/* 64 rows x DQN, which are there, in whatever order; seen: their state not long ago. */
template <class C>
SM90_DEV void bwd90_write_as_comes(uint32_t smem, const bwd90_params &p, int acc, int m, int part,
                                   int seen, bool stored)
{
  const uint32_t in = smem + C::DQ0 + part * 64 * C::DQN * 4;
  const bool first =
      seen != BWD90_STORED && bwd90_comes_first(bwd90_state<C>(p.firsts, acc, m, part), seen);
  if (first) {
    bulk_store(bwd90_out<C>(p, acc, m, part), in, 64 * C::DQN * 4);
  } else {
    if (!stored)
      fence_proxy_async_all();
    bulk_add(bwd90_out<C>(p, acc, m, part), in, 64 * C::DQN * 4);
  }
  bwd90_sent<C>(smem, part);
  if (first) {
    bulk_wait<0>();
    fence_proxy_async_all();
    st_release(bwd90_state<C>(p.firsts, acc, m, part), BWD90_STORED);
    if (C::FULL)
      red_release(bwd90_stored<C>(p, acc, part), 1);
  }
}

/* Has something been stored for all queries of a head? */
template <class C>
SM90_DEV bool bwd90_all_stored(const bwd90_params &p, const volatile bwd90_tile *t, int acc,
                               int part)
{
  if (ld_acquire(bwd90_stored<C>(p, acc, part)) * C::KM < t->sq)
    return false;
  fence_proxy_async_all();
  return true;
}

/* One thread: n additions to the query blocks that are counted with m have arrived, once those that
 * are on their way have. */
template <class C>
SM90_DEV void bwd90_count(const bwd90_params &p, int acc, int m, int n)
{
  bulk_wait<0>();
  fence_proxy_async_all();
  red_release(bwd90_state<C>(p.states, acc, m / BWD90_COUNTED * BWD90_COUNTED, BWD90_ADDED), n);
}

/* One thread a warpgroup, one tile. */
template <class C>
SM90_DEV void bwd90_write_dq(uint32_t smem, const volatile bwd90_tile *t, const bwd90_params &p,
                             int part)
{
  int m = t->from, acc = t->acc + t->skip * p.acc_sh;
  int turn = -1, added = 0;
  bool stored = !C::FIRSTS || !p.firsts;
#pragma unroll 1
  for (int i = t->first; i <= t->last; i++) {
    if (C::TURNS || C::SCORE && p.turns) {
      turn = bwd90_write_by_turns<C>(smem, t, p, acc, m, part, i, turn);
    } else {
      int seen = BWD90_STORED;
      if (C::FULL && !stored)
        stored = bwd90_all_stored<C>(p, t, acc, part);
      if (!stored)
        seen = ld_acquire(bwd90_state<C>(p.firsts, acc, m, part));
      mbar_wait(smem + C::DQ_FULL + 8 * part, i % 2);
      bwd90_write_as_comes<C>(smem, p, acc, m, part, seen, stored);
      if (C::MAKES && p.queue) {
        added++;
        if (m % BWD90_COUNTED == BWD90_COUNTED - 1 || m + 1 == t->hi || i == t->last) {
          bwd90_count<C>(p, acc, m, added);
          added = 0;
        }
      }
    }
    m = m + 1 < t->hi ? m + 1 : t->lo;
    acc += m == t->start ? p.acc_sh : 0;
    if (C::FULL && m == t->start)
      stored = !C::FIRSTS || !p.firsts;
  }
  bulk_wait<0>();
}

/* One thread a warpgroup: adds the dQ of every tile. */
template <class C>
SM90_DEV void bwd90_write_tiles(uint32_t smem, const uint8_t *tiles, const bwd90_params &p,
                                int part)
{
#pragma unroll 1
  for (int n = 0;; n++) {
    const volatile bwd90_tile *t = bwd90_await_tile<C>(smem, tiles, n);
    if (t->id < 0)
      return;
    fence_proxy_async_all(); /* what is zero has been made so by others */
    bwd90_write_dq<C>(smem, t, p, part);
    n = t->n;
    mbar_arrive(smem + C::TILE_EMPTY + 8 * (n % 2));
  }
}

#endif
