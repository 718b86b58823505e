/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.h - attention of few queries over parts of the keys, and the merge of the parts' results.
 *
 * The queries of all heads that share a KV head are packed into one tile, row g*seqlen_q + i for
 * query i of the g-th head, so that K and V are read once and not once a query head; more sequences
 * may follow in the same tile where they share keys.  Each part leaves O and LSE in fp32 in the
 * workspace, and a second pass merges them; where one part is all, it writes the result itself.
 *
 * A partial result is O and LSE over some of a row's keys; O = sum of exp(LSE_s - LSE) O_s and LSE
 * = ln sum of exp(LSE_s) are then exact.  A part without keys (LSE_s = -inf) has no weight: merging
 * only such gives (0, -inf), and merging one other with them gives that one, bit for bit.
 */
#ifndef IMPL_CPU_PACKED_H
#define IMPL_CPU_PACKED_H

#include "impl/cpu/plan.h"

#define ATTN_PART 512 /* keys: partial results then cost little beside so many keys and values */

/* ---- the merge ------------------------------------------------------------------------------- */

/* First for every part: top[r] = max(top[r], lse[r]); top starts at -inf. */
void attn_merge_top(float *top, const float *lse, int64_t n);
/* Then for every part, in the same order: o, sum (both start at 0) += weight * (part, 1). Rows of o
 * and part are ld floats apart, dv long. */
void attn_merge_add(float *o, float *sum, const float *top, const float *part, const float *lse,
                    int64_t n, int64_t ld, int64_t dv);
/* Last: o /= sum, top becomes LSE. */
void attn_merge_end(float *o, const float *sum, float *top, int64_t n, int64_t ld, int64_t dv);

/* ---- a run ----------------------------------------------------------------------------------- */

struct attn_packed {
  struct attn_plan *plan; /* of attn_packed_plan */
  const struct attn_args *args;
  int64_t shared; /* parts of a prefix, which come before each sequence's own */
};

/* shapes: q (d, ld)  kv (stream, d|dv)  s (stream, ld)  o (rows, dv)  the rest (rows) */
struct attn_packed_tiles {
  int64_t rows, ld, ldk, ldv;
  float *q, *kv, *s, *o, *m, *l, *alpha;
  attn_sram_int *lo, *hi;
};

/* For len rows; rows 0 if it holds fewer than those of the longest sequence. */
struct attn_tiling attn_packed_tiling(const struct attn_problem *p, const struct attn_device *dev,
                                      int64_t len);
/* Rows that fit a tile of that tiling. */
int64_t attn_packed_rows(struct attn_tiling t);
/* NULL, or why nothing packed takes the problem. */
const char *attn_packed_unsupported(const struct attn_problem *p, const struct attn_device *dev);
/* Keys from `from` on are cut into parts of at most ATTN_PART; stream of them at a time. */
struct attn_plan *attn_packed_plan(const struct attn_problem *p, int64_t stream, int64_t from);
size_t attn_packed_workspace(const struct attn_problem *p, int64_t from, int64_t shared);

int attn_packed_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                      struct attn_packed_tiles *t);
/* The queries of a sequence to the rows from `at` on, with what they see; sequences in order. */
void attn_packed_begin(struct attn_core *core, const struct attn_packed *x,
                       const struct attn_task *task, struct attn_packed_tiles *t, int64_t at);
/* All rows meet keys span.lo to span.hi, which are those of the task. */
void attn_packed_sweep(struct attn_core *core, const struct attn_packed *x,
                       const struct attn_task *task, struct attn_packed_tiles *t,
                       struct attn_span span);
/* Keys of a part that some query of the sequence sees. */
struct attn_span attn_packed_span(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t row,
                                  int64_t rows);
/* O and LSE of a sequence, in the rows from `at` on: its part number `part`. */
void attn_packed_finish(struct attn_core *core, const struct attn_packed *x,
                        const struct attn_task *task, struct attn_packed_tiles *t, int64_t at,
                        int64_t part);

/* The passes over each sequence's own keys, and over the parts; x is complete. */
int attn_packed_run(struct attn_machine *m, struct attn_packed *x);
/* And their bytes. */
void attn_packed_traffic(const struct attn_problem *p, int64_t stream, int64_t from, int64_t shared,
                         struct attn_traffic *t);

#endif
