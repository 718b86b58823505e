/* SPDX-License-Identifier: Apache-2.0
 *
 * no-tables.c - empty tables for the head dimensions that the zoo leaves out: kernels of head_dim
 * 64 are enough to plant faults in, and quick to compile.
 */
#include "impl/cuda/decode/decode.h"
#include "impl/cuda/sm80-backward/flash-bwd-sm80.h"
#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"

const struct decode_kernel attn_decode_d128[1], attn_decode_d256[1];
/* compiled for Hopper */
__attribute__((weak)) const struct decode_kernel attn_decode_sm90[1];
const struct flash_sm80_kernel attn_flash_sm80_d128[1], attn_flash_sm80_d256[1];
const struct flash_bwd_sm80_kernel attn_flash_bwd_sm80_d128[1], attn_flash_bwd_sm80_d256[1];
const struct sm90_kernel attn_flash_sm90_d128[1], attn_flash_sm90_d256[1],
    attn_flash_sm90_d128_options[1], attn_flash_sm90_d256_options[1], attn_flash_sm90_d128_paged[1],
    attn_flash_sm90_d256_paged[1];
const struct bwd90_kernel attn_flash_bwd_sm90_d128[1], attn_flash_bwd_sm90_d256[1],
    attn_flash_bwd_sm90_d256_twopass[1], attn_flash_bwd_sm90_d128_options[1],
    attn_flash_bwd_sm90_d256_options[1];
