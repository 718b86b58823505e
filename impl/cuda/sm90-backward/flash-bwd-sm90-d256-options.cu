/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d256-options.cu - tile variants of the Hopper backward with softcap, ALiBi and
 * dropout, for head_dim 129 to 256.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-twopass.cuh"

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d256_options[] = {
    bwd90_twopass_row<__nv_bfloat16, true, false>("two-passes", BWD90_ALL),
    bwd90_twopass_row<__half, true, false>("two-passes", BWD90_ALL),
    bwd90_twopass_row<__nv_bfloat16, true, true>("two-passes", BWD90_ALL),
    bwd90_twopass_row<__half, true, true>("two-passes", BWD90_ALL),
    {},
};
