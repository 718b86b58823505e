/* SPDX-License-Identifier: Apache-2.0
 *
 * minimize.h - from a failing problem to a small one that still fails.
 */
#ifndef HARNESS_MINIMIZE_H
#define HARNESS_MINIMIZE_H

#include "harness/run/run.h"

#define MINIMIZE_MAX 8 /* failures that are shrunk */

/* Failures of a run, as run_options.each sees them. */
struct failures {
  int n;
  struct {
    char impl[64];
    struct attn_problem problem;
  } of[MINIMIZE_MAX];
};

void failures_collect(const struct record *r, const struct group *g, void *failures);
/* Shrinks each and prints it, with the command that repeats it. */
int failures_minimize(struct failures *f, const struct run_options *o, char *err, size_t errlen);

#endif
