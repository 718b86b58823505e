/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d64-options.cu - tile variants of the Hopper flash forward with softcap, ALiBi and
 * dropout, for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

extern "C" const sm90_kernel attn_flash_sm90_d64_options[] = {
    sm90_row<sm90_cfg<__nv_bfloat16, 64, 64, 2, 128, 2, 2, 40, 232, SM90_SCORE>>("128x128"),
    sm90_row<sm90_cfg<__half, 64, 64, 2, 128, 2, 2, 40, 232, SM90_SCORE>>("128x128"),
    sm90_row<sm90_cfg<__nv_bfloat16, 64, 64, 2, 128, 2, 2, 40, 232, SM90_SCORE | SM90_DROP>>(
        "128x128"),
    sm90_row<sm90_cfg<__half, 64, 64, 2, 128, 2, 2, 40, 232, SM90_SCORE | SM90_DROP>>("128x128"),
    {},
};
