/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-sm90.cu - cuda/decode: many queries of a KV head, on Hopper.
 */
#include "config.h"

#include "impl/cuda/decode/decode-wide.cuh"

const struct decode_kernel attn_decode_sm90[] = {
    WIDE_FORMS(bf16, __nv_bfloat16, 64, 6),
    WIDE_FORMS(fp16, __half, 64, 6),
    WIDE_FORMS(bf16, __nv_bfloat16, 128, 3),
    WIDE_FORMS(fp16, __half, 128, 3),
    {},
};
