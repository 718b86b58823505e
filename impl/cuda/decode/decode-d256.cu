/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-d256.cu - cuda/decode: head dims up to 256.
 */
#include "config.h"

#include "impl/cuda/decode/decode-forward.cuh"

const struct decode_kernel attn_decode_d256[] = {
    DECODE_FORMS(bf16, bf16, 256, 8, 4, 3, 1),
    DECODE_FORMS(fp16, fp16, 256, 8, 4, 3, 1),
    decode_variant<bf16, bf16, 256, 16, 4, 3, 1>(),
    decode_variant<fp16, fp16, 256, 16, 4, 3, 1>(),
    {},
};
