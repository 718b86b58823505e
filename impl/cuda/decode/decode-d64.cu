/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d64.cu - cuda/decode: head dims up to 64.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d64[] = {
    decode_variant<bf16, 64, 8, 4, 4, 3>(),
    decode_variant<bf16, 64, 8, 4, 4, 3, bf16, DECODE_EVEN>(),
    decode_variant<bf16, 64, 8, 4, 4, 3, bf16, DECODE_PAGED>(),
    decode_variant<fp16, 64, 8, 4, 4, 3>(),
    decode_variant<fp16, 64, 8, 4, 4, 3, fp16, DECODE_EVEN>(),
    decode_variant<fp16, 64, 8, 4, 4, 3, fp16, DECODE_PAGED>(),
    decode_variant<bf16, 64, 16, 4, 4, 3>(),
    decode_variant<fp16, 64, 16, 4, 4, 3>(),
    decode_variant<bf16, 64, 32, 4, 4, 3>(),
    decode_variant<fp16, 64, 32, 4, 4, 3>(),
    {},
};
