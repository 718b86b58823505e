/* SPDX-License-Identifier: Apache-2.0
 *
 * Two sets of samples: tests against published values, and simulations of what the gate promises:
 * coverage of intervals, false discoveries when nothing changed, power at the minimum detectable
 * effect.
 *
 * Simulated timings have 0.3 % between processes and as much inside, as an H200's copy kernels do.
 * Ranges around promised rates are three binomial standard deviations wide and a little more for
 * what is approximate, so each fails if the statistic is replaced by a naive one.
 */
#include "config.h"

#include <stdlib.h>

#include "tests/tap.h"
#include "tests/unit/simulate.h"

static bool near(double x, double want, double by)
{
  return fabs(x - want) <= by;
}

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median by selection is the median by sorting, ties included. */
static void selection(void)
{
  int wrong = 0;
  for (uint64_t t = 0; t < 2000; t++) {
    double x[40], sorted[40];
    size_t n = 1 + rng_below(5, t, 40);
    for (size_t i = 0; i < n; i++)
      x[i] = sorted[i] = rng_below(t, i, t % 2 ? 4 : 100000);
    qsort(sorted, n, sizeof *sorted, ascending);
    wrong += stats_median_of(x, n) != (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
  }
  ok(wrong == 0, "median by selection equals median by sorting (2000 sets)");
}

static void distributions(void)
{
  ok(near(stats_normal_quantile(0.975), 1.959964, 1e-6), "normal quantile 0.975");
  ok(near(stats_t_quantile(0.975, 1), 12.7062, 1e-3) &&
         near(stats_t_quantile(0.975, 4), 2.776445, 1e-5) &&
         near(stats_t_quantile(0.8, 18), 0.862050, 1e-5) &&
         near(stats_t_quantile(0.995, 5), 4.032143, 1e-5),
     "Student's t quantiles against tables");
  ok(isnan(stats_t_quantile(0.975, 0)), "no degrees of freedom: NaN");
}

static void ranks(void)
{
  const double low[] = {1, 2, 3, 4, 5}, high[] = {6, 7, 8, 9, 10}, d[] = {1, 2, 3, 4, 5, 6};
  const double a[] = {0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const double b[] = {1.15, 0.88, 0.90, 0.74, 1.21}; /* Hollander & Wolfe, p. 69 */
  double least;
  ok(near(stats_rank_sum(low, 5, high, 5, &least), 2.0 / 252, 1e-12) &&
         near(least, 2.0 / 252, 1e-12),
     "5 against 5, all higher: 2/252, and no p is smaller");
  ok(near(stats_rank_sum(a, 10, b, 5, NULL), 0.2544, 1e-4), "Hollander and Wolfe's example");
  ok(near(stats_rank_sum(low, 4, high, 4, NULL), 0.0286, 1e-4), "4 against 4: 0.029");
  ok(stats_rank_sum(low, 5, low, 5, NULL) == 1, "ties everywhere: p is 1");
  ok(near(stats_signed_rank(d, 6, &least), 2.0 / 64, 1e-12) && near(least, 2.0 / 64, 1e-12),
     "6 pairs, all higher: 2/64");
  double many[80], more[80];
  for (int i = 0; i < 80; i++) {
    many[i] = i;
    more[i] = i + 20.5;
  }
  ok(near(stats_rank_sum(many, 80, more, 80, NULL), 1.0698366e-6, 1e-12),
     "beyond 64 values: the normal with continuity");
  ok(isnan(stats_rank_sum(many, 0, more, 5, NULL)) && isnan(stats_signed_rank(d, 0, NULL)),
     "an empty side: NaN");
}

static void discoveries(void)
{
  const double p[] = {0.01, NAN, 0.04, 0.03, 0.005};
  double q[5];
  stats_benjamini_hochberg(p, 5, q);
  ok(near(q[4], 0.02, 1e-12) && near(q[0], 0.02, 1e-12) && near(q[3], 0.04, 1e-12) &&
         near(q[2], 0.04, 1e-12) && isnan(q[1]),
     "Benjamini-Hochberg by hand; NaN is no hypothesis");
}

/* Share of trials in which the interval holds the true ratio. */
static double coverage(size_t processes, bool paired)
{
  const int trials = 250;
  int held = 0;
  for (int t = 0; t < trials; t++) {
    struct simulate o = {processes, 15, 0.003, 0.003, 0};
    struct simulated a, b;
    double common[16];
    for (uint64_t i = 0; i < 16; i++)
      common[i] = paired ? 0.02 * simulate_normal(99 + (uint64_t)t, i) : 0;
    simulate(&a, &o, common, 1000 + 2 * (uint64_t)t);
    o.shift = 0.01;
    simulate(&b, &o, common, 1001 + 2 * (uint64_t)t);
    struct stats_effect e = stats_effect(&a.units, &b.units, paired, 7);
    held += e.ci.lo <= exp(0.01) && e.ci.hi >= exp(0.01);
  }
  return (double)held / trials;
}

static void intervals(void)
{
  double five = coverage(5, false), ten = coverage(10, false), pairs = coverage(8, true);
  ok(five >= 0.92 && five <= 0.99, "95 %% interval of 5 against 5 processes covers in %.3f", five);
  ok(ten >= 0.92 && ten <= 0.99, "of 10 against 10 in %.3f", ten);
  ok(pairs >= 0.92 && pairs <= 0.99, "of 8 pairs whose processes differ by 2 %% in %.3f", pairs);
}

/* Cell c of matrix m: 8 against 8 processes of 5 samples, shifted; p of the processes' medians, and
 * of the pooled samples. */
static double cell_p(uint64_t m, uint64_t c, double shift, bool pooled)
{
  struct simulate o = {8, 5, 0.003, 0.003, 0};
  struct simulated a, b;
  double x[2][8];
  uint64_t seed = rng_at(m, 2 * c);
  simulate(&a, &o, NULL, seed);
  o.shift = shift;
  simulate(&b, &o, NULL, seed + 1);
  for (size_t i = 0; i < 8; i++) {
    x[0][i] = stats_median(a.x + a.start[i], 5);
    x[1][i] = stats_median(b.x + b.start[i], 5);
  }
  return pooled ? stats_rank_sum(a.x, 40, b.x, 40, NULL) : stats_rank_sum(x[0], 8, x[1], 8, NULL);
}

/* 200 matrices of 40 cells in which nothing changed: how many have a discovery. */
static void nothing_changed(void)
{
  int alarmed = 0, pooled = 0;
  for (uint64_t m = 0; m < 200; m++) {
    double p[40], q[40], least = 1;
    for (uint64_t c = 0; c < 40; c++)
      p[c] = cell_p(m, c, 0, false);
    stats_benjamini_hochberg(p, 40, q);
    for (int c = 0; c < 40; c++)
      least = q[c] < least ? q[c] : least;
    alarmed += least <= 0.05;
    pooled += cell_p(m, 0, 0, true) < 0.05;
  }
  ok(alarmed <= 20, "nothing changed: %d of 200 matrices of 40 cells have a discovery (<= 10 %%)",
     alarmed);
  ok(pooled > 30, "pooled samples would have called %d of 200 cells significant", pooled);
}

/* Of 40 changed cells among 60, and the discoveries that are none. */
static void false_discoveries(void)
{
  int found = 0, wrong = 0;
  for (uint64_t m = 0; m < 40; m++) {
    double p[60], q[60];
    for (uint64_t c = 0; c < 60; c++)
      p[c] = cell_p(1000 + m, c, c < 40 ? 0.01 : 0, false);
    stats_benjamini_hochberg(p, 60, q);
    for (int c = 0; c < 60; c++) {
      found += c < 40 && q[c] <= 0.05;
      wrong += c >= 40 && q[c] <= 0.05;
    }
  }
  double share = (double)wrong / (wrong + found);
  ok(share <= 0.05, "false among discoveries: %.3f (<= 0.05)", share);
  ok(found > 1600 * 0.9, "found %d of 1600 changes of 1 %%", found);
}

/* Trials in which a change of size shift is significant and beyond the threshold. */
static double power(double shift, double threshold, double *mde)
{
  const int trials = 200;
  int found = 0;
  double sum = 0;
  for (int t = 0; t < trials; t++) {
    struct simulate o = {10, 7, 0.003, 0.003, 0};
    struct simulated a, b;
    simulate(&a, &o, NULL, 1u << 28 | 2 * (uint64_t)t);
    o.shift = log1p(shift);
    simulate(&b, &o, NULL, 1u << 28 | (2 * (uint64_t)t + 1));
    struct stats_effect e = stats_effect(&a.units, &b.units, false, 1);
    found += e.p <= 0.05 && e.ratio > 1 + threshold;
    sum += stats_mde(&e, 0.05, threshold);
  }
  *mde = sum / trials;
  return (double)found / trials;
}

static void detectable(void)
{
  double mde, at, far, none;
  power(0, 0.002, &mde);
  at = power(mde, 0.002, &none);
  ok(at >= 0.68 && at <= 0.92, "a change of the MDE (%.2f %%) is found in %.2f (0.8 promised)",
     100 * mde, at);
  far = power(2 * mde, 0.002, &none);
  ok(far >= 0.99, "of twice the MDE in %.2f", far);
  power(0, 0.02, &mde);
  ok(mde > 0.02 && mde < 0.025, "no change below the threshold is detectable (%.2f %%)", 100 * mde);
  struct stats_effect few = {.se = 0.001, .dof = 4, .p_least = 0.1};
  ok(isinf(stats_mde(&few, 0.05, 0)), "3 against 3 processes: nothing is detectable");
}

static void units(void)
{
  struct simulate o = {1, 30, 0.003, 0.003, 0};
  struct simulated a, b;
  simulate(&a, &o, NULL, 1);
  simulate(&b, &o, NULL, 2);
  struct stats_effect one = stats_effect(&a.units, &b.units, false, 1);
  ok(one.by_sample && one.ci.lo < one.ratio && one.ratio < one.ci.hi,
     "one process: the unit is the sample, and it says so");
  struct stats_effect same = stats_effect(&a.units, &a.units, false, 1);
  ok(same.ratio == 1 && same.p == 1, "a set against itself: ratio 1, p 1");
  o.processes = 6;
  simulate(&a, &o, NULL, 3);
  simulate(&b, &o, NULL, 4);
  struct stats_effect ab = stats_effect(&a.units, &b.units, false, 1);
  struct stats_effect ba = stats_effect(&b.units, &a.units, false, 1);
  ok(!ab.by_sample && near(ab.ratio * ba.ratio, 1, 1e-12) && near(ab.p, ba.p, 1e-12),
     "swapping the sides inverts the ratio");
  struct stats_units empty = {NULL, NULL, 0};
  ok(isnan(stats_effect(&empty, &b.units, false, 1).ratio), "no samples: NaN");
}

/* The floor of k comparisons of a thing with itself is passed by one more in about 1 of 100. */
static void floors(void)
{
  int beyond = 0, trials = 4000;
  for (int t = 0; t < trials; t++) {
    double r[6];
    for (uint64_t i = 0; i < 6; i++)
      r[i] = 0.004 * simulate_normal(500 + (uint64_t)t, i);
    beyond += fabs(r[5]) > stats_floor(r, 5);
  }
  ok(beyond >= 20 && beyond <= 60, "floor of 5 comparisons is passed by a sixth in %d of %d",
     beyond, trials);
  ok(isnan(stats_floor(NULL, 0)), "no comparison: NaN");
}

int main(void)
{
  selection();
  distributions();
  ranks();
  discoveries();
  intervals();
  nothing_changed();
  false_discoveries();
  detectable();
  units();
  floors();
  return done_testing();
}
