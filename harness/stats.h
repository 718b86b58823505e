/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h - pure statistics on double[]; no I/O, no clock.
 */
#ifndef HARNESS_STATS_H
#define HARNESS_STATS_H

#include <stddef.h>
#include <stdint.h>

struct stats_interval {
  double lo, hi;
};

/* All return NaN for n == 0; the input is not changed. */
double stats_median(const double *x, size_t n);
double stats_min(const double *x, size_t n);
double stats_quantile(const double *x, size_t n, double q); /* linear interpolation (type 7) */

/* 95 % percentile-bootstrap interval of the median; of one process's samples. Degenerate (lo == hi
 * == median) for n == 1. The resampling is seeded: same samples, same interval. */
struct stats_interval stats_median_interval(const double *x, size_t n, uint64_t seed);

/* The same, hierarchical (Kalibera & Jones, ISMM'13): the samples of process p are x[start[p]] to
 * x[start[p+1]-1]; resamples processes, then samples inside; the statistic is the median of the
 * processes' medians. With one process it is stats_median_interval. */
struct stats_interval stats_process_interval(const double *x, const size_t *start, size_t processes,
                                             uint64_t seed);
double stats_process_median(const double *x, const size_t *start, size_t processes);

#endif
