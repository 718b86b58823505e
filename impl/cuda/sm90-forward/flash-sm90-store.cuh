/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-store.cuh - the end of a row block: LSE and O.
 */
#ifndef IMPL_CUDA_FLASH_SM90_STORE_CUH
#define IMPL_CUDA_FLASH_SM90_STORE_CUH

#include <math.h>

#include "impl/cuda/sm90-forward/flash-sm90-softmax.cuh"

/* Lane q of a quad gives word k of row q, and receives word q of row k. */
SM90_DEV void quad_transpose(uint32_t (&x)[4], int lane)
{
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool up = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit)
        continue;
      const uint32_t give = up ? x[i] : x[i | bit];
      const uint32_t get = __shfl_xor_sync(~0u, give, bit);
      x[i] = up ? get : x[i];
      x[i | bit] = up ? x[i | bit] : get;
    }
  }
}

/* Writes the LSE of a finished row block; f becomes what O must be multiplied by.  An empty row
 * gives -inf and 0. */
template <class C>
SM90_DEV void sm90_finish(const sm90_lane &w, const sm90_params &p, const sm90_tile &t,
                          const sm90_rows &s, float (&f)[2])
{
  const int row = t.m0 + w.row, seq = p.items ? 0 : t.seq;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float l = quad_sum(s.l[h]);
    const bool empty = l == 0.f;
    f[h] = empty ? 0.f : rcp(l);
    if (C::DROP)
      f[h] *= p.keep_scale;
    if ((w.lane & 3) == 0 && row + 8 * h < t.sq)
      p.lse[seq * p.lse_sb + t.head * p.lse_sh + t.row0 + row + 8 * h] =
          empty ? -INFINITY : (s.m[h] + lg2(l)) * 0.693147180559945f;
  }
}

template <class C>
SM90_DEV void sm90_store(const sm90_lane &w, const sm90_params &p, const sm90_tile &t,
                         const float (&O)[C::DV / 2])
{
  const int row = t.m0 + w.row, seq = p.items ? 0 : t.seq;
  uint16_t *o = (uint16_t *)p.o + seq * p.o_sb + (int64_t)(t.row0 + row) * p.o_ss +
                t.head * p.o_sh + 8 * (w.lane & 3);
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int j = 0; j < C::DV / 32; j++) {
      uint32_t x[4];
#pragma unroll
      for (int k = 0; k < 4; k++)
        x[k] = pack2(typename C::T(), O[16 * j + 4 * k + 2 * h], O[16 * j + 4 * k + 2 * h + 1]);
      quad_transpose(x, w.lane);
      if (row + 8 * h < t.sq && 32 * j + 8 * (w.lane & 3) < p.dv)
        *(uint4 *)(o + 8 * h * p.o_ss + 32 * j) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

/* A row block that sees no key. */
template <class C>
SM90_DEV void sm90_store_empty(const sm90_lane &w, const sm90_params &p, const sm90_tile &t)
{
  const int seq = p.items ? 0 : t.seq;
#pragma unroll 1
  for (int i = w.lane; i < 16 * 32; i += 32) {
    const int row = t.m0 + 64 * w.wg + 16 * w.warp + i / 32;
    if (row >= t.sq)
      break;
    uint16_t *o =
        (uint16_t *)p.o + seq * p.o_sb + (int64_t)(t.row0 + row) * p.o_ss + t.head * p.o_sh;
#pragma unroll 1
    for (int col = 8 * w.lane; col < p.dv; col += 256)
      *(uint4 *)(o + col) = make_uint4(0, 0, 0, 0);
    if (w.lane == 0)
      p.lse[seq * p.lse_sb + t.head * p.lse_sh + t.row0 + row] = -INFINITY;
  }
}

#endif
