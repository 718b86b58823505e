/* SPDX-License-Identifier: Apache-2.0
 *
 * run-merge.c - records of several processes become one: samples side by side, medians of medians.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/run/run-parts.h"
#include "harness/gate/stats.h"

struct merged {
  struct record record; /* of the first process, or of the first that failed */
  double *samples;      /* processes * GROUP_SAMPLES */
  size_t *start;
  int processes;
};

struct run_merge {
  int n, room; /* cases, processes */
  struct merged of[GROUP_CASES];
};

void group_case_reset(struct group_case *c)
{
  struct record fresh;
  record_init(&fresh);
  memcpy(fresh.run_id, c->record.run_id, sizeof fresh.run_id);
  memcpy(fresh.suite, c->record.suite, sizeof fresh.suite);
  memcpy(fresh.impl, c->record.impl, sizeof fresh.impl);
  memcpy(fresh.provenance, c->record.provenance, sizeof fresh.provenance);
  fresh.problem = c->record.problem;
  fresh.seed = c->record.seed;
  if (c->record.distribution)
    fresh.distribution = c->record.distribution;
  if (c->record.run_id[0])
    fresh.compulsory_bytes = c->record.compulsory_bytes;
  fresh.samples = c->samples;
  c->record = fresh;
  c->done = false;
}

static void append(struct merged *m, const struct group_case *c)
{
  const struct record *r = &c->record;
  memcpy(m->samples + m->start[m->processes], c->samples, (size_t)r->n * sizeof *c->samples);
  m->start[m->processes + 1] = m->start[m->processes] + (size_t)r->n;
  m->processes++;
}

struct run_merge *run_merge_begin(const struct group *g, int processes)
{
  struct run_merge *m = calloc(1, sizeof *m);
  if (!m)
    return NULL;
  m->n = g->n;
  m->room = processes;
  for (int i = 0; i < g->n; i++) {
    struct merged *x = &m->of[i];
    x->record = g->cases[i].record;
    x->samples = malloc((size_t)processes * GROUP_SAMPLES * sizeof *x->samples);
    x->start = calloc((size_t)processes + 1, sizeof *x->start);
    if (!x->samples || !x->start) {
      run_merge_free(m);
      return NULL;
    }
    append(x, &g->cases[i]);
  }
  return m;
}

void run_merge_restart(struct run_merge *m, struct group *g)
{
  for (int i = 0; i < m->n; i++) {
    bool passed = m->of[i].record.status == STATUS_PASS;
    group_case_reset(&g->cases[i]);
    g->cases[i].done = !passed;
  }
}

void run_merge_add(struct run_merge *m, const struct group *g)
{
  for (int i = 0; i < m->n; i++) {
    struct merged *x = &m->of[i];
    const struct record *r = &g->cases[i].record;
    if (x->record.status != STATUS_PASS)
      continue;
    if (r->status == STATUS_PASS) {
      append(x, &g->cases[i]);
      if (r->verdict.bound_ratio > x->record.verdict.bound_ratio)
        x->record.verdict = r->verdict;
    } else {
      x->record.status = r->status;
      memcpy(x->record.reason, r->reason, sizeof r->reason);
    }
  }
}

/* Time of the merged record: the median of the processes' medians. */
static void retime(struct merged *x)
{
  struct record *r = &x->record;
  size_t n = (size_t)x->processes;
  struct stats_interval ci = stats_process_interval(x->samples, x->start, n, 1);
  double before = r->median_s;
  r->n = (int)x->start[n];
  r->processes = x->processes;
  r->process_start = x->start;
  r->median_s = stats_process_median(x->samples, x->start, n);
  r->min_s = stats_min(x->samples, x->start[n]);
  r->ci_lo_s = ci.lo;
  r->ci_hi_s = ci.hi;
  r->tflops *= before / r->median_s;
  r->gbps *= before / r->median_s;
  r->of_matmul *= before / r->median_s;
  r->of_copy *= before / r->median_s;
}

void run_merge_end(struct run_merge *m, struct group *g)
{
  for (int i = 0; i < m->n; i++) {
    struct merged *x = &m->of[i];
    if (x->record.timed && x->processes > 1)
      retime(x);
    x->record.samples = x->processes > 1 ? x->samples : g->cases[i].samples;
    g->cases[i].record = x->record;
  }
}

void run_merge_free(struct run_merge *m)
{
  for (int i = 0; m && i < m->n; i++) {
    free(m->of[i].samples);
    free(m->of[i].start);
  }
  free(m);
}
