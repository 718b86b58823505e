/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-kernels.h - a decoder's row-wise work on a GPU, as calls that enqueue one kernel.
 * Matrices are dense bf16, (n, columns); a row is a block's.
 */
#ifndef HARNESS_SERVE_COMPUTE_KERNELS_H
#define HARNESS_SERVE_COMPUTE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element i = mean + scale * nearly normal number i of the seed (rng.h). */
cudaError_t compute_kernel_normal(void *to, int64_t n, uint64_t seed, double mean, double scale,
                                  cudaStream_t stream);
cudaError_t compute_kernel_gather(void *y, const void *x, const int32_t *row, int64_t n,
                                  int64_t columns, cudaStream_t stream);
cudaError_t compute_kernel_norm(void *y, const void *x, const void *gain, int64_t n, int64_t hidden,
                                float eps, cudaStream_t stream);
cudaError_t compute_kernel_swiglu(void *y, const void *gate_up, int64_t n, int64_t ffn,
                                  cudaStream_t stream);
cudaError_t compute_kernel_argmax(int32_t *token, const void *logits, int64_t n, int64_t vocab,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
