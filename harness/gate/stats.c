/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c - medians, quantiles, bootstrap intervals.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/gate/stats.h"

#define RESAMPLES 1000

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double sorted_quantile(const double *s, size_t n, double q)
{
  double at = q * (double)(n - 1);
  size_t k = (size_t)at;
  return k + 1 < n ? s[k] + (at - (double)k) * (s[k + 1] - s[k]) : s[n - 1];
}

/* Reorders x so that x[k] is what sorting would put there, with nothing greater before it. */
static double select_kth(double *x, size_t n, size_t k)
{
  size_t lo = 0, hi = n - 1;
  while (lo < hi) {
    double pivot = x[lo + (hi - lo) / 2];
    size_t i = lo, j = hi;
    for (;;) {
      while (x[i] < pivot)
        i++;
      while (x[j] > pivot)
        j--;
      if (i >= j)
        break;
      double t = x[i];
      x[i++] = x[j];
      x[j--] = t;
    }
    size_t cut = x[j] > pivot ? j - 1 : j;
    if (k <= cut)
      hi = cut;
    else
      lo = cut + 1;
  }
  return x[k];
}

double stats_median_of(double *scratch, size_t n)
{
  if (!n)
    return NAN;
  double upper = select_kth(scratch, n, n / 2), lower = upper;
  if (n % 2 == 0) {
    lower = scratch[0];
    for (size_t i = 1; i < n / 2; i++)
      lower = scratch[i] > lower ? scratch[i] : lower;
  }
  return lower + (upper - lower) / 2;
}

double stats_quantile(const double *x, size_t n, double q)
{
  double *s = n ? malloc(n * sizeof *s) : NULL;
  if (!s)
    return NAN;
  memcpy(s, x, n * sizeof *s);
  qsort(s, n, sizeof *s, ascending);
  q = sorted_quantile(s, n, q);
  free(s);
  return q;
}

double stats_median(const double *x, size_t n)
{
  return stats_quantile(x, n, 0.5);
}

double stats_min(const double *x, size_t n)
{
  double m = n ? x[0] : NAN;
  for (size_t i = 1; i < n; i++)
    m = x[i] < m ? x[i] : m;
  return m;
}

struct stats_interval stats_median_interval(const double *x, size_t n, uint64_t seed)
{
  const size_t start[2] = {0, n};
  return stats_process_interval(x, start, 1, seed);
}

struct stats_interval stats_quantile_interval(const double *x, size_t n, double q, uint64_t seed)
{
  struct stats_interval ci = {NAN, NAN};
  if (1 - pow(q, (double)n) - pow(1 - q, (double)n) < 0.95)
    return ci;
  double *s = malloc(n * sizeof *s), *quantiles = malloc(RESAMPLES * sizeof *quantiles);
  uint64_t draw = 0;
  for (size_t r = 0; s && quantiles && r < RESAMPLES; r++) {
    for (size_t i = 0; i < n; i++)
      s[i] = x[rng_below(seed, draw++, (uint32_t)n)];
    double at = q * (double)(n - 1), part = at - floor(at);
    double above = select_kth(s, n, (size_t)ceil(at)), below = above;
    if (part > 0)
      below = select_kth(s, (size_t)ceil(at), (size_t)at);
    quantiles[r] = part > 0 ? below + part * (above - below) : above;
  }
  if (s && quantiles) {
    qsort(quantiles, RESAMPLES, sizeof *quantiles, ascending);
    ci.lo = sorted_quantile(quantiles, RESAMPLES, 0.025);
    ci.hi = sorted_quantile(quantiles, RESAMPLES, 0.975);
  }
  free(s);
  free(quantiles);
  return ci;
}

double stats_process_median(const double *x, const size_t *start, size_t processes)
{
  double *m = processes ? malloc(processes * sizeof *m) : NULL;
  if (!m)
    return NAN;
  for (size_t p = 0; p < processes; p++)
    m[p] = stats_median(x + start[p], start[p + 1] - start[p]);
  double r = stats_median_of(m, processes);
  free(m);
  return r;
}

/* One resample: processes with replacement, then samples of each with replacement. */
static double resample(const double *x, const size_t *start, size_t processes, double *inner,
                       double *outer, uint64_t seed, uint64_t *draw)
{
  for (size_t p = 0; p < processes; p++) {
    size_t from = processes == 1 ? 0 : rng_below(seed, (*draw)++, (uint32_t)processes);
    size_t n = start[from + 1] - start[from];
    for (size_t i = 0; i < n; i++)
      inner[i] = x[start[from] + rng_below(seed, (*draw)++, (uint32_t)n)];
    outer[p] = stats_median_of(inner, n);
  }
  return stats_median_of(outer, processes);
}

/* A bootstrap of n units has (n-1)/n of the unbiased variance, and the normal's tails where
 * Student's are due (Hesterberg 2015). */
static void widen(struct stats_interval *ci, double at, double n)
{
  double by = sqrt(n / (n - 1)) * stats_t_quantile(0.975, n - 1) / stats_normal_quantile(0.975);
  if (ci->lo > 0) { /* what is positive stays so */
    ci->lo = at * pow(ci->lo / at, by);
    ci->hi = at * pow(ci->hi / at, by);
    return;
  }
  ci->lo = at + by * (ci->lo - at);
  ci->hi = at + by * (ci->hi - at);
}

struct stats_interval stats_process_interval(const double *x, const size_t *start, size_t processes,
                                             uint64_t seed)
{
  struct stats_interval ci = {NAN, NAN};
  size_t longest = 0;
  if (processes == 2 || (processes == 1 && start[1] - start[0] < STATS_LEAST))
    return ci;
  for (size_t p = 0; p < processes; p++) {
    size_t n = start[p + 1] - start[p];
    if (n == 0)
      return ci;
    longest = n > longest ? n : longest;
  }
  double *inner = malloc((longest + 1) * sizeof *inner);
  double *outer = malloc((processes + 1) * sizeof *outer);
  double *medians = malloc(RESAMPLES * sizeof *medians);
  uint64_t draw = 0;
  if (!processes || !inner || !outer || !medians)
    goto out;
  for (size_t r = 0; r < RESAMPLES; r++)
    medians[r] = resample(x, start, processes, inner, outer, seed, &draw);
  qsort(medians, RESAMPLES, sizeof *medians, ascending);
  ci.lo = sorted_quantile(medians, RESAMPLES, 0.025);
  ci.hi = sorted_quantile(medians, RESAMPLES, 0.975);
  if (processes > 1 && processes < STATS_LEAST)
    widen(&ci, stats_process_median(x, start, processes), (double)processes);
out:
  free(inner);
  free(outer);
  free(medians);
  return ci;
}
