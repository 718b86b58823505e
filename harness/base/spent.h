/* SPDX-License-Identifier: Apache-2.0
 *
 * spent.h - where the wall time of a run goes. One purpose at a time; the struct lives in memory
 * that parent and worker share, and whoever of the two is at work enters the next purpose, so that
 * the parts add up to the whole.
 */
#ifndef HARNESS_SPENT_H
#define HARNESS_SPENT_H

#include <stddef.h>

enum spent_on {
  SPENT_REST,     /* what has no name: plans, records, the end of a worker */
  SPENT_KERNELS,  /* timed runs, as their clocks say, and warm-up */
  SPENT_CHECKS,   /* verdicts, laws, and what surrounds a timed run to look at its output */
  SPENT_PAUSES,   /* that the rested mode and random gaps require */
  SPENT_TIMING,   /* a timed sample apart from its run and its pause: emptying the cache, clocks */
  SPENT_COUNTERS, /* counted and traced runs */
  SPENT_INPUTS,   /* buffers, and random numbers in them */
  SPENT_CEILINGS, /* what the device does at best */
  SPENT_START,    /* processes, devices, libraries */
  SPENT_LOST,     /* in workers that hung or died */
  SPENT_KINDS
};

struct spent {
  double s[SPENT_KINDS];
  enum spent_on now;
  double since; /* 0: not begun */
};

/* Ends the present purpose, begins another and returns the one that ended. NULL does nothing. */
enum spent_on spent_enter(struct spent *t, enum spent_on next);
/* So many seconds of what has just been spent on the present purpose were for another. */
void spent_move(struct spent *t, enum spent_on to, double seconds);
/* All parts up to now. */
double spent_total(const struct spent *t);
/* The part that was neither kernels nor checks nor required pauses; NaN: nothing was spent. */
double spent_overhead(const struct spent *t);
/* One line: "wall 12.3 s: kernels 40.1 %, ...; overhead 9.9 % (counters 5.0 %, ...)". */
void spent_print(const struct spent *t, char *buf, size_t len);

#endif
