/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate.h - made-up timings with the two variances that real ones have: between processes and
 * inside one.
 */
#ifndef TESTS_UNIT_SIMULATE_H
#define TESTS_UNIT_SIMULATE_H

#include <math.h>

#include "harness/base/rng.h"
#include "harness/gate/stats.h"

#define SIMULATE_MOST 1024

struct simulate {
  size_t processes, samples; /* samples a process */
  double between, within;    /* standard deviations, relative */
  double shift;              /* of log time */
};

struct simulated {
  double x[SIMULATE_MOST];
  size_t start[SIMULATE_MOST + 1];
  struct stats_units units;
};

static inline double simulate_normal(uint64_t seed, uint64_t i)
{
  double u = ((double)(rng_at(seed, 2 * i) >> 11) + 0.5) * 0x1p-53;
  double v = (double)(rng_at(seed, 2 * i + 1) >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Log-normal around 1 ms. common: what process p shares with process p of the other side. */
static inline void simulate(struct simulated *s, const struct simulate *o, const double *common,
                            uint64_t seed)
{
  size_t n = 0;
  for (size_t p = 0; p < o->processes; p++) {
    double here = o->shift + o->between * simulate_normal(seed, p) + (common ? common[p] : 0);
    s->start[p] = n;
    for (size_t i = 0; i < o->samples; i++, n++)
      s->x[n] = 1e-3 * exp(here + o->within * simulate_normal(~seed, n));
  }
  s->start[o->processes] = n;
  s->units = (struct stats_units){s->x, s->start, o->processes};
}

#endif
