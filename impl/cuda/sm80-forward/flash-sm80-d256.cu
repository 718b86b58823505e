/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-d256.cu - tile variants of the portable flash forward for head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm80-forward/flash-sm80.cuh"

extern "C" const flash_sm80_kernel attn_flash_sm80_d256[] = {
    flash_sm80_row<flash_config<bf16, 256, 64, 64, 1>>(),
    flash_sm80_row<flash_config<fp16, 256, 64, 64, 1>>(),
    flash_sm80_row<flash_config<bf16, 256, 64, 32, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<fp16, 256, 64, 32, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<bf16, 256, 64, 64, 1, 2, false, 4, false, true>>(),
    flash_sm80_row<flash_config<fp16, 256, 64, 64, 1, 2, false, 4, false, true>>(),
    {},
};
