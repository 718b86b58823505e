/* SPDX-License-Identifier: Apache-2.0
 *
 * Change points: none where nothing changed, the right one where something did, creep included.
 */
#include "config.h"

#include "harness/gate/history.h"
#include "tests/tap.h"
#include "tests/unit/simulate.h"

static void quiet_series(void)
{
  int alarmed = 0;
  size_t at[STATS_SERIES];
  for (uint64_t t = 0; t < 200; t++) {
    double x[40];
    for (uint64_t i = 0; i < 40; i++)
      x[i] = 0.003 * simulate_normal(t, i);
    alarmed += stats_changes(x, 40, 0.005, 0, t, at) > 0;
  }
  ok(alarmed <= 5, "nothing changed: %d of 200 series have a change point at level 0.005", alarmed);
}

static void one_step(void)
{
  int found = 0, exact = 0;
  for (uint64_t t = 0; t < 100; t++) {
    double x[30];
    size_t at[30], n;
    for (uint64_t i = 0; i < 30; i++)
      x[i] = (i < 18 ? 0 : 0.02) + 0.003 * simulate_normal(300 + t, i);
    n = stats_changes(x, 30, 0.005, 0.005, t, at);
    found += n == 1 && at[0] >= 17 && at[0] <= 19;
    exact += n == 1 && at[0] == 18;
  }
  ok(found >= 97, "a step of 2 %% is found to within one point in %d of 100", found);
  ok(exact >= 90, "and exactly in %d", exact);
}

/* How many of 50 clear steps in the middle of n points are found. */
static int found_of(size_t n)
{
  int found = 0;
  size_t at[STATS_SERIES];
  for (uint64_t t = 0; t < 50; t++) {
    double x[STATS_SERIES];
    for (uint64_t i = 0; i < n; i++)
      x[i] = (i < n / 2 ? 0 : 0.5) + 0.003 * simulate_normal(700 + t, i);
    found += stats_changes(x, n, 0.005, 0.005, t, at) > 0;
  }
  return found;
}

static void fewest(void)
{
  int enough = found_of(HISTORY_FEWEST), few = found_of(HISTORY_FEWEST - 4);
  ok(enough >= 40, "%d of 50 clear steps are found in the fewest points", enough);
  ok(few == 0, "and none (%d) in four points less", few);
}

static void shapes(void)
{
  double x[60], flat[10] = {0};
  size_t at[60];
  for (uint64_t i = 0; i < 60; i++)
    x[i] = (i < 20 ? 0 : i < 40 ? 0.03 : 0.01) + 0.002 * simulate_normal(9, i);
  ok(stats_changes(x, 60, 0.005, 0.005, 1, at) == 2 && at[0] == 20 && at[1] == 40,
     "up by 3 %% at 20, down by 2 %% at 40");
  ok(stats_changes(x, 60, 0.005, 0.025, 1, at) <= 1, "a magnitude of 2.5 %% leaves at most one");
  for (uint64_t i = 0; i < 60; i++)
    x[i] = 0.001 * (double)i + 0.003 * simulate_normal(10, i);
  ok(stats_changes(x, 60, 0.005, 0.005, 1, at) >= 1, "a creep of 0.1 %% a step is found");
  for (uint64_t i = 0; i < 30; i++)
    x[i] = (i == 15 ? 0.1 : 0) + 0.002 * simulate_normal(12, i);
  ok(stats_changes(x, 30, 0.005, 0.005, 1, at) == 0, "one outlier is no change");
  ok(stats_changes(flat, 10, 0.005, 0, 1, at) == 0, "a constant has none");
  flat[8] = flat[9] = 1;
  ok(stats_changes(flat, 3, 0.005, 0, 1, at) == 0, "three points have none");
}

int main(void)
{
  quiet_series();
  one_step();
  fewest();
  shapes();
  return done_testing();
}
