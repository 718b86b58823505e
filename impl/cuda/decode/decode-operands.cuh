/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-operands.cuh - cuda/decode: what the tensor cores take, from a unit of keys and values in
 * shared memory.
 *
 * An e4m3 cache is widened to fp16 on the way from shared memory to the tensor cores, exactly,
 * whatever the queries are, for Hopper has an instruction for that; a lane then holds bytes 4t ...
 * 4t + 3 of a row of K, which as columns of the head dimension may come in any order, so long as
 * Q's come in the same.
 */
#ifndef IMPL_CUDA_DECODE_OPERANDS_CUH
#define IMPL_CUDA_DECODE_OPERANDS_CUH

#include "impl/cuda/decode/decode-line.cuh"

/* Transposes an 8 x 8 block of 16-bit elements, a row for every four lanes. */
__device__ __forceinline__ uint32_t transpose(uint32_t x)
{
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

#if __CUDA_ARCH__ < 890
/* Two e4m3 numbers as a pair of fp16. x: in the upper bytes of its halves.
 *
 * The exponent is moved to its place and the number multiplied by what the two biases differ by.
 * `past` takes the code of NaN, and no other, beyond the range; infinity times 0 is NaN. */
__device__ __forceinline__ uint32_t widen(uint32_t x)
{
  constexpr uint32_t bias = 0x5c005c00, past = 0x58805880; /* 2^8, 1.125 x 2^7 */
  uint32_t y;
  asm("{\n.reg .b32 t;\n"
      "fma.rn.f16x2 %0, %1, %2, %4;\n"
      "fma.rn.f16x2 t, %0, %3, %5;\n"
      "fma.rn.f16x2 %0, t, %5, %0;\n}"
      : "=&r"(y)
      : "r"(x & 0x80008000 | (x >> 1 & 0x3f803f80)), "r"(bias), "r"(past), "r"(0x80008000), "r"(0));
  return y;
}
#endif

/* Four e4m3 numbers of a row as pairs of fp16, 0, 1 and 2, 3; exact, and NaN stays NaN. The halves
 * are named to the assembler, which then takes the upper one as it lies there. */
__device__ __forceinline__ void widen_row(uint32_t &a, uint32_t &b, uint32_t x)
{
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 lo, hi;\n"
      "mov.b32 {lo, hi}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, lo;\n"
      "cvt.rn.f16x2.e4m3x2 %1, hi;\n}"
      : "=&r"(a), "=r"(b)
      : "r"(x));
#else
  a = widen(__byte_perm(x, 0, 0x1404));
  b = widen(__byte_perm(x, 0, 0x3424));
#endif
}

/* Two bytes of each of two rows: the pairs 0, 2 and 1, 3. */
__device__ __forceinline__ void widen_columns(uint32_t &a, uint32_t &b, uint32_t x)
{
  widen_row(a, b, __byte_perm(x, 0, 0x3120));
}

/* 16 keys x 16 columns of K at step s of the head dimension. k: this lane's first address. */
template <class C>
__device__ __forceinline__ void decode_k(uint32_t (&x)[2][4], uint32_t k, int s)
{
  if constexpr (C::KV8) { /* two steps */
    uint32_t r[4];
    ldmatrix(r, (k ^ (s % 8 * 16)) + s / 8 * (C::KEYS * 128));
#pragma unroll
    for (int i = 0; i < 2; i++) {
      widen_row(x[i][0], x[i][2], r[2 * i]);
      widen_row(x[i][1], x[i][3], r[2 * i + 1]);
    }
  } else {
    ldmatrix(x[0], (k ^ (s % 4 * 32)) + s / 4 * (C::KEYS * 128));
  }
}

/* 16 keys x 16 columns of V, transposed. */
template <class C>
__device__ __forceinline__ void decode_v(uint32_t (&x)[2][4], uint32_t v, int s)
{
  if constexpr (C::KV8) { /* two steps */
    uint32_t r[4];
    ldmatrix_trans(r, (v ^ (s % 8 * 16)) + s / 8 * (C::KEYS * 128));
#pragma unroll
    for (int i = 0; i < 2; i++) {
      widen_columns(x[i][0], x[i][1], r[2 * i]);
      widen_columns(x[i][2], x[i][3], r[2 * i + 1]);
    }
  } else {
    ldmatrix_trans(x[0], (v ^ (s % 4 * 32)) + s / 4 * (C::KEYS * 128));
  }
}

/* This lane's first address of a K and of a V operand, in a unit. */
template <class C>
__device__ __forceinline__ uint32_t decode_k_lane()
{
  int lane = threadIdx.x % 32;
  return tile_offset<C::KEYS>(lane % 16, lane / 16);
}

template <class C>
__device__ __forceinline__ uint32_t decode_v_lane()
{
  int lane = threadIdx.x % 32;
  return C::HALF_BYTES + (C::KV8 ? tile_offset<C::KEYS>(lane % 16, lane / 16)
                                 : tile_offset<C::KEYS>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
}

#endif
