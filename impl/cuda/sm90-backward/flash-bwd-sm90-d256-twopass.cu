/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d256-twopass.cu - tile variants of the Hopper backward for head_dim 129 to 256:
 * two passes.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-twopass.cuh"

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d256_twopass[] = {
    bwd90_twopass_row<__nv_bfloat16>("two-passes", BWD90_ROTATED | BWD90_ORDERED),
    bwd90_twopass_row<__half>("two-passes", BWD90_ROTATED | BWD90_ORDERED),
    {},
};
