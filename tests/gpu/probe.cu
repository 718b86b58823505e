/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.cu - kernels whose time, cycles or effect the GPU tests know beforehand.
 */
#include "config.h"

#include "tests/gpu/probe.h"

static __device__ uint64_t global_ns()
{
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

static __global__ void spin_ns_kernel(uint64_t ns)
{
  uint64_t start = global_ns();
  while (global_ns() - start < ns)
    ;
}

static __global__ void spin_cycles_kernel(int64_t cycles)
{
  int64_t start = clock64();
  while (clock64() - start < cycles)
    ;
}

static __global__ void flip_kernel(unsigned char *byte)
{
  *byte ^= 0xff;
}

cudaError_t probe_spin_ns(uint64_t ns, cudaStream_t stream)
{
  spin_ns_kernel<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

cudaError_t probe_spin_cycles(uint64_t cycles, cudaStream_t stream)
{
  spin_cycles_kernel<<<1, 1, 0, stream>>>((int64_t)cycles);
  return cudaGetLastError();
}

cudaError_t probe_flip(void *byte, cudaStream_t stream)
{
  flip_kernel<<<1, 1, 0, stream>>>((unsigned char *)byte);
  return cudaGetLastError();
}
