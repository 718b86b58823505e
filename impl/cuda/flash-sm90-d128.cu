/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d128.cu - tile variants of the Hopper flash forward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/flash-sm90.cuh"

extern "C" const sm90_kernel attn_flash_sm90_d128[] = {
    sm90_row<sm90_cfg<__nv_bfloat16, 128, 128, 2, 128, 2, 1, 40, 232, SM90_QREG | SM90_GUARD>>(
        "128x128"),
    sm90_row<sm90_cfg<__half, 128, 128, 2, 128, 2, 1, 40, 232, SM90_QREG | SM90_GUARD>>("128x128"),
    {},
};
