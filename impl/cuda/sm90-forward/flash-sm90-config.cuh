/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-config.cuh - what a variant of the Hopper forward kernel is made of: its flags, its
 * layout of shared memory, the rings of slots in it.
 */
#ifndef IMPL_CUDA_FLASH_SM90_CONFIG_CUH
#define IMPL_CUDA_FLASH_SM90_CONFIG_CUH

#include "impl/cuda/sm90-forward/flash-sm90.h"
#include "impl/cuda/ptx-sm90.cuh"

#define SM90_BOXES 4 /* mailbox slots, a power of two */

enum {
  SM90_QREG = 1,    /* Q as register fragments instead of shared-memory operands */
  SM90_GUARD = 2,   /* no row maximum where there is no mask: the sums tell when it was needed */
  SM90_TURNS = 4,   /* warpgroups take turns to issue */
  SM90_SCORE = 16,  /* softcap, ALiBi */
  SM90_DROP = 32,   /* dropout */
  SM90_PAGED = 64,  /* K and V in pages */
  SM90_TWICE = 128, /* SM90_GUARD, but lost rows have a kernel without it do everything again */
};

template <class T_, int D_, int DV_, int WGS_, int KN_, int STAGES_, int QSTAGES_, int PREGS_,
          int CREGS_, int FLAGS_, int CTAS_ = 1>
struct sm90_cfg {
  typedef T_ T;
  static constexpr int D = D_, DV = DV_, WGS = WGS_, KM = 64 * WGS_, KN = KN_;
  static constexpr int STAGES = STAGES_, QSTAGES = QSTAGES_, PREGS = PREGS_, CREGS = CREGS_;
  static constexpr bool QREG = FLAGS_ & SM90_QREG, GUARD = FLAGS_ & (SM90_GUARD | SM90_TWICE);
  static constexpr bool TURNS = FLAGS_ & SM90_TURNS;
  static constexpr bool SCORE = FLAGS_ & SM90_SCORE, DROP = FLAGS_ & SM90_DROP;
  static constexpr bool PAGED = FLAGS_ & SM90_PAGED, TWICE = FLAGS_ & SM90_TWICE;
  static constexpr int THREADS = 128 * (WGS + 1), CTAS = CTAS_; /* CTAs of an SM */
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2, V_BYTES = KN * DV * 2;
  static constexpr int Q0 = 0, K0 = Q0 + QSTAGES * Q_BYTES, V0 = K0 + STAGES * K_BYTES;
  static constexpr int BARS = V0 + STAGES * V_BYTES;
  /* barriers, 8 bytes each: full and empty of the Q, K, V and mailbox rings */
  static constexpr int Q_FULL = BARS, Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int K_FULL = Q_EMPTY + 8 * QSTAGES, K_EMPTY = K_FULL + 8 * STAGES;
  static constexpr int V_FULL = K_EMPTY + 8 * STAGES, V_EMPTY = V_FULL + 8 * STAGES;
  static constexpr int BOX_FULL = V_EMPTY + 8 * STAGES, BOX_EMPTY = BOX_FULL + 8 * SM90_BOXES;
  static constexpr int BOX = (BOX_EMPTY + 8 * SM90_BOXES + 31) / 32 * 32;
  static constexpr int SMEM = BOX + 32 * SM90_BOXES;
  static_assert(D % 64 == 0 && DV % 64 == 0 && KN % 16 == 0 && SMEM <= 232448, "tile");
  static_assert(!(GUARD && SCORE), "the score is made anew from Q and K alone");
};

/* A place in a ring of N: slot and parity of its present use, in one register; who fills the slot
 * waits for the other parity. */
template <int N>
struct sm90_ring {
  int at; /* N = 1, 2: how many uses went before; else 2 * slot + parity */
  static constexpr bool COUNT = N <= 2;
  __device__ __forceinline__ int slot() const
  {
    return COUNT ? at & (N - 1) : at >> 1;
  }
  __device__ __forceinline__ int phase() const
  {
    return COUNT ? at >> (N - 1) & 1 : at & 1;
  }
  __device__ __forceinline__ sm90_ring next() const
  {
    return COUNT ? sm90_ring{at + 1} : at >= 2 * N - 2 ? sm90_ring{at & 1 ^ 1} : sm90_ring{at + 2};
  }
  __device__ __forceinline__ sm90_ring before() const
  {
    return COUNT     ? sm90_ring{at - 1}
           : at >= 2 ? sm90_ring{at - 2}
                     : sm90_ring{2 * N - 2 + (at ^ 1)};
  }
};

#endif
