/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-load.cuh - a variant of the portable forward kernel, its layout of shared memory, and
 * how Q, K and V get there.
 */
#ifndef IMPL_CUDA_FLASH_SM80_LOAD_CUH
#define IMPL_CUDA_FLASH_SM80_LOAD_CUH

#include "impl/cuda/sm80-forward/flash-sm80-place.cuh"
#include "impl/cuda/mma.cuh"

template <class T, int D_, int BM_, int BN_, int STAGES_, int BLOCKS_ = 2,
          bool Q_IN_REGISTERS_ = false, int WARPS_ = 4, bool OPTIONS_ = false, bool PAGED_ = false>
struct flash_config {
  using elem = T;
  static constexpr int D = D_, BM = BM_, BN = BN_, STAGES = STAGES_, WARPS = WARPS_;
  static constexpr int BLOCKS = BLOCKS_; /* on an SM at least */
  static constexpr bool Q_IN_REGISTERS = Q_IN_REGISTERS_;
  static constexpr bool OPTIONS = OPTIONS_; /* softcap, ALiBi, dropout */
  static constexpr bool PAGED = PAGED_;
  static constexpr int Q_KEPT = Q_IN_REGISTERS ? D_ / 16 : 1; /* k-steps */
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int ROWS = BM / WARPS; /* query rows of a warp */
  static constexpr int MB = ROWS / 16, NB = BN / 8, DB = D / 8;
  static constexpr int Q_BYTES = BM * D * 2, KV_BYTES = BN * D * 2;
  static constexpr int PLACE = Q_BYTES + 2 * STAGES * KV_BYTES; /* where flash_place lies */
  static constexpr int SMEM = PLACE + 128;
};

/* Offset of tile n's buffers from those of stage 0. */
template <class C>
__device__ __forceinline__ uint32_t flash_stage(int n)
{
  return C::STAGES == 2 ? (n & 1) * (2 * C::KV_BYTES) : 0;
}

/* Tile n of a paged K or V; from: slot 0 of page 0. Every lane looks up one of the warp's rows and
 * computes its address, the lanes that copy it get that by shuffle. */
template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_pages(const flash_sm80_args &a, const flash_place &at,
                                                 const attn_tensor &t, const char *from,
                                                 int head_dim, int n, uint32_t to)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  constexpr int ROWS = 32 / copy::CHUNKS, OWN = ROWS * copy::N; /* of a warp: in a copy, in all */
  static_assert(OWN <= 32, "a lane for each row");
  const copy tile(head_dim);
  int lane = threadIdx.x % 32, own = lane % OWN;
  int key = n * C::BN + own / ROWS * copy::STEP + threadIdx.x / 32 * ROWS + own % ROWS;
  int64_t offset = 0;
  if (!TAIL || key < at.sk) {
    int slot = key % a.page;
    int64_t page = __ldg(a.block_table + at.seq * a.table_stride + key / a.page);
    offset = 2 * (page * t.sb + slot * t.ss);
  }
  from += lane % copy::CHUNKS * 16;
#pragma unroll
  for (int i = 0; i < copy::N; i++) {
    int64_t row = __shfl_sync(~0u, offset, i * ROWS + lane / copy::CHUNKS);
    bool none = TAIL && n * C::BN + tile.row + i * copy::STEP >= at.sk;
    copy16(((to + tile.to) ^ ((i * copy::STEP % 8) << 4)) + i * copy::STEP * 128, from + row,
           none ? 0 : tile.bytes);
  }
}

/* K of tile n; TAIL: it may reach past the end. */
template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_k(const flash_sm80_args &a, const flash_place &at, int n,
                                             uint32_t smem)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  uint32_t to = smem + C::Q_BYTES + flash_stage<C>(n);
  if (C::PAGED)
    flash_load_pages<C, TAIL>(a, at, a.k, at.k, a.d, n, to);
  else
    copy(a.d).template issue<TAIL>(to, copy::first(at.k + n * a.k_tile, a.k.ss), a.k_step,
                                   TAIL ? at.sk - n * C::BN : 0);
}

template <class C, bool TAIL>
__device__ __forceinline__ void flash_load_v(const flash_sm80_args &a, const flash_place &at, int n,
                                             uint32_t smem)
{
  using copy = tile_copy<C::BN, C::D, C::THREADS>;
  uint32_t to = smem + C::Q_BYTES + C::KV_BYTES + flash_stage<C>(n);
  if (C::PAGED)
    flash_load_pages<C, TAIL>(a, at, a.v, at.v, a.dv, n, to);
  else
    copy(a.dv).template issue<TAIL>(to, copy::first(at.v + n * a.v_tile, a.v.ss), a.v_step,
                                    TAIL ? at.sk - n * C::BN : 0);
}

/* Q, and of the last key tile K and, if there is room, V. */
template <class C>
__device__ __forceinline__ void flash_first_loads(const flash_sm80_args &a, const flash_place &at,
                                                  uint32_t smem)
{
  using copy = tile_copy<C::BM, C::D, C::THREADS>;
  const char *q = flash_row(a.q, at.seq, at.head, at.q_row + at.m0);
  copy(a.d).template issue<true>(smem, copy::first(q, a.q.ss), 2 * copy::STEP * a.q.ss,
                                 at.sq - at.m0);
  flash_load_k<C, true>(a, at, at.keys.end - 1, smem);
  if (C::STAGES == 2)
    flash_load_v<C, true>(a, at, at.keys.end - 1, smem);
  copy_commit();
}

#endif
