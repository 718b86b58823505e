/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d128.cu - tile variants of the Hopper backward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/flash-bwd-sm90-split.cuh"

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d128[] = {
    bwd90_split_row<bwd90_split<__nv_bfloat16, 128, 64, 2, 2, 40, 232>>("64x128"),
    bwd90_split_row<bwd90_split<__half, 128, 64, 2, 2, 40, 232>>("64x128"),
    {},
};
