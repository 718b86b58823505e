/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-split.cuh - the main pass of the Hopper backward for head_dim up to 128: each of
 * two consumer warpgroups owns 64 of the block's 128 keys.
 *
 * A warpgroup's step on query block i, tensor-core groups in brackets:
 *   [dP_i]  P_i = exp2(S_i)  dS_i = P_i (dP_i - dsum) to shared memory  [dV += P_i dO_i]
 *   [dK += dS_i Q_i]  [S_i+1]  both warpgroups have dS_i in shared memory  [dQ_i = dS_i K]
 *   dQ_i to shared memory, from where a thread adds it to the accumulator
 * EARLY: dV is issued before dS_i is computed.  S of the next block is computed ahead.  The two
 * warpgroups meet only at an mbarrier, once a step, for dS.  P never leaves registers; of dS only
 * the operand of dQ does.
 *
 * dQ (KM x D) is split by rows if KM = 128, by columns if KM = 64.
 *
 * Measured on an H200, bf16, TF/s full and causal, 16384 tokens in the batch, sequence 16k
 * (cuDNN's, in another run, in brackets): head_dim 128 614, 611 (614, 597); head_dim 64 540, 533
 * (485, 456).  At sequence 8k and deterministic: 483, 466 (522, 472); 447, 461 (275, 325).
 *
 * Not taken: all of a step's groups queued before the first is waited for, exponentials held beside
 * dP by force, dQ computed transposed for 64 columns and lse2, dsum by 16 bytes, all together: 564,
 * 561 and 500, 495.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_SPLIT_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_SPLIT_CUH

#include "impl/cuda/flash-bwd-sm90.cuh"

template <class T_, int D_, int KM_, int QSTAGES_, int DOSTAGES_, int PREGS_, int CREGS_,
          bool EARLY_>
struct bwd90_split {
  typedef T_ T;
  static constexpr int D = D_, KM = KM_, KN = 128, THREADS = 384;
  static constexpr int QSTAGES = QSTAGES_, DOSTAGES = DOSTAGES_, DSSTAGES = 2;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_;
  static constexpr bool EARLY = EARLY_; /* dV before dS */
  static constexpr bool DQ_ADDED = true, DQ_ROWS = KM == 128;
  static constexpr int DQN = DQ_ROWS ? D : D / 2;
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
  static constexpr int DS_FULL = DQ_EMPTY + 16;
  static constexpr int TILE = (DS_FULL + 8 + 15) / 16 * 16, SMEM = TILE + BWD90_TILE_BYTES;
  static_assert((KM == 128 || KM == 64 && D == 128) && D % 64 == 0 && SMEM <= 232448, "tile");
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

/* dP = V dO^T of step i, one group */
template <class C>
SM90_DEV void bwd90_issue_dp(const bwd90_lane &w, float (&dP)[C::KM / 2], int i)
{
  const int slot = i % C::DOSTAGES;
  const uint32_t a = rederive(desc_lo(w.smem + C::V0 + w.wg * 8192, 0));
  const uint32_t b = rederive(desc_lo(w.smem + C::DO0 + slot * C::Q_BYTES, 0));
  mbar_wait(w.smem + C::DO_FULL + 8 * slot, i / C::DOSTAGES % 2);
  undefine(dP);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++)
    wgmma_tt<typename C::T, C::KM>::template ss<0, 0>(dP, desc(a + k / 4 * C::KN * 8 + k % 4 * 2),
                                                      desc(b + k / 4 * C::KM * 8 + k % 4 * 2),
                                                      k > 0);
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

/* dQ = dS K: this warpgroup's half, one group */
template <class C>
SM90_DEV void bwd90_issue_dq(const bwd90_lane &w, float (&dQ)[C::DQN / 2], uint32_t ds)
{
  const uint32_t a = rederive(desc_lo(ds + (C::DQ_ROWS ? w.wg * 8192 : 0), 0));
  const uint32_t b =
      rederive(desc_lo(w.smem + C::K0 + (C::DQ_ROWS ? 0 : w.wg * C::KN * 128), C::KN * 128));
  undefine(dQ);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::KN / 16; k++)
    wgmma_tt<typename C::T, C::DQN>::template ss<0, 1>(dQ, desc(a + k / 4 * C::KM * 8 + k % 4 * 2),
                                                       desc(b + k * 128), k > 0);
  wgmma_commit();
}

/* dS^T, as the threads hold it, to rows of queries x columns of keys. */
template <class C>
SM90_DEV void bwd90_put_ds(const bwd90_lane &w, const uint32_t (&dS)[C::KM / 4], uint32_t ds)
{
  const int row = w.lane & 7, key = 2 * w.warp + (w.lane >> 3 & 1);
  const uint32_t at =
      ds + w.wg * C::KM * 128 + (w.lane >> 4) * 1024 + row * 128 + ((key ^ row) << 4);
#pragma unroll
  for (int i = 0; i < C::KM / 16; i++)
    stmatrix_x4_trans(at + i * 2048, dS + 4 * i);
  fence_proxy_async();
  bwd90_arrive(w, C::DS_FULL);
}

/* dQ to the warpgroup's buffer, for its writer. */
template <class C>
SM90_DEV void bwd90_put_dq(const bwd90_lane &w, const float (&dQ)[C::DQN / 2], int i)
{
  const uint32_t at = w.smem + C::DQ0 + w.wg * 64 * C::DQN * 4 + (32 * w.warp + w.lane) * 16;
  mbar_wait(w.smem + C::DQ_EMPTY + 8 * w.wg, i % 2 ^ 1);
#pragma unroll
  for (int j = 0; j < C::DQN / 8; j++)
    sts_v4(at + j * 2048, dQ[4 * j], dQ[4 * j + 1], dQ[4 * j + 2], dQ[4 * j + 3]);
  fence_proxy_async();
  bwd90_arrive(w, C::DQ_FULL + 8 * w.wg);
}

/* All steps; no tensor-core group is in flight where the loop turns. */
template <class C>
SM90_DEV void bwd90_steps(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          float (&dK)[C::D / 2], float (&dV)[C::D / 2])
{
  const int lo = bwd90_uniform(t->lo), hi = bwd90_uniform(t->hi);
  const int last = (hi - lo) * p.group - 1;
  const bwd90_band band = {bwd90_uniform(t->n0 + 64 * w.wg - t->shift),
                           bwd90_uniform(t->sk - t->n0 - 64 * w.wg)};
  const bool elected = w.warp == 0 && w.lane == 0;
  const int quad = w.lane & 3;
  int m = bwd90_uniform(t->start);
  float S[C::KM / 2], dP[C::KM / 2], dQ[C::DQN / 2];
  uint32_t P[C::KM / 4], dS[C::KM / 4];
  undefine(dK);
  undefine(dV);
  mbar_wait(w.smem + C::K_FULL, 0);
  mbar_wait(w.smem + C::Q_FULL, 0);
  bwd90_issue_s<C>(w, S, 0);
  wgmma_wait<0>();
  pin(S);
  mbar_wait(w.smem + C::V_FULL, 0);
#pragma unroll 1
  for (int i = 0; i <= last; i++) {
    const int qs = i % C::QSTAGES, os = i % C::DOSTAGES;
    const uint32_t ds = w.smem + C::DS0 + i % C::DSSTAGES * C::DS_BYTES;
    bwd90_issue_dp<C>(w, dP, i);
    if (bwd90_masked(p, band, m * C::KM, C::KM))
      bwd90_mask(p, band, 16 * w.warp + w.lane / 4, m * C::KM + 2 * quad, S);
    bwd90_exp(S, p.c, w.smem + C::LSE0 + qs * C::KM * 4 + 8 * quad);
    if (C::EARLY) {
      bwd90_pack<typename C::T>(P, S);
      bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, i > 0);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    pin(dP);
    bwd90_ds<C::KM / 2>(dP, S, w.smem + C::DSUM0 + os * C::KM * 4 + 8 * quad);
    if (!C::EARLY)
      bwd90_pack<typename C::T>(P, S);
    bwd90_pack<typename C::T>(dS, dP);
    bwd90_put_ds<C>(w, dS, ds);
    if (!C::EARLY)
      bwd90_issue_dkv<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, i > 0);
    bwd90_issue_dkv<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES, i > 0);
    if (i < last)
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
    mbar_wait(w.smem + C::DS_FULL, i % 2);
    bwd90_issue_dq<C>(w, dQ, ds);
    wgmma_wait<0>();
    pin(S);
    pin(dQ);
    bwd90_put_dq<C>(w, dQ, i);
    m = m + 1 < hi ? m + 1 : lo;
  }
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
  const int key = t->n0 + 64 * w.wg;
  bwd90_store_kv<typename C::T>(p.dv, t, key, w.warp, w.lane, p.dv_cols, 1.f, dV);
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
    mbar_init(smem + C::DS_FULL, 8);
    for (int i = 0; i < C::QSTAGES; i++) {
      mbar_init(smem + C::Q_FULL + 8 * i, 1);
      mbar_init(smem + C::Q_EMPTY + 8 * i, 2);
    }
    for (int i = 0; i < C::DOSTAGES; i++) {
      mbar_init(smem + C::DO_FULL + 8 * i, 1);
      mbar_init(smem + C::DO_EMPTY + 8 * i, 2);
    }
    for (int i = 0; i < 2; i++) {
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
