/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d64.cu - tile variants of the Hopper backward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/flash-bwd-sm90-split.cuh"

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d64[] = {
    bwd90_split_row<bwd90_split<__nv_bfloat16, 64, 128, 2, 2, 40, 232>>("128x128"),
    bwd90_split_row<bwd90_split<__half, 64, 128, 2, 2, 40, 232>>("128x128"),
    {},
};
