/* SPDX-License-Identifier: Apache-2.0
 *
 * materialise.h - passes over score matrices that lie in HBM, for the implementations that write
 * them there.
 *
 * A matrix has one block for each sequence and query head, (seqlen_k, seqlen_q) in fp32: transposed
 * as the tiles are.
 */
#ifndef IMPL_CPU_MATERIALISE_H
#define IMPL_CPU_MATERIALISE_H

#include "impl/cpu/gradient.h"

struct attn_matrices {
  struct attn_gradient gradient; /* plan and args; the rest in backward */
  float *p;                      /* S, then P; with dropout in the end P dropped and scaled */
  float *dp;                     /* dP, then dS; backward only */
  float *slope;                  /* derivative of the softcap; backward with softcap only */
  bool skip;                     /* tiles that the mask empties are not visited */
};

int64_t attn_matrix_floats(const struct attn_problem *p);
/* Where rows j, queries i of the task's matrix begin; rows are seqlen_q floats apart. */
float *attn_matrix_at(const struct attn_plan *plan, float *matrix, const struct attn_task *task,
                      int64_t j, int64_t i);
/* Keys to visit for the task's tile of queries: those that it sees, or all. */
struct attn_span attn_keys_to_visit(const struct attn_matrices *x, const struct attn_task *task);

/* p = S, masked; in backward p = P, and slope */
int attn_write_scores(struct attn_matrices *x, struct attn_machine *m);
/* dp = dO V^T */
int attn_write_value_products(struct attn_matrices *x, struct attn_machine *m);
/* Bytes of one head in either pass but for LSE and slope; width is of the rows that are multiplied.
 */
void attn_products_traffic(const struct attn_problem *p, const struct attn_run *run,
                           struct attn_tiling q, bool skip, int64_t width,
                           struct attn_traffic *head);
/* Keys that all tiles of queries of a head visit together, and pairs of query and key. */
double attn_visited_keys(const struct attn_problem *p, const struct attn_run *run, int64_t max_rows,
                         bool skip, double *pairs);
/* And entries of the block table that lead there. */
double attn_visited_entries(const struct attn_problem *p, const struct attn_run *run,
                            struct attn_tiling q, bool skip);

/* dQ, dK, dV, everything by way of HBM: P, dP, dS, then the products. splits of the keys have dQ
 * sums of their own, summed in order. */
attn_footprint_of attn_materialised_backward_footprint_q, attn_materialised_backward_footprint_k;
size_t attn_materialised_backward_workspace(const struct attn_problem *p);
int attn_materialised_backward(struct attn_plan *plan, const struct attn_args *args, bool skip,
                               struct attn_machine *m);
void attn_materialised_backward_traffic(const struct attn_problem *p, struct attn_tiling q,
                                        struct attn_tiling k, int64_t splits, bool skip,
                                        struct attn_traffic *t);

/* NULL, or the line that says that the matrices are larger than the device's memory. */
const char *attn_matrices_too_large(const struct attn_problem *p, const struct attn_device *dev,
                                    size_t workspace);

#endif
