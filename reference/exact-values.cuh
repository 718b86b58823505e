/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-values.cuh - weights times values, and the moments of what that may be off by.
 */
#ifndef REFERENCE_EXACT_VALUES_CUH
#define REFERENCE_EXACT_VALUES_CUH

#include "reference/exact-access.cuh"

/* ---- values ---------------------------------------------------------------------------------- */

/* Block (split, target block of up to MOST, 128 columns): warp has OWN targets, lane has columns
 * lane + 32 q. */
template <int MOST>
static __global__ void __launch_bounds__(128)
    values_kernel(const __grid_constant__ struct device_problem D,
                  const __grid_constant__ struct chunk C, int of_partner, int width,
                  const double *a)
{
  constexpr int OWN = MOST / 4;
  __shared__ double v[STEP][128], c[MOST][STEP];
  __shared__ int64_t at[STEP];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int np = partners_of(D, C, C.targets[first]), end = min(np, (int)(blockIdx.x + 1) * SPLIT);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col0 = blockIdx.z * 128;
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  double sum[OWN][4] = {};

  for (int k0 = blockIdx.x * SPLIT; k0 < end; k0 += STEP) {
    int many = min(STEP, end - k0);
    bool any = false;
    __syncthreads();
    for (int e = threadIdx.x; e < MOST * STEP; e += 128) {
      int t = e / STEP, k = e % STEP;
      double x = t < n && k < many ? a[(int64_t)(first + t) * C.pitch + k0 + k] : 0;
      c[t][k] = x;
      any |= x != 0;
    }
    if (threadIdx.x < many)
      at[threadIdx.x] = row_of(D, of_partner, C.targets[first],
                               place_of(D, C, C.targets[first], k0 + threadIdx.x));
    if (!__syncthreads_or(any))
      continue;
    for (int e = threadIdx.x; e < STEP * 128; e += 128) {
      int k = e / 128, x = col0 + e % 128;
      v[k][e % 128] = k < many && x < width ? element(D, of_partner, at[k] + x, kv_head) : 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < STEP; k++)
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int r = 0; r < OWN; r++)
          sum[r][q] = fma(c[OWN * warp + r][k], v[k][lane + 32 * q], sum[r][q]);
  }
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int t = OWN * warp + r, x = col0 + lane + 32 * q;
      if (t < n && x < width)
        C.part[((int64_t)(first + t) * C.splits + blockIdx.x) * width + x] = sum[r][q];
    }
}

/* o = the sum of the parts; block a target */
static __global__ void total_kernel(const __grid_constant__ struct chunk C, int width)
{
  for (int x = threadIdx.x; x < width; x += blockDim.x) {
    double sum = 0;
    for (int s = 0; s < C.splits; s++)
      sum += C.part[((int64_t)blockIdx.x * C.splits + s) * width + x];
    C.o[(int64_t)blockIdx.x * width + x] = sum;
  }
}

/* ---- moments --------------------------------------------------------------------------------- */

template <bool BACKWARD>
static __device__ void add_moment(struct moments *m, float *run, const struct coef &c, float v,
                                  float o)
{
  float term = c.a * v, kept = BACKWARD ? fabsf(v) : fabsf(c.z * v), r = c.rrnd * kept;
  *run += term;
  m->abs += fabsf(term);
  m->hi = fmaxf(m->hi, *run);
  m->lo = fminf(m->lo, *run);
  m->det = fmaf(c.rdet, kept, m->det);
  m->lin = fmaf(c.rlin, kept, m->lin);
  m->rnd2 = fmaf(r, r, m->rnd2);
  if (BACKWARD) {
    m->gross = fmaf(c.gdet, kept, m->gross);
    m->sgn = fmaf(c.z, v, m->sgn);
    return;
  }
  float dev = fabsf(c.z * v - o), g = c.grnd * dev;
  m->det = fmaf(c.gdet, dev, m->det);
  m->lin = fmaf(c.glin, dev, m->lin);
  m->rnd2 = fmaf(g, g, m->rnd2);
}

/* Block (split, target block, 64 columns): warp has 4 targets, lane has columns lane, lane + 32. */
template <bool BACKWARD>
static __global__ void __launch_bounds__(128, 3)
    moments_kernel(const __grid_constant__ struct device_problem D,
                   const __grid_constant__ struct chunk C, int of_partner, int width,
                   const struct coef *coefs)
{
  __shared__ float v[STEP][64];
  __shared__ struct coef c[BLOCK][STEP];
  __shared__ int64_t at[STEP];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int np = partners_of(D, C, C.targets[first]), end = min(np, (int)(blockIdx.x + 1) * SPLIT);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col0 = blockIdx.z * 64;
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  float unit = ldexpf(1, -D.exponent[of_partner]);
  struct moments sum[4][2] = {};
  float run[4][2] = {}, o[4][2] = {};

  for (int r = 0; r < 4 && !BACKWARD; r++)
    for (int q = 0; q < 2; q++)
      if (4 * warp + r < n && col0 + lane + 32 * q < width)
        o[r][q] =
            (float)(C.o[(int64_t)(first + 4 * warp + r) * width + col0 + lane + 32 * q] * unit);
  for (int k0 = blockIdx.x * SPLIT; k0 < end; k0 += STEP) {
    int many = min(STEP, end - k0);
    bool any = false;
    __syncthreads();
    for (int e = threadIdx.x; e < BLOCK * STEP; e += 128) {
      int t = e / STEP, k = e % STEP;
      struct coef x = {};
      if (t < n && k < many)
        x = coefs[(int64_t)(first + t) * C.pitch + k0 + k];
      c[t][k] = x;
      any |= x.a != 0 || x.gdet != 0 || x.rdet != 0;
    }
    if (threadIdx.x < many)
      at[threadIdx.x] = row_of(D, of_partner, C.targets[first],
                               place_of(D, C, C.targets[first], k0 + threadIdx.x));
    if (!__syncthreads_or(any))
      continue;
    for (int e = threadIdx.x; e < STEP * 64; e += 128) {
      int k = e / 64, x = col0 + e % 64;
      v[k][e % 64] =
          k < many && x < width ? (float)element(D, of_partner, at[k] + x, kv_head) * unit : 0;
    }
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < many; k++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        struct coef x = c[4 * warp + r][k];
#pragma unroll
        for (int q = 0; q < 2; q++)
          add_moment<BACKWARD>(&sum[r][q], &run[r][q], x, v[k][lane + 32 * q], o[r][q]);
      }
  }
  for (int r = 0; r < 4; r++)
    for (int q = 0; q < 2; q++) {
      int t = 4 * warp + r, x = col0 + lane + 32 * q;
      if (t < n && x < width)
        C.sums[((int64_t)(first + t) * C.splits + blockIdx.x) * width + x] = sum[r][q];
    }
}

#endif
