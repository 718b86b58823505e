/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-dots.cuh - dot products of targets and partners, with the moments of their errors.
 */
#ifndef REFERENCE_EXACT_DOTS_CUH
#define REFERENCE_EXACT_DOTS_CUH

#include "reference/exact-access.cuh"

/* Block (partner tile, target block): thread (warp, lane) has OWN targets from OWN warp on and
 * partners lane + 32 q. */
template <bool MOMENTS>
static __global__ void __launch_bounds__(256, 2)
    dots_kernel(const __grid_constant__ struct device_problem D,
                const __grid_constant__ struct chunk C, int of_target, int of_partner, int width,
                struct dot *out)
{
  constexpr int MOST = MOMENTS ? BLOCK : CROWD, OWN = MOST / 8;
  __shared__ double pd[DEEP][WIDE + 1], td[MOST][DEEP];
  __shared__ float pf[MOMENTS ? DEEP : 1][WIDE + 1], tf[MOMENTS ? MOST : 1][DEEP];
  __shared__ int64_t at[WIDE], target_at[MOST];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int k0 = blockIdx.x * WIDE, np = partners_of(D, C, C.targets[first]);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, many = min(WIDE, np - k0);
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  double sum[OWN][4] = {};
  float run[OWN][4] = {}, mag[OWN][4] = {}, hi[OWN][4] = {}, lo[OWN][4] = {};
  bool any = false;

  if (many <= 0)
    return;
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int k = lane + 32 * q, t = OWN * warp + r;
      if (t < n && k < many)
        any |= visible(D, C.targets[first + t], place_of(D, C, C.targets[first + t], k0 + k));
    }
  if (!__syncthreads_or(any))
    return;
  if (threadIdx.x < many)
    at[threadIdx.x] =
        row_of(D, of_partner, C.targets[first], place_of(D, C, C.targets[first], k0 + threadIdx.x));
  if (threadIdx.x < n)
    target_at[threadIdx.x] = row_of(D, of_target, C.targets[first + threadIdx.x],
                                    place_of(D, C, C.targets[first + threadIdx.x], 0));
  for (int c0 = 0; c0 < width; c0 += DEEP) {
    __syncthreads();
    for (int e = threadIdx.x; e < WIDE * DEEP; e += 256) {
      int k = e / DEEP, c = e % DEEP;
      double x = k < many && c0 + c < width ? element(D, of_partner, at[k] + c0 + c, kv_head) : 0;
      pd[c][k] = x;
      if (MOMENTS)
        pf[c][k] = (float)x;
    }
    for (int e = threadIdx.x; e < MOST * DEEP; e += 256) {
      int t = e / DEEP, c = e % DEEP;
      float x = t < n && c0 + c < width
                    ? load(D.p.dtype, operand(D, of_target).data, target_at[t] + c0 + c)
                    : 0;
      td[t][c] = x;
      if (MOMENTS)
        tf[t][c] = x;
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < DEEP; c++)
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int r = 0; r < OWN; r++) {
          sum[r][q] = fma(td[OWN * warp + r][c], pd[c][lane + 32 * q], sum[r][q]);
          if (MOMENTS) {
            float term = tf[OWN * warp + r][c] * pf[c][lane + 32 * q];
            run[r][q] += term;
            mag[r][q] += fabsf(term);
            hi[r][q] = fmaxf(hi[r][q], run[r][q]);
            lo[r][q] = fminf(lo[r][q], run[r][q]);
          }
        }
  }
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int k = lane + 32 * q, t = OWN * warp + r;
      if (t < n && k < many)
        out[(int64_t)(first + t) * C.pitch + k0 + k] = {
            sum[r][q], mag[r][q] * 1.0001f, (hi[r][q] - lo[r][q]) * 1.0001f + mag[r][q] * 1e-5f};
    }
}

#endif
