/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d128.cu - cuda/decode: head dims up to 128.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d128[] = {
    DECODE_FORMS(bf16, bf16, 128, 8, 4, 3, 2),
    DECODE_FORMS(bf16, bf16, 128, 8, 8, 3, 1),
    DECODE_FORMS(fp16, fp16, 128, 8, 4, 3, 2),
    DECODE_FORMS(fp16, fp16, 128, 8, 8, 3, 1),
    DECODE_FORMS(bf16, bf16, 128, 16, 8, 3, 1),
    DECODE_FORMS(fp16, fp16, 128, 16, 8, 3, 1),
    decode_variant<bf16, bf16, 128, 32, 8, 3, 1>(),
    decode_variant<fp16, fp16, 128, 32, 8, 3, 1>(),
    {},
};
