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
#include "impl/cuda/sm90-backward/flash-bwd-sm90-options.cuh"

enum {
  BWD90_EARLY = 1, /* dV before dS */
  BWD90_MID = 2,   /* dQ before S */
  BWD90_SCORE = 4, /* softcap, ALiBi */
  BWD90_DROP = 8,  /* dropout */
};

/* V_REGS: so many times 16 columns of V are held in registers. */
template <class T_, int D_, int KM_, int PREGS_, int CREGS_, int FLAGS_ = 0, int V_REGS_ = 0>
struct bwd90_split {
  typedef T_ T;
  static constexpr int D = D_, KM = KM_, KN = 128, THREADS = 384;
  static constexpr int QSTAGES = 2, DOSTAGES = 2, DSSTAGES = 2;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_, V_REGS = V_REGS_;
  static constexpr bool EARLY = FLAGS_ & BWD90_EARLY, MID = FLAGS_ & BWD90_MID;
  static constexpr bool SCORE = FLAGS_ & BWD90_SCORE, DROP = FLAGS_ & BWD90_DROP;
  static constexpr bool DQ_ADDED = true, DQ_ROWS = KM == 128, DQ_SWAPPED = KM == 80;
  /* columns of a warpgroup's part of dQ, as computed */
  static constexpr int DQN = DQ_SWAPPED ? KM : DQ_ROWS ? D : D / 2;
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2, DS_BYTES = KM * KN * 2;
  static constexpr int K0 = 0, V0 = K0 + K_BYTES, Q0 = V0 + K_BYTES;
  static constexpr int DO0 = Q0 + QSTAGES * Q_BYTES, DS0 = DO0 + DOSTAGES * Q_BYTES;
  static constexpr int DQ0 = DS0 + DSSTAGES * DS_BYTES, LSE0 = DQ0 + KM * D * 4;
  static constexpr int DSUM0 = LSE0 + QSTAGES * KM * 4, BARS = DSUM0 + DOSTAGES * KM * 4;
  /* barriers, 8 bytes each */
  static constexpr int K_FULL = BARS, V_FULL = K_FULL + 8;
  static constexpr int Q_FULL = V_FULL + 8, Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int DO_FULL = Q_EMPTY + 8 * QSTAGES, DO_EMPTY = DO_FULL + 8 * DOSTAGES;
  static constexpr int DQ_FULL = DO_EMPTY + 8 * DOSTAGES, DQ_EMPTY = DQ_FULL + 16;
  static constexpr int DS_FULL = DQ_EMPTY + 16, DS_EMPTY = DS_FULL + 8 * DSSTAGES;
  static constexpr int TILE = (DS_EMPTY + 8 * DSSTAGES + 15) / 16 * 16,
                       SMEM = TILE + BWD90_TILE_BYTES;
  /* Operands of S and dP (each warpgroup half of K or V, and all of Q or dO), dV, dK, dQ; dS; dQ
   * on its way, there and back; Q and dO from TMA. */
  static constexpr int STEP_SMEM = 2 * K_BYTES - 32 * KN * V_REGS + 8 * Q_BYTES +
                                   4 * (64 + DQN) * KN + DS_BYTES + 8 * KM * D + 2 * Q_BYTES;
  static_assert((KM == 128 || KM == 64 || KM == 80 && D == 128) && D % 64 == 0 && SMEM <= 232448,
                "tile");
};

/* S = K Q^T of step i, 64 keys x KM queries, one group */
template <class C>
SM90_DEV void bwd90_issue_s(const bwd90_lane &w, float (&S)[C::KM / 2], int i)
{
  const int slot = i % C::QSTAGES;
  const uint32_t a = rederive(desc_lo(w.smem + C::K0 + w.wg * 8192, 0));
  const uint32_t b = rederive(desc_lo(w.smem + C::Q0 + slot * C::Q_BYTES, 0));
  undefine(S);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++)
    wgmma_tt<typename C::T, C::KM>::template ss<0, 0>(
        S, desc(a + k / 4 * C::KN * 8 + k % 4 * 2), desc(b + k / 4 * C::KM * 8 + k % 4 * 2), k > 0);
  wgmma_commit();
}

/* The columns of this warpgroup's V that are held in registers. */
template <class C>
SM90_DEV void bwd90_load_v(const bwd90_lane &w, uint32_t (&V)[C::V_REGS + 1][4])
{
  const int row = 64 * w.wg + 16 * w.warp + (w.lane & 15);
  const uint32_t at = w.smem + C::V0 + row * 128;
#pragma unroll
  for (int k = 0; k < C::V_REGS; k++)
    ldmatrix_x4(V[k], at + ((2 * k + (w.lane >> 4) ^ row & 7) << 4));
}

/* dP = V dO^T of step i, one group */
template <class C>
SM90_DEV void bwd90_issue_dp(const bwd90_lane &w, const uint32_t (&V)[C::V_REGS + 1][4],
                             float (&dP)[C::KM / 2], int i)
{
  const int slot = i % C::DOSTAGES;
  const uint32_t a = rederive(desc_lo(w.smem + C::V0 + w.wg * 8192, 0));
  const uint32_t b = rederive(desc_lo(w.smem + C::DO0 + slot * C::Q_BYTES, 0));
  mbar_wait(w.smem + C::DO_FULL + 8 * slot, i / C::DOSTAGES % 2);
  undefine(dP);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++) {
    const uint64_t y = desc(b + k / 4 * C::KM * 8 + k % 4 * 2);
    if (k < C::V_REGS)
      wgmma<typename C::T, C::KM>::template rs<0>(dP, V[k], y, k > 0);
    else
      wgmma_tt<typename C::T, C::KM>::template ss<0, 0>(dP, desc(a + k / 4 * C::KN * 8 + k % 4 * 2),
                                                        y, k > 0);
  }
  wgmma_commit();
}

/* dV += P^T dO or dK += dS^T Q: 64 keys x D, one group */
template <class C>
SM90_DEV void bwd90_issue_dkv(float (&acc)[C::D / 2], const uint32_t (&P)[C::KM / 4], uint32_t tile,
                              int add)
{
  const uint32_t b = rederive(desc_lo(tile, C::KM * 128));
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::KM / 16; k++)
    wgmma<typename C::T, C::D>::template rs<1>(acc, P + 4 * k, desc(b + k * 128), k > 0 ? 1 : add);
  wgmma_commit();
}

/* dQ = dS K of step i: this warpgroup's half, one group */
template <class C>
SM90_DEV void bwd90_issue_dq(const bwd90_lane &w, float (&dQ)[C::DQN / 2], int i)
{
  const uint32_t ds = w.smem + C::DS0 + (i & 1) * C::DS_BYTES;
  const uint32_t a = rederive(desc_lo(ds + (C::DQ_ROWS ? w.wg * 8192 : 0), 0));
  const uint32_t half = C::DQ_ROWS ? 0 : C::D == 64 ? 64 : C::KN * 128;
  const uint32_t b = rederive(desc_lo(w.smem + C::K0 + w.wg * half, C::KN * 128));
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

/* Where a warpgroup is. */
struct bwd90_walk {
  bwd90_band band;
  int lo, hi, last; /* query blocks, last step */
  int i, m, head;   /* step, query block, query head */
};

/* S of this step becomes P; with options P', and P is packed. */
template <class C>
SM90_DEV void bwd90_probs(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          const bwd90_walk &k, float (&S)[C::KM / 2], uint32_t (&P)[C::KM / 4])
{
  const int row = 16 * w.warp + w.lane / 4, col = k.m * C::KM + 2 * (w.lane & 3);
  const uint32_t lse = w.smem + C::LSE0 + k.i % C::QSTAGES * C::KM * 4 + 8 * (w.lane & 3);
  if constexpr (C::SCORE) {
    float X[C::KM / 2];
    bwd90_options<C>(p, bwd90_head_of(p, t->batch, k.head), k.band, t->sk - t->sq,
                     t->n0 + 64 * w.wg, row, col, lse, S, X);
    bwd90_pack<typename C::T>(P, S);
#pragma unroll
    for (int i = 0; i < C::KM / 2; i++)
      S[i] = X[i];
  } else {
    if (bwd90_masked(p, k.band, k.m * C::KM, C::KM))
      bwd90_mask(p, k.band, row, col, S);
    bwd90_exp(S, p.c, lse);
    if (C::EARLY)
      bwd90_pack<typename C::T>(P, S);
  }
}

/* From S to P and dS, also in shared memory. */
template <class C>
SM90_DEV void bwd90_scores(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           const bwd90_walk &k, const uint32_t (&V)[C::V_REGS + 1][4],
                           float (&S)[C::KM / 2], float (&dV)[C::D / 2], uint32_t (&P)[C::KM / 4],
                           uint32_t (&dS)[C::KM / 4])
{
  const int os = k.i % C::DOSTAGES;
  const uint32_t dsum = w.smem + C::DSUM0 + os * C::KM * 4 + 8 * (w.lane & 3);
  float dP[C::KM / 2];
  if (!C::SCORE)
    bwd90_issue_dp<C>(w, V, dP, k.i);
  bwd90_probs<C>(w, p, t, k, S, P);
  if (C::SCORE) /* whose registers leave no room for it before */
    bwd90_issue_dp<C>(w, V, dP, k.i);
  if (C::EARLY) {
    bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, k.i > 0);
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
  bwd90_put_ds<C>(w, dS, k.i);
}

/* dV, dK, S of the next step and dQ of the one before; of step 0, whose dQ has no step before it,
 * it is computed from whatever there is, and left. */
template <class C>
SM90_DEV void bwd90_gradients(const bwd90_lane &w, const bwd90_walk &k, uint32_t (&P)[C::KM / 4],
                              uint32_t (&dS)[C::KM / 4], float (&S)[C::KM / 2],
                              float (&dV)[C::D / 2], float (&dK)[C::D / 2])
{
  const int i = k.i, qs = i % C::QSTAGES, os = i % C::DOSTAGES;
  const bool elected = w.warp == 0 && w.lane == 0;
  float dQ[C::DQN / 2];
  if (!C::EARLY)
    bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, i > 0);
  bwd90_issue_dkv<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES, i > 0);
  if (C::MID) {
    wgmma_wait<1>();
    pin(dV);
    pin(P);
    bwd90_issue_dq<C>(w, dQ, i - 1);
  }
  if (i < k.last)
    mbar_wait(w.smem + C::Q_FULL + 8 * ((i + 1) % C::QSTAGES), (i + 1) / C::QSTAGES % 2);
  bwd90_issue_s<C>(w, S, i + 1);
  wgmma_wait<1>();
  pin(dV);
  pin(P);
  pin(dK);
  pin(dS);
  if (elected) {
    mbar_arrive(w.smem + C::DO_EMPTY + 8 * os);
    mbar_arrive(w.smem + C::Q_EMPTY + 8 * qs);
  }
  if (!C::MID) {
    bwd90_issue_dq<C>(w, dQ, i - 1);
    wgmma_wait<0>();
    pin(S);
  }
  pin(dQ);
  if (i > 0)
    bwd90_put_dq<C>(w, dQ, i - 1);
  if (C::MID) {
    wgmma_wait<0>();
    pin(S);
  }
}

/* All steps; no tensor-core group is in flight where the loop turns. */
template <class C>
SM90_DEV void bwd90_steps(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          float (&dK)[C::D / 2], float (&dV)[C::D / 2])
{
  const int lo = bwd90_uniform(t->lo), hi = bwd90_uniform(t->hi);
  const bwd90_band band = {bwd90_uniform(t->n0 + 64 * w.wg - t->shift),
                           bwd90_uniform(t->sk - t->n0 - 64 * w.wg)};
  bwd90_walk k = {band, lo, hi, (hi - lo) * p.group - 1, 0, bwd90_uniform(t->start), t->head};
  float S[C::KM / 2], dQ[C::DQN / 2];
  uint32_t P[C::KM / 4], dS[C::KM / 4], V[C::V_REGS + 1][4];
  undefine(dK);
  undefine(dV);
  mbar_wait(w.smem + C::K_FULL, 0);
  mbar_wait(w.smem + C::Q_FULL, 0);
  bwd90_issue_s<C>(w, S, 0);
  wgmma_wait<0>();
  pin(S);
  mbar_wait(w.smem + C::V_FULL, 0);
  bwd90_load_v<C>(w, V);
  if (w.wg == 1)
    named_sync(1, 256);
#pragma unroll 1
  for (; k.i <= k.last; k.i++) {
    bwd90_scores<C>(w, p, t, k, V, S, dV, P, dS);
    if (w.wg == 0 && k.i == 0)
      named_arrive(1, 256);
    bwd90_gradients<C>(w, k, P, dS, S, dV, dK);
    k.m = k.m + 1 < hi ? k.m + 1 : lo;
    if (C::SCORE)
      k.head += k.m == t->start;
  }
  bwd90_issue_dq<C>(w, dQ, k.last);
  wgmma_wait<0>();
  pin(dQ);
  bwd90_put_dq<C>(w, dQ, k.last);
}

template <class C>
SM90_DEV void bwd90_consume(const bwd90_lane &w, const bwd90_params &p,
                            const volatile bwd90_tile *t)
{
  float dK[C::D / 2], dV[C::D / 2];
  if (t->lo < t->hi) {
    bwd90_steps<C>(w, p, t, dK, dV);
  } else {
#pragma unroll
    for (int i = 0; i < C::D / 2; i++)
      dK[i] = dV[i] = 0;
  }
  const int key = t->n0 + 64 * w.wg, part = t->part;
  if (part >= 0 && part < p.parts - 1) {
    bwd90_give_part<C>(p, part, w.wg, dV);
    bwd90_give_part<C>(p, part, 2 + w.wg, dK);
    bwd90_gave_part(w, p);
    return;
  }
  if (part >= 0) {
    bwd90_await_parts(w, p);
    for (int i = 0; i < part; i++) {
      bwd90_take_part<C>(p, i, w.wg, dV);
      bwd90_take_part<C>(p, i, 2 + w.wg, dK);
    }
  }
  bwd90_store_kv<typename C::T>(p.dv, t, key, w.warp, w.lane, p.dv_cols,
                                C::SCORE ? p.keep_scale : 1.f, dV);
  bwd90_store_kv<typename C::T>(p.dk, t, key, w.warp, w.lane, p.d, p.scale, dK);
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_bwd_sm90(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                   const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mdo,
                   const __grid_constant__ bwd90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t smem = smem_addr(shared);
  const volatile bwd90_tile *tile = (const volatile bwd90_tile *)(shared + C::TILE);
  if (threadIdx.x == 0) {
    *(bwd90_tile *)(shared + C::TILE) = bwd90_decode<C>(p);
    mbar_init(smem + C::K_FULL, 1);
    mbar_init(smem + C::V_FULL, 1);
    for (int i = 0; i < C::QSTAGES; i++) {
      mbar_init(smem + C::Q_FULL + 8 * i, 1);
      mbar_init(smem + C::Q_EMPTY + 8 * i, 2);
    }
    for (int i = 0; i < C::DOSTAGES; i++) {
      mbar_init(smem + C::DO_FULL + 8 * i, 1);
      mbar_init(smem + C::DO_EMPTY + 8 * i, 2);
    }
    for (int i = 0; i < 2; i++) {
      mbar_init(smem + C::DS_FULL + 8 * i, 8);
      mbar_init(smem + C::DS_EMPTY + 8 * i, 8);
      mbar_init(smem + C::DQ_FULL + 8 * i, 4);
      mbar_init(smem + C::DQ_EMPTY + 8 * i, 1);
    }
    mbar_init_fence();
  }
  __syncthreads();
  await_kernel_before();
  admit_next_kernel();
  const int wg = bwd90_uniform(threadIdx.x / 128), warp = bwd90_uniform(threadIdx.x / 32 % 4);
  if (wg == 0) {
    regs_give<C::PREGS>();
    if (tile->lo < tile->hi) {
      if (threadIdx.x == 0)
        bwd90_produce<C>(smem, tile, &mq, &mk, &mv, &mdo, p);
      else if (warp > 1 && threadIdx.x % 32 == 0)
        bwd90_write_dq<C>(smem, tile, p, warp - 2);
    }
  } else {
    regs_take<C::CREGS>();
    bwd90_consume<C>(bwd90_lane{smem, wg - 1, warp, (int)threadIdx.x % 32}, p, tile);
  }
}

template <class C>
static bwd90_kernel bwd90_split_row(const char *name, int uses)
{
  return bwd90_row<C>(name, uses, (const void *)flash_bwd_sm90<C>);
}

#endif
