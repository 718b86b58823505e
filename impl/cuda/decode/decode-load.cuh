/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-load.cuh - cuda/decode: a warp's stream of keys and values into its ring, with cp.async.
 *
 * A unit is KEYS rows of K and as many of V, in pieces of 16. Where the rows of a piece lie at one
 * distance from each other (a contiguous cache, or pages of whole pieces) one address is computed
 * for them all; where they do not, the lane that owns a row looks its page up and computes the
 * address, which the others get by shuffle. Pages are looked up a batch ahead of the one at work:
 * of 32 pieces, each lane one, or of one unit, a lane its row; and divided by with a
 * multiplication. Nothing behind the end of a sequence is read, neither slots nor table entries;
 * such rows are zeros, for 0 * NaN is NaN.
 */
#ifndef IMPL_CUDA_DECODE_LOAD_CUH
#define IMPL_CUDA_DECODE_LOAD_CUH

#include "impl/cuda/decode/decode-line.cuh"

/* What is read once is the first to leave L2. */
__device__ __forceinline__ uint64_t l2_policy(bool once)
{
  uint64_t first, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return once ? first : normal;
}

/* As copy16. */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, int bytes, uint64_t policy)
{
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
      "l"(from), "r"(bytes), "l"(policy)
      : "memory");
}

template <class C>
struct decode_loader {
  static constexpr int PIECES = C::KEYS / DECODE_PIECE, PIECE_COPIES = DECODE_PIECE / C::STEP;
  static_assert(PIECES <= 2, "the first piece and the last are all");
  decode_cursor<C> at;
  int sk, kv_head;
  uint32_t to;          /* this lane's first chunk in a unit */
  int k_bytes, v_bytes; /* 16, or 0 where the chunk is padding past the head dimension */
  int page, next;       /* looked up: the batch that the next unit is of, and that after it */

  __device__ __forceinline__ decode_loader(const decode_args &a, const decode_slice &s) : at(a, s)
  {
    int c = threadIdx.x % 32 % C::CHUNKS;
    to = tile_offset<C::PANEL>(threadIdx.x % 32 / C::CHUNKS, c);
    k_bytes = c * 16 < a.d * C::SIZE ? 16 : 0;
    v_bytes = c * 16 < a.dv * C::SIZE ? 16 : 0;
    enter(a);
  }

  /* A new head. */
  __device__ __forceinline__ void enter(const decode_args &a)
  {
    decode_seq n = decode_sequence<C>(a, at.seq);
    sk = n.sk;
    kv_head = at.head / n.q_tiles;
    if (a.page) {
      int first = at.tile / batch(a) * batch(a);
      page = page_at(a, first);
      next = page_at(a, first + batch(a));
    }
  }

  /* First key of the warp's unit. */
  __device__ __forceinline__ int first_key(int tile) const
  {
    return tile * C::TILE + threadIdx.x / 32 * C::KEYS;
  }

  /* Are the rows of a piece one distance apart? */
  static __device__ __forceinline__ bool regular(const decode_args &a)
  {
    return C::FORM != DECODE_ANY || a.page % DECODE_PIECE == 0;
  }

  /* Tiles whose pages are looked up together: a lane's is one of them, or of one its row's. */
  static __device__ __forceinline__ int batch(const decode_args &a)
  {
    return regular(a) ? 32 / PIECES : 1;
  }

  /* Of a batch, where this lane's piece or row lies. */
  __device__ __forceinline__ int page_at(const decode_args &a, int tile) const
  {
    int lane = threadIdx.x % 32, key = lane % C::KEYS;
    if (regular(a)) {
      tile += lane / PIECES;
      key = lane % PIECES * DECODE_PIECE;
    }
    key += first_key(tile);
    if (tile >= at.end || key >= sk)
      return 0;
    return a.block_table[at.seq * a.table_stride + page_of(a, key)];
  }

  /* Where a piece of the next unit lies. */
  __device__ __forceinline__ int page_now(const decode_args &a, int piece) const
  {
    return a.page ? __shfl_sync(~0u, page, at.tile * PIECES % 32 + piece) : 0;
  }

  /* Offset in elements of a row in a pool; own: the page that it lies in. */
  __device__ __forceinline__ int64_t pool_offset(const decode_args &a, const attn_tensor &t,
                                                 int own, int key) const
  {
    return kv_head * t.sh + own * t.sb + (key - page_of(a, key) * a.page) * t.ss;
  }

  /* The same in any tensor. */
  __device__ __forceinline__ int64_t row_offset(const decode_args &a, const attn_tensor &t, int own,
                                                int key) const
  {
    if (a.page)
      return pool_offset(a, t, own, key);
    int64_t first = a.cu_seqlens_k ? a.cu_seqlens_k[at.seq] : 0;
    return kv_head * t.sh + at.seq * t.sb + (first + key) * t.ss;
  }

  /* Where this lane's i-th chunk goes. */
  __device__ __forceinline__ uint32_t place(uint32_t unit, int i) const
  {
    return ((unit + to) ^ ((i * C::STEP % 8) << 4)) + i * C::STEP * 128;
  }

  __device__ __forceinline__ void copy_regular(const decode_args &a, const attn_tensor &t,
                                               const int (&own)[PIECES], int bytes,
                                               uint32_t unit) const
  {
    int lane = threadIdx.x % 32, row = lane / C::CHUNKS, key = first_key(at.tile), rows = sk - key;
    int64_t step = C::SIZE * C::STEP * t.ss;
    const char *from[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      from[i] = (const char *)t.data + 16 * (lane % C::CHUNKS) +
                C::SIZE * (row_offset(a, t, own[i], key + i * DECODE_PIECE) + row * t.ss);
    if (rows < C::KEYS) {
#pragma unroll 1 /* without the hint, for which ptxas 13.0 takes a register that is not there */
      for (int i = 0; i < C::KEYS / C::STEP; i++) {
        bool there = row + i * C::STEP < rows, first = i < PIECE_COPIES;
        const char *piece = first ? from[0] : from[PIECES - 1];
        copy16(place(unit, i), piece + (there ? i % PIECE_COPIES * step : 0), there ? bytes : 0);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < C::KEYS / C::STEP; i++) {
      const char *&piece = from[i / PIECE_COPIES];
      copy16(place(unit, i), piece, bytes, l2_policy(a.once));
      piece += step;
    }
  }

  /* Without the hint, which costs more here than it gives. */
  __device__ __forceinline__ void copy_rows(const decode_args &a, const attn_tensor &t, int bytes,
                                            uint32_t unit) const
  {
    int lane = threadIdx.x % 32, key = first_key(at.tile), rows = sk - key;
    int64_t offset = C::SIZE * pool_offset(a, t, page, key + lane % C::KEYS);
    const char *from = (const char *)t.data + 16 * (lane % C::CHUNKS);
    if (rows < C::KEYS) {
#pragma unroll 1 /* the code is short, the last unit of a sequence rare */
      for (int i = 0; i < C::KEYS / C::STEP; i++) {
        int row = i * C::STEP + lane / C::CHUNKS;
        copy16(place(unit, i), from + __shfl_sync(~0u, offset, row), row < rows ? bytes : 0);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < C::KEYS / C::STEP; i++)
      copy16(place(unit, i), from + __shfl_sync(~0u, offset, i * C::STEP + lane / C::CHUNKS),
             bytes);
  }

  /* Copies the next unit, if there is one, and where a batch of looked-up pages ends, looks up the
   * next batch. */
  __device__ __forceinline__ void issue(const decode_args &a, uint32_t unit)
  {
    if (!at.done()) {
      if (regular(a)) {
        int own[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; i++)
          own[i] = page_now(a, i);
        copy_regular(a, a.k, own, k_bytes, unit);
        copy_regular(a, a.v, own, v_bytes, unit + C::HALF_BYTES);
      } else {
        copy_rows(a, a.k, k_bytes, unit);
        copy_rows(a, a.v, v_bytes, unit + C::HALF_BYTES);
      }
      at.tile++;
      if (at.done()) {
        at.turn(a);
        enter(a);
      } else if (a.page && at.tile % batch(a) == 0) {
        page = next;
        next = page_at(a, at.tile + batch(a));
      }
    }
    copy_commit();
  }
};

#endif
