/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-kernels.cu - the harness's own kernels: hold a stream, read clocks, empty the cache, fill,
 * copy, draw numbers.  None of them is measured as attention.
 */
#include "config.h"

#include "harness/device/cuda-kernels.h"
#include "harness/base/rng.h"

#include <cuda_bf16.h>

static __device__ uint64_t global_ns()
{
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

/* One thread. The time limit frees the GPU when the host dies or the launch never returns. */
static __global__ void gate_kernel(volatile cuda_gate *gate, uint64_t timeout_ns)
{
  uint64_t start = global_ns();
  while (!gate->open) {
    if (global_ns() - start > timeout_ns) {
      gate->timed_out = 1;
      __threadfence_system();
      return;
    }
  }
}

static __global__ void empty_kernel()
{
}

/* One block an SM. Both clocks in one 16-byte store, so that a pair is never torn. */
static __global__ void clocks_kernel(cuda_clock *clocks, uint32_t sms)
{
  uint32_t sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  ulonglong2 pair;
  pair.x = clock64();
  pair.y = global_ns();
  if (sm < sms)
    *(ulonglong2 *)&clocks[sm] = pair;
}

/* from (n) of 16 bytes: each block strides over tiles of 4 x blockDim vectors. */
static __global__ void read_kernel(const uint4 *from, size_t n, uint32_t *sink)
{
  uint32_t sum = 0;
  size_t step = (size_t)gridDim.x * blockDim.x * 4;
  for (size_t tile = (size_t)blockIdx.x * blockDim.x * 4; tile < n; tile += step) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      size_t i = tile + u * blockDim.x + threadIdx.x;
      v[u] = i < n ? from[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < 4; u++)
      sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (sum == 0x9e3779b9u)
    *sink = sum;
}

static __global__ void copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
  size_t step = (size_t)gridDim.x * blockDim.x * 4;
  for (size_t tile = (size_t)blockIdx.x * blockDim.x * 4; tile < n; tile += step) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      size_t i = tile + u * blockDim.x + threadIdx.x;
      if (i < n)
        v[u] = from[i];
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
      size_t i = tile + u * blockDim.x + threadIdx.x;
      if (i < n)
        to[i] = v[u];
    }
  }
}

static __global__ void fill_kernel(uint32_t *to, uint32_t pattern, size_t bytes)
{
  size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (size_t i = first; i < bytes / 4; i += (size_t)gridDim.x * blockDim.x)
    to[i] = pattern;
  if (first < bytes % 4)
    ((unsigned char *)(to + bytes / 4))[first] = (unsigned char)(pattern >> 8 * first);
}

/* The sign is the top bit of an element of either width. */
template <typename T>
static __global__ void flip_kernel(T *data, size_t n, uint64_t key)
{
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    data[i] ^= (T)((rng_at(key, i / 64) >> (i % 64) & 1) << (8 * sizeof(T) - 1));
}

static __global__ void digest_kernel(const uint64_t *data, size_t bytes, unsigned long long *sum)
{
  size_t step = (size_t)gridDim.x * blockDim.x, words = bytes / 8;
  size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  uint64_t mine = 0;
  for (size_t i = first; i < words; i += step)
    mine += rng_digest_term(i, data[i]);
  if (first == 0 && bytes % 8) {
    uint64_t word = 0;
    for (size_t k = 0; k < bytes % 8; k++)
      word |= (uint64_t)((const unsigned char *)(data + words))[k] << 8 * k;
    mine += rng_digest_term(words, word);
  }
  for (int d = 16; d; d /= 2)
    mine += __shfl_xor_sync(~0u, mine, d);
  if (threadIdx.x % 32 == 0)
    atomicAdd(sum, (unsigned long long)mine);
}

/* Box-Muller on a counter-based stream. */
static __global__ void normal_kernel(__nv_bfloat16 *to, size_t n, uint64_t seed)
{
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    uint64_t z = rng_at(seed, i);
    float u = ((z >> 40) + 1) * 0x1p-24f, angle = (z & 0xffffff) * 0x1p-23f;
    to[i] = __float2bfloat16(sqrtf(-2 * logf(u)) * cospif(angle));
  }
}

static unsigned blocks_for(size_t work, size_t per_block, size_t most)
{
  size_t blocks = (work + per_block - 1) / per_block;
  return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

cudaError_t cuda_kernel_gate(struct cuda_gate *gate, uint64_t timeout_ns, cudaStream_t stream)
{
  gate_kernel<<<1, 1, 0, stream>>>(gate, timeout_ns);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_empty(cudaStream_t stream)
{
  empty_kernel<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t cuda_kernel_clocks(struct cuda_clock *clocks, int sms, cudaStream_t stream)
{
  clocks_kernel<<<sms, 1, 0, stream>>>(clocks, (uint32_t)sms);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_read(const void *from, size_t bytes, uint32_t *sink, int sms,
                             cudaStream_t stream)
{
  unsigned blocks = blocks_for(bytes / 16, 4 * 512, (size_t)sms * 4);
  read_kernel<<<blocks, 512, 0, stream>>>((const uint4 *)from, bytes / 16, sink);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_copy(void *to, const void *from, size_t bytes, int sms, cudaStream_t stream)
{
  unsigned blocks = blocks_for(bytes / 16, 4 * 512, (size_t)1 << 30);
  copy_kernel<<<blocks, 512, 0, stream>>>((uint4 *)to, (const uint4 *)from, bytes / 16);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_fill(void *to, uint32_t pattern, size_t bytes, cudaStream_t stream)
{
  unsigned blocks = blocks_for(bytes / 4, 1024, 4096);
  fill_kernel<<<blocks, 256, 0, stream>>>((uint32_t *)to, pattern, bytes);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_digest(const void *data, size_t bytes, uint64_t *sum, cudaStream_t stream)
{
  cudaError_t e = cudaMemsetAsync(sum, 0, sizeof *sum, stream);
  if (e != cudaSuccess)
    return e;
  digest_kernel<<<blocks_for(bytes / 8, 1024, 4096), 256, 0, stream>>>(
      (const uint64_t *)data, bytes, (unsigned long long *)sum);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_flip(void *data, size_t width, size_t n, uint64_t key, cudaStream_t stream)
{
  unsigned blocks = blocks_for(n, 1024, 4096);
  if (width == 2)
    flip_kernel<<<blocks, 256, 0, stream>>>((uint16_t *)data, n, key);
  else
    flip_kernel<<<blocks, 256, 0, stream>>>((uint32_t *)data, n, key);
  return cudaGetLastError();
}

cudaError_t cuda_kernel_normal(void *to, size_t n, uint64_t seed, cudaStream_t stream)
{
  normal_kernel<<<blocks_for(n, 1024, 4096), 256, 0, stream>>>((__nv_bfloat16 *)to, n, seed);
  return cudaGetLastError();
}
