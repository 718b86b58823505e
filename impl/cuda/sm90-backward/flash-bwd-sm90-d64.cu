/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d64.cu - tile variants of the Hopper backward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T>
using tile = bwd90_split<T, 64, 128, 24, 240, 0, 4>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d64[] = {
    bwd90_split_row<tile<__nv_bfloat16>>("128x128", BWD90_ALL),
    bwd90_split_row<tile<__half>>("128x128", BWD90_ALL),
    {},
};
