/* SPDX-License-Identifier: Apache-2.0
 *
 * stats-effect.c - two sets of samples: how much they differ, how sure that is, and what could have
 * been seen.
 *
 * Everything is done on logarithms, so that a ratio and its inverse are treated alike.  The unit of
 * replication is the process: its iterations share whatever made it fast or slow, and pooling them
 * calls up to 70 % of comparisons of a program with itself significant.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/gate/stats.h"

#define RESAMPLES 1000
#define MEDIAN_EFFICIENCY 1.2533 /* sd of a median over that of a mean, normal samples */
#define SHIFT_EFFICIENCY 1.0233  /* the same of Hodges and Lehmann's shift */
#define PAIRWISE 1024            /* values up to which all pairs are formed */

/* Scratch of one comparison, all of it logarithms. */
struct work {
  const struct stats_units *side[2];
  double *unit[2]; /* medians of the processes, or the samples */
  size_t n[2];
  double *inner, *pairs, *shifts; /* one process's samples, all pairs, the resampled shifts */
  bool by_sample, paired;
  uint64_t seed, draw;
};

static double median_log(const double *x, size_t n, double *scratch)
{
  memcpy(scratch, x, n * sizeof *x);
  return log(stats_median_of(scratch, n));
}

static size_t samples_of(const struct stats_units *u)
{
  return u->processes ? u->start[u->processes] - u->start[0] : 0;
}

static void fill_units(struct work *w)
{
  for (int s = 0; s < 2; s++) {
    const struct stats_units *u = w->side[s];
    w->n[s] = w->by_sample ? samples_of(u) : u->processes;
    for (size_t i = 0; i < w->n[s]; i++)
      w->unit[s][i] = w->by_sample
                          ? log(u->x[u->start[0] + i])
                          : median_log(u->x + u->start[i], u->start[i + 1] - u->start[i], w->inner);
  }
}

/* Median of all differences, or of all means of two differences (Walsh averages) if paired. */
static double shift(struct work *w, double *a, double *b)
{
  size_t n = 0;
  if (w->paired) {
    for (size_t i = 0; i < w->n[0]; i++)
      for (size_t j = 0; j <= i; j++)
        w->pairs[n++] = (b[i] - a[i] + b[j] - a[j]) / 2;
    return stats_median_of(w->pairs, n);
  }
  if (w->n[0] * w->n[1] > PAIRWISE)
    return stats_median_of(b, w->n[1]) - stats_median_of(a, w->n[0]);
  for (size_t i = 0; i < w->n[0]; i++)
    for (size_t j = 0; j < w->n[1]; j++)
      w->pairs[n++] = b[j] - a[i];
  return stats_median_of(w->pairs, n);
}

static size_t below(struct work *w, size_t n)
{
  return rng_below(w->seed, w->draw++, (uint32_t)n);
}

/* One unit of a resample: process from, or any sample. */
static double redraw(struct work *w, int s, size_t from)
{
  const struct stats_units *u = w->side[s];
  if (w->by_sample)
    return log(u->x[u->start[0] + below(w, samples_of(u))]);
  const double *x = u->x + u->start[from];
  size_t n = u->start[from + 1] - u->start[from];
  for (size_t i = 0; i < n; i++)
    w->inner[i] = x[below(w, n)];
  return log(stats_median_of(w->inner, n));
}

static double resampled_shift(struct work *w, double *a, double *b)
{
  for (size_t i = 0; i < w->n[0]; i++) {
    size_t from = w->by_sample ? 0 : below(w, w->n[0]);
    a[i] = redraw(w, 0, from);
    if (w->paired)
      b[i] = redraw(w, 1, from);
  }
  for (size_t i = 0; i < w->n[1] && !w->paired; i++)
    b[i] = redraw(w, 1, w->by_sample ? 0 : below(w, w->n[1]));
  return shift(w, a, b);
}

/* Percentiles of the resampled shifts, moved away from the estimate by what a bootstrap of n units
 * lacks (Hesterberg 2015): its variance is (n-1)/n of the unbiased one, and its tails are the
 * normal's where Student's are due. */
static struct stats_interval interval(struct work *w, double at, double dof)
{
  size_t least = w->n[0] < w->n[1] ? w->n[0] : w->n[1];
  struct stats_interval ci = {NAN, NAN};
  double *a = malloc(w->n[0] * sizeof *a), *b = malloc(w->n[1] * sizeof *b);
  if (a && b && least > 1) {
    double n = (double)least, widen = sqrt(n / (n - 1)) * stats_t_quantile(0.975, dof) / 1.959964;
    for (size_t r = 0; r < RESAMPLES; r++)
      w->shifts[r] = resampled_shift(w, a, b);
    ci.lo = exp(at + widen * (stats_quantile(w->shifts, RESAMPLES, 0.025) - at));
    ci.hi = exp(at + widen * (stats_quantile(w->shifts, RESAMPLES, 0.975) - at));
  }
  free(a);
  free(b);
  return ci;
}

static double variance(const double *x, size_t n)
{
  double mean = 0, sum = 0;
  for (size_t i = 0; i < n; i++)
    mean += x[i] / (double)n;
  for (size_t i = 0; i < n; i++)
    sum += (x[i] - mean) * (x[i] - mean);
  return n > 1 ? sum / (double)(n - 1) : NAN;
}

/* Standard error and degrees of freedom (Welch and Satterthwaite). */
static void spread(struct work *w, struct stats_effect *e)
{
  double na = (double)w->n[0], nb = (double)w->n[1];
  double va = variance(w->unit[0], w->n[0]) / na, vb = variance(w->unit[1], w->n[1]) / nb;
  double sum = va + vb;
  e->se = sqrt(sum) * (w->n[0] * w->n[1] > PAIRWISE ? MEDIAN_EFFICIENCY : SHIFT_EFFICIENCY);
  e->dof = sum > 0 ? sum * sum / (va * va / (na - 1) + vb * vb / (nb - 1)) : na + nb - 2;
}

static void test_units(struct work *w, struct stats_effect *e)
{
  const double *a = w->unit[0], *b = w->unit[1];
  if (!w->paired) {
    spread(w, e);
    e->p = stats_rank_sum(a, w->n[0], b, w->n[1], &e->p_least);
    return;
  }
  for (size_t i = 0; i < w->n[0]; i++)
    w->pairs[i] = b[i] - a[i];
  e->se = SHIFT_EFFICIENCY * sqrt(variance(w->pairs, w->n[0]) / (double)w->n[0]);
  e->dof = (double)w->n[0] - 1;
  e->p = stats_signed_rank(w->pairs, w->n[0], &e->p_least);
}

static bool allocate(struct work *w)
{
  size_t na = samples_of(w->side[0]), nb = samples_of(w->side[1]), most = na > nb ? na : nb;
  size_t triangle = w->side[0]->processes * (w->side[0]->processes + 1) / 2;
  w->unit[0] = malloc((na + 1) * sizeof(double));
  w->unit[1] = malloc((nb + 1) * sizeof(double));
  w->inner = malloc((most + 1) * sizeof(double));
  w->pairs = malloc(((triangle > PAIRWISE ? triangle : PAIRWISE) + 1) * sizeof(double));
  w->shifts = malloc(RESAMPLES * sizeof(double));
  return na && nb && w->unit[0] && w->unit[1] && w->inner && w->pairs && w->shifts;
}

struct stats_effect stats_effect(const struct stats_units *a, const struct stats_units *b,
                                 bool paired, uint64_t seed)
{
  struct stats_effect e = {NAN, {NAN, NAN}, NAN, NAN, NAN, NAN, false};
  struct work w = {.side = {a, b}, .seed = seed};
  w.by_sample = e.by_sample = a->processes < 2 || b->processes < 2;
  w.paired = paired && !w.by_sample && a->processes == b->processes;
  if (allocate(&w)) {
    fill_units(&w);
    test_units(&w, &e);
    double at = shift(&w, w.unit[0], w.unit[1]);
    e.ratio = exp(at);
    e.ci = interval(&w, at, e.dof);
  }
  free(w.unit[0]);
  free(w.unit[1]);
  free(w.inner);
  free(w.pairs);
  free(w.shifts);
  return e;
}

double stats_mde(const struct stats_effect *e, double alpha, double threshold)
{
  if (!(e->se >= 0) || !(e->dof > 0))
    return NAN;
  if (e->p_least > alpha)
    return INFINITY;
  double four_of_five = stats_t_quantile(0.8, e->dof) * e->se;
  double significant = stats_t_quantile(1 - alpha / 2, e->dof) * e->se;
  double line = log1p(threshold);
  return expm1((significant > line ? significant : line) + four_of_five);
}

double stats_floor(const double *log_ratio, size_t n)
{
  double most = 0, squares = 0;
  if (!n)
    return NAN;
  for (size_t i = 0; i < n; i++) {
    most = fabs(log_ratio[i]) > most ? fabs(log_ratio[i]) : most;
    squares += log_ratio[i] * log_ratio[i];
  }
  double normal = stats_t_quantile(0.995, (double)n) * sqrt(squares / (double)n);
  return normal > most ? normal : most;
}
