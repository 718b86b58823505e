/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-load.cuh - the producer of a block of the Hopper backward, and who decides what
 * the block works on.
 *
 * A block does one unit of work after another, each a key block of one K/V head.  What comes next
 * is claimed from a counter, in the order that the grid of a block for every unit would have: K, V
 * and the first Q and dO of a unit are loaded while the sums of the one before are written.
 *
 * Who claims a unit of a kernel that is AHEAD also zeroes a part of the accumulators of dQ that
 * come into use two sections later, more if the last is long, one of sections of a single head:
 * beside products that leave the memory idle, and late enough that they are still in L2 when they
 * are added to.  TF/s beside all zeroed by pre, causal: head_dim 64 sequence 8k 569, 557, 16k 604,
 * 594; head_dim 128 8k 627, 625; head_dim 256 2k 364, 360, without a mask 425, 416.  No difference
 * at head_dim 128 and 256 from 16k on.  One section before: 256 2k causal 356.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_LOAD_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_LOAD_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-make-dq.cuh"

/* ---- producer -------------------------------------------------------------------------------- */

/* Panels of 64 columns that hold any of a tile's `width` columns. The others are never loaded: a
 * box wholly outside its map makes TMA touch the map's base address, which for packed tensors lies
 * before the tensor. */
template <int D>
SM90_DEV int bwd90_panels(int width)
{
  return D == 64 ? 1 : (width + 63) / 64;
}

/* Zeroes the panels of n tiles that are never loaded. */
template <int THREADS, int ROWS, int D>
SM90_DEV void bwd90_clear_panels(uint32_t tiles, int n, int width)
{
#pragma unroll 1
  for (int i = 0; i < n; i++)
#pragma unroll 1
    for (int at = bwd90_panels<D>(width) * ROWS * 128 + 16 * threadIdx.x; at < ROWS * D * 2;
         at += 16 * THREADS)
      sts_v4(tiles + i * ROWS * D * 2 + at, 0, 0, 0, 0);
}

template <class C>
SM90_DEV void bwd90_clear(uint32_t smem, const bwd90_params &p)
{
  bwd90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::K0, 1, p.d);
  bwd90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::V0, 1, p.dv_cols);
  bwd90_clear_panels<C::THREADS, C::KM, C::D>(smem + C::Q0, C::QSTAGES, p.d);
  bwd90_clear_panels<C::THREADS, C::KM, C::D>(smem + C::DO0, C::DOSTAGES, p.dv_cols);
  if (C::AHEAD && threadIdx.x < C::ZEROES / 16)
    sts_v4(smem + C::ZERO + 16 * threadIdx.x, 0, 0, 0, 0);
  fence_proxy_async();
}

/* Loads rows [row, row + ROWS) as panels; rows and columns outside the tensor become zero.  With
 * them `more` bytes are expected. */
template <int ROWS, int D, bool ONCE = false>
SM90_DEV void bwd90_load(uint32_t dst, const CUtensorMap *map, uint32_t bar, int width, int more,
                         int row, int head, int batch)
{
  const int panels = bwd90_panels<D>(width);
  mbar_expect(bar, ROWS * 128 * panels + more);
#pragma unroll
  for (int i = 0; i < D / 64; i++)
    if (i < panels && ONCE)
      tma_load_once_4d(dst + i * ROWS * 128, map, bar, 64 * i, row, head, batch);
    else if (i < panels)
      tma_load_4d(dst + i * ROWS * 128, map, bar, 64 * i, row, head, batch);
}

/* What consumers need to know of a step lies beside its Q: they have no registers for it. */
struct bwd90_step {
  int at;   /* from its first query to the one at which the tile's first key is on the diagonal */
  int keys; /* of the tile */
  int row;  /* first padded row */
  int head;
  bool first, last; /* of the tile */
};

template <class C>
SM90_DEV void bwd90_note(uint32_t smem, const volatile bwd90_tile *t, int i, int m, int row,
                         int head)
{
  const int flags = (i == t->first) + 2 * (i == t->last);
  asm volatile(
      "st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(smem + C::NOTE0 + i % C::NOTES * 16),
      "r"(t->n0 - t->shift - m * C::KM), "r"(t->sk - t->n0), "r"(row), "r"(4 * head + flags)
      : "memory");
}

template <class C>
SM90_DEV bwd90_step bwd90_read_note(uint32_t smem, int i)
{
  int x[4];
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(smem + C::NOTE0 + i % C::NOTES * 16)
               : "memory");
  return {bwd90_uniform(x[0]), bwd90_uniform(x[1]), x[2],
          x[3] >> 2,           (x[3] & 1) != 0,     (x[3] & 2) != 0};
}

template <class C>
SM90_DEV void bwd90_produce_k(uint32_t smem, const volatile bwd90_tile *t, const CUtensorMap *mk,
                              const bwd90_params &p)
{
  const int slot = t->worked % C::KSLOTS;
  mbar_wait(smem + C::K_EMPTY + 8 * slot, t->worked / C::KSLOTS % 2 ^ 1);
  bwd90_load<C::KN, C::D, true>(smem + C::K0 + slot * C::SLOT_BYTES, mk,
                                smem + C::K_FULL + 8 * slot, p.d, 0, t->k_row, t->kv_head, t->k_at);
}

template <class C>
SM90_DEV void bwd90_produce_v(uint32_t smem, const volatile bwd90_tile *t, const CUtensorMap *mv,
                              const bwd90_params &p)
{
  const int slot = t->worked % C::KSLOTS;
  mbar_wait(smem + C::V_EMPTY + 8 * slot, t->worked / C::KSLOTS % 2 ^ 1);
  bwd90_load<C::KN, C::D, true>(smem + C::V0 + slot * C::SLOT_BYTES, mv,
                                smem + C::V_FULL + 8 * slot, p.dv_cols, 0, t->k_row, t->kv_head,
                                t->k_at);
}

/* One thread, one tile: Q with lse2 and dO with dsum for every step, beside the first of them V and
 * K, once they are no longer needed for the tile before. */
template <class C>
SM90_DEV void bwd90_produce(uint32_t smem, const volatile bwd90_tile *t, const CUtensorMap *mq,
                            const CUtensorMap *mk, const CUtensorMap *mv, const CUtensorMap *mdo,
                            const bwd90_params &p)
{
  int m = t->from, head = t->head + t->skip, i = t->first;
#pragma unroll 1
  for (;; i++) {
    const int row = m * C::KM, qs = i % C::QSTAGES, os = i % C::DOSTAGES;
    const int at = t->acc + (head - t->head) * p.acc_sh + row;
    const uint32_t q_full = smem + C::Q_FULL + 8 * qs, o_full = smem + C::DO_FULL + 8 * os;
    mbar_wait(smem + C::Q_EMPTY + 8 * qs, i / C::QSTAGES % 2 ^ 1);
    bwd90_note<C>(smem, t, i, m, at, head);
    bwd90_load<C::KM, C::D>(smem + C::Q0 + qs * C::Q_BYTES, mq, q_full, p.d, C::KM * 4,
                            t->q_row + row, head, t->q_at);
    bulk_load(smem + C::LSE0 + qs * C::KM * 4, p.lse2 + at, C::KM * 4, q_full);
    if (i == t->first) {
      bwd90_produce_v<C>(smem, t, mv, p);
      bwd90_produce_k<C>(smem, t, mk, p);
    }
    mbar_wait(smem + C::DO_EMPTY + 8 * os, i / C::DOSTAGES % 2 ^ 1);
    bwd90_load<C::KM, C::D>(smem + C::DO0 + os * C::Q_BYTES, mdo, o_full, p.dv_cols, C::KM * 4,
                            t->q_row + row, head, t->q_at);
    bulk_load(smem + C::DSUM0 + os * C::KM * 4, p.dsum + at, C::KM * 4, o_full);
    if (i == t->last)
      return;
    m = m + 1 < t->hi ? m + 1 : t->lo;
    head += m == t->start;
  }
}

/* ---- tiles of a block ------------------------------------------------------------------------ */

/* The tile of a block's turn n, once it is there. */
template <class C>
SM90_DEV const volatile bwd90_tile *bwd90_await_tile(uint32_t smem, const uint8_t *tiles, int n)
{
  mbar_wait(smem + C::TILE_FULL + 8 * (n % 2), n / 2 % 2);
  return (const volatile bwd90_tile *)(tiles + n % 2 * BWD90_TILE_BYTES);
}

/* Are the accumulators of a K/V head zero before main begins? */
SM90_DEV bool bwd90_zeroed_before(const bwd90_params &p, int seq, int kv_head)
{
  return !p.zeroed || seq * p.hkv + kv_head < p.ahead;
}

/* How many parts of its accumulators are zero. */
template <class C>
SM90_DEV int *bwd90_zeroed(const bwd90_params &p, const volatile bwd90_tile *t)
{
  return p.zeroed + t->acc / C::KM * BWD90_TURNS;
}

/* One thread, who has claimed a key block, or the first part of it: zeroes a part of the
 * accumulators of a head that comes later, as many query blocks as there are for each of its key
 * blocks. */
template <class C>
SM90_DEV void bwd90_zero_ahead(uint32_t smem, volatile bwd90_tile *t, const bwd90_params &p,
                               const volatile bwd90_tile *claimed)
{
  if (!p.zeroed || claimed->part > 0 ||
      claimed->place >= (int)(rederive(p.b * p.hkv) - p.ahead) * p.blocks)
    return;
  bwd90_find<C>(p, t, claimed->place + p.ahead * p.blocks);
  bwd90_locate<C>(p, t);
  const int n = (t->sq + C::KM - 1) / C::KM, share = (n + p.blocks - 1) / p.blocks;
  t->lo = min(n, t->n0 / C::KN * share);
  t->hi = min(n, t->lo + share);
#pragma unroll 1
  for (int g = 0; g < p.group; g++) {
    float *at = p.dqacc + (int64_t)(t->acc + g * p.acc_sh + t->lo * C::KM) * C::D;
#pragma unroll 1
    for (int i = (t->hi - t->lo) * (C::KM * C::D * 4 / C::ZEROES); i > 0; i--) {
      bulk_store(at, smem + C::ZERO, C::ZEROES);
      at += C::ZEROES / 4;
    }
  }
  bulk_commit();
  bulk_wait<0>();
  fence_proxy_async_all();
  red_release(bwd90_zeroed<C>(p, t), 1);
}

/* One thread: what the block works on in its turn, once a unit has been claimed. */
template <class C>
SM90_DEV void bwd90_begin_turn(uint32_t smem, uint8_t *tiles, const bwd90_params &p,
                               const volatile bwd90_clerk *x)
{
  const int n = x->turn, id = x->id;
  volatile bwd90_tile *t = (volatile bwd90_tile *)(tiles + n % 2 * BWD90_TILE_BYTES);
  volatile bwd90_tile *before = (volatile bwd90_tile *)(tiles + (n + 1) % 2 * BWD90_TILE_BYTES);
  mbar_wait(smem + C::TILE_EMPTY + 8 * (n % 2), n / 2 % 2 ^ 1);
  if (id < p.schedule.units) {
    bwd90_decode<C>(p, t, id);
    t->n = n;
    if (n > 0) {
      t->worked = before->worked + (before->last >= before->first);
      t->first = before->last + 1;
      t->last += t->first;
    }
    if (C::AHEAD && t->last >= t->first && !bwd90_zeroed_before(p, t->batch, t->kv_head))
      while (ld_acquire(bwd90_zeroed<C>(p, t)) < p.blocks)
        ;
  } else {
    t->id = -1;
  }
  mbar_arrive(smem + C::TILE_FULL + 8 * (n % 2));
  if constexpr (C::AHEAD)
    if (id < p.schedule.units)
      bwd90_zero_ahead<C>(smem, (volatile bwd90_tile *)(tiles + 2 * BWD90_TILE_BYTES), p, t);
}

/* A warp: decides what the block works on, and makes dQ meanwhile.  A unit is claimed when all of
 * the one before is on its way to shared memory: late enough that others who are free get it first.
 */
template <class C>
SM90_DEV void bwd90_claim(uint32_t smem, uint8_t *tiles, const bwd90_params &p)
{
  volatile bwd90_clerk *x = (volatile bwd90_clerk *)(tiles + (C::CLERK - C::TILE));
  if (laneid() == 0)
    bwd90_begin_clerk<C>(p, x);
#pragma unroll 1
  for (;;) {
    __syncwarp();
    if (laneid() == 0)
      bwd90_begin_turn<C>(smem, tiles, p, x);
    __syncwarp();
    if (x->id >= p.schedule.units || !C::CLAIMS)
      return;
    if constexpr (C::MAKES)
      bwd90_make_dq<C>(p, x, smem + C::TILE_LOADED);
    mbar_wait(smem + C::TILE_LOADED, x->turn % 2);
    __syncwarp();
    if (laneid() == 0) {
      x->id = p.next ? x->grid + atomicAdd(p.next, 1) : p.schedule.units;
      x->turn++;
    }
  }
}

/* One thread: loads every tile. */
template <class C>
SM90_DEV void bwd90_load_tiles(uint32_t smem, const uint8_t *tiles, const CUtensorMap *mq,
                               const CUtensorMap *mk, const CUtensorMap *mv, const CUtensorMap *mdo,
                               const bwd90_params &p)
{
#pragma unroll 1
  for (int n = 0;; n++) {
    const volatile bwd90_tile *t = bwd90_await_tile<C>(smem, tiles, n);
    if (t->id < 0)
      return;
    if (t->last >= t->first)
      bwd90_produce<C>(smem, t, mq, mk, mv, mdo, p);
    if (!C::CLAIMS)
      return;
    n = t->n;
    mbar_arrive(smem + C::TILE_EMPTY + 8 * (n % 2));
    mbar_arrive(smem + C::TILE_LOADED);
  }
}

#endif
