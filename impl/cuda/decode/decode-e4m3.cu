/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-e4m3.cu - cuda/decode: caches of e4m3.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_e4m3[] = {
    DECODE_PAGES(bf16, e4m3, 128, 8, 4, 3, 2),
    DECODE_PAGES(bf16, e4m3, 128, 8, 8, 3, 1),
    DECODE_PAGES(fp16, e4m3, 128, 8, 4, 3, 2),
    DECODE_PAGES(fp16, e4m3, 128, 8, 8, 3, 1),
    DECODE_PAGES(bf16, e4m3, 128, 16, 8, 6, 1),
    DECODE_PAGES(fp16, e4m3, 128, 16, 8, 6, 1),
    decode_variant<bf16, e4m3, 128, 32, 8, 6, 1>(),
    decode_variant<fp16, e4m3, 128, 32, 8, 6, 1>(),
    DECODE_PAGES(bf16, e4m3, 256, 8, 4, 6, 1),
    DECODE_PAGES(fp16, e4m3, 256, 8, 4, 6, 1),
    decode_variant<bf16, e4m3, 256, 16, 4, 6, 1>(),
    decode_variant<fp16, e4m3, 256, 16, 4, 6, 1>(),
    {},
};
