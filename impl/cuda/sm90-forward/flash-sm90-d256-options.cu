/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d256-options.cu - tile variants of the Hopper flash forward with softcap, ALiBi and
 * dropout, for head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

extern "C" const sm90_kernel attn_flash_sm90_d256_options[] = {
    sm90_row<sm90_cfg<__nv_bfloat16, 256, 256, 2, 80, 2, 1, 40, 232, SM90_SCORE>>("128x80"),
    sm90_row<sm90_cfg<__half, 256, 256, 2, 80, 2, 1, 40, 232, SM90_SCORE>>("128x80"),
    sm90_row<sm90_cfg<__nv_bfloat16, 256, 256, 2, 80, 2, 1, 40, 232, SM90_SCORE | SM90_DROP>>(
        "128x80"),
    sm90_row<sm90_cfg<__half, 256, 256, 2, 80, 2, 1, 40, 232, SM90_SCORE | SM90_DROP>>("128x80"),
    {},
};
