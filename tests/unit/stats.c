/* SPDX-License-Identifier: Apache-2.0
 *
 * stats: medians and quantiles against known values; coverage of the bootstrap interval; the
 * process as the unit of replication.
 */
#include "config.h"

#include <math.h>

#include "harness/base/rng.h"
#include "harness/gate/stats.h"
#include "tests/tap.h"

static double normal(uint64_t seed, uint64_t i)
{
  double sum = 0; /* Irwin-Hall: twelve uniforms have variance 1 */
  for (uint64_t k = 0; k < 12; k++)
    sum += (double)(rng_at(seed, 12 * i + k) >> 11) * 0x1p-53;
  return sum - 6;
}

static void order_statistics(void)
{
  const double odd[] = {7, 1, 3, 5, 9}, even[] = {4, 1, 3, 2};
  const double last[] = {1, 2, 3, 4, 5, 6, 7, 0};
  ok(stats_median(odd, 5) == 5, "median of odd n is the middle value");
  ok(stats_median(even, 4) == 2.5, "median of even n is the mean of the middle two");
  ok(stats_median(last, 8) == 3.5, "the last sample is sorted too");
  ok(odd[0] == 7 && odd[4] == 9, "the input is not changed");
  ok(stats_min(odd, 5) == 1 && stats_quantile(odd, 5, 1) == 9, "minimum and quantile 1");
  ok(stats_quantile(odd, 5, 0.25) == 3, "quantile 0.25 interpolates (type 7)");
  ok(isnan(stats_median(odd, 0)) && isnan(stats_min(odd, 0)), "no samples: NaN, never 0");
}

/* The 95 % interval of a median of 25 normals must cover 0 in 95 % of trials; over 400 trials the
 * binomial 99.9 % range around the bootstrap's known slight under-coverage is 0.89 to 0.985. */
static void coverage(void)
{
  int covered = 0;
  for (int t = 0; t < 400; t++) {
    double x[25];
    for (int i = 0; i < 25; i++)
      x[i] = normal(77, (uint64_t)(t * 25 + i));
    struct stats_interval ci = stats_median_interval(x, 25, (uint64_t)t);
    covered += ci.lo <= 0 && ci.hi >= 0;
  }
  diag("covered %d of 400", covered);
  ok(covered >= 356 && covered <= 394, "95%% interval covers the median in 89 to 98.5%% of trials");
}

/* With large differences between processes the interval must reflect them, not the many samples. */
static void processes(void)
{
  double x[400];
  size_t start[5] = {0, 100, 200, 300, 400};
  for (int i = 0; i < 400; i++)
    x[i] = 10 * (i / 100) + 0.01 * normal(3, (uint64_t)i);
  struct stats_interval ci = stats_process_interval(x, start, 4, 1);
  ok(ci.lo < 6 && ci.hi > 24, "interval spans the processes' spread: [%g, %g]", ci.lo, ci.hi);
  double m = stats_process_median(x, start, 4);
  ok(fabs(m - 15) < 0.1, "median of medians");
  struct stats_interval again = stats_process_interval(x, start, 4, 1);
  ok(again.lo == ci.lo && again.hi == ci.hi, "same samples, same interval");
}

/* No interval is claimed that the samples cannot support: the range of n samples covers the median
 * in 1 - 2^(1-n) of all cases, which is under 95 % below six. A few processes have one, as wide as
 * Student's t makes it: over 400 trials of three processes it covers the median in 90 % or more. */
static void few(void)
{
  double x[9];
  size_t start[4] = {0, 3, 6, 9};
  int covered = 0;
  for (size_t n = 1; n <= 6; n++) {
    for (size_t i = 0; i < n; i++)
      x[i] = 5 + normal(7, i);
    struct stats_interval ci = stats_median_interval(x, n, 1);
    ok(isnan(ci.lo) == (n < 6) && isnan(ci.hi) == (n < 6), "%zu samples: %s", n,
       n < 6 ? "no interval" : "an interval");
  }
  ok(isnan(stats_process_interval(x, start, 2, 1).lo), "two processes: no interval");
  for (uint64_t t = 0; t < 400; t++) {
    for (uint64_t i = 0; i < 9; i++)
      x[i] = 20 + normal(11, 100 * t + i / 3) + 0.1 * normal(13, 100 * t + i);
    struct stats_interval ci = stats_process_interval(x, start, 3, t);
    covered += ci.lo <= 20 && ci.hi >= 20;
  }
  diag("covered %d of 400", covered);
  ok(covered >= 360, "three processes: the interval covers the median in 90%% of trials");
}

/* Of quantile 0.9 of 60 normals, 1.2816, likewise; none where the range itself is no interval. */
static void quantile_coverage(void)
{
  int covered = 0;
  double x[400], even[] = {4, 1, 3, 2};
  for (int t = 0; t < 400; t++) {
    for (int i = 0; i < 60; i++)
      x[i] = normal(77, (uint64_t)(60 * t + i));
    struct stats_interval ci = stats_quantile_interval(x, 60, 0.9, 1);
    covered += ci.lo <= 1.2816 && ci.hi >= 1.2816;
  }
  ok(covered > 400 * 0.87 && covered < 400 * 0.99, "interval of quantile 0.9 covers it %d of 400",
     covered);
  for (int i = 0; i < 400; i++)
    x[i] = i;
  ok(isnan(stats_quantile_interval(x, 298, 0.99, 1).lo) &&
         !isnan(stats_quantile_interval(x, 299, 0.99, 1).lo),
     "299 samples have an interval of quantile 0.99, 298 have none");
  ok(isnan(stats_quantile_interval(even, 4, 0.5, 1).lo), "and 4 none of the median");
  struct stats_interval a = stats_quantile_interval(x, 25, 0.5, 3);
  struct stats_interval b = stats_median_interval(x, 25, 3);
  ok(a.lo == b.lo && a.hi == b.hi, "of quantile 0.5 it is the median's");
}

int main(void)
{
  order_statistics();
  coverage();
  quantile_coverage();
  processes();
  few();
  return done_testing();
}
