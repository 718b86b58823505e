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
 * dS to both.  dQ is added to the accumulator straight from registers, or left to a pass of its own
 * (flash-bwd-sm90-twopass.cuh).  The scores of the next step are computed beside the gradients of
 * the present one; dQ is the last of a step.
 *
 * Measured on an H200, bf16, TF/s without a mask and causal (two passes',
 * flash-bwd-sm90-twopass.cuh, in brackets): sequence 2k 408, 350 (397, 348); 8k 459, 448 (405,
 * 418), 1.24 and 1.09 of cuDNN's. With the scores of a step and its gradients one after another: 8k
 * 416, 411.  From tile to tile: sequence 2k causal 356 beside 350.  Two blocks that load Q and dO
 * for both, by multicast, wait for each other: 287, two passes at 8k 339 beside 406.  dQ in two
 * halves of 64 columns, the first beside dK: 386, 385.  A step moves 64 KB of Q and dO from L2 and
 * adds 64 KB of dQ there, which is what bounds it.  Without a mask, key blocks that start at
 * different query blocks: sequence 2k 419 beside 413, 8k 478 beside 468, 16k 485 beside 479 (1.14,
 * 1.27, 1.29 of cuDNN's).  Stores of the first instead of zeroes: 401, 448, 454.  Zeroes beside the
 * products (flash-bwd-sm90-load.cuh): 2k 425 beside 416, causal 364 beside 360.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_ROLES_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_ROLES_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-ends.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-options.cuh"

template <class T_, int PREGS_, int CREGS_, bool DQ_ADDED_, bool SCORE_ = false, bool DROP_ = false>
struct bwd90_roles {
  typedef T_ T;
  static constexpr bool CLAIMS = !SCORE_, FIRSTS = false, AHEAD = CLAIMS && DQ_ADDED_;
  static constexpr bool MAKES = false;
  static constexpr int WRITERS = 2;
  static constexpr bool DQ_ADDED = DQ_ADDED_, SCORE = SCORE_, DROP = DROP_;
  static constexpr bool DQ_ROWS = false, DQ_SWAPPED = false;
  static constexpr int D = 256, KM = 64, KN = 64, THREADS = 384;
  static constexpr int KSLOTS = 1, SLOT_BYTES = 0;
  static constexpr int QSTAGES = 2, DOSTAGES = 2, DSSTAGES = 2, PSTAGES = DQ_ADDED ? 1 : 2;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_;
  static constexpr int DQN = 128, PANEL = 64 * 128;
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2, P_BYTES = KM * KN * 4;
  static constexpr int DS_BYTES = DQ_ADDED ? KM * KN * 2 : 0;
  static constexpr int K0 = 0, V0 = K0 + K_BYTES, Q0 = V0 + K_BYTES;
  static constexpr int DO0 = Q0 + QSTAGES * Q_BYTES, DS0 = DO0 + DOSTAGES * Q_BYTES;
  static constexpr int P0 = DS0 + DSSTAGES * DS_BYTES, LSE0 = P0 + PSTAGES * P_BYTES;
  static constexpr int DSUM0 = LSE0 + QSTAGES * KM * 4, NOTES = 4;
  static constexpr int NOTE0 = DSUM0 + DOSTAGES * KM * 4, BARS = NOTE0 + NOTES * 16;
  /* barriers, 8 bytes each */
  static constexpr int K_FULL = BARS, V_FULL = K_FULL + 8;
  static constexpr int K_EMPTY = V_FULL + 8, V_EMPTY = K_EMPTY + 8;
  static constexpr int TILE_FULL = V_EMPTY + 8, TILE_EMPTY = TILE_FULL + 16;
  static constexpr int TILE_LOADED = TILE_EMPTY + 16, Q_FULL = TILE_LOADED + 8,
                       Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int DO_FULL = Q_EMPTY + 8 * QSTAGES, DO_EMPTY = DO_FULL + 8 * DOSTAGES;
  static constexpr int DS_FULL = DO_EMPTY + 8 * DOSTAGES, DS_EMPTY = DS_FULL + 8 * DSSTAGES;
  static constexpr int P_FULL = DS_EMPTY + 8 * DSSTAGES, P_EMPTY = P_FULL + 8 * PSTAGES;
  static constexpr int TILE = (P_EMPTY + 8 * PSTAGES + 15) / 16 * 16;
  static constexpr int CLERK = TILE + 3 * BWD90_TILE_BYTES;
  static constexpr int ZERO = CLERK + BWD90_CLERK_BYTES, ZEROES = AHEAD ? 1024 : 0;
  static constexpr int SMEM = ZERO + ZEROES;
  /* Operands of S, dV, dP, dK; P there and back; Q and dO from TMA; dS, and operands of dQ. */
  static constexpr int STEP_SMEM = 2 * K_BYTES + 4 * Q_BYTES + 2 * P_BYTES + 2 * Q_BYTES +
                                   (DQ_ADDED ? 3 * DS_BYTES + K_BYTES : 0);
  static_assert(SMEM <= 232448, "tile");
};

/* The or of all, to make something wait for them. */
template <int N>
SM90_DEV uint32_t bwd90_or(const float (&x)[N])
{
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < N; i++)
    all |= __float_as_uint(x[i]);
  return all;
}

/* dQ = dS K of step i: this warpgroup's 128 columns, one group */
template <class C>
SM90_DEV void bwd90_issue_dq(const bwd90_lane &w, float (&dQ)[64], int i)
{
  const uint32_t a = rederive(desc_lo(w.smem + C::DS0 + i % 2 * C::DS_BYTES, 0));
  const uint32_t b = rederive(desc_lo(w.smem + C::K0 + w.wg * 2 * C::PANEL, C::PANEL));
  mbar_wait(w.smem + C::DS_FULL + 8 * (i % 2), i / 2 % 2);
  undefine(dQ);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; k++)
    wgmma_tt<typename C::T, 128>::template ss<0, 1>(dQ, desc(a + 2 * k), desc(b + k * 128), k > 0);
  wgmma_commit();
}

template <class C>
SM90_DEV void bwd90_put_ds(const bwd90_lane &w, const uint32_t (&dS)[16], int i)
{
  const int row = w.lane & 7, key = 2 * w.warp + (w.lane >> 3 & 1), slot = i % 2;
  const uint32_t at =
      w.smem + C::DS0 + slot * C::DS_BYTES + (w.lane >> 4) * 1024 + row * 128 + ((key ^ row) << 4);
  if (!C::DQ_ADDED)
    return;
  mbar_wait(w.smem + C::DS_EMPTY + 8 * slot, i / 2 % 2 ^ 1);
#pragma unroll
  for (int j = 0; j < 4; j++)
    stmatrix_x4_trans(at + j * 2048, dS + 4 * j);
  fence_proxy_async();
  bwd90_arrive(w, C::DS_FULL + 8 * slot);
}

/* dQ of step i to the accumulator. */
template <class C>
SM90_DEV void bwd90_add_dq(const bwd90_lane &w, const bwd90_params &p, int i)
{
  float dQ[64];
  if (!C::DQ_ADDED)
    return;
  bwd90_issue_dq<C>(w, dQ, i);
  wgmma_wait<0>();
  pin(dQ);
  bwd90_arrive(w, C::DS_EMPTY + 8 * (i % 2));
  const uint32_t mine = rederive(w.wg * 64 * C::DQN + (32 * w.warp + w.lane) * 4);
  float *out = p.dqacc + (int64_t)bwd90_read_note<C>(w.smem, i).row * C::D + mine;
#pragma unroll
  for (int j = 0; j < 16; j++)
    red_add_v4(out + 512 * j, dQ[4 * j], dQ[4 * j + 1], dQ[4 * j + 2], dQ[4 * j + 3]);
}

/* First warpgroup, from S of step i in flight to P in registers and on its way to the second. */
template <class C>
SM90_DEV void bwd90_give_p(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           int i, float (&S)[32])
{
  const bwd90_step k = bwd90_read_note<C>(w.smem, i);
  const bwd90_band band = {k.at, k.keys};
  const int qs = i % C::QSTAGES, ps = i % C::PSTAGES, quad = w.lane & 3;
  const uint32_t give = w.smem + C::P0 + ps * C::P_BYTES + (32 * w.warp + w.lane) * 16;
  float X[32];
  pin(S);
  if constexpr (C::SCORE) {
    const int m = t->n0 - t->shift - k.at;
    bwd90_options<C>(p, bwd90_head_of(p, t->batch, k.head), {k.at + m, k.keys}, t->sk - t->sq,
                     t->n0, 16 * w.warp + w.lane / 4, m + 2 * quad,
                     w.smem + C::LSE0 + qs * C::KM * 4 + 8 * quad, S, X);
  } else {
    if (bwd90_masked(p, band, 0, C::KM))
      bwd90_mask(p, band, 16 * w.warp + w.lane / 4, 2 * quad, S);
    bwd90_exp(S, p.c, w.smem + C::LSE0 + qs * C::KM * 4 + 8 * quad);
  }
  fence_proxy_async(); /* lse2 has been read, TMA may write there */
  bwd90_arrive(w, C::Q_EMPTY + 8 * qs);
  mbar_wait(w.smem + C::P_EMPTY + 8 * ps, (i / C::PSTAGES % 2 ^ 1) ^ (bwd90_or(S) & p.zero));
#pragma unroll
  for (int j = 0; j < 8; j++)
    if (C::SCORE)
      sts_v4(give + 2048 * j, X[4 * j], X[4 * j + 1], X[4 * j + 2], X[4 * j + 3]);
    else
      sts_v4(give + 2048 * j, S[4 * j], S[4 * j + 1], S[4 * j + 2], S[4 * j + 3]);
  bwd90_arrive(w, C::P_FULL + 8 * ps);
}

template <class C>
SM90_DEV void bwd90_first(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                          float (&dV)[128])
{
  int i = C::CLAIMS ? bwd90_uniform(t->first) : 0;
  float S[32];
  uint32_t P[16];
  undefine(dV);
  mbar_wait(w.smem + C::K_FULL, t->worked % 2);
  mbar_wait(w.smem + C::Q_FULL + 8 * (i % C::QSTAGES), i / C::QSTAGES % 2);
  bwd90_issue_score<C>(S, w.smem + C::K0, w.smem + C::Q0 + i % C::QSTAGES * C::Q_BYTES);
  wgmma_wait<0>();
  bwd90_give_p<C>(w, p, t, i, S);
  bwd90_pack<typename C::T>(P, S);
#pragma unroll 1
  for (; i < bwd90_uniform(t->last); i++) {
    const int qs = (i + 1) % C::QSTAGES, os = i % C::DOSTAGES;
    const bool first = bwd90_read_note<C>(w.smem, i).first;
    mbar_wait(w.smem + C::Q_FULL + 8 * qs, (i + 1) / C::QSTAGES % 2);
    bwd90_issue_score<C>(S, w.smem + C::K0, w.smem + C::Q0 + qs * C::Q_BYTES);
    mbar_wait(w.smem + C::DO_FULL + 8 * os, i / C::DOSTAGES % 2);
    bwd90_issue_grad<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES, !first);
    wgmma_wait<1>();
    bwd90_give_p<C>(w, p, t, i + 1, S);
    wgmma_wait<0>();
    pin(dV);
    bwd90_arrive(w, C::DO_EMPTY + 8 * os);
    bwd90_pack<typename C::T>(P, S);
    bwd90_add_dq<C>(w, p, i);
  }
  const int os = i % C::DOSTAGES;
  mbar_wait(w.smem + C::DO_FULL + 8 * os, i / C::DOSTAGES % 2);
  bwd90_issue_grad<C>(dV, P, w.smem + C::DO0 + os * C::Q_BYTES,
                      !bwd90_read_note<C>(w.smem, i).first);
  wgmma_wait<0>();
  pin(dV);
  bwd90_arrive(w, C::DO_EMPTY + 8 * os);
  bwd90_add_dq<C>(w, p, i);
  bwd90_arrive(w, C::K_EMPTY);
}

/* Second warpgroup, from dP of step i in flight to dS in its place. */
template <class C>
SM90_DEV void bwd90_take_p(const bwd90_lane &w, const bwd90_params &p, int i, float (&dP)[32])
{
  const int os = i % C::DOSTAGES, ps = i % C::PSTAGES;
  const uint32_t take = w.smem + C::P0 + ps * C::P_BYTES + (32 * w.warp + w.lane) * 16;
  const uint32_t dsum = w.smem + C::DSUM0 + os * C::KM * 4 + 8 * (w.lane & 3);
  float P[4];
  pin(dP);
  mbar_wait(w.smem + C::P_FULL + 8 * ps, i / C::PSTAGES % 2);
#pragma unroll
  for (int j = 0; j < 8; j++) {
    *(float4 *)P = lds_v4(take + 2048 * j);
    if (C::SCORE)
      bwd90_ds_options<4>(p, dP + 4 * j, P, dsum + 32 * j);
    else
      bwd90_ds<4>(dP + 4 * j, P, dsum + 32 * j);
  }
  bwd90_arrive(w, C::P_EMPTY + 8 * ps);
  fence_proxy_async();
  bwd90_arrive(w, C::DO_EMPTY + 8 * os);
}

template <class C>
SM90_DEV void bwd90_second(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           float (&dK)[128])
{
  int i = C::CLAIMS ? bwd90_uniform(t->first) : 0;
  float dP[32];
  uint32_t dS[16];
  undefine(dK);
  mbar_wait(w.smem + C::V_FULL, t->worked % 2);
  mbar_wait(w.smem + C::DO_FULL + 8 * (i % C::DOSTAGES), i / C::DOSTAGES % 2);
  bwd90_issue_score<C>(dP, w.smem + C::V0, w.smem + C::DO0 + i % C::DOSTAGES * C::Q_BYTES);
  wgmma_wait<0>();
  bwd90_take_p<C>(w, p, i, dP);
  bwd90_pack<typename C::T>(dS, dP);
  bwd90_put_ds<C>(w, dS, i);
  mbar_wait(w.smem + C::K_FULL, t->worked % 2);
#pragma unroll 1
  for (; i < bwd90_uniform(t->last); i++) {
    const int qs = i % C::QSTAGES, os = (i + 1) % C::DOSTAGES;
    const bool first = bwd90_read_note<C>(w.smem, i).first;
    mbar_wait(w.smem + C::DO_FULL + 8 * os, (i + 1) / C::DOSTAGES % 2);
    bwd90_issue_score<C>(dP, w.smem + C::V0, w.smem + C::DO0 + os * C::Q_BYTES);
    bwd90_issue_grad<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES, !first);
    wgmma_wait<1>();
    bwd90_take_p<C>(w, p, i + 1, dP);
    /* a branch that follows dS keeps the wait for dK behind it */
    mbar_wait(w.smem + C::Q_FULL + 8 * qs, (i / C::QSTAGES % 2) ^ (bwd90_or(dP) & p.zero));
    wgmma_wait<0>();
    pin(dK);
    bwd90_arrive(w, C::Q_EMPTY + 8 * qs);
    bwd90_pack<typename C::T>(dS, dP);
    bwd90_put_ds<C>(w, dS, i + 1);
    bwd90_add_dq<C>(w, p, i);
  }
  const int qs = i % C::QSTAGES;
  bwd90_arrive(w, C::V_EMPTY);
  bwd90_issue_grad<C>(dK, dS, w.smem + C::Q0 + qs * C::Q_BYTES,
                      !bwd90_read_note<C>(w.smem, i).first);
  wgmma_wait<0>();
  pin(dK);
  bwd90_arrive(w, C::Q_EMPTY + 8 * qs);
  bwd90_add_dq<C>(w, p, i);
  bwd90_arrive(w, C::K_EMPTY);
}

/* A warpgroup's sums to dV or dK, or to who sums up the parts. */
template <class C>
SM90_DEV void bwd90_finish(const bwd90_lane &w, const bwd90_params &p, const volatile bwd90_tile *t,
                           float (&acc)[128])
{
  const int part = t->part;
  if (part >= 0) {
    const int sums = t->sums;
    if (part < t->parts - 1) {
      bwd90_give_part<C>(p, sums + part, w.wg, acc);
      bwd90_gave_part(w, p, t->shared);
      return;
    }
    bwd90_await_parts(w, p, t->shared, part);
    bwd90_take_parts<C>(p, sums, part, w.wg, acc);
  }
  const attn_tensor &out = w.wg == 0 ? p.dv : p.dk;
  bwd90_store_kv<typename C::T>(out, t, t->n0, w.warp, w.lane, w.wg == 0 ? p.dv_cols : p.d,
                                w.wg == 1  ? p.scale
                                : C::SCORE ? p.keep_scale
                                           : 1.f,
                                acc);
}

template <class C>
SM90_DEV void bwd90_consume(const bwd90_lane &w, const bwd90_params &p, const uint8_t *tiles)
{
  float acc[128];
#pragma unroll 1
  for (int n = 0;; n++) {
    const volatile bwd90_tile *t = bwd90_await_tile<C>(w.smem, tiles, n);
    if (bwd90_uniform(t->id) < 0)
      return;
    if (t->last < t->first) {
#pragma unroll
      for (int i = 0; i < 128; i++)
        acc[i] = 0;
    } else if (w.wg == 0) {
      bwd90_first<C>(w, p, t, acc);
    } else {
      bwd90_second<C>(w, p, t, acc);
    }
    bwd90_finish<C>(w, p, t, acc);
    if (!C::CLAIMS)
      return;
    n = bwd90_uniform(t->n);
    bwd90_arrive(w, C::TILE_EMPTY + 8 * (n % 2));
  }
}

template <class C>
SM90_DEV void bwd90_init(uint32_t smem)
{
  mbar_init(smem + C::K_FULL, 1);
  mbar_init(smem + C::V_FULL, 1);
  mbar_init(smem + C::K_EMPTY, 8 * BWD90_LANES);
  mbar_init(smem + C::V_EMPTY, 4 * BWD90_LANES);
  mbar_init(smem + C::TILE_LOADED, 1);
  for (int i = 0; i < C::PSTAGES; i++) {
    mbar_init(smem + C::P_FULL + 8 * i, 4 * BWD90_LANES);
    mbar_init(smem + C::P_EMPTY + 8 * i, 4 * BWD90_LANES);
  }
  for (int i = 0; i < 2; i++) {
    mbar_init(smem + C::DS_FULL + 8 * i, 4 * BWD90_LANES);
    mbar_init(smem + C::DS_EMPTY + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::Q_FULL + 8 * i, 1);
    mbar_init(smem + C::Q_EMPTY + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::DO_FULL + 8 * i, 1);
    mbar_init(smem + C::DO_EMPTY + 8 * i, 8 * BWD90_LANES);
    mbar_init(smem + C::TILE_FULL + 8 * i, 1);
    mbar_init(smem + C::TILE_EMPTY + 8 * i, 8 * BWD90_LANES + 1); /* consumers' warps, producer */
  }
  mbar_init_fence();
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
  if (threadIdx.x == 0)
    bwd90_init<C>(smem);
  bwd90_clear<C>(smem, p);
  __syncthreads();
  await_kernel_before();
  admit_next_kernel();
  const int wg = bwd90_uniform(threadIdx.x / 128), warp = bwd90_uniform(threadIdx.x / 32 % 4);
  if (wg > 0) {
    regs_take<C::CREGS>();
    bwd90_consume<C>(bwd90_lane{smem, wg - 1, warp, (int)threadIdx.x % 32}, p, shared + C::TILE);
  } else {
    regs_give<C::PREGS>();
    if (threadIdx.x == 0)
      bwd90_load_tiles<C>(smem, shared + C::TILE, &mq, &mk, &mv, &mdo, p);
    else if (warp == 1)
      bwd90_claim<C>(smem, shared + C::TILE, p);
  }
}

template <class T>
static bwd90_kernel bwd90_roles_row(const char *name, int uses)
{
  typedef bwd90_roles<T, 24, 240, true> C;
  return bwd90_row<C>(name, uses, (const void *)flash_bwd_roles_sm90<C>);
}

#endif
