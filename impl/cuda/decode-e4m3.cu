/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-e4m3.cu - cuda/decode: caches of e4m3.
 */
#include "config.h"

#include "impl/cuda/decode-forward.cuh"

const struct decode_kernel attn_decode_e4m3[] = {
    decode_variant<bf16, 128, 8, 3, 2, e4m3>(),
    decode_variant<fp16, 128, 8, 3, 2, e4m3>(),
    decode_variant<bf16, 128, 16, 3, 2, e4m3>(),
    decode_variant<fp16, 128, 16, 3, 2, e4m3>(),
    decode_variant<bf16, 128, 32, 6, 2, e4m3>(),
    decode_variant<fp16, 128, 32, 6, 2, e4m3>(),
    decode_variant<bf16, 256, 8, 3, 1, e4m3>(),
    decode_variant<fp16, 256, 8, 3, 1, e4m3>(),
    decode_variant<bf16, 256, 16, 6, 1, e4m3>(),
    decode_variant<fp16, 256, 16, 6, 1, e4m3>(),
    {},
};
