/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.h - what is true: fp64 attention from the same rounded inputs, and the verdict.
 *
 * The reference implements reference/SEMANTICS and knows no implementation.  Host and CUDA
 * versions exist (exact.c, exact-cuda.cu) and are validated against each other; bound.h holds the
 * componentwise a-priori bound that both use, derived in reference/BOUNDS.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a verdict's worst element is. */
struct ref_worst {
  const char *tensor; /* "o", "lse", "dq", "dk", "dv"; "k", "v" of op=rope */
  int64_t seq, row, head, col;
  double got, want, bound;
};

/* op=rope: how far rotated queries are off, over some of the checked rows; else all zero. */
struct ref_rope_drift {
  double position;  /* the largest */
  double angle_max; /* between pairs as rotated and as they should be, radians */
  double angle_rms;
  double logit_rel; /* root of the sum of squared errors of q.k over that of q.k itself, among the
                       new tokens */
};

struct ref_verdict {
  bool pass;                        /* !(err <= bound) nowhere; NaN fails */
  double bound_ratio;               /* max err/bound over O (fwd), or over dQ, dK, dV (bwd) */
  double lse_bound_ratio;           /* max err/bound over LSE; NaN where LSE is not an output */
  double max_ulp;                   /* of the storage type, at max(|want|, sum w|v|) scale; dQ and
                                       dK: sum scale P (|dP| + |D|) |k| for sum w|v| */
  double rel_fro;                   /* ||got - want|| / ||want|| over the checked elements, of the
                                       worst of the tensors */
  int64_t checked_rows, total_rows; /* rows of (seq, head, position) that were compared */
  struct ref_rope_drift drift;
  struct ref_worst worst; /* of the largest ratio, or the first non-finite */
};

/* How much to check. All rows when rows_max is 0 or not smaller than their number, otherwise
 * rows_max of them: the first and last of each sequence, tile edges, and random ones from seed. */
struct ref_plan {
  int64_t rows_max;
  uint64_t seed;
};

/* Compares the outputs in got (fwd: o, lse; bwd: dq, dk, dv) with the truth for the inputs in got
 * (bwd: q, k, v, dout, and o and lse as given to the implementation). Host pointers. */
int ref_verify_host(const struct attn_problem *p, const struct attn_numerics *num,
                    const struct attn_args *got, const struct ref_plan *plan,
                    struct ref_verdict *v);

/* How to read tensors that are not in host memory. */
struct ref_source {
  int (*read)(void *ctx, void *to, const void *from, size_t bytes);
  void *ctx;
};

/* op=rope: compares o with the rotated q, and the new tokens of k and v with the rotated k_new and
 * with v_new. source: how to read them, NULL for host pointers; a block table is a host pointer
 * always. What else is in the cache is the caller's to compare. */
int ref_verify_rope(const struct attn_problem *p, const struct attn_numerics *num,
                    const struct attn_args *got, const struct ref_plan *plan,
                    const struct ref_source *source, struct ref_verdict *v);

/* One row of d elements, exactly rotated, in a sequence whose cache holds sk tokens. */
int ref_rope_row(const struct attn_problem *p, int64_t sk, int64_t position, const double *x,
                 double *y);

/* Fills o (rounded to storage) and lse for all rows: inputs of a backward run. Host pointers. */
int ref_forward_host(const struct attn_problem *p, const struct attn_args *args);

/* The same on the GPU; device pointers, everything enqueued on stream and awaited. Scratch is
 * allocated and freed inside. */
int ref_verify_cuda(const struct attn_problem *p, const struct attn_numerics *num,
                    const struct attn_args *got, const struct ref_plan *plan, void *stream,
                    struct ref_verdict *v);
int ref_forward_cuda(const struct attn_problem *p, const struct attn_args *args, void *stream);

/* O not rounded, of all rows on the host: an array as the tensor, in double. */
int ref_exact_host(const struct attn_problem *p, const struct attn_args *args, double *o);

/* One row of exact forward on the host, for tests and laws: o[dv] and *lse. */
int ref_row_host(const struct attn_problem *p, const struct attn_args *args, int64_t seq,
                 int64_t head, int64_t row, double *o, double *lse);

/* Exact gradients of everything on the host, for tests: arrays as the tensors, in double. */
int ref_backward_host(const struct attn_problem *p, const struct attn_args *args, double *dq,
                      double *dk, double *dv);

#ifdef __cplusplus
}
#endif
#endif
