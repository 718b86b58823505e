/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-d64.cu - tile variants of the portable flash forward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm80-forward/flash-sm80.cuh"

extern "C" const flash_sm80_kernel attn_flash_sm80_d64[] = {
    flash_sm80_row<flash_config<bf16, 64, 128, 128, 2>>(),
    flash_sm80_row<flash_config<bf16, 64, 128, 128, 1>>(),
    flash_sm80_row<flash_config<fp16, 64, 128, 128, 2>>(),
    flash_sm80_row<flash_config<fp16, 64, 128, 128, 1>>(),
    flash_sm80_row<flash_config<bf16, 64, 128, 64, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<fp16, 64, 128, 64, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<bf16, 64, 128, 128, 2, 2, false, 4, false, true>>(),
    flash_sm80_row<flash_config<fp16, 64, 128, 128, 2, 2, false, 4, false, true>>(),
    {},
};
