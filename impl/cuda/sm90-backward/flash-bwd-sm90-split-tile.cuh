/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-split-tile.cuh - the Hopper backward for head_dim up to 128: what a tile variant
 * is, where it has what in shared memory, and its products but for dQ.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_SPLIT_TILE_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_SPLIT_TILE_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-options.cuh"

enum {
  BWD90_EARLY = 1,     /* dV before dS */
  BWD90_MID = 2,       /* dQ before S */
  BWD90_SCORE = 4,     /* softcap, ALiBi */
  BWD90_DROP = 8,      /* dropout */
  BWD90_FULL = 16,     /* no mask, no turns */
  BWD90_BY_TURNS = 32, /* dQ is added by turns; with options, whether or not */
  BWD90_FIRSTS = 64,   /* of few keys, the first to add to a part of dQ stores it */
  BWD90_AHEAD = 128,   /* else main zeroes what it adds to */
  BWD90_TWO_K = 256,   /* K and V of the next tile are loaded beside those of this one */
};

/* V_REGS: so many times 16 columns of V are held in registers. */
template <class T_, int D_, int KM_, int PREGS_, int CREGS_, int FLAGS_ = 0, int V_REGS_ = 0>
struct bwd90_split {
  typedef T_ T;
  static constexpr int D = D_, KM = KM_, KN = 128, THREADS = 384;
  static constexpr bool CLAIMS = true, FULL = FLAGS_ & BWD90_FULL;
  static constexpr bool TURNS = FLAGS_ & BWD90_BY_TURNS, FIRSTS = FLAGS_ & BWD90_FIRSTS;
  static constexpr bool AHEAD = FLAGS_ & BWD90_AHEAD;
  static constexpr bool MAKES = AHEAD && D_ == 128;
  static constexpr int WRITERS = 2; /* of dQ */
  static constexpr int QSTAGES = 2, DOSTAGES = 2, DSSTAGES = 2, NOTES = 2;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_, V_REGS = V_REGS_;
  static constexpr bool EARLY = FLAGS_ & BWD90_EARLY, MID = FLAGS_ & BWD90_MID;
  static constexpr bool SCORE = FLAGS_ & BWD90_SCORE, DROP = FLAGS_ & BWD90_DROP;
  static constexpr bool DQ_ADDED = true, DQ_ROWS = KM == 128, DQ_SWAPPED = KM == 80;
  /* columns of a warpgroup's part of dQ, as computed */
  static constexpr int DQN = DQ_SWAPPED ? KM : DQ_ROWS ? D : D / 2;
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2, DS_BYTES = KM * KN * 2;
  static constexpr int KSLOTS = FLAGS_ & BWD90_TWO_K ? 2 : 1, SLOT_BYTES = 2 * K_BYTES;
  static constexpr int K0 = 0, V0 = K0 + K_BYTES, Q0 = KSLOTS * SLOT_BYTES;
  static constexpr int DO0 = Q0 + QSTAGES * Q_BYTES, DS0 = DO0 + DOSTAGES * Q_BYTES;
  static constexpr int DQ0 = DS0 + DSSTAGES * DS_BYTES, LSE0 = DQ0 + KM * D * 4;
  static constexpr int DSUM0 = LSE0 + QSTAGES * KM * 4, NOTE0 = DSUM0 + DOSTAGES * KM * 4;
  static constexpr int BARS = NOTE0 + NOTES * 16;
  /* barriers, 8 bytes each */
  static constexpr int K_FULL = BARS, V_FULL = K_FULL + 8 * KSLOTS;
  static constexpr int K_EMPTY = V_FULL + 8 * KSLOTS, V_EMPTY = K_EMPTY + 8 * KSLOTS;
  static constexpr int TILE_FULL = V_EMPTY + 8 * KSLOTS, TILE_EMPTY = TILE_FULL + 16;
  static constexpr int TILE_LOADED = TILE_EMPTY + 16;
  static constexpr int Q_FULL = TILE_LOADED + 8, Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int DO_FULL = Q_EMPTY + 8 * QSTAGES, DO_EMPTY = DO_FULL + 8 * DOSTAGES;
  static constexpr int DQ_FULL = DO_EMPTY + 8 * DOSTAGES, DQ_EMPTY = DQ_FULL + 16;
  static constexpr int DS_FULL = DQ_EMPTY + 16, DS_EMPTY = DS_FULL + 8 * DSSTAGES;
  static constexpr int TILE = (DS_EMPTY + 8 * DSSTAGES + 15) / 16 * 16;
  static constexpr int CLERK = TILE + (AHEAD ? 3 : 2) * BWD90_TILE_BYTES;
  static constexpr int ZERO = CLERK + BWD90_CLERK_BYTES;
  static constexpr int ZEROES = !AHEAD ? 0 : KSLOTS == 2 ? 256 : 1024, SMEM = ZERO + ZEROES;
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
  const uint32_t a = rederive(desc_lo(w.smem + C::K0 + w.slot + w.wg * 8192, 0));
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
  const uint32_t at = w.smem + C::V0 + w.slot + row * 128;
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
  const uint32_t a = rederive(desc_lo(w.smem + C::V0 + w.slot + w.wg * 8192, 0));
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

#endif
