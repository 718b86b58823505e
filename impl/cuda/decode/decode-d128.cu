/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d128.cu - cuda/decode: head dims up to 128.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d128[] = {
    decode_variant<bf16, 128, 8, 4, 3, 2>(),
    decode_variant<bf16, 128, 8, 4, 3, 2, bf16, DECODE_EVEN>(),
    decode_variant<bf16, 128, 8, 4, 3, 2, bf16, DECODE_PAGED>(),
    decode_variant<bf16, 128, 8, 8, 3, 1>(),
    decode_variant<bf16, 128, 8, 8, 3, 1, bf16, DECODE_EVEN>(),
    decode_variant<bf16, 128, 8, 8, 3, 1, bf16, DECODE_PAGED>(),
    decode_variant<fp16, 128, 8, 4, 3, 2>(),
    decode_variant<fp16, 128, 8, 4, 3, 2, fp16, DECODE_EVEN>(),
    decode_variant<fp16, 128, 8, 4, 3, 2, fp16, DECODE_PAGED>(),
    decode_variant<fp16, 128, 8, 8, 3, 1>(),
    decode_variant<fp16, 128, 8, 8, 3, 1, fp16, DECODE_EVEN>(),
    decode_variant<fp16, 128, 8, 8, 3, 1, fp16, DECODE_PAGED>(),
    decode_variant<bf16, 128, 16, 8, 3, 1>(),
    decode_variant<bf16, 128, 16, 8, 3, 1, bf16, DECODE_EVEN>(),
    decode_variant<bf16, 128, 16, 8, 3, 1, bf16, DECODE_PAGED>(),
    decode_variant<fp16, 128, 16, 8, 3, 1>(),
    decode_variant<fp16, 128, 16, 8, 3, 1, fp16, DECODE_EVEN>(),
    decode_variant<fp16, 128, 16, 8, 3, 1, fp16, DECODE_PAGED>(),
    decode_variant<bf16, 128, 32, 8, 3, 1>(),
    decode_variant<fp16, 128, 32, 8, 3, 1>(),
    {},
};
