/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d128.cu - tile variants of the Hopper flash forward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

/* Turns gain where row blocks are short, and cost a little where they are long. */
enum { SHORT_SK = 1024 };

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 128, 128, 2, 128, 3, 1, 40, 232, SM90_QREG | SM90_GUARD | FLAGS>;

extern "C" const sm90_kernel attn_flash_sm90_d128[] = {
    sm90_row<cfg<__nv_bfloat16, SM90_TURNS>>("128x128-turns", SHORT_SK),
    sm90_row<cfg<__half, SM90_TURNS>>("128x128-turns", SHORT_SK),
    sm90_row<cfg<__nv_bfloat16, 0>>("128x128"),
    sm90_row<cfg<__half, 0>>("128x128"),
    {},
};
