/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d256.cu - tile variants of the Hopper flash forward for head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

/* Few keys: shorter steps leave less to a row block's first and last, which nothing runs beside. */
enum { SHORT_SK = 512 };

template <class T, int KN>
using cfg = sm90_cfg<T, 256, 256, 2, KN, 2, 1, 40, 232, SM90_GUARD>;

extern "C" const sm90_kernel attn_flash_sm90_d256[] = {
    sm90_row<cfg<__nv_bfloat16, 64>>("128x64", SHORT_SK),
    sm90_row<cfg<__half, 64>>("128x64", SHORT_SK),
    sm90_row<cfg<__nv_bfloat16, 80>>("128x80"),
    sm90_row<cfg<__half, 80>>("128x80"),
    {},
};
