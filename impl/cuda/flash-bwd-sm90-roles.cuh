/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-roles.cuh - the main pass of the Hopper backward for head_dim up to 256: a block
 * owns 64 keys, and its two consumer warpgroups have different jobs, because the registers of one
 * hold only one of dK and dV:
 *
 *   first   S = K Q^T, P;  dV += P dO;    left half of dQ = dS K
 *   second  dP = V dO^T, dS;  dK += dS Q; right half of dQ
 *
 * P (fp32) goes from a thread of the first to the same thread of the second through shared memory,
 * dS to both.  dQ is added to the accumulator straight from registers.
 *
 * Measured on an H200, bf16, TF/s full and causal (two passes', flash-bwd-sm90-twopass.cuh, in
 * brackets): sequence 2k 380, 328 (395, 347); 8k 417, 411 (395, 415); 16k 423, 427 (382, 423).
 * Adding dQ in order costs 39 %: 8k deterministic 256, 253 (395, 415).
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_ROLES_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_ROLES_CUH

#include "impl/cuda/flash-bwd-sm90.cuh"

template <class T_, int QSTAGES_, int DOSTAGES_, int PREGS_, int CREGS_>
struct bwd90_roles {
  typedef T_ T;
  static constexpr int D = 256, KM = 64, KN = 64, THREADS = 384;
  static constexpr int QSTAGES = QSTAGES_, DOSTAGES = DOSTAGES_;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_;
  static constexpr bool DQ_ADDED = true, DQ_ROWS = false;
  static constexpr int DQN = 128, PANEL = 64 * 128;
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2;
  static constexpr int K0 = 0, V0 = K0 + K_BYTES, Q0 = V0 + K_BYTES;
  static constexpr int DO0 = Q0 + QSTAGES * Q_BYTES, DS0 = DO0 + DOSTAGES * Q_BYTES;
  static constexpr int P0 = DS0 + KM * KN * 2, LSE0 = P0 + KM * KN * 4;
  static constexpr int DSUM0 = LSE0 + QSTAGES * KM * 4, BARS = DSUM0 + DOSTAGES * KM * 4;
  /* barriers, 8 bytes each */
  static constexpr int K_FULL = BARS, V_FULL = K_FULL + 8;
  static constexpr int Q_FULL = V_FULL + 8, Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int DO_FULL = Q_EMPTY + 8 * QSTAGES, DO_EMPTY = DO_FULL + 8 * DOSTAGES;
  static constexpr int DS_FULL = DO_EMPTY + 8 * DOSTAGES, DS_EMPTY = DS_FULL + 8;
  static constexpr int P_FULL = DS_EMPTY + 8, P_EMPTY = P_FULL + 8;
  static constexpr int TILE = (P_EMPTY + 8 + 15) / 16 * 16, SMEM = TILE + BWD90_TILE_BYTES;
  static_assert(SMEM <= 232448, "tile");
};

/* dQ = dS K: this warpgroup's 128 columns, one group */
template <class C>
SM90_DEV void bwd90_issue_dq(const bwd90_lane &w, float (&dQ)[64])
{
  const uint32_t a = rederive(desc_lo(w.smem + C::DS0, 0));
  const uint32_t b = rederive(desc_lo(w.smem + C::K0 + w.wg * 2 * C::PANEL, C::PANEL));
  undefine(dQ);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma_tt<typename C::T, 128>::template ss<0, 1>(dQ, desc(a + 2 * k), desc(b + k * 128), k > 0);
  wgmma_commit();
}

template <class C>
SM90_DEV void bwd90_put_ds(const bwd90_lane &w, const uint32_t (&dS)[16])
{
  const int row = w.lane & 7, key = 2 * w.warp + (w.lane >> 3 & 1);
  const uint32_t at = w.smem + C::DS0 + (w.lane >> 4) * 1024 + row * 128 + ((key ^ row) << 4);
#pragma unroll
  for (int i = 0; i < 4; i++)
    stmatrix_x4_trans(at + i * 2048, dS + 4 * i);
  fence_proxy_async();
}

/* Adds dQ of query block m to the accumulator; in turn, if the order matters. */
template <class C>
SM90_DEV void bwd90_add_dq(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           int acc, int m, const float (&dQ)[64])
{
  int *turn = p.turns + (int64_t)(acc / C::KM + m) * BWD90_TURNS + 4 * w.wg + w.warp;
  float *out =
      p.dqacc + (int64_t)(acc + m * C::KM) * C::D + w.wg * 64 * C::DQN + (32 * w.warp + w.lane) * 4;
  if (p.turns) {
    if (w.lane == 0)
      bwd90_await_turn(turn, bwd90_turn(p, t, m, C::KM, C::KN));
    __syncwarp();
  }
#pragma unroll
  for (int j = 0; j < 16; j++)
    red_add_v4(out + 512 * j, dQ[4 * j], dQ[4 * j + 1], dQ[4 * j + 2], dQ[4 * j + 3]);
  if (p.turns) {
    __threadfence();
    __syncwarp();
    if (w.lane == 0)
      red_release(turn, 1);
  }
}

/* The query blocks in order. */
struct bwd90_walk {
  int m, acc;
};

SM90_DEV void bwd90_next(bwd90_walk &k, const bwd90_params &p, const volatile bwd90_tile *t)
{
  k.m = k.m + 1 < t->hi ? k.m + 1 : t->lo;
  k.acc += k.m == t->start ? p.acc_sh : 0;
}

template <class C>
SM90_DEV void bwd90_first(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          float (&dV)[128])
{
  const int steps = bwd90_uniform((t->hi - t->lo) * p.group), quad = w.lane & 3;
  const bwd90_band band = {bwd90_uniform(t->n0 - t->shift), bwd90_uniform(t->sk - t->n0)};
  const uint32_t give = w.smem + C::P0 + (32 * w.warp + w.lane) * 16;
  bwd90_walk k = {bwd90_uniform(t->start), t->acc};
  float S[32], dQ[64];
  uint32_t P[16];
  undefine(dV);
  mbar_wait(w.smem + C::K_FULL, 0);
#pragma unroll 1
  for (int i = 0; i < steps; i++, bwd90_next(k, p, t)) {
    const int qs = i % C::QSTAGES, os = i % C::DOSTAGES;
    mbar_wait(w.smem + C::Q_FULL + 8 * qs, i / C::QSTAGES % 2);
    bwd90_issue_score<C>(S, w.smem + C::K0, w.smem + C::Q0 + qs * C::Q_BYTES);
    wgmma_wait<0>();
    pin(S);
    if (bwd90_masked(p, band, k.m * C::KM, C::KM))
      bwd90_mask(p, band, 16 * w.warp + w.lane / 4, k.m * C::KM + 2 * quad, S);
    bwd90_exp(S, p.c, w.smem + C::LSE0 + qs * C::KM * 4 + 8 * quad);
    mbar_wait(w.smem + C::P_EMPTY, i % 2 ^ 1);
#pragma unroll
    for (int j = 0; j < 8; j++)
      sts_v4(give + 2048 * j, S[4 * j], S[4 * j + 1], S[4 * j + 2], S[4 * j + 3]);
    fence_proxy_async();
    bwd90_arrive(w, C::P_FULL);
    if (w.lane == 0)
      mbar_arrive(w.smem + C::Q_EMPTY + 8 * qs);
    bwd90_pack<typename C::T>(P, S);
    mbar_wait(w.smem + C::DO_FULL + 8 * os, i / C::DOSTAGES % 2);
    bwd90_issue_grad<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, i > 0);
    mbar_wait(w.smem + C::DS_FULL, i % 2);
    bwd90_issue_dq<C>(w, dQ);
    wgmma_wait<1>();
    pin(dV);
    pin(P);
    bwd90_arrive(w, C::DO_EMPTY + 8 * os);
    wgmma_wait<0>();
    pin(dQ);
    bwd90_arrive(w, C::DS_EMPTY);
    bwd90_add_dq<C>(w, p, t, k.acc, k.m, dQ);
  }
}

template <class C>
SM90_DEV void bwd90_second(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           float (&dK)[128])
{
  const int steps = bwd90_uniform((t->hi - t->lo) * p.group), quad = w.lane & 3;
  const uint32_t take = w.smem + C::P0 + (32 * w.warp + w.lane) * 16;
  bwd90_walk k = {bwd90_uniform(t->start), t->acc};
  float P[32], dP[32], dQ[64];
  uint32_t dS[16];
  undefine(dK);
  mbar_wait(w.smem + C::V_FULL, 0);
#pragma unroll 1
  for (int i = 0; i < steps; i++, bwd90_next(k, p, t)) {
    const int qs = i % C::QSTAGES, os = i % C::DOSTAGES;
    mbar_wait(w.smem + C::DO_FULL + 8 * os, i / C::DOSTAGES % 2);
    bwd90_issue_score<C>(dP, w.smem + C::V0, w.smem + C::DO0 + os * C::Q_BYTES);
    wgmma_wait<0>();
    pin(dP);
    mbar_wait(w.smem + C::P_FULL, i % 2);
#pragma unroll
    for (int j = 0; j < 8; j++)
      *(float4 *)&P[4 * j] = lds_v4(take + 2048 * j);
    bwd90_ds<32>(dP, P, w.smem + C::DSUM0 + os * C::KM * 4 + 8 * quad);
    bwd90_pack<typename C::T>(dS, dP);
    bwd90_arrive(w, C::P_EMPTY);
    mbar_wait(w.smem + C::DS_EMPTY, i % 2 ^ 1);
    bwd90_put_ds<C>(w, dS);
    bwd90_arrive(w, C::DS_FULL);
    if (w.lane == 0)
      mbar_arrive(w.smem + C::DO_EMPTY + 8 * os);
    mbar_wait(w.smem + C::Q_FULL + 8 * qs, i / C::QSTAGES % 2);
    bwd90_issue_grad<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES, i > 0);
    mbar_wait(w.smem + C::DS_FULL, i % 2);
    bwd90_issue_dq<C>(w, dQ);
    wgmma_wait<1>();
    pin(dK);
    pin(dS);
    bwd90_arrive(w, C::Q_EMPTY + 8 * qs);
    wgmma_wait<0>();
    pin(dQ);
    bwd90_arrive(w, C::DS_EMPTY);
    bwd90_add_dq<C>(w, p, t, k.acc, k.m, dQ);
  }
}

template <class C>
SM90_DEV void bwd90_consume(const bwd90_lane &w, const bwd90_params &p,
                            const volatile bwd90_tile *t)
{
  float acc[128];
  if (t->lo >= t->hi) {
#pragma unroll
    for (int i = 0; i < 128; i++)
      acc[i] = 0;
  } else if (w.wg == 0) {
    bwd90_first<C>(w, p, t, acc);
  } else {
    bwd90_second<C>(w, p, t, acc);
  }
  const attn_tensor &out = w.wg == 0 ? p.dv : p.dk;
  bwd90_store_kv<typename C::T>(out, t, t->n0, w.warp, w.lane, w.wg == 0 ? p.dv_cols : p.d,
                                w.wg == 0 ? 1.f : p.scale, acc);
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_bwd_roles_sm90(const __grid_constant__ CUtensorMap mq,
                         const __grid_constant__ CUtensorMap mk,
                         const __grid_constant__ CUtensorMap mv,
                         const __grid_constant__ CUtensorMap mdo,
                         const __grid_constant__ bwd90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t smem = smem_addr(shared);
  const volatile bwd90_tile *tile = (const volatile bwd90_tile *)(shared + C::TILE);
  if (threadIdx.x == 0) {
    *(bwd90_tile *)(shared + C::TILE) = bwd90_decode<C>(p);
    mbar_init(smem + C::K_FULL, 1);
    mbar_init(smem + C::V_FULL, 1);
    mbar_init(smem + C::DS_FULL, 4);
    mbar_init(smem + C::DS_EMPTY, 8);
    mbar_init(smem + C::P_FULL, 4);
    mbar_init(smem + C::P_EMPTY, 4);
    for (int i = 0; i < C::QSTAGES; i++) {
      mbar_init(smem + C::Q_FULL + 8 * i, 1);
      mbar_init(smem + C::Q_EMPTY + 8 * i, 8);
    }
    for (int i = 0; i < C::DOSTAGES; i++) {
      mbar_init(smem + C::DO_FULL + 8 * i, 1);
      mbar_init(smem + C::DO_EMPTY + 8 * i, 8);
    }
    mbar_init_fence();
  }
  __syncthreads();
  await_kernel_before();
  admit_next_kernel();
  const int wg = bwd90_uniform(threadIdx.x / 128), warp = bwd90_uniform(threadIdx.x / 32 % 4);
  if (wg == 0) {
    regs_give<C::PREGS>();
    if (threadIdx.x == 0 && tile->lo < tile->hi)
      bwd90_produce<C>(smem, tile, &mq, &mk, &mv, &mdo, p);
  } else {
    regs_take<C::CREGS>();
    bwd90_consume<C>(bwd90_lane{smem, wg - 1, warp, (int)threadIdx.x % 32}, p, tile);
  }
}

template <class C>
static bwd90_kernel bwd90_roles_row(const char *name, int uses)
{
  return bwd90_row<C>(name, uses, (const void *)flash_bwd_roles_sm90<C>);
}

#endif
