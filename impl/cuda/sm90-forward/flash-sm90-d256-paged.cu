/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d256-paged.cu - tile variants of the Hopper flash forward on a paged cache, for
 * head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 256, 256, 2, 80, 2, 1, 40, 232, SM90_PAGED | FLAGS>;

extern "C" const sm90_kernel attn_flash_sm90_d256_paged[] = {
    twice_row<cfg<__nv_bfloat16, SM90_TWICE>, cfg<__nv_bfloat16, 0>>("128x80-paged"),
    twice_row<cfg<__half, SM90_TWICE>, cfg<__half, 0>>("128x80-paged"),
    {},
};
