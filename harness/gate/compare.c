/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c - pairs the cells of two sets and judges each quantity of each pair.
 *
 * Time is slower only if it is significant over the whole matrix and beyond both the threshold and
 * the noise floor.  Bytes, workspace and error hardly vary, so there the threshold alone decides.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gate/compare.h"

#define CLOCKS_APART 0.05     /* relative, median of all cells */
#define COUNTER_SLACK 524288. /* bytes that a GPU moves unasked in a counted range */
#define BLIND 4               /* thresholds; what sees only larger changes is not called the same */
#define SEED 1                /* of the bootstrap: the same files, the same answer */

/* ---- pairs ----------------------------------------------------------------------------------- */

static bool fails(enum record_status s)
{
  return s != STATUS_PASS && s != STATUS_SKIP;
}

static bool broken(enum record_status s)
{
  return fails(s) && s != STATUS_UNSUPPORTED && s != STATUS_OOM;
}

static void add(struct comparison *c, const struct cell *base, const struct cell *now)
{
  struct compared *p = &c->item[c->n++];
  *p = (struct compared){.base = base, .now = now};
  p->state = !base                         ? PAIR_NEW
             : !now                        ? PAIR_MISSING
             : base->status != now->status ? PAIR_CHANGED
                                           : PAIR_BOTH;
  if (p->state == PAIR_CHANGED)
    p->failing = !fails(base->status) && fails(now->status);
  if (p->state == PAIR_NEW)
    p->failing = broken(now->status);
  c->states[p->state]++;
  c->failing += p->failing;
}

/* The cell of the other side: the same, or the same case where one side has no time. */
static const struct cell *partner(const struct cells *in, const struct cell *of)
{
  for (int i = 0; i < in->n; i++)
    if (cell_same(&in->item[i], of))
      return &in->item[i];
  for (int i = 0; i < in->n; i++)
    if (cell_same_case(&in->item[i], of) && (!in->item[i].cache[0] || !of->cache[0]))
      return &in->item[i];
  return NULL;
}

static int pair_cells(struct comparison *c, const struct cells *base, const struct cells *now)
{
  c->item = calloc((size_t)(base->n + now->n), sizeof *c->item);
  if (!c->item)
    return -1;
  for (int i = 0; i < now->n; i++)
    add(c, partner(base, &now->item[i]), &now->item[i]);
  for (int i = 0; i < base->n; i++) {
    const struct cell *p = partner(now, &base->item[i]);
    if (!p || partner(base, p) != &base->item[i])
      add(c, &base->item[i], p);
  }
  return 0;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static bool both_pass(const struct compared *p)
{
  return p->state == PAIR_BOTH && p->now->status == STATUS_PASS;
}

/* The quantities that a pair has on both sides. */
static unsigned measured(const struct compared *p, unsigned asked)
{
  unsigned has = 0;
  for (int q = 0; q < QUANTITIES && both_pass(p); q++)
    if (asked >> q & 1 && isfinite(p->base->value[q]) && isfinite(p->now->value[q]))
      has |= 1u << q;
  if (has & 1u << QUANTITY_BYTES && strcmp(p->base->source, p->now->source))
    has &= ~(1u << QUANTITY_BYTES);
  return has;
}

/* Asked for, and known to somebody, but not to be compared: a gate that stays silent about these
 * would be taken for one that found nothing. */
static bool lopsided(const struct compared *p, enum quantity q, unsigned asked)
{
  return both_pass(p) && asked >> q & 1 && !(measured(p, asked) >> q & 1) &&
         (isfinite(p->base->value[q]) || isfinite(p->now->value[q]));
}

/* One clock, polled, tells little; the median over the matrix tells of a locked or a capped card.
 */
static int clocks_match(const struct comparison *c, char *err, size_t errlen)
{
  double *ratio = malloc(((size_t)c->n + 1) * sizeof *ratio), apart;
  size_t n = 0;
  for (int i = 0; ratio && i < c->n; i++) {
    const struct compared *p = &c->item[i];
    double r = both_pass(p) ? p->now->on.sm_clock_hz / p->base->on.sm_clock_hz : NAN;
    if (isfinite(r) && r > 0)
      ratio[n++] = r;
  }
  apart = n ? stats_median_of(ratio, n) - 1 : 0;
  free(ratio);
  if (fabs(apart) <= CLOCKS_APART)
    return 0;
  snprintf(
      err, errlen,
      "the GPU's clock differs by %+.1f %%, median of %zu cells; --anyway compares all the same",
      100 * apart, n);
  return -1;
}

static int conditions(struct comparison *c, const struct compare_options *o, char *err,
                      size_t errlen)
{
  int differing = 0;
  for (int i = 0; i < c->n && !differing; i++) {
    unsigned has = measured(&c->item[i], o->quantities);
    differing = has ? conditions_match(c->item[i].base, c->item[i].now, has, err, errlen) : 0;
  }
  if (!differing && o->quantities >> QUANTITY_TIME & 1)
    differing = clocks_match(c, err, errlen);
  if (!differing || !o->anyway)
    return differing;
  snprintf(c->warning, sizeof c->warning, "%.*s", (int)strcspn(err, ";"), err);
  return 0;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static size_t fewer(size_t a, size_t b)
{
  return a < b ? a : b;
}

static void measure_time(struct compared *p, const struct compare_options *o)
{
  struct finding *f = &p->of[QUANTITY_TIME];
  struct stats_units a = cell_units(p->base), b = cell_units(p->now);
  struct stats_effect e = stats_effect(&a, &b, o->paired, SEED);
  *f = (struct finding){.base = p->base->value[QUANTITY_TIME],
                        .now = p->now->value[QUANTITY_TIME],
                        .ratio = e.ratio,
                        .lo = e.ci.lo,
                        .hi = e.ci.hi,
                        .p = e.p,
                        .p_least = e.p_least,
                        .by_sample = e.by_sample};
  f->floor = o->floor ? floor_of(o->floor, p->now, fewer(a.processes, b.processes)) : NAN;
  f->mde = stats_mde(&e, 0.05, f->floor > o->threshold ? f->floor : o->threshold);
}

static void judge_time(struct finding *f, const struct compare_options *o)
{
  double line = f->floor > o->threshold ? f->floor : o->threshold;
  bool beyond = fabs(log(f->ratio)) > log1p(line), known = !f->by_sample || isfinite(f->floor);
  if (beyond && known && f->q <= o->rate)
    f->verdict = f->ratio > 1 ? VERDICT_WORSE : VERDICT_BETTER;
  else
    f->verdict = !beyond && f->mde <= BLIND * line ? VERDICT_SAME : VERDICT_AMBIGUOUS;
}

static void judge_value(struct compared *p, enum quantity q, const struct compare_options *o)
{
  static const struct finding unknown = {
      .lo = NAN, .hi = NAN, .p = NAN, .q = NAN, .mde = NAN, .floor = NAN, .p_least = NAN};
  struct finding *f = &p->of[q];
  double slack = q == QUANTITY_BYTES && !strcmp(p->now->source, "cupti") ? COUNTER_SLACK : 0;
  double line = q == QUANTITY_ERROR ? o->error_threshold : o->bytes_threshold;
  *f = unknown;
  f->base = p->base->value[q];
  f->now = p->now->value[q];
  f->ratio = f->base == f->now ? 1 : f->now / f->base;
  f->verdict = f->now > f->base * (1 + line) + slack   ? VERDICT_WORSE
               : f->base > f->now * (1 + line) + slack ? VERDICT_BETTER
                                                       : VERDICT_SAME;
}

/* Fewest processes a side with which a change of one cell among m can be significant: the smallest
 * p of n against n is 2 / C(2n, n), of n pairs 2 / 2^n. */
static size_t enough_processes(int m, const struct compare_options *o)
{
  double least = 2;
  size_t n = 0;
  do {
    n++;
    least *= o->paired ? 0.5 : (double)n / (double)(4 * n - 2);
  } while (least > o->rate / m && n < 100);
  return n;
}

/* Significance over the whole matrix, then a verdict a cell. */
static int judge_times(struct comparison *c, const struct compare_options *o)
{
  double *p = malloc(2 * ((size_t)c->n + 1) * sizeof *p);
  if (!p)
    return -1;
  double *q = p + c->n + 1;
  for (int i = 0; i < c->n; i++)
    p[i] = c->item[i].of[QUANTITY_TIME].p;
  stats_benjamini_hochberg(p, (size_t)c->n, q);
  for (int i = 0; i < c->n; i++) {
    struct finding *f = &c->item[i].of[QUANTITY_TIME];
    f->q = q[i];
    if (isnan(f->p))
      continue;
    judge_time(f, o);
    c->judged++;
    c->by_sample = c->by_sample || f->by_sample;
  }
  free(p);
  c->enough = c->judged ? enough_processes(o->screen ? 1 : c->judged, o) : 0;
  return 0;
}

static int judge(struct comparison *c, const struct compare_options *o)
{
  for (int i = 0; i < c->n; i++) {
    struct compared *p = &c->item[i];
    unsigned has = measured(p, o->quantities);
    p->of[QUANTITY_TIME].p = NAN;
    if (has >> QUANTITY_TIME & 1) {
      size_t n = fewer(p->base->processes, p->now->processes);
      c->processes = c->processes ? fewer(c->processes, n) : n;
      measure_time(p, o);
    }
    for (enum quantity q = QUANTITY_BYTES; q < QUANTITIES; q++)
      if (has >> q & 1)
        judge_value(p, q, o);
  }
  if (judge_times(c, o))
    return -1;
  for (int i = 0; i < c->n; i++)
    for (int q = 0; q < QUANTITIES; q++) {
      c->verdicts[q][c->item[i].of[q].verdict]++;
      c->lopsided[q] += lopsided(&c->item[i], q, o->quantities);
    }
  return 0;
}

int compare_cells(const struct cells *base, const struct cells *now,
                  const struct compare_options *o, struct comparison *c, char *err, size_t errlen)
{
  *c = (struct comparison){0};
  snprintf(err, errlen, "out of memory");
  if (pair_cells(c, base, now))
    return -1;
  if (!c->states[PAIR_BOTH] && !c->states[PAIR_CHANGED]) {
    snprintf(err, errlen, "%.200s and %.200s have no case in common", base->file, now->file);
    return -1;
  }
  return conditions(c, o, err, errlen) || judge(c, o) ? -1 : 0;
}

void comparison_free(struct comparison *c)
{
  free(c->item);
  *c = (struct comparison){0};
}

bool comparison_well(const struct comparison *c)
{
  int worse = c->failing;
  for (int q = 0; q < QUANTITIES; q++)
    worse += c->verdicts[q][VERDICT_WORSE];
  return worse == 0;
}
