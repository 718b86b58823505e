/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d64.cu - tile variants of the Hopper backward for head_dim up to 64.  Without a
 * mask 2 of 4 k-steps of V in registers are faster than 3 and 4 by 0.5 to 1 %; with one, 3 are as
 * fast as 4.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T, int FLAGS>
using tile = bwd90_split<T, 64, 128, 24, 240, FLAGS, FLAGS & BWD90_FULL ? 2 : 3>;
template <class T>
using spread = tile<T, BWD90_FULL | BWD90_FIRSTS>;
template <class T>
using full = tile<T, BWD90_FULL>;
template <class T>
using few = tile<T, BWD90_FIRSTS | BWD90_TWO_K>;
template <class T>
using many = tile<T, BWD90_AHEAD>;
template <class T>
using turns = tile<T, BWD90_BY_TURNS>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d64[] = {
    bwd90_spread(bwd90_split_row<spread<__nv_bfloat16>>("128x128-spread", BWD90_EQUAL_FEW)),
    bwd90_spread(bwd90_split_row<spread<__half>>("128x128-spread", BWD90_EQUAL_FEW)),
    bwd90_split_row<full<__nv_bfloat16>>("128x128-full", BWD90_EQUAL_MANY),
    bwd90_split_row<full<__half>>("128x128-full", BWD90_EQUAL_MANY),
    bwd90_split_row<few<__nv_bfloat16>>("128x128", BWD90_SHORT | BWD90_FEW),
    bwd90_split_row<few<__half>>("128x128", BWD90_SHORT | BWD90_FEW),
    bwd90_split_row<many<__nv_bfloat16>>("128x128-ahead", BWD90_MANY),
    bwd90_split_row<many<__half>>("128x128-ahead", BWD90_MANY),
    bwd90_split_row<turns<__nv_bfloat16>>("128x128-turns", BWD90_ROTATED | BWD90_ORDERED),
    bwd90_split_row<turns<__half>>("128x128-turns", BWD90_ROTATED | BWD90_ORDERED),
    {},
};
