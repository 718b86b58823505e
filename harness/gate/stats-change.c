/* SPDX-License-Identifier: Apache-2.0
 *
 * stats-change.c - where a series changed: E-divisive (Matteson & James, JASA 2014).
 *
 * A stretch is cut where the energy distance between its two parts is largest, if shuffling the
 * stretch rarely gives as large a one; then each part is treated alike.  Change points that move
 * the median by too little are taken out again, weakest first.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/gate/stats.h"

#define SHUFFLES 999
#define SHORTEST 2 /* points of a regime: one point is an outlier until a second agrees */

/* The largest energy statistic over all cuts of x[0..n), and the cut: n1 points before it. */
static double best_cut(const double *x, size_t n, size_t *cut)
{
  double left = 0, right = 0, between = 0, best = -INFINITY;
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++)
      right += fabs(x[i] - x[j]);
  for (size_t k = 0; k + 1 < n; k++) { /* x[k] goes from the right part to the left */
    double to_left = 0, to_right = 0;
    for (size_t j = 0; j < k; j++)
      to_left += fabs(x[k] - x[j]);
    for (size_t j = k + 1; j < n; j++)
      to_right += fabs(x[k] - x[j]);
    left += to_left;
    right -= to_right;
    between += to_right - to_left;
    size_t n1 = k + 1, n2 = n - n1;
    if (n1 < SHORTEST || n2 < SHORTEST)
      continue;
    double a = (double)n1, b = (double)n2;
    double energy = 2 * between / (a * b) - 2 * left / (a * (a - 1)) - 2 * right / (b * (b - 1));
    if (a * b / (a + b) * energy > best) {
      best = a * b / (a + b) * energy;
      *cut = n1;
    }
  }
  return best;
}

static void shuffle(double *x, size_t n, uint64_t seed, uint64_t *draw)
{
  for (size_t i = n; i > 1; i--) {
    size_t k = rng_below(seed, (*draw)++, (uint32_t)i);
    double t = x[i - 1];
    x[i - 1] = x[k];
    x[k] = t;
  }
}

/* Whether shuffled stretches reach the statistic seen in at most the given part of cases. */
static bool significant(const double *x, size_t n, double seen, double level, uint64_t seed)
{
  double mixed[STATS_SERIES];
  uint64_t draw = 0;
  size_t cut, reached = 1;
  memcpy(mixed, x, n * sizeof *x);
  for (int r = 0; r < SHUFFLES; r++) {
    shuffle(mixed, n, seed, &draw);
    reached += best_cut(mixed, n, &cut) >= seen - 1e-12 * fabs(seen);
    if ((double)reached > level * (SHUFFLES + 1))
      return false;
  }
  return true;
}

struct search {
  const double *x;
  double level;
  uint64_t seed;
  bool *cut; /* by index */
};

static void divide(const struct search *s, size_t from, size_t until)
{
  size_t n = until - from, cut = 0;
  if (n < 2 * SHORTEST)
    return;
  double seen = best_cut(s->x + from, n, &cut);
  if (!(seen > 0) || !significant(s->x + from, n, seen, s->level, rng_at(s->seed, from)))
    return;
  s->cut[from + cut] = true;
  divide(s, from, from + cut);
  divide(s, from + cut, until);
}

/* The change point between the two most similar neighbours, and by how much they differ. */
static size_t weakest(const double *x, size_t n, const size_t *at, size_t count, double *by)
{
  size_t which = 0;
  *by = INFINITY;
  for (size_t k = 0; k < count; k++) {
    size_t from = k ? at[k - 1] : 0, until = k + 1 < count ? at[k + 1] : n;
    double before = stats_median(x + from, at[k] - from);
    double moved = fabs(stats_median(x + at[k], until - at[k]) - before);
    if (moved < *by) {
      *by = moved;
      which = k;
    }
  }
  return which;
}

size_t stats_changes(const double *x, size_t n, double level, double magnitude, uint64_t seed,
                     size_t *at)
{
  bool cut[STATS_SERIES + 1] = {false};
  struct search s = {x, level, seed, cut};
  size_t count = 0;
  if (n > STATS_SERIES)
    return 0;
  divide(&s, 0, n);
  for (size_t i = 1; i < n; i++)
    if (cut[i])
      at[count++] = i;
  while (count) {
    double by;
    size_t k = weakest(x, n, at, count, &by);
    if (by >= magnitude)
      break;
    memmove(at + k, at + k + 1, (--count - k) * sizeof *at);
  }
  return count;
}
