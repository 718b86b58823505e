/* SPDX-License-Identifier: Apache-2.0
 *
 * split-decode.h - the merge of results over parts of the keys.
 *
 * A partial result is O and LSE over some of a row's keys; O = sum of exp(LSE_s - LSE) O_s and LSE
 * = ln sum of exp(LSE_s) are then exact.  A part without keys (LSE_s = -inf) has no weight: merging
 * only such gives (0, -inf), and merging one other with them gives that one, bit for bit.
 */
#ifndef IMPL_CPU_SPLIT_DECODE_H
#define IMPL_CPU_SPLIT_DECODE_H

#include <stdint.h>

/* First for every part: top[r] = max(top[r], lse[r]); top starts at -inf. */
void attn_merge_top(float *top, const float *lse, int64_t n);
/* Then for every part, in the same order: o, sum (both start at 0) += weight * (part, 1). Rows of o
 * and part are ld floats apart, dv long. */
void attn_merge_add(float *o, float *sum, const float *top, const float *part, const float *lse,
                    int64_t n, int64_t ld, int64_t dv);
/* Last: o /= sum, top becomes LSE. */
void attn_merge_end(float *o, const float *sum, float *top, int64_t n, int64_t ld, int64_t dv);

#endif
