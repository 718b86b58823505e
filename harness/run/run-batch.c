/* SPDX-License-Identifier: Apache-2.0
 *
 * run-batch.c - a batch of problems through one worker at a time.
 *
 * A worker opens the device once and runs group after group; each finished group is recorded while
 * the next one runs. A crash, a hang or a lost device costs the case at work: it gets its record,
 * and a new worker takes up the rest.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/run/run-parts.h"
#include "harness/run/worker.h"

/* Opening a device, or work of the host alone, may take this long, whatever a case may. */
#define OPEN_S 60

/* Rows that a later process verifies at most: the first has verified by the full budget. */
#define LATER_ROWS 512

/* ---- in the worker -------------------------------------------------------------------------- */

static bool open_cases(const struct group *g)
{
  for (int i = 0; i < g->n; i++)
    if (!g->cases[i].done)
      return true;
  return false;
}

int run_task_body(void *ctx)
{
  struct run_task *t = ctx;
  struct run_batch *b = t->b;
  struct device dev;
  if (run_open_device(t->run, &b->g[b->at], &dev))
    return RUN_NO_DEVICE;
  spent_enter(&b->spent, SPENT_REST);
  for (; b->at < b->n; b->at++) {
    struct group *g = &b->g[b->at];
    if (!open_cases(g))
      continue;
    g->device = dev;
    struct group_options o = t->options;
    o.regime = g->regime;
    o.laws = g->laws;
    if (group_run(g, &dev, &o)) {
      g->device = dev;
      return RUN_DEVICE_LOST;
    }
  }
  spent_enter(&b->spent, SPENT_START);
  instrument_close(&dev);
  dev.ops->close(&dev);
  return 0;
}

/* ---- in the parent -------------------------------------------------------------------------- */

/* Blames the case at work, or every open one of the group where none was. */
static void blame(struct group *g, struct worker_result end, double timeout_s)
{
  enum record_status status = end.end == WORKER_TIMEOUT ? STATUS_TIMEOUT : STATUS_CRASH;
  char why[sizeof g->device.error];
  if (end.end == WORKER_TIMEOUT)
    snprintf(why, sizeof why, "no progress for %g s; --timeout S allows more", timeout_s);
  else if (end.end == WORKER_SIGNAL)
    snprintf(why, sizeof why, "signal %d (%s)", end.detail, strsignal(end.detail));
  else
    snprintf(why, sizeof why, "%s", g->device.error[0] ? g->device.error : "the worker gave up");
  for (int i = 0; i < g->n; i++)
    if (!g->cases[i].done && (g->current < 0 || g->current == i))
      group_end(&g->cases[i], status, "%s: %s", g->stage, why);
  g->finished = !open_cases(g);
}

static bool lost(const struct group_case *c)
{
  return c->done && (c->record.status == STATUS_TIMEOUT || c->record.status == STATUS_CRASH);
}

/* What has cost its share of workers is not tried on the rest of the batch. */
static void give_up(struct run_batch *b, const struct attn_impl *impl, int losses)
{
  int n = 0;
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < b->g[i].n; k++)
      n += b->g[i].cases[k].impl == impl && lost(&b->g[i].cases[k]);
  for (int i = 0; i < b->n && n >= losses; i++)
    for (int k = 0; k < b->g[i].n; k++)
      if (b->g[i].cases[k].impl == impl && !b->g[i].cases[k].done)
        group_end(&b->g[i].cases[k], STATUS_SKIP, "it cost %d workers before", n);
}

static int emit_group(struct run_task *t, struct group *g)
{
  int status = ATTN_OK;
  for (int i = 0; i < g->n && !status; i++)
    status = run_emit(t->run, g, &g->cases[i], t->err, t->errlen);
  return status;
}

int run_task_tick(void *ctx)
{
  struct run_task *t = ctx;
  struct run_batch *b = t->b;
  double since = b->spent.now == SPENT_START ? b->spent.since : b->at < b->n ? b->g[b->at].busy : 0;
  if (since > 0 && clock_now() - since < OPEN_S)
    ++b->beats;
  while (t->emit && !t->status && b->emitted < b->n &&
         __atomic_load_n(&b->g[b->emitted].finished, __ATOMIC_ACQUIRE)) {
    t->status = emit_group(t, &b->g[b->emitted++]);
    run_progress(t->run, ++t->run->done);
  }
  return t->status;
}

/* The first group with an open case, or n. */
static int first_open(const struct run_batch *b)
{
  int i = 0;
  while (i < b->n && !open_cases(&b->g[i]))
    i++;
  return i;
}

static void reopen(struct run_batch *b)
{
  for (int i = 0; i < b->n; i++) {
    struct group *g = &b->g[i];
    g->finished = !open_cases(g);
    g->current = -1;
    g->busy = 0;
    for (int k = 0; k < g->n; k++)
      if (!g->cases[k].done)
        group_case_reset(&g->cases[k]);
  }
}

bool run_task_next(struct run_task *t)
{
  struct run_batch *b = t->b;
  reopen(b);
  b->at = first_open(b);
  if (b->at < b->n)
    spent_enter(&b->spent, SPENT_START);
  return b->at < b->n;
}

int run_task_ended(struct run_task *t, struct worker_result end)
{
  const struct run_options *o = t->run->o;
  struct run_batch *b = t->b;
  struct group *g = b->at < b->n ? &b->g[b->at] : NULL;
  if (end.end != WORKER_DONE)
    b->spent.now = SPENT_LOST;
  spent_enter(&b->spent, SPENT_REST);
  if (end.end == WORKER_STOPPED)
    return t->status ? t->status : ATTN_EINVAL;
  if (end.end == WORKER_FAILED && end.detail == RUN_NO_DEVICE) {
    snprintf(t->err, t->errlen, "device %s: %s; attnbench doctor says more", o->device->name,
             g->device.error);
    return ATTN_EDEVICE;
  }
  if (g)
    blame(g, end, o->timeout_s);
  for (int i = 0; g && i < g->n && o->losses; i++)
    give_up(b, g->cases[i].impl, o->losses);
  return ATTN_OK;
}

/* As many workers as it takes until every case has its record. */
static int run_workers(struct run_task *t)
{
  while (run_task_next(t)) {
    struct worker_result end =
        worker_run(run_task_body, run_task_tick, t, &t->b->beats, t->run->o->timeout_s);
    int status = run_task_ended(t, end);
    if (status)
      return status;
  }
  return run_task_tick(t);
}

static void add_case(struct group *g, const struct run *run, const struct attn_problem *p,
                     const struct attn_impl *impl, const char *variant)
{
  if (g->n == GROUP_CASES)
    return;
  struct group_case *c = &g->cases[g->n++];
  c->impl = impl;
  snprintf(c->variant, sizeof c->variant, "%s", variant ? variant : "");
  group_case_reset(c);
  run_describe(run, p, c);
  if (g->regime)
    c->record.distribution = g->regime->name;
}

/* The first is what it would choose itself. */
static void add_variants(struct group *g, const struct run *run, const struct attn_problem *p,
                         const struct attn_impl *impl)
{
  const struct attn_device *dev = run->o->every_variant;
  struct attn_variant v;
  if (!impl->variant || attn_unsupported(impl, p, dev) || impl->variant(p, dev, 1, &v))
    return;
  for (int i = 0; !impl->variant(p, dev, i, &v); i++)
    add_case(g, run, p, impl, v.name);
}

/* What the list's items do not have in common. */
static void prepare_item(struct group *g, const struct run *run, const struct attn_problem *p)
{
  struct run_item it;
  memset(&it, 0, sizeof it);
  run->o->item(g->item, &it, run->o->ctx);
  g->regime = it.regime;
  g->laws = it.laws;
  for (int i = 0; i < it.nimpls; i++)
    add_case(g, run, p, it.impls[i], run->o->variant);
}

static void prepare_group(struct group *g, const struct run *run, struct run_batch *b,
                          const struct attn_problem *p, int item)
{
  memset(g, 0, sizeof *g);
  g->problem = *p;
  g->item = item;
  g->regime = run->o->group.regime;
  g->laws = run->o->group.laws;
  g->ceilings = run->ceilings;
  g->beats = &b->beats;
  g->spent = &b->spent;
  if (run->o->item)
    prepare_item(g, run, p);
  for (int i = 0; i < run->nimpls; i++) {
    if (run->o->resume && run_is_recorded(run, p, run->impls[i]->name)) {
      run->sum->resumed++;
      continue;
    }
    if (run->o->every_variant)
      add_variants(g, run, p, run->impls[i]);
    else
      add_case(g, run, p, run->impls[i], run->o->variant);
  }
}

/* Later processes only add samples, except that a failure in any of them is a failure. What one
 * that was interrupted has finished counts. */
static int more_processes(struct run_task *t, struct run_merge **m)
{
  struct run_batch *b = t->b;
  int status = ATTN_OK;
  for (int k = 1; k < t->run->o->processes && !status; k++) {
    for (int i = 0; i < b->n; i++)
      run_merge_restart(m[i], &b->g[i]);
    t->options.count = t->options.recheck = t->options.graph = false;
    if (!t->options.rows_max || t->options.rows_max > LATER_ROWS)
      t->options.rows_max = LATER_ROWS;
    t->options.seed = t->run->o->group.seed + (uint64_t)k;
    status = run_workers(t);
    for (int i = 0; i < b->n; i++)
      if (b->g[i].finished)
        run_merge_add(m[i], &b->g[i]);
  }
  return status;
}

/* Records of all processes, or of as many as there were when the run was stopped (first: whether
 * the first process was, and why). */
static int merge_processes(struct run_task *t, int first)
{
  struct run_batch *b = t->b;
  struct run_merge *m[RUN_BATCH] = {NULL};
  int status = first, emitted = ATTN_OK;
  for (int i = 0; i < b->n; i++)
    if (!open_cases(&b->g[i]) && !(m[i] = run_merge_begin(&b->g[i], t->run->o->processes)))
      status = ATTN_ENOMEM;
  if (!status)
    status = more_processes(t, m);
  for (int i = 0; i < b->n && !emitted; i++) {
    if (!m[i])
      continue;
    run_merge_end(m[i], &b->g[i]);
    emitted = emit_group(t, &b->g[i]);
    run_progress(t->run, ++t->run->done);
  }
  for (int i = 0; i < b->n; i++)
    run_merge_free(m[i]);
  return status ? status : emitted;
}

void run_task_begin(struct run_task *t, struct run *run, struct run_batch *b,
                    const struct problem_list *list, int first, int most, char *err, size_t errlen)
{
  int n = list->n - first < most ? list->n - first : most;
  *t = (struct run_task){run, b, run->o->group, run->o->processes == 1, ATTN_OK, err, errlen};
  b->n = n;
  b->emitted = 0;
  for (int i = 0; i < n; i++)
    prepare_group(&b->g[i], run, b, &list->item[first + i], first + i);
}

int run_batch(struct run *run, struct run_batch *b, const struct problem_list *list, int first,
              char *err, size_t errlen)
{
  struct run_task t;
  run_task_begin(&t, run, b, list, first, RUN_BATCH, err, errlen);
  int status = run_workers(&t);
  if (!t.emit)
    status = merge_processes(&t, status);
  return status;
}
