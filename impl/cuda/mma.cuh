/* SPDX-License-Identifier: Apache-2.0
 *
 * mma.cuh - the sm_80 instructions that the portable kernels are made of, one wrapper each, and the
 * shared-memory layout that they agree on.
 *
 * A tile of R rows x D columns of 16-bit elements is stored as D/64 panels of R rows x 128 bytes;
 * the 16-byte chunk c of row r lies at chunk c ^ (r mod 8). Eight rows of one chunk then cover all
 * banks, so ldmatrix and the 16-byte copies are free of conflicts. Since k-steps change only even
 * chunk bits, the address of step k is the lane's first address XOR 32k.
 */
#ifndef IMPL_CUDA_MMA_CUH
#define IMPL_CUDA_MMA_CUH

#include <stdint.h>

#include "impl/attn.h"

/* Tags of the storage formats. */
struct bf16 {
  static constexpr enum attn_dtype dtype = ATTN_BF16;
};
struct fp16 {
  static constexpr enum attn_dtype dtype = ATTN_F16;
};

template <class A, class B>
struct same_type {
  static constexpr bool value = false;
};
template <class A>
struct same_type<A, A> {
  static constexpr bool value = true;
};

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* Copies 16 bytes global to shared, the bytes past `bytes` (0 or 16) as zeros. */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, int bytes)
{
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_commit()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void copy_wait()
{
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], uint32_t at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

/* c (16x8) += a (16x16) b (16x8), fp32 accumulation. Lane l holds rows g = l/4 and g+8, columns
 * 2(l%4) and +1: c[0..1] of row g, c[2..3] of row g+8. */
template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
  if constexpr (same_type<T, bf16>::value)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two floats rounded to nearest even into one register, lo in the low half. */
template <class T>
__device__ __forceinline__ uint32_t pack(float lo, float hi)
{
  uint32_t r;
  if constexpr (same_type<T, bf16>::value)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

/* And back. */
template <class T>
__device__ __forceinline__ float2 unpack(uint32_t x)
{
  if constexpr (same_type<T, bf16>::value)
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
  else {
    float2 r;
    asm("{\n.reg .f16 lo, hi;\nmov.b32 {lo, hi}, %2;\ncvt.f32.f16 %0, lo;\ncvt.f32.f16 %1, hi;\n}"
        : "=f"(r.x), "=f"(r.y)
        : "r"(x));
    return r;
  }
}

/* 2^x, relative error at most 2^-22, subnormals to zero. */
__device__ __forceinline__ float exp2_approx(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void store_shared(uint32_t at, uint32_t x)
{
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

__device__ __forceinline__ uint4 load_shared16(uint32_t at)
{
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

/* Byte offset of chunk c of row r in a swizzled tile of ROWS rows. */
template <int ROWS>
__device__ __forceinline__ uint32_t tile_offset(int r, int c)
{
  return (c / 8) * (ROWS * 128) + r * 128 + (((c % 8) ^ (r % 8)) << 4);
}

/* Copies rows [0, ROWS) x D columns of a row-major matrix into a swizzled tile, all threads of the
 * block together: 16 bytes a thread, consecutive threads along a row. */
template <int ROWS, int D, int THREADS>
struct tile_copy {
  static constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS, N = ROWS / STEP;
  static_assert(THREADS % CHUNKS == 0 && ROWS % STEP == 0, "every thread copies the same share");
  static_assert(STEP % 8 == 0 || STEP == 4, "the swizzle of a thread's rows must be known");

  uint32_t to; /* offset of this thread's first chunk in a tile */
  int row;     /* its first row */
  int bytes;   /* 16, or 0 where the chunk is padding past the head dimension */

  __device__ __forceinline__ tile_copy(int head_dim)
  {
    int c = threadIdx.x % CHUNKS;
    row = threadIdx.x / CHUNKS;
    to = tile_offset<ROWS>(row, c);
    bytes = c * 8 < head_dim ? 16 : 0;
  }

  /* This thread's first chunk of the matrix at data, row_stride elements apart. */
  static __device__ __forceinline__ const char *first(const void *data, int64_t row_stride)
  {
    return (const char *)data + 2 * (threadIdx.x / CHUNKS * row_stride + threadIdx.x % CHUNKS * 8);
  }

  /* from: first() of the tile; step: STEP rows in bytes; rows: how many exist, the rest becomes
   * zeros (TAIL only, else all exist). */
  template <bool TAIL>
  __device__ __forceinline__ void issue(uint32_t tile, const char *from, int64_t step,
                                        int rows) const
  {
#pragma unroll
    for (int i = 0; i < N; i++) {
      int n = TAIL && row + i * STEP >= rows ? 0 : bytes;
      copy16(((tile + to) ^ ((i * STEP % 8) << 4)) + i * STEP * 128, from, n);
      from += step;
    }
  }
};

#endif
