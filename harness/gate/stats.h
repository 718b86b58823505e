/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h - pure statistics on double[]; no I/O, no clock.
 */
#ifndef HARNESS_STATS_H
#define HARNESS_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stats_interval {
  double lo, hi;
};

/* ---- one set of samples (stats.c) ------------------------------------------------------------ */

/* All return NaN for n == 0; the input is not changed. */
double stats_median(const double *x, size_t n);
double stats_min(const double *x, size_t n);
double stats_quantile(const double *x, size_t n, double q); /* linear interpolation (type 7) */
double stats_median_of(double *scratch, size_t n);          /* the same median; reorders scratch */

/* 95 % percentile-bootstrap interval of the median; of one process's samples. NaN below
 * STATS_LEAST samples: even their whole range covers the median less often (1 - 2^(1-n)). The
 * resampling is seeded: same samples, same interval. */
#define STATS_LEAST 6
struct stats_interval stats_median_interval(const double *x, size_t n, uint64_t seed);
/* Likewise of quantile q. NaN where even the whole range covers it in less than 95 % of cases,
 * which is below 299 samples for q = 0.99, and for the median below STATS_LEAST. */
struct stats_interval stats_quantile_interval(const double *x, size_t n, double q, uint64_t seed);

/* The same, hierarchical (Kalibera & Jones, ISMM'13): the samples of process p are x[start[p]] to
 * x[start[p+1]-1]; resamples processes, then samples inside; the statistic is the median of the
 * processes' medians. With one process it is stats_median_interval; two have none; with fewer than
 * STATS_LEAST the interval is moved apart by what a bootstrap of so few lacks. */
struct stats_interval stats_process_interval(const double *x, const size_t *start, size_t processes,
                                             uint64_t seed);
double stats_process_median(const double *x, const size_t *start, size_t processes);

/* ---- distributions and tests (stats-test.c) -------------------------------------------------- */

double stats_normal_quantile(double p);
double stats_t_quantile(double p, double dof);

/* Two-sided p of the Wilcoxon-Mann-Whitney rank sum, exact with ties up to 64 values in all,
 * normal with continuity beyond. *least (may be NULL): the smallest that these sizes can give. NaN
 * if a side is empty. */
double stats_rank_sum(const double *a, size_t na, const double *b, size_t nb, double *least);
/* The same for pairs: Wilcoxon's signed ranks of their differences; zero differences carry none. */
double stats_signed_rank(const double *d, size_t n, double *least);

/* Benjamini and Hochberg (1995): q[i] <= x for the hypotheses whose expected share of false ones is
 * at most x. A NaN p is no hypothesis, and its q is NaN. */
void stats_benjamini_hochberg(const double *p, size_t n, double *q);

/* ---- two sets of samples (stats-effect.c) ---------------------------------------------------- */

/* Positive samples by process. */
struct stats_units {
  const double *x;
  const size_t *start; /* processes + 1 offsets */
  size_t processes;
};

struct stats_effect {
  double ratio;             /* b over a: Hodges and Lehmann's shift of the log medians */
  struct stats_interval ci; /* 95 % of the ratio: hierarchical bootstrap, widened for few units */
  double p, p_least;        /* rank test on the units, and the smallest p that they can give */
  double se, dof;           /* of log ratio */
  bool by_sample;           /* one process on a side: the unit is the sample */
};

/* The unit is the process (its median), or the sample where a side has only one process. Paired:
 * process i of a ran with process i of b (equal numbers). All NaN if a side has no samples. */
struct stats_effect stats_effect(const struct stats_units *a, const struct stats_units *b,
                                 bool paired, uint64_t seed);

/* Minimum detectable effect: the relative change that is both significant at level alpha and
 * estimated beyond threshold in four of five repetitions. */
double stats_mde(const struct stats_effect *e, double alpha, double threshold);

/* What |log ratio| stays below in 99 of 100 comparisons of a thing with itself, from n such log
 * ratios: their largest, or the normal quantile by their root mean square, whichever is more. */
double stats_floor(const double *log_ratio, size_t n);

/* ---- series (stats-change.c) ----------------------------------------------------------------- */

#define STATS_SERIES 512

/* Change points of a series by E-divisive (Matteson & James, 2014), permutation test at the level
 * given: at[k] is the first index of a new regime. Changes of the medians by less than magnitude
 * are not reported. n <= STATS_SERIES; returns how many; at holds n. */
size_t stats_changes(const double *x, size_t n, double level, double magnitude, uint64_t seed,
                     size_t *at);

#endif
