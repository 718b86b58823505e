/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-scan.cuh - passes over whole tensors.
 */
#ifndef REFERENCE_EXACT_SCAN_CUH
#define REFERENCE_EXACT_SCAN_CUH

#include "reference/exact-access.cuh"

/* A tensor's rows in the order (seq, head, position). */
struct rows_view {
  struct attn_tensor tensor;
  int64_t rows, heads;
  int width;
  bool query;
};

static __device__ struct ref_target nth_row(const struct device_problem &D,
                                            const struct rows_view &v, int64_t row)
{
  int64_t lo = 0, hi = D.p.b - 1;
  while (lo < hi) {
    int64_t mid = (lo + hi + 1) / 2;
    if (v.heads * (v.query ? D.seqs[mid].qfirst : D.seqs[mid].kfirst) <= row)
      lo = mid;
    else
      hi = mid - 1;
  }
  const struct ref_seq &s = D.seqs[lo];
  row -= v.heads * (v.query ? s.qfirst : s.kfirst);
  int64_t len = v.query ? s.sq : s.sk;
  return {(int32_t)lo, (int32_t)(row / len), row % len};
}

/* *first = the smallest row * width + column of a bad output: not finite, or not 0 in an empty row;
 * *first_lse likewise. A warp a row. */
static __global__ void scan_kernel(const __grid_constant__ struct device_problem D,
                                   struct rows_view v, const float *lse, unsigned long long *first,
                                   unsigned long long *first_lse)
{
  int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
  for (int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; row < v.rows;
       row += warps) {
    struct ref_target t = nth_row(D, v, row);
    const struct ref_seq &s = D.seqs[t.seq];
    bool empty = v.query && ref_row_empty(&D.p, s.sq, s.sk, t.pos);
    int64_t at = ref_offset(&D.p, &v.tensor, t.seq, v.query ? s.q0 : s.k0, t.head, t.pos);
    for (int x = lane; x < v.width; x += 32) {
      float got = load(D.p.dtype, v.tensor.data, at + x);
      if (!isfinite(got) || (empty && got != 0))
        atomicMin(first, (unsigned long long)(row * v.width + x));
    }
    if (lse && lane == 0) {
      float got = lse[lse_index(D, t)];
      if (empty ? got != -INFINITY : !isfinite(got))
        atomicMin(first_lse, (unsigned long long)row);
    }
  }
}

/* *top = the largest |x| of a tensor, as bits; a warp a row. */
static __global__ void largest_kernel(const __grid_constant__ struct device_problem D,
                                      struct rows_view v, int which, unsigned int *top)
{
  int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
  float most = 0;
  for (int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; row < v.rows;
       row += warps) {
    struct ref_target t = nth_row(D, v, row);
    const struct ref_seq &s = D.seqs[t.seq];
    int64_t at = v.query ? ref_offset(&D.p, &v.tensor, t.seq, s.q0, t.head, t.pos)
                         : ref_key_offset(&D.p, &v.tensor, t.seq, s.k0, t.head, t.pos);
    for (int x = lane; x < v.width; x += 32)
      most = fmaxf(most, fabsf((float)element(D, which, at + x, t.head)));
  }
  for (int d = 16; d; d /= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  if (lane == 0)
    atomicMax(top, __float_as_uint(most));
}

#endif
