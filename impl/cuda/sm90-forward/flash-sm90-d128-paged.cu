/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d128-paged.cu - tile variants of the Hopper flash forward on a paged cache, for
 * head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

template <class T>
using cfg = sm90_cfg<T, 128, 128, 2, 128, 3, 1, 40, 232, SM90_QREG | SM90_PAGED | SM90_GUARD>;

extern "C" const sm90_kernel attn_flash_sm90_d128_paged[] = {
    sm90_row<cfg<__nv_bfloat16>>("128x128-paged"),
    sm90_row<cfg<__half>>("128x128-paged"),
    {},
};
