/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80-d64.cu - tile variants of the portable flash backward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm80-backward/flash-bwd-sm80.cuh"

extern "C" const flash_bwd_sm80_kernel attn_flash_bwd_sm80_d64[] = {
    flash_bwd_sm80_row<bwd_config<bf16, 64, 128, 128, 2, 4, 4, 4>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 64, 128, 128, 2, 4, 4, 4>>(),
    flash_bwd_sm80_row<bwd_config<bf16, 64, 128, 128, 2, 4, 4, 4, true>>(),
    flash_bwd_sm80_row<bwd_config<fp16, 64, 128, 128, 2, 4, 4, 4, true>>(),
    {},
};
