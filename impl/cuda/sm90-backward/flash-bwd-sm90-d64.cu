/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d64.cu - tile variants of the Hopper backward for head_dim up to 64.  Without a
 * mask 2 of 4 k-steps of V in registers are faster than 3 and 4 by 0.5 to 1 %; with one there is
 * no difference.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T>
using tile = bwd90_split<T, 64, 128, 24, 240, 0, 4>;
template <class T>
using full = bwd90_split<T, 64, 128, 24, 240, BWD90_FULL, 2>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d64[] = {
    bwd90_spread(bwd90_split_row<full<__nv_bfloat16>>("128x128-spread", BWD90_EQUAL)),
    bwd90_spread(bwd90_split_row<full<__half>>("128x128-spread", BWD90_EQUAL)),
    bwd90_split_row<full<__nv_bfloat16>>("128x128-full", BWD90_EQUAL_LONG),
    bwd90_split_row<full<__half>>("128x128-full", BWD90_EQUAL_LONG),
    bwd90_split_row<tile<__nv_bfloat16>>("128x128", BWD90_ALL & ~BWD90_UNMASKED),
    bwd90_split_row<tile<__half>>("128x128", BWD90_ALL & ~BWD90_UNMASKED),
    {},
};
