/* SPDX-License-Identifier: Apache-2.0
 *
 * rope-kernels.cu - rotate Q, rotate K and append K and V to the cache, in one pass.
 *
 * Tiles: two tokens a block, or one where a head rotates more than 1024 elements; their angles are
 * in shared memory, made once for all heads; 256 threads; vectors of 16 bytes where lengths,
 * strides and pointers allow it, else single elements.
 */
#include "config.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "impl/cuda/rope/rope.cuh"

#define ROPE_BLOCKS 8 /* on an SM: all its threads; bytes in flight are what counts */

template <class T, int VECTOR, bool ALIGNED>
static __global__ void __launch_bounds__(ROPE_THREADS, ALIGNED ? ROPE_BLOCKS : 1)
    rope_kernel_of(const __grid_constant__ struct rope_args a)
{
  __shared__ struct rope_angle angles[ROPE_PAIRS];
  __shared__ struct rope_place places[ROPE_TOKENS];
  const struct rope_tile t = rope_find(&a, (int32_t)blockIdx.x);
  rope_find_places(&a, &t, (int32_t)threadIdx.x, places);
  rope_make_angles(&a, &t, (int32_t)threadIdx.x, angles);
  __syncthreads();
  rope_move_items<T, VECTOR, ALIGNED>(&a, &t, (int32_t)threadIdx.x, angles, places);
}

template <class T, int VECTOR, bool ALIGNED>
static struct rope_kernel variant(enum attn_dtype dtype)
{
  return {dtype, VECTOR, ALIGNED, (const void *)&rope_kernel_of<T, VECTOR, ALIGNED>};
}

extern "C" const struct rope_kernel attn_rope_kernels[] = {
    variant<__nv_bfloat16, 8, true>(ATTN_BF16),  variant<__nv_bfloat16, 2, false>(ATTN_BF16),
    variant<__nv_bfloat16, 1, false>(ATTN_BF16), variant<__half, 8, true>(ATTN_F16),
    variant<__half, 2, false>(ATTN_F16),         variant<__half, 1, false>(ATTN_F16),
    variant<float, 4, true>(ATTN_F32),           variant<float, 2, false>(ATTN_F32),
    variant<float, 1, false>(ATTN_F32),          {ATTN_F32, 0, false, nullptr},
};
