/* SPDX-License-Identifier: Apache-2.0
 *
 * stats-test.c - quantiles of the normal and of Student's t, exact rank tests, false discovery.
 *
 * Rank tests are exact by counting: with few processes their null distribution is coarse, and a
 * normal approximation would promise p values that no permutation can give.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gate/stats.h"

#define EXACT 64 /* values in all; beyond, the normal is good to a part in a hundred */

static double normal_cdf(double x)
{
  return 0.5 * erfc(-x * M_SQRT1_2);
}

/* Continued fraction of the incomplete beta function, modified Lentz. */
static double beta_fraction(double a, double b, double x)
{
  const double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (fabs(d) < tiny ? tiny : d);
  double h = d;
  for (int m = 1; m <= 300; m++) {
    double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + even * d;
    c = 1 + even / c;
    d = 1 / (fabs(d) < tiny ? tiny : d);
    c = fabs(c) < tiny ? tiny : c;
    h *= d * c;
    d = 1 + odd * d;
    c = 1 + odd / c;
    d = 1 / (fabs(d) < tiny ? tiny : d);
    c = fabs(c) < tiny ? tiny : c;
    h *= d * c;
    if (fabs(d * c - 1) < 1e-15)
      break;
  }
  return h;
}

/* Regularised incomplete beta function I_x(a, b). */
static double incomplete_beta(double a, double b, double x)
{
  if (x <= 0 || x >= 1)
    return x <= 0 ? 0 : 1;
  double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
  if (x < (a + 1) / (a + b + 2))
    return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

static double t_cdf(double t, double dof)
{
  double tail = 0.5 * incomplete_beta(dof / 2, 0.5, dof / (dof + t * t));
  return t < 0 ? tail : 1 - tail;
}

/* Bisection: dof > 1e6 is the normal. */
double stats_t_quantile(double p, double dof)
{
  bool normal = dof > 1e6;
  double lo = -1, hi = 1;
  if (!(p > 0 && p < 1) || !(dof > 0))
    return NAN;
  while ((normal ? normal_cdf(lo) : t_cdf(lo, dof)) > p && lo > -1e12)
    lo *= 2;
  while ((normal ? normal_cdf(hi) : t_cdf(hi, dof)) < p && hi < 1e12)
    hi *= 2;
  for (int i = 0; i < 200 && hi - lo > 1e-12 * fabs(lo); i++) {
    double mid = (lo + hi) / 2;
    if ((normal ? normal_cdf(mid) : t_cdf(mid, dof)) < p)
      lo = mid;
    else
      hi = mid;
  }
  return (lo + hi) / 2;
}

double stats_normal_quantile(double p)
{
  return stats_t_quantile(p, INFINITY);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

struct ranked {
  double x;
  size_t from;
};

static int by_value(const void *a, const void *b)
{
  double x = ((const struct ranked *)a)->x, y = ((const struct ranked *)b)->x;
  return (x > y) - (x < y);
}

/* Doubled midranks, so that ties are whole numbers too; returns the sum of t^3 - t over ties. */
static double midranks(struct ranked *r, size_t n, size_t *rank)
{
  double ties = 0;
  qsort(r, n, sizeof *r, by_value);
  for (size_t i = 0, j; i < n; i = j) {
    for (j = i + 1; j < n && r[j].x == r[i].x; j++)
      ;
    double t = (double)(j - i);
    ties += t * t * t - t;
    for (size_t k = i; k < j; k++)
      rank[r[k].from] = i + j + 1;
  }
  return ties;
}

/* P(|sum - mean| >= |seen - mean|) from counts by sum; and the same at the most extreme sum. */
static double two_sided(const double *count, size_t most, double mean, double seen, double *least)
{
  double all = 0, beyond = 0, edge = 0, far = 0;
  for (size_t s = 0; s <= most; s++) {
    double off = fabs((double)s - mean);
    if (count[s] == 0)
      continue;
    all += count[s];
    beyond += off >= fabs(seen - mean) - 1e-9 ? count[s] : 0;
    edge = off > far + 1e-9 ? count[s] : fabs(off - far) <= 1e-9 ? edge + count[s] : edge;
    far = off > far ? off : far;
  }
  if (least)
    *least = edge / all;
  return beyond / all;
}

static double normal_two_sided(double off, double variance, double *least)
{
  double z = (fabs(off) - 1) / sqrt(variance); /* doubled ranks: half a rank is 1 */
  if (least)
    *least = 0;
  return variance > 0 && z > 0 ? 2 * normal_cdf(-z) : 1;
}

/* How many of the subsets of na ranks have each sum. */
static double rank_sum_exact(const size_t *rank, size_t na, size_t n, double seen, double *least)
{
  size_t most = n * (n + 1);
  double mean = (double)na * (double)(n + 1), p = NAN;
  double *count = calloc((na + 1) * (most + 1), sizeof *count);
  if (!count)
    return NAN;
  count[0] = 1;
  for (size_t i = 0; i < n; i++)
    for (size_t k = i + 1 < na ? i + 1 : na; k > 0; k--)
      for (size_t s = rank[i]; s <= most; s++)
        count[k * (most + 1) + s] += count[(k - 1) * (most + 1) + s - rank[i]];
  p = two_sided(count + na * (most + 1), most, mean, seen, least);
  free(count);
  return p;
}

double stats_rank_sum(const double *a, size_t na, const double *b, size_t nb, double *least)
{
  size_t n = na + nb;
  struct ranked *r = n ? malloc(n * sizeof *r) : NULL;
  size_t *rank = n ? malloc(n * sizeof *rank) : NULL;
  double p = NAN, seen = 0;
  if (least)
    *least = NAN;
  if (!na || !nb || !r || !rank)
    goto out;
  for (size_t i = 0; i < n; i++)
    r[i] = (struct ranked){i < na ? a[i] : b[i - na], i};
  double ties = midranks(r, n, rank), N = (double)n, A = (double)na, B = (double)nb;
  for (size_t i = 0; i < na; i++)
    seen += (double)rank[i];
  if (n <= EXACT)
    p = rank_sum_exact(rank, na, n, seen, least);
  else
    p = normal_two_sided(seen - A * (N + 1), 4 * A * B / 12 * (N + 1 - ties / (N * (N - 1))),
                         least);
out:
  free(r);
  free(rank);
  return p;
}

static double signed_rank_exact(const size_t *rank, size_t n, double seen, double *least)
{
  size_t most = n * (n + 1);
  double *count = calloc(most + 1, sizeof *count), p;
  if (!count)
    return NAN;
  count[0] = 1;
  for (size_t i = 0; i < n; i++)
    for (size_t s = most; s >= rank[i]; s--)
      count[s] += count[s - rank[i]];
  p = two_sided(count, most, (double)most / 2, seen, least);
  free(count);
  return p;
}

double stats_signed_rank(const double *d, size_t n, double *least)
{
  struct ranked *r = n ? malloc(n * sizeof *r) : NULL;
  size_t *rank = n ? malloc(n * sizeof *rank) : NULL, m = 0;
  bool *up = n ? malloc(n * sizeof *up) : NULL;
  double p = NAN, seen = 0;
  if (least)
    *least = n ? 1 : NAN;
  if (!r || !rank || !up)
    goto out;
  for (size_t i = 0; i < n; i++)
    if (d[i] != 0) {
      up[m] = d[i] > 0;
      r[m] = (struct ranked){fabs(d[i]), m};
      m++;
    }
  double ties = midranks(r, m, rank), N = (double)m;
  for (size_t i = 0; i < m; i++)
    seen += up[i] ? (double)rank[i] : 0;
  if (m == 0)
    p = 1;
  else if (m <= EXACT)
    p = signed_rank_exact(rank, m, seen, least);
  else
    p = normal_two_sided(seen - N * (N + 1) / 2, N * (N + 1) * (2 * N + 1) / 6 - ties / 12, least);
out:
  free(r);
  free(rank);
  free(up);
  return p;
}

/* ---- many hypotheses ------------------------------------------------------------------------ */

void stats_benjamini_hochberg(const double *p, size_t n, double *q)
{
  struct ranked *r = n ? malloc(n * sizeof *r) : NULL;
  size_t m = 0;
  for (size_t i = 0; i < n; i++) {
    q[i] = NAN;
    if (r && !isnan(p[i]))
      r[m++] = (struct ranked){p[i], i};
  }
  double least = 1;
  if (m)
    qsort(r, m, sizeof *r, by_value);
  for (size_t k = m; k > 0; k--) {
    double x = r[k - 1].x * (double)m / (double)k;
    least = x < least ? x : least;
    q[r[k - 1].from] = least;
  }
  free(r);
}
