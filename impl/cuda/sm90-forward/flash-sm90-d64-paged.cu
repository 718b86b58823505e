/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d64-paged.cu - tile variants of the Hopper flash forward on a paged cache, for
 * head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 64, 64, 3, 128, 3, 2, 32, 160, SM90_PAGED | FLAGS>;

extern "C" const sm90_kernel attn_flash_sm90_d64_paged[] = {
    twice_row<cfg<__nv_bfloat16, SM90_TWICE>, cfg<__nv_bfloat16, 0>>("192x128-paged"),
    twice_row<cfg<__half, SM90_TWICE>, cfg<__half, 0>>("192x128-paged"),
    {},
};
