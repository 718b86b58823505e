/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-d256.cu - tile variants of the portable flash backward for head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm80-backward/flash-bwd-sm80.cuh"

extern "C" const flash_bwd_sm80_kernel attn_flash_bwd_sm80_d256[] = {
    flash_bwd_sm80_row<bwd_config<bf16, 256, 64, 64, 2, 2, 2, 2>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 256, 64, 64, 2, 2, 2, 2>>(),
    flash_bwd_sm80_row<bwd_config<bf16, 256, 64, 64, 1, 2, 2, 2>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 256, 64, 64, 1, 2, 2, 2>>(),
    flash_bwd_sm80_row<bwd_config<bf16, 256, 64, 64, 1, 2, 2, 2, true>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 256, 64, 64, 1, 2, 2, 2, true>>(),
    {},
};
