/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d128-options.cu - tile variants of the Hopper backward with softcap, ALiBi and
 * dropout, for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T, int DROP = 0>
using tile = bwd90_split<T, 128, 64, 24, 240, BWD90_EARLY | BWD90_SCORE | BWD90_FIRSTS | DROP>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d128_options[] = {
    bwd90_split_row<tile<__nv_bfloat16>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__half>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__nv_bfloat16, BWD90_DROP>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__half, BWD90_DROP>>("64x128", BWD90_ALL),
    {},
};
