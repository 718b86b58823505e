/* SPDX-License-Identifier: Apache-2.0
 *
 * regime.h - what inputs are like: standard normal numbers, or what real models do to them.
 */
#ifndef HARNESS_REGIME_H
#define HARNESS_REGIME_H

#include "harness/run/tensors.h"

struct regime {
  const char *name, *summary;
  /* Changes a row of n elements of one operand; at is its place in the sequence, from 0 to 1. */
  void (*change)(const struct attn_problem *p, enum operand op, double at, bool first, int64_t n,
                 float *x);
};

/* The first is normal; NULL behind the last, or where there is no such name. */
const struct regime *regime_at(int i);
const struct regime *regime_find(const char *name);

/* Turns normal numbers in an operand's dense host copy into the regime's. */
void regime_apply(const struct regime *r, struct tensors *t, enum operand op);

#endif
