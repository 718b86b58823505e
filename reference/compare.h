/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h - the verdict, element by element, for the host and for CUDA.
 *
 * An element passes iff err <= bound, written so that NaN fails.  -inf (the LSE of an empty row)
 * must match exactly.  The worst element is the one of the largest err/bound; a non-finite output
 * beats everything, and of several the first wins.
 */
#ifndef REFERENCE_COMPARE_H
#define REFERENCE_COMPARE_H

#include "reference/semantics.h"

/* The tensors of a verdict. */
enum ref_tensor { REF_O, REF_LSE, REF_DQ, REF_DK, REF_DV, REF_TENSORS };

/* What is remembered about one tensor. ratio is < 0 while nothing was compared. */
struct ref_tally {
  double ratio, got, want, bound; /* of the worst element */
  int64_t seq, head, row, col;
  double ulp;        /* largest error in units of the storage type's last place */
  double err2, ref2; /* sums of squares, for the Frobenius error */
};

REF_FN void ref_tally_start(struct ref_tally *t)
{
  t->ratio = -1;
  t->got = t->want = t->bound = 0;
  t->seq = t->head = t->row = t->col = 0;
  t->ulp = t->err2 = t->ref2 = 0;
}

/* err / bound: above 1 exactly if not err <= bound; infinity where the bound is 0 or anything is
 * NaN */
REF_FN double ref_ratio(double got, double want, double bound)
{
  double err = fabs(got - want);
  if (got == want)
    return 0;
  if (err <= bound)
    return isinf(bound) ? 0 : err / bound;
  return bound > 0 && err < INFINITY ? fmax(err / bound, 1 + 0x1p-52) : INFINITY;
}

/* The gap between neighbouring numbers of the storage type at magnitude x. */
REF_FN double ref_ulp(enum attn_dtype dtype, double x)
{
  int digits = dtype == ATTN_BF16 ? 8 : dtype == ATTN_F16 ? 11 : 24, e;
  int least = dtype == ATTN_F16 ? -24 : dtype == ATTN_BF16 ? -133 : -149;
  frexp(x, &e);
  e -= digits;
  return ldexp(1.0, e > least ? e : least);
}

/* Is element a, worse than the worst so far of b? Ties go to the earlier position. */
REF_FN bool ref_worse(const struct ref_tally *a, const struct ref_tally *b)
{
  if (a->ratio != b->ratio)
    return a->ratio > b->ratio;
  if (a->seq != b->seq)
    return a->seq < b->seq;
  if (a->head != b->head)
    return a->head < b->head;
  if (a->row != b->row)
    return a->row < b->row;
  return a->col < b->col;
}

REF_FN void ref_tally_merge(struct ref_tally *into, const struct ref_tally *t)
{
  double ulp = into->ulp > t->ulp ? into->ulp : t->ulp;
  double err2 = into->err2 + t->err2, ref2 = into->ref2 + t->ref2;
  if (ref_worse(t, into))
    *into = *t;
  into->ulp = ulp;
  into->err2 = err2;
  into->ref2 = ref2;
}

/* Compares one element; mag is the scale of its ulp. */
REF_FN void ref_tally_add(struct ref_tally *t, enum attn_dtype dtype, double got, double want,
                          double bound, double mag, int64_t seq, int64_t head, int64_t row,
                          int64_t col)
{
  struct ref_tally one = {
      ref_ratio(got, want, bound), got, want, bound, seq, head, row, col, 0, 0, 0};
  double err = fabs(got - want);
  if (got != want && err < INFINITY) {
    one.ulp = err / ref_ulp(dtype, fmax(fabs(want), mag));
    one.err2 = err * err;
  }
  if (fabs(want) < INFINITY)
    one.ref2 = want * want;
  ref_tally_merge(t, &one);
}

#endif
