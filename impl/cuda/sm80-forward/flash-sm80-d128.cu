/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80-d128.cu - tile variants of the portable flash forward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm80-forward/flash-sm80.cuh"

extern "C" const flash_sm80_kernel attn_flash_sm80_d128[] = {
    flash_sm80_row<flash_config<bf16, 128, 128, 64, 2>>(),
    flash_sm80_row<flash_config<bf16, 128, 128, 64, 1>>(),
    flash_sm80_row<flash_config<fp16, 128, 128, 64, 2>>(),
    flash_sm80_row<flash_config<fp16, 128, 128, 64, 1>>(),
    flash_sm80_row<flash_config<bf16, 128, 128, 32, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<fp16, 128, 128, 32, 2, 2, false, 4, true>>(),
    flash_sm80_row<flash_config<bf16, 128, 128, 64, 2, 2, false, 4, false, true>>(),
    flash_sm80_row<flash_config<fp16, 128, 128, 64, 2, 2, false, 4, false, true>>(),
    {},
};
