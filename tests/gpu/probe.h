/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.h - kernels whose time, cycles or effect the GPU tests know beforehand.
 */
#ifndef TESTS_GPU_PROBE_H
#define TESTS_GPU_PROBE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t probe_spin_ns(uint64_t ns, cudaStream_t stream);
cudaError_t probe_spin_cycles(uint64_t cycles, cudaStream_t stream);
/* Flips the bits of one byte. */
cudaError_t probe_flip(void *byte, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
