/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-d256.cu - tile variants of the Hopper backward for head_dim 129 to 256: one pass.
 */
#include "config.h"

#include "impl/cuda/sm90-backward/flash-bwd-sm90-roles.cuh"

extern "C" const bwd90_kernel attn_flash_bwd_sm90_d256[] = {
    bwd90_spread(bwd90_roles_row<__nv_bfloat16>("one-pass-spread", BWD90_UNMASKED)),
    bwd90_spread(bwd90_roles_row<__half>("one-pass-spread", BWD90_UNMASKED)),
    bwd90_roles_row<__nv_bfloat16>("one-pass", BWD90_SHORT | BWD90_FEW | BWD90_MANY),
    bwd90_roles_row<__half>("one-pass", BWD90_SHORT | BWD90_FEW | BWD90_MANY),
    {},
};
