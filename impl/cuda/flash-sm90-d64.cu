/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d64.cu - tile variants of the Hopper flash forward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/flash-sm90.cuh"

extern "C" const sm90_kernel attn_flash_sm90_d64[] = {
    sm90_row<sm90_cfg<__nv_bfloat16, 64, 64, 3, 128, 3, 2, 32, 160, SM90_TURNS | SM90_EARLY>>(
        "192x128"),
    sm90_row<sm90_cfg<__half, 64, 64, 3, 128, 3, 2, 32, 160, SM90_TURNS | SM90_EARLY>>("192x128"),
    {},
};
