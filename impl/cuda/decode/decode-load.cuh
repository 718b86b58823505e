/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-load.cuh - cuda/decode: a warp's stream of keys and values into its ring, with cp.async.
 *
 * A unit is KEYS rows of K and as many of V. Where all of its rows lie at one distance from each
 * other (a contiguous cache, or pages of whole units) one address is computed for them all; where
 * they do not, the lane that owns a row looks its page up and computes the address, which the
 * others get by shuffle. Pages are looked up two units ahead of the copy, and divided by with a
 * multiplication. Nothing behind the end of a sequence is read, neither slots nor table entries;
 * such rows are zeros, for 0 * NaN is NaN.
 */
#ifndef IMPL_CUDA_DECODE_LOAD_CUH
#define IMPL_CUDA_DECODE_LOAD_CUH

#include "impl/cuda/decode/decode-line.cuh"

template <class C>
struct decode_loader {
  decode_cursor<C> at;
  int sk, kv_head;
  uint32_t to;          /* this lane's first chunk in a unit */
  int k_bytes, v_bytes; /* 16, or 0 where the chunk is padding past the head dimension */
  int page, next;       /* where this lane's row of the next unit lies, and of that after it */

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
      page = page_at(a, at.tile);
      next = page_at(a, at.tile + 1);
    }
  }

  /* First key of the warp's unit. */
  __device__ __forceinline__ int first_key(int tile) const
  {
    return tile * C::TILE + threadIdx.x / 32 * C::KEYS;
  }

  /* Are the rows of a unit one distance apart? */
  static __device__ __forceinline__ bool regular(const decode_args &a)
  {
    return C::FORM != DECODE_ANY || a.page % C::KEYS == 0;
  }

  static __device__ __forceinline__ int page_of(const decode_args &a, int key)
  {
    return (int)((uint64_t)(uint32_t)key * a.page_inverse >> a.page_shift);
  }

  /* Where this lane's row of the warp's unit in a tile of the head lies. */
  __device__ __forceinline__ int page_at(const decode_args &a, int tile) const
  {
    int key = first_key(tile) + (regular(a) ? 0 : threadIdx.x % C::KEYS);
    if (tile >= at.end || key >= sk)
      return 0;
    return a.block_table[at.seq * a.table_stride + page_of(a, key)];
  }

  /* Offset in elements of a row in a tensor, which lies in the page looked up. */
  __device__ __forceinline__ int64_t row_offset(const decode_args &a, const attn_tensor &t,
                                                int key) const
  {
    int64_t head = kv_head * t.sh;
    if (a.page)
      return head + page * t.sb + (key - page_of(a, key) * a.page) * t.ss;
    int64_t first = a.cu_seqlens_k ? a.cu_seqlens_k[at.seq] : 0;
    return head + at.seq * t.sb + (first + key) * t.ss;
  }

  /* This lane's i-th chunk. */
  __device__ __forceinline__ void put(uint32_t unit, int i, const char *from, int bytes) const
  {
    copy16(((unit + to) ^ ((i * C::STEP % 8) << 4)) + i * C::STEP * 128, from, bytes);
  }

  __device__ __forceinline__ void copy_regular(const decode_args &a, const attn_tensor &t,
                                               int bytes, uint32_t unit) const
  {
    int lane = threadIdx.x % 32, row = lane / C::CHUNKS, rows = sk - first_key(at.tile);
    int64_t offset = row_offset(a, t, first_key(at.tile)) + row * t.ss,
            step = C::SIZE * C::STEP * t.ss;
    const char *from = (const char *)t.data + C::SIZE * offset + 16 * (lane % C::CHUNKS);
    if (rows < C::KEYS) {
#pragma unroll 1
      for (int i = 0; i < C::KEYS / C::STEP; i++)
        put(unit, i, from + (row + i * C::STEP < rows ? i * step : 0),
            row + i * C::STEP < rows ? bytes : 0);
      return;
    }
#pragma unroll
    for (int i = 0; i < C::KEYS / C::STEP; i++) {
      put(unit, i, from, bytes);
      from += step;
    }
  }

  __device__ __forceinline__ void copy_rows(const decode_args &a, const attn_tensor &t, int bytes,
                                            uint32_t unit) const
  {
    int lane = threadIdx.x % 32, key = first_key(at.tile) + lane % C::KEYS,
        rows = sk - first_key(at.tile);
    int64_t offset = key < sk ? row_offset(a, t, key) : 0;
    const char *from = (const char *)t.data + 16 * (lane % C::CHUNKS);
#pragma unroll
    for (int i = 0; i < C::KEYS / C::STEP; i++) {
      int row = i * C::STEP + lane / C::CHUNKS;
      int64_t off = __shfl_sync(~0u, offset, row);
      put(unit, i, from + C::SIZE * off, row < rows ? bytes : 0);
    }
  }

  /* Copies the next unit, if there is one, and looks up the one after it. */
  __device__ __forceinline__ void issue(const decode_args &a, uint32_t unit)
  {
    if (!at.done()) {
      if (regular(a)) {
        copy_regular(a, a.k, k_bytes, unit);
        copy_regular(a, a.v, v_bytes, unit + C::HALF_BYTES);
      } else {
        copy_rows(a, a.k, k_bytes, unit);
        copy_rows(a, a.v, v_bytes, unit + C::HALF_BYTES);
      }
      at.tile++;
      if (at.done()) {
        at.turn(a);
        enter(a);
      } else if (a.page) {
        page = next;
        next = page_at(a, at.tile + 1);
      }
    }
    copy_commit();
  }
};

#endif
