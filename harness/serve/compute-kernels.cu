/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-kernels.cu - rows of activations: gather, RMSNorm, SwiGLU, argmax; and random weights.
 * Arithmetic is in fp32; a row is a block's.
 */
#include "config.h"

#include <cuda_bf16.h>
#include <math_constants.h>

#include "harness/base/rng.h"
#include "harness/serve/compute-kernels.h"

typedef __nv_bfloat16 bf16;

#define THREADS 256
#define ROW_THREADS 1024 /* for one long row */
#define FEW_ROWS 128     /* fewer rows than SMs: several blocks a row, where rows are long */
#define ROW_BLOCKS 8
#define WARPS (THREADS / 32)

/* The sum of four uniform numbers of 16 bits, as on the host. */
static __device__ float normal_at(uint64_t seed, uint64_t i)
{
  uint64_t z = rng_at(seed, i);
  float sum = (float)(z & 0xffff) + (float)(z >> 16 & 0xffff) + (float)(z >> 32 & 0xffff) +
              (float)(z >> 48);
  return (sum / 65535 - 2) * 1.7320508f;
}

static __global__ void normal_kernel(bf16 *to, int64_t n, uint64_t seed, float mean, float scale)
{
  for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n;
       i += gridDim.x * (int64_t)THREADS)
    to[i] = (bf16)(mean + scale * normal_at(seed, (uint64_t)i));
}

/* V elements at once: 8 where rows are whole vectors, else 1. */
template <int V>
struct alignas(2 * V) vec {
  bf16 x[V];
};

template <int V>
static __global__ void gather_kernel(bf16 *y, const bf16 *x, const int32_t *row, int64_t columns)
{
  const vec<V> *from = (const vec<V> *)(x + row[blockIdx.x] * columns);
  vec<V> *to = (vec<V> *)(y + blockIdx.x * columns);
  for (int64_t k = threadIdx.x; k < columns / V; k += THREADS)
    to[k] = from[k];
}

static __device__ float sum_of_block(float x)
{
  __shared__ float part[WARPS];
  for (int step = 16; step; step /= 2)
    x += __shfl_xor_sync(~0u, x, step);
  if (threadIdx.x % 32 == 0)
    part[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < WARPS; i++)
    sum += part[i];
  return sum;
}

template <int V>
static __global__ void norm_kernel(bf16 *y, const bf16 *x, const bf16 *gain, int64_t hidden,
                                   float eps)
{
  const vec<V> *from = (const vec<V> *)(x + blockIdx.x * hidden), *by = (const vec<V> *)gain;
  vec<V> *to = (vec<V> *)(y + blockIdx.x * hidden);
  float sum = 0;
  for (int64_t k = threadIdx.x; k < hidden / V; k += THREADS) {
    vec<V> a = from[k];
    for (int i = 0; i < V; i++)
      sum += (float)a.x[i] * (float)a.x[i];
  }
  float over = rsqrtf(sum_of_block(sum) / (float)hidden + eps);
  for (int64_t k = threadIdx.x; k < hidden / V; k += THREADS) {
    vec<V> a = from[k], g = by[k];
    for (int i = 0; i < V; i++)
      a.x[i] = (bf16)((float)a.x[i] * over * (float)g.x[i]);
    to[k] = a;
  }
}

template <int V>
static __global__ void swiglu_kernel(bf16 *y, const bf16 *gate_up, int64_t ffn)
{
  const bf16 *row = gate_up + 2 * blockIdx.x * ffn;
  const vec<V> *gate = (const vec<V> *)row, *up = (const vec<V> *)(row + ffn);
  vec<V> *to = (vec<V> *)(y + blockIdx.x * ffn);
  for (int64_t k = blockIdx.y * THREADS + threadIdx.x; k < ffn / V; k += gridDim.y * THREADS) {
    vec<V> a = gate[k], b = up[k];
    for (int i = 0; i < V; i++) {
      float g = (float)a.x[i];
      a.x[i] = (bf16)(__fdividef(g, 1 + __expf(-g)) * (float)b.x[i]);
    }
    to[k] = a;
  }
}

/* Value above index, inverted, so that the largest key is the first of the largest values. */
static __device__ uint64_t key_of(float x, int64_t i)
{
  uint32_t u = __float_as_uint(x);
  u = u >> 31 ? ~u : u | 0x80000000u;
  return (uint64_t)u << 32 | (uint32_t) ~(uint32_t)i;
}

template <int V>
static __global__ void argmax_kernel(int32_t *token, const bf16 *logits, int64_t vocab)
{
  __shared__ unsigned long long best;
  const vec<V> *row = (const vec<V> *)(logits + blockIdx.x * vocab);
  unsigned long long mine = 0;
  if (threadIdx.x == 0)
    best = 0;
  __syncthreads();
  for (int64_t k = threadIdx.x; k < vocab / V; k += ROW_THREADS) {
    vec<V> a = row[k];
    for (int i = 0; i < V; i++)
      mine = max(mine, (unsigned long long)key_of((float)a.x[i], k * V + i));
  }
  for (int step = 16; step; step /= 2)
    mine = max(mine, __shfl_xor_sync(~0u, mine, step));
  if (threadIdx.x % 32 == 0)
    atomicMax(&best, mine);
  __syncthreads();
  if (threadIdx.x == 0)
    token[blockIdx.x] = (int32_t) ~(uint32_t)best;
}

/* ---- launches -------------------------------------------------------------------------------- */

extern "C" cudaError_t compute_kernel_normal(void *to, int64_t n, uint64_t seed, double mean,
                                             double scale, cudaStream_t stream)
{
  if (n)
    normal_kernel<<<1024, THREADS, 0, stream>>>((bf16 *)to, n, seed, (float)mean, (float)scale);
  return cudaGetLastError();
}

extern "C" cudaError_t compute_kernel_gather(void *y, const void *x, const int32_t *row, int64_t n,
                                             int64_t columns, cudaStream_t stream)
{
  auto kernel = columns % 8 ? gather_kernel<1> : gather_kernel<8>;
  if (n)
    kernel<<<(unsigned)n, THREADS, 0, stream>>>((bf16 *)y, (const bf16 *)x, row, columns);
  return cudaGetLastError();
}

extern "C" cudaError_t compute_kernel_norm(void *y, const void *x, const void *gain, int64_t n,
                                           int64_t hidden, float eps, cudaStream_t stream)
{
  auto kernel = hidden % 8 ? norm_kernel<1> : norm_kernel<8>;
  if (n)
    kernel<<<(unsigned)n, THREADS, 0, stream>>>((bf16 *)y, (const bf16 *)x, (const bf16 *)gain,
                                                hidden, eps);
  return cudaGetLastError();
}

extern "C" cudaError_t compute_kernel_swiglu(void *y, const void *gate_up, int64_t n, int64_t ffn,
                                             cudaStream_t stream)
{
  auto kernel = ffn % 8 ? swiglu_kernel<1> : swiglu_kernel<8>;
  dim3 grid((unsigned)n, n < FEW_ROWS ? ROW_BLOCKS : 1);
  if (n)
    kernel<<<grid, THREADS, 0, stream>>>((bf16 *)y, (const bf16 *)gate_up, ffn);
  return cudaGetLastError();
}

extern "C" cudaError_t compute_kernel_argmax(int32_t *token, const void *logits, int64_t n,
                                             int64_t vocab, cudaStream_t stream)
{
  auto kernel = vocab % 8 ? argmax_kernel<1> : argmax_kernel<8>;
  if (n)
    kernel<<<(unsigned)n, ROW_THREADS, 0, stream>>>(token, (const bf16 *)logits, vocab);
  return cudaGetLastError();
}
