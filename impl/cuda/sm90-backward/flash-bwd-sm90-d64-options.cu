/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d64-options.cu - tile variants of the Hopper backward with softcap, ALiBi and
 * dropout, for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T, int DROP = 0>
using tile = bwd90_split<T, 64, 64, 40, 232, BWD90_SCORE | BWD90_FIRSTS | DROP>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d64_options[] = {
    bwd90_split_row<tile<__nv_bfloat16>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__half>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__nv_bfloat16, BWD90_DROP>>("64x128", BWD90_ALL),
    bwd90_split_row<tile<__half, BWD90_DROP>>("64x128", BWD90_ALL),
    {},
};
