/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d128.cu - tile variants of the Hopper backward for head_dim 65 to 128.  Issuing dV
 * before dS is worth 0.3 to 0.8 % (b 1, 16k: 614 TF/s, not 611), and 5 % where dQ is added in order
 * under a mask (b 2, 8k, causal: 466, not 445); in order without a mask it costs 7 % (450, not
 * 483).
 */
#include "config.h"

#include "impl/cuda/flash-bwd-sm90-split.cuh"

template <class T>
using early = bwd90_split<T, 128, 64, 2, 2, 24, 240, true>;
template <class T>
using late = bwd90_split<T, 128, 64, 2, 2, 40, 232, false>;

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d128[] = {
    bwd90_split_row<early<__nv_bfloat16>>("64x128 early dV", BWD90_ALL & ~BWD90_ROTATED),
    bwd90_split_row<early<__half>>("64x128 early dV", BWD90_ALL & ~BWD90_ROTATED),
    bwd90_split_row<late<__nv_bfloat16>>("64x128", BWD90_ROTATED),
    bwd90_split_row<late<__half>>("64x128", BWD90_ROTATED),
    {},
};
