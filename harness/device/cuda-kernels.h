/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-kernels.h - the harness's own kernels, as calls that enqueue one on a stream.
 */
#ifndef HARNESS_CUDA_KERNELS_H
#define HARNESS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The two clocks of one SM, read together. */
struct cuda_clock {
  uint64_t cycles, nanoseconds;
};

/* Holds the stream until the host stores to gate->open, or until the time is up. Mapped memory. */
struct cuda_gate {
  uint32_t open, timed_out;
};

cudaError_t cuda_kernel_gate(struct cuda_gate *gate, uint64_t timeout_ns, cudaStream_t stream);
cudaError_t cuda_kernel_empty(cudaStream_t stream);
/* clocks[n] of each of sms SMs that a block landed on. */
cudaError_t cuda_kernel_clocks(struct cuda_clock *clocks, int sms, cudaStream_t stream);
/* Reads every byte once; sink is never written in practice. bytes: a multiple of 16. */
cudaError_t cuda_kernel_read(const void *from, size_t bytes, uint32_t *sink, int sms,
                             cudaStream_t stream);
cudaError_t cuda_kernel_copy(void *to, const void *from, size_t bytes, int sms,
                             cudaStream_t stream);
/* to is 4-byte aligned; the pattern is cut at the last odd bytes. */
cudaError_t cuda_kernel_fill(void *to, uint32_t pattern, size_t bytes, cudaStream_t stream);
/* Sets *sum to the digest that device_ops.digest defines. */
cudaError_t cuda_kernel_digest(const void *data, size_t bytes, uint64_t *sum, cudaStream_t stream);
/* Flips signs as device_ops.flip says. */
cudaError_t cuda_kernel_flip(void *data, size_t width, size_t n, uint64_t key, cudaStream_t stream);
/* n bf16 numbers, standard normal. */
cudaError_t cuda_kernel_normal(void *to, size_t n, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
