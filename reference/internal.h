/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of reference/ share: the opened problem, the choice of rows, blocks
 * of exact rows and gradients on the host, and the tally of a verdict.
 */
#ifndef REFERENCE_INTERNAL_H
#define REFERENCE_INTERNAL_H

#include "impl/convert.h"
#include "reference/bound.h"
#include "reference/compare.h"
#include "reference/reference.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REF_BLOCK 8 /* targets (rows, or key columns in backward) computed together on the host */

/* ---- problem and plan (plan.c) --------------------------------------------------------------- */

struct ref_problem {
  struct ref_shape shape;
  struct ref_units units;
  struct ref_seq *seqs; /* shape.b entries */
};

/* num may be NULL; of args only the block table and the scales are looked at, which a problem that
 * has them must be given. */
int ref_open(const struct attn_problem *p, const struct attn_numerics *num,
             const struct attn_args *args, struct ref_problem *r);
void ref_close(struct ref_problem *r);

/* A row (seq, query head, query) or a column (seq, kv head, key) to be checked. */
struct ref_target {
  int32_t seq, head;
  int64_t pos;
};

/* The targets of a plan, sorted by (seq, head, pos); the caller frees. keep, if not NULL, names the
 * (seq, kv head) groups that targets may come from. */
int ref_choose(const struct ref_problem *r, const struct ref_plan *plan, bool columns,
               const bool *keep, struct ref_target **targets, int64_t *n);

/* For a backward of so many targets: where the plan takes a sample of them, keeps only those of
 * some (seq, kv head) groups, so that the forward that they need costs at most about max_pairs
 * score computations (one group at least); else all. */
void ref_limit_groups(const struct ref_problem *r, const struct ref_plan *plan, int64_t total,
                      double max_pairs, bool *keep /* b * hkv */);

/* Index of (seq, head, pos) in lse. */
int64_t ref_lse_index(const struct ref_problem *r, int64_t seq, int64_t head, int64_t pos);

/* Offset in elements of row pos of a head in a tensor. */
REF_FN int64_t ref_offset(const struct ref_shape *p, const struct attn_tensor *t, int64_t seq,
                          int64_t first, int64_t head, int64_t pos)
{
  return (p->packed ? 0 : seq * t->sb) + (first + pos) * t->ss + head * t->sh;
}

/* [1.10] likewise of a tensor of keys, which may be paged */
REF_FN int64_t ref_key_offset(const struct ref_shape *p, const struct attn_tensor *t, int64_t seq,
                              int64_t first, int64_t head, int64_t pos)
{
  if (p->page == 0)
    return ref_offset(p, t, seq, first, head, pos);
  return p->table[seq * p->table_stride + pos / p->page] * t->sb + pos % p->page * t->ss +
         head * t->sh;
}

/* Calls body(i, ctx) for 0 <= i < n on all cores; the first non-zero status wins. */
int ref_parallel(int64_t n, int (*body)(int64_t i, void *ctx), void *ctx);

/* From the tallies of n tensors to a verdict (compare.c); lse is the index of LSE, or -1. */
void ref_conclude_of(const struct ref_tally *tally, const char *const *names, int n, int lse,
                     struct ref_verdict *v);
void ref_conclude(const struct ref_tally tally[REF_TENSORS], struct ref_verdict *v);

/* x rounded once, to the nearest number of the storage type */
/* Truncated to float with the last bit set when inexact (round to odd): the rounding to storage
 * that follows is then the only one. */
static inline void ref_store(enum attn_dtype dtype, void *data, int64_t at, double x)
{
  float f = (float)x;
  if (dtype != ATTN_F32 && (double)f != x) {
    uint32_t bits = attn_bits(f);
    if (fabs((double)f) > fabs(x))
      bits--; /* the next float towards 0 */
    f = attn_float(bits | 1);
  }
  attn_store(dtype, data, at, f);
}

/* ---- rows of tensors as doubles (matrix.c) --------------------------------------------------- */

#define REF_TILE 64

/* Rows of one head of one tensor: row r is at first + r * stride, or, if paged, in slot r % page of
 * page table[r / page]; times factor. */
struct ref_matrix {
  enum attn_dtype dtype;
  const void *data;
  int64_t first, stride, rows, width;
  int64_t page, page_stride; /* page 0: not paged */
  const int32_t *table;
  double factor;
};

struct ref_matrix ref_matrix_of(const struct ref_problem *r, const struct attn_tensor *t,
                                int64_t seq, int64_t head, bool query, int64_t width);
/* [1.13] the keys, or the values, of a key head as the definition takes them */
struct ref_matrix ref_keys_of(const struct ref_problem *r, const struct attn_args *args,
                              int64_t seq, int64_t head);
struct ref_matrix ref_values_of(const struct ref_problem *r, const struct attn_args *args,
                                int64_t seq, int64_t head);
void ref_read_row(const struct ref_matrix *m, int64_t row, double *out);
/* tile[k][width] of n rows from row0, and tile[width][REF_TILE], its transpose */
void ref_read_tile(const struct ref_matrix *m, int64_t row0, int64_t n, double *tile);
void ref_read_transposed(const struct ref_matrix *m, int64_t row0, int64_t n, double *tile);
/* x . column k of a transposed tile, for the first n columns */
void ref_dots(const double *x, const double *tile, int64_t width, int64_t n, struct ref_dot *out);

/* ---- exact rows on the host (exact.c) -------------------------------------------------------- */

/* Up to REF_BLOCK rows of one (seq, kv head), computed: sums per row, O and its moments. */
struct ref_rows {
  int n;
  struct ref_row_sums sums[REF_BLOCK];
  double *o;              /* n * dv */
  struct ref_sums *terms; /* n * dv, if moments were asked for */
};

int ref_rows_compute(const struct ref_problem *r, const struct attn_args *args,
                     const struct ref_target *targets, int n, bool moments, struct ref_rows *rows);
void ref_rows_free(struct ref_rows *rows);

/* The end of the block of targets that starts at i: same seq, same kv head, size at most. */
int64_t ref_block_end(const struct ref_problem *r, const struct ref_target *t, int64_t i, int64_t n,
                      bool columns, int64_t size);

/* ---- exact gradients on the host (exact-grad.c) ---------------------------------------------- */

/* Stats of up to REF_BLOCK rows of one (seq, kv head), into the array of the stats of all rows. */
int ref_stats_compute(const struct ref_problem *r, const struct attn_args *args,
                      const struct ref_target *targets, int n, struct ref_row_stats *stats);

static inline int64_t ref_stats_index(const struct ref_problem *r, int64_t seq, int64_t head,
                                      int64_t pos)
{
  return r->shape.hq * r->seqs[seq].qfirst + head * r->seqs[seq].sq + pos;
}

/* dQ of up to REF_BLOCK rows, or dK and dV of up to REF_BLOCK columns, of one (seq, kv head). */
struct ref_grads {
  int n;
  bool columns;
  int64_t partners[REF_BLOCK]; /* terms of each sum */
  struct ref_sums *qk;         /* n * d: dQ or dK */
  struct ref_sums *v;          /* n * dv: dV; columns only */
};

int ref_grads_compute(const struct ref_problem *r, const struct attn_args *args,
                      const struct ref_row_stats *stats, const struct ref_target *targets, int n,
                      bool columns, struct ref_grads *grads);
void ref_grads_free(struct ref_grads *grads);

#ifdef __cplusplus
}
#endif
#endif
