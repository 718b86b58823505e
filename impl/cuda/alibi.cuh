/* SPDX-License-Identifier: Apache-2.0
 *
 * alibi.cuh - the slopes of ALiBi (Press et al. 2021), for every kernel.
 */
#ifndef IMPL_CUDA_ALIBI_CUH
#define IMPL_CUDA_ALIBI_CUH

/* The slope of head h of hq: powers of 2^(-8/n), n the largest power of two up to hq; the heads
 * beyond n take the odd powers of its root. */
static __device__ __forceinline__ float alibi_slope(int hq, int h)
{
  const int n = 1 << (31 - __clz(hq));
  return exp2f(h < n ? -8.f * (h + 1) / n : -4.f * (2 * (h - n) + 1) / n);
}

#endif
