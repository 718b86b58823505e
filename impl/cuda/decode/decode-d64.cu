/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d64.cu - cuda/decode: head dims up to 64.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d64[] = {
    DECODE_FORMS(bf16, bf16, 64, 8, 4, 6, 2),
    DECODE_FORMS(fp16, fp16, 64, 8, 4, 6, 2),
    decode_variant<bf16, bf16, 64, 16, 4, 6, 2>(),
    decode_variant<fp16, fp16, 64, 16, 4, 6, 2>(),
    decode_variant<bf16, bf16, 64, 32, 4, 6, 2>(),
    decode_variant<fp16, fp16, 64, 32, 4, 6, 2>(),
    {},
};
