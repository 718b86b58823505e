/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c - from the tallies of the tensors to one verdict.
 */
#include "config.h"

#include "impl/convert.h"
#include "reference/internal.h"

static const char *const tensor_name[REF_TENSORS] = {"o", "lse", "dq", "dk", "dv"};

void ref_conclude_of(const struct ref_tally *tally, const char *const *names, int n, int lse,
                     struct ref_verdict *v)
{
  int worst = -1;

  v->pass = true;
  v->bound_ratio = v->lse_bound_ratio = v->max_ulp = v->rel_fro = NAN;
  for (int k = 0; k < n; k++) {
    const struct ref_tally *t = &tally[k];
    if (t->ratio < 0)
      continue;
    if (!(t->ratio <= 1))
      v->pass = false;
    if (worst < 0 || t->ratio > tally[worst].ratio)
      worst = k;
    if (k == lse) {
      v->lse_bound_ratio = t->ratio;
      continue;
    }
    v->bound_ratio = fmax(v->bound_ratio, t->ratio);
    v->max_ulp = fmax(v->max_ulp, t->ulp);
    v->rel_fro = fmax(v->rel_fro, t->err2 > 0 ? sqrt(t->err2 / t->ref2) : 0);
  }
  if (worst >= 0) {
    const struct ref_tally *t = &tally[worst];
    v->worst = (struct ref_worst){names[worst], t->seq, t->row,  t->head,
                                  t->col,       t->got, t->want, t->bound};
  }
}

void ref_conclude(const struct ref_tally tally[REF_TENSORS], struct ref_verdict *v)
{
  ref_conclude_of(tally, tensor_name, REF_TENSORS, REF_LSE, v);
}
