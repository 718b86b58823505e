/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-split.cuh - the main pass of the Hopper backward for head_dim up to 128: each of
 * two consumer warpgroups owns 64 of the block's 128 keys.
 *
 * A warpgroup's step on query block i, tensor-core groups in brackets:
 *   [dP_i]  P_i = exp2(S_i)  dS_i = P_i (dP_i - dsum) to shared memory  [dV += P_i dO_i]
 *   [dK += dS_i Q_i]  [S_i+1]  both warpgroups have dS_i-1 in shared memory  [dQ_i-1 = dS_i-1 K]
 *   dQ_i-1 to shared memory, from where a thread adds it to the accumulator
 * EARLY: dV is issued before dS_i is computed.  MID: dQ_i-1 before S_i+1, once dV has finished.
 * FULL: no mask.
 * S of the next block is computed ahead.  P never leaves registers; of dS only the operand of dQ
 * does.
 *
 * dQ lags a step, and the second warpgroup starts when the first has its dS_0: while one computes
 * exponentials and dS, the other's products run.  Without the lag both wait for each other's dS in
 * the middle of a step, so that the exponentials of both meet an idle tensor core.
 *
 * dQ (KM x D) is split by rows if KM = 128, by columns if KM = 64, by columns and transposed if
 * KM = 80.
 *
 * Measured on an H200, bf16, sequence 16k, no mask, TF/s; beside one another in one process:
 *   head_dim 64   dQ in the same step 540, a step later 585, second warpgroup later 590
 *   head_dim 128  64 queries: dQ in the same step 616, a step later with dV early 604, second
 *                 warpgroup later 646, dQ before S 650; 80 queries: 636, 635, 654
 * In another run, key blocks left over shared (+ 1.7 % at head_dim 64, + 2.5 % at 128):
 *   head_dim 64   592, columns 0 to 47 of V from registers 610 (1.26 of cuDNN; causal 587, 1.29;
 *                 sequence 2k 494, 1.17, causal 381, 1.20)
 *   head_dim 128  64 queries 656, 80 queries 672 (1.12 of cuDNN; causal 648, 1.11; sequence 2k
 *                 548, 1.06, causal with 64 queries 434, 1.09)
 *
 * A block goes from tile to tile (flash-bwd-sm90-load.cuh), and of few keys nobody zeroes the
 * accumulators (flash-bwd-sm90-split-dq.cuh).  Measured at sequence 2k, causal, of cuDNN's:
 * head_dim 64 1.19 before, 1.24 with both; head_dim 128 1.07 before, 1.06 with the latter alone,
 * 1.06 with the former alone, 1.10 with both, 1.12 with half as many heads in a section.  A block
 * for every tile begins some 3 % later than one that decodes its tile before its barriers are
 * there.
 *
 * Without a mask that lost: all key blocks of a head come to the same query block at the same time,
 * and wait for the first of them; to ask for its state and a fence before every addition cost 2 to
 * 5 % of long sequences, also under a mask.  So keys begin at different queries (spread) if they
 * are few, accumulators are zeroed if they are many (flash-bwd-sm90-load.cuh), and FULL, for
 * head_dim 64, keeps the steps and keys of a tile in registers that else lie beside Q for every
 * step.  TF/s in one process, of cuDNN's in brackets:
 *
 *                   a block a tile,  from tile to tile:
 *                   zeroed           first stores  zeroed  FULL: spread  zeroed
 *   head_dim 64, 2k     499 (1.17)   482           501     521 (1.22)    513
 *               16k     619 (1.28)   573           580     604           616 (1.27)
 *   head_dim 128 2k     553 (1.05)   527           548     563           553
 *               16k     682 (1.12)   626           661     672           676 (1.11)
 *
 * Since a kernel either stores first, or adds by turns, or neither (each had all three), in another
 * process: head_dim 64 FULL 8k 610 (1.28), 16k 627 (1.29), not FULL 596, 615; head_dim 128 FULL 8k
 * 665, 16k 685, not FULL 678 (1.12), 693 (1.13).  Causal, first stores beside zeroed: head_dim 64
 * 2k 413 (1.28), 411, 8k 555, 569 (1.34), 16k 581, 604 (1.31); head_dim 128 2k 463 (1.14), 455, 8k
 * 614, 627 (1.16), 16k 649, 670 (1.12).
 *
 * TWO_K: room for K and V of two tiles, which head_dim 64 has.  Causal 2k 418 (1.30), 413 without;
 * 8k 566, 555; 16k 598, 591.  Without a mask, and with K alone at head_dim 128, no gain.
 *
 * Since the claiming warp is whole and keeps what it knows in shared memory: head_dim 64 2k 532
 * (1.25), causal 438 (1.37); head_dim 128 2k causal 471 (1.16).
 *
 * Not taken either: dQ made from the accumulators beside the main pass at sequence 2k, by the warp
 * that claims tiles: it has 24 registers, falls behind, and the rest takes 1 to 5 %.  It is made so
 * at 8k (flash-bwd-sm90-make-dq.cuh).
 *
 * By a model, a step's traffic to shared memory (operands, dS, dQ twice, Q and dO, lse and dsum)
 * fills 85 % of its bandwidth: 80 queries and V in registers are there to lower it.
 *
 * Not taken: the warpgroups by turns, with named barriers, 572 at head_dim 64, 653 at 128; dQ added
 * from registers 561, 580; a quarter of the exponentials by polynomial 598 without V in registers,
 * less with it.  A warpgroup of its own for dQ, and exponentials beside dV and dK, do not fit in
 * the registers.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_SPLIT_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_SPLIT_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-ends.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-split-dq.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-split-tile.cuh"

/* What a warpgroup keeps of its tile, if there is no mask: its steps, its keys of 64. */
struct bwd90_span {
  int first, last, keys;
};

template <class C>
SM90_DEV bwd90_span bwd90_span_of(const bwd90_lane &w, const volatile bwd90_tile *t)
{
  if (!C::FULL)
    return {};
  return {bwd90_uniform(t->first), bwd90_uniform(t->last),
          bwd90_uniform(t->sk - t->n0 - 64 * w.wg)};
}

/* S of this step becomes P; with options P', and P is packed. */
template <class C>
SM90_DEV void bwd90_probs(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          const bwd90_span &a, int i, float (&S)[C::KM / 2],
                          uint32_t (&P)[C::KM / 4])
{
  const int row = 16 * w.warp + w.lane / 4, col = 2 * (w.lane & 3), slot = i % C::QSTAGES;
  const uint32_t lse = w.smem + C::LSE0 + slot * C::KM * 4 + 8 * (w.lane & 3);
  if constexpr (C::FULL) {
    if (a.keys < 64)
      bwd90_mask_keys(a.keys, row, S);
    bwd90_exp(S, p.c, lse);
    if (C::EARLY)
      bwd90_pack<typename C::T>(P, S);
    return;
  }
  const bwd90_step k = bwd90_read_note<C>(w.smem, i);
  const bwd90_band band = {k.at + 64 * w.wg, k.keys - 64 * w.wg};
  if constexpr (C::SCORE) {
    float X[C::KM / 2];
    const int m = t->n0 - t->shift - k.at;
    bwd90_options<C>(p, bwd90_head_of(p, t->batch, k.head), {band.at + m, band.keys}, t->sk - t->sq,
                     t->n0 + 64 * w.wg, row, m + col, lse, S, X);
    bwd90_pack<typename C::T>(P, S);
#pragma unroll
    for (int i = 0; i < C::KM / 2; i++)
      S[i] = X[i];
  } else {
    if (bwd90_masked(p, band, 0, C::KM))
      bwd90_mask(p, band, row, col, S);
    bwd90_exp(S, p.c, lse);
    if (C::EARLY)
      bwd90_pack<typename C::T>(P, S);
  }
}

/* Not the first step of its tile? */
template <class C>
SM90_DEV bool bwd90_adds(const bwd90_lane &w, const bwd90_span &a, int i)
{
  return C::FULL ? i > a.first : !bwd90_read_note<C>(w.smem, i).first;
}

/* The last? */
template <class C>
SM90_DEV bool bwd90_ends(const bwd90_lane &w, const bwd90_span &a, int i)
{
  return C::FULL ? i == a.last : bwd90_read_note<C>(w.smem, i).last;
}

/* From S to P and dS, also in shared memory. */
template <class C>
SM90_DEV void bwd90_scores(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           const bwd90_span &a, int i, const uint32_t (&V)[C::V_REGS + 1][4],
                           float (&S)[C::KM / 2], float (&dV)[C::D / 2], uint32_t (&P)[C::KM / 4],
                           uint32_t (&dS)[C::KM / 4])
{
  const int os = i % C::DOSTAGES;
  const uint32_t dsum = w.smem + C::DSUM0 + os * C::KM * 4 + 8 * (w.lane & 3);
  float dP[C::KM / 2];
  if (!C::SCORE)
    bwd90_issue_dp<C>(w, V, dP, i);
  bwd90_probs<C>(w, p, t, a, i, S, P);
  if (C::SCORE) /* whose registers leave no room for it before */
    bwd90_issue_dp<C>(w, V, dP, i);
  if (C::EARLY) {
    bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, bwd90_adds<C>(w, a, i));
    wgmma_wait<1>();
  } else {
    wgmma_wait<0>();
  }
  pin(dP);
  if constexpr (C::SCORE)
    bwd90_ds_options<C::KM / 2>(p, dP, S, dsum);
  else
    bwd90_ds<C::KM / 2>(dP, S, dsum);
  if (!C::EARLY && !C::SCORE)
    bwd90_pack<typename C::T>(P, S);
  bwd90_pack<typename C::T>(dS, dP);
  bwd90_put_ds<C>(w, dS, i);
}

/* dV, dK, S of the next step and dQ of the one before; beside the first step, which has none before
 * it, dQ is computed from whatever there is, and left. */
template <class C>
SM90_DEV bool bwd90_gradients(const bwd90_lane &w, const bwd90_span &a, int i,
                              uint32_t (&P)[C::KM / 4], uint32_t (&dS)[C::KM / 4],
                              float (&S)[C::KM / 2], float (&dV)[C::D / 2], float (&dK)[C::D / 2])
{
  const int qs = i % C::QSTAGES, os = i % C::DOSTAGES;
  const bool adds = bwd90_adds<C>(w, a, i), last = bwd90_ends<C>(w, a, i);
  float dQ[C::DQN / 2];
  if (!C::EARLY)
    bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, adds);
  bwd90_issue_dkv<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES, adds);
  if (C::MID) {
    wgmma_wait<1>();
    pin(dV);
    pin(P);
    bwd90_issue_dq<C>(w, dQ, i - 1);
  }
  if (!last)
    mbar_wait(w.smem + C::Q_FULL + 8 * ((i + 1) % C::QSTAGES), (i + 1) / C::QSTAGES % 2);
  bwd90_issue_s<C>(w, S, i + 1);
  wgmma_wait<1>();
  pin(dV);
  pin(P);
  pin(dK);
  pin(dS);
  /* every warp: lse2, dsum and the note, each has read by itself, and wgmma orders only its own */
  bwd90_arrive(w, C::DO_EMPTY + 8 * os);
  bwd90_arrive(w, C::Q_EMPTY + 8 * qs);
  if (!C::MID) {
    bwd90_issue_dq<C>(w, dQ, i - 1);
    wgmma_wait<0>();
    pin(S);
  }
  pin(dQ);
  if (adds)
    bwd90_put_dq<C>(w, dQ, i - 1);
  if (C::MID) {
    wgmma_wait<0>();
    pin(S);
  }
  return last;
}

/* All steps of a tile; no tensor-core group is in flight where the loop turns. */
template <class C>
SM90_DEV void bwd90_steps(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          float (&dK)[C::D / 2], float (&dV)[C::D / 2])
{
  int i = bwd90_uniform(t->first);
  const bwd90_span a = bwd90_span_of<C>(w, t);
  float S[C::KM / 2], dQ[C::DQN / 2];
  uint32_t P[C::KM / 4], dS[C::KM / 4], V[C::V_REGS + 1][4];
  undefine(dK);
  undefine(dV);
  mbar_wait(w.smem + C::K_FULL + 8 * (t->worked % C::KSLOTS), t->worked / C::KSLOTS % 2);
  mbar_wait(w.smem + C::Q_FULL + 8 * (i % C::QSTAGES), i / C::QSTAGES % 2);
  bwd90_issue_s<C>(w, S, i);
  wgmma_wait<0>();
  pin(S);
  mbar_wait(w.smem + C::V_FULL + 8 * (t->worked % C::KSLOTS), t->worked / C::KSLOTS % 2);
  bwd90_load_v<C>(w, V);
  if (w.wg == 1)
    named_sync(1, 256);
#pragma unroll 1
  for (bool last = false; !last; i++) {
    bwd90_scores<C>(w, p, t, a, i, V, S, dV, P, dS);
    if (w.wg == 0 && !bwd90_adds<C>(w, a, i))
      named_arrive(1, 256);
    last = bwd90_gradients<C>(w, a, i, P, dS, S, dV, dK);
  }
  bwd90_arrive(w, C::V_EMPTY + 8 * (t->worked % C::KSLOTS));
  bwd90_issue_dq<C>(w, dQ, i - 1);
  wgmma_wait<0>();
  pin(dQ);
  bwd90_arrive(w, C::K_EMPTY + 8 * (t->worked % C::KSLOTS));
  bwd90_put_dq<C>(w, dQ, i - 1);
}

/* A warpgroup's sums to dK and dV, or to who sums up the parts. */
template <class C>
SM90_DEV void bwd90_finish(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           float (&dK)[C::D / 2], float (&dV)[C::D / 2])
{
  const int key = t->n0 + 64 * w.wg, part = t->part;
  if (part >= 0) {
    const int sums = t->sums;
    if (part < t->parts - 1) {
      bwd90_give_part<C>(p, sums + part, w.wg, dV);
      bwd90_give_part<C>(p, sums + part, 2 + w.wg, dK);
      bwd90_gave_part(w, p, t->shared);
      return;
    }
    bwd90_await_parts(w, p, t->shared, part);
    bwd90_take_parts<C>(p, sums, part, w.wg, dV);
    bwd90_take_parts<C>(p, sums, part, 2 + w.wg, dK);
  }
  bwd90_store_kv<typename C::T>(p.dv, t, key, w.warp, w.lane, p.dv_cols,
                                C::SCORE ? p.keep_scale : 1.f, dV);
  bwd90_store_kv<typename C::T>(p.dk, t, key, w.warp, w.lane, p.d, p.scale, dK);
}

/* ---- roles of a block ------------------------------------------------------------------------ */

/* Who a thread is, it finds out for every tile: what follows from that has no register of its own
 * from tile to tile. */
template <class C>
SM90_DEV void bwd90_consume(uint32_t smem, const bwd90_params &p, const uint8_t *tiles)
{
  float dK[C::D / 2], dV[C::D / 2];
#pragma unroll 1
  for (int n = 0;; n++) {
    const volatile bwd90_tile *t = bwd90_await_tile<C>(smem, tiles, n);
    if (bwd90_uniform(t->id) < 0)
      return;
    const int x = threadIdx.x, warp = bwd90_uniform(x / 32);
    const uint32_t slot = C::KSLOTS == 1 ? 0 : bwd90_uniform(t->worked % 2) * C::SLOT_BYTES;
    const bwd90_lane w = {smem, warp / 4 - 1, warp % 4, x % 32, slot};
    if (t->last >= t->first) {
      bwd90_steps<C>(w, p, t, dK, dV);
    } else {
#pragma unroll
      for (int j = 0; j < C::D / 2; j++)
        dK[j] = dV[j] = 0;
    }
    bwd90_finish<C>(w, p, t, dK, dV);
    n = bwd90_uniform(t->n);
    bwd90_arrive(w, C::TILE_EMPTY + 8 * (n % 2));
  }
}

template <class C>
SM90_DEV void bwd90_init(uint32_t smem)
{
  for (int i = 0; i < C::KSLOTS; i++) {
    mbar_init(smem + C::K_FULL + 8 * i, 1);
    mbar_init(smem + C::V_FULL + 8 * i, 1);
    mbar_init(smem + C::K_EMPTY + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::V_EMPTY + 8 * i, 8 * BWD90_LANES);
  }
  mbar_init(smem + C::TILE_LOADED, 1);
  for (int i = 0; i < C::QSTAGES; i++) {
    mbar_init(smem + C::Q_FULL + 8 * i, 1);
    mbar_init(smem + C::Q_EMPTY + 8 * i, 8 * BWD90_LANES);
  }
  for (int i = 0; i < C::DOSTAGES; i++) {
    mbar_init(smem + C::DO_FULL + 8 * i, 1);
    mbar_init(smem + C::DO_EMPTY + 8 * i, 8 * BWD90_LANES);
  }
  for (int i = 0; i < 2; i++) {
    mbar_init(smem + C::DS_FULL + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::DS_EMPTY + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::DQ_FULL + 8 * i, 4 * BWD90_LANES);
    mbar_init(smem + C::DQ_EMPTY + 8 * i, 1);
    mbar_init(smem + C::TILE_FULL + 8 * i, 1);
    mbar_init(smem + C::TILE_EMPTY + 8 * i,
              8 * BWD90_LANES + 3); /* consumers' warps, producer, writers */
  }
  mbar_init_fence();
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_bwd_sm90(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                   const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mdo,
                   const __grid_constant__ bwd90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t smem = smem_addr(shared);
  if (threadIdx.x == 0)
    bwd90_init<C>(smem);
  bwd90_clear<C>(smem, p);
  __syncthreads();
  await_kernel_before();
  admit_next_kernel();
  const int wg = bwd90_uniform(threadIdx.x / 128), warp = bwd90_uniform(threadIdx.x / 32 % 4);
  if (wg > 0) {
    regs_take<C::CREGS>();
    bwd90_consume<C>(smem, p, shared + C::TILE);
    return;
  }
  regs_give<C::PREGS>();
  if (warp != 1 && threadIdx.x % 32)
    return;
  if (warp == 0)
    bwd90_load_tiles<C>(smem, shared + C::TILE, &mq, &mk, &mv, &mdo, p);
  else if (warp == 1)
    bwd90_claim<C>(smem, shared + C::TILE, p);
  else
    bwd90_write_tiles<C>(smem, shared + C::TILE, p, warp - 2);
}

template <class C>
static bwd90_kernel bwd90_split_row(const char *name, int uses)
{
  bwd90_kernel k = bwd90_row<C>(name, uses, (const void *)flash_bwd_sm90<C>);
  k.only = C::FULL || C::TURNS;
  return k;
}

#endif
