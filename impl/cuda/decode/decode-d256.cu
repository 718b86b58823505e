/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d256.cu - cuda/decode: head dims up to 256.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d256[] = {
    decode_variant<bf16, 256, 8, 4, 3, 1>(),
    decode_variant<bf16, 256, 8, 4, 3, 1, bf16, DECODE_EVEN>(),
    decode_variant<bf16, 256, 8, 4, 3, 1, bf16, DECODE_PAGED>(),
    decode_variant<fp16, 256, 8, 4, 3, 1>(),
    decode_variant<fp16, 256, 8, 4, 3, 1, fp16, DECODE_EVEN>(),
    decode_variant<fp16, 256, 8, 4, 3, 1, fp16, DECODE_PAGED>(),
    decode_variant<bf16, 256, 16, 4, 3, 1>(),
    decode_variant<fp16, 256, 16, 4, 3, 1>(),
    {},
};
