/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d128.cu - tile variants of the Hopper backward for head_dim 65 to 128.  Of 80
 * queries and 64, the former are faster by 2 % (16k) to 0.5 % (2k), where dQ is added in order by
 * 10 %; the latter, which waste less on the diagonal, by 3 % at 2k causal.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-split.cuh"

template <class T>
using narrow = bwd90_split<T, 128, 64, 24, 240, BWD90_EARLY | BWD90_MID>;
template <class T>
using wide = bwd90_split<T, 128, 80, 24, 240>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d128[] = {
    bwd90_split_row<narrow<__nv_bfloat16>>("64x128", BWD90_SHORT),
    bwd90_split_row<narrow<__half>>("64x128", BWD90_SHORT),
    bwd90_split_row<wide<__nv_bfloat16>>("80x128", BWD90_ALL & ~BWD90_SHORT),
    bwd90_split_row<wide<__half>>("80x128", BWD90_ALL & ~BWD90_SHORT),
    {},
};
