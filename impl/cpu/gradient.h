/* SPDX-License-Identifier: Apache-2.0
 *
 * gradient.h - the linear passes that every backward has: D = rowsum(dO o O) before the products,
 * sums of partial dQ, dK and dV after them.
 */
#ifndef IMPL_CPU_GRADIENT_H
#define IMPL_CPU_GRADIENT_H

#include "impl/cpu/plan.h"

/* Where partial results lie in the workspace. Rows of query head h: h * total_q + row, or
 * h * total_k + row, sequences one after the other. */
struct attn_gradient {
  struct attn_plan *plan;
  const struct attn_args *args;
  float *delta;           /* (hq, total_q) */
  float *dq_sum;          /* (splits, hq, total_q, d), or NULL: dQ needs no sums */
  float *dk_sum, *dv_sum; /* (hq, total_k, d|dv), or NULL: each KV head has one query head */
};

/* Parts that backward cuts the keys of a sequence into, each with dQ sums of its own; 0 forward.
 * From the problem alone, so that the bits do not depend on the number of cores. */
int64_t attn_gradient_splits(const struct attn_problem *p);

/* Floats of each, and where they begin: lays them out in the workspace. splits 0: no dq_sum. */
size_t attn_gradient_floats(const struct attn_problem *p, int64_t splits);
void attn_gradient_layout(struct attn_gradient *g, int64_t splits, float *at);

float *attn_delta_of(const struct attn_gradient *g, const struct attn_task *task);
struct attn_view attn_dq_sum_of(const struct attn_gradient *g, const struct attn_task *task,
                                int64_t split);

/* delta, and zeroes into dq_sum */
int attn_gradient_begin(struct attn_gradient *g, struct attn_machine *m);
/* dQ from dq_sum, dK and dV from dk_sum and dv_sum */
int attn_gradient_end(struct attn_gradient *g, struct attn_machine *m);

/* Ends a tile of keys of query head task->h: dk (unscaled) and dv to HBM or to their sums. */
void attn_gradient_keys(struct attn_core *core, const struct attn_gradient *g,
                        const struct attn_task *task, int64_t j, int64_t nj, float *dk,
                        const float *dv);

/* Bytes of all of these; splits as above. */
void attn_gradient_traffic(const struct attn_problem *p, int64_t splits, int64_t stream,
                           struct attn_traffic *t);
/* Bytes that attn_gradient_keys writes for a key. */
double attn_gradient_key_bytes(const struct attn_problem *p);

#endif
