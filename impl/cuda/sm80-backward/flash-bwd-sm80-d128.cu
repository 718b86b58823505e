/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-d128.cu - tile variants of the portable flash backward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm80-backward/flash-bwd-sm80.cuh"

extern "C" const flash_bwd_sm80_kernel attn_flash_bwd_sm80_d128[] = {
    flash_bwd_sm80_row<bwd_config<bf16, 128, 64, 128, 2, 2, 4, 2>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 128, 64, 128, 2, 2, 4, 2>>(),
    flash_bwd_sm80_row<bwd_config<bf16, 128, 64, 128, 2, 2, 4, 2, true>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 128, 64, 128, 2, 2, 4, 2, true>>(),
    {},
};
