/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - a list of problems: the lock, the ceilings, batch after batch.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/run/lock.h"
#include "harness/run/run-parts.h"
#include "harness/run/worker.h"

/* Measuring the ceilings may take this long, whatever a case may. */
#define CEILINGS_S 60

int run_open_device(const struct run *run, struct group *g, struct device *dev)
{
  const struct run_options *o = run->o;
  group_stage(g, -1, "open the device");
  struct device_options how = o->device_options;
  memset(dev, 0, sizeof *dev);
  dev->ops = o->device;
  how.beats = g->beats;
  int status = dev->ops->open(dev, &how);
  if (!status)
    advice_apply(&run->advice, &dev->info);
  g->device = *dev;
  return status;
}

struct ceilings_task {
  const struct run *run;
  struct group *g;
};

static int ceilings_body(void *ctx)
{
  struct ceilings_task *t = ctx;
  struct device dev;
  if (run_open_device(t->run, t->g, &dev))
    return RUN_NO_DEVICE;
  group_stage(t->g, -1, "measure the ceilings");
  spent_enter(t->g->spent, SPENT_CEILINGS);
  int status = dev.ops->ceilings(&dev, t->run->o->group.timing.mode, &t->g->ceilings);
  t->g->device = dev;
  spent_enter(t->g->spent, SPENT_START);
  dev.ops->close(&dev);
  return status ? RUN_DEVICE_LOST : 0;
}

/* Whether anything of the list has no record yet. */
static bool anything_left(const struct run *run, const struct problem_list *list)
{
  for (int i = 0; i < list->n; i++)
    for (int k = 0; k < run->nimpls; k++)
      if (!run->o->resume || !run_is_recorded(run, &list->item[i], run->impls[k]->name))
        return true;
  return false;
}

static int measure_ceilings(struct run *run, struct run_batch *b, char *err, size_t errlen)
{
  struct group *g = &b->g[0];
  struct ceilings_task t = {run, g};
  if (!run->o->group.time)
    return ATTN_OK;
  if (run->o->ceilings && run->o->ceilings->copy_gbps > 0) {
    run->ceilings = *run->o->ceilings;
    return ATTN_OK;
  }
  g->beats = &b->beats;
  g->spent = &b->spent;
  spent_enter(&b->spent, SPENT_START);
  double timeout_s = run->o->timeout_s > CEILINGS_S ? run->o->timeout_s : CEILINGS_S;
  struct worker_result end = worker_run(ceilings_body, NULL, &t, &b->beats, timeout_s);
  run->ceilings = g->ceilings;
  if (run->o->ceilings)
    *run->o->ceilings = g->ceilings;
  spent_enter(&b->spent, SPENT_REST);
  if (end.end == WORKER_DONE)
    return ATTN_OK;
  snprintf(err, errlen, "device %s: cannot %s: %s; attnbench doctor says more",
           run->o->device->name, g->stage[0] ? g->stage : "start",
           g->device.error[0] ? g->device.error : "the worker died");
  return ATTN_EDEVICE;
}

static int run_all(struct run *run, struct run_batch *b, const struct problem_list *list, char *err,
                   size_t errlen)
{
  int lanes = run_lanes(run, list), status = ATTN_OK;
  spent_enter(&b->spent, SPENT_REST);
  if (lanes > 1) {
    status = run_in_lanes(run, list, lanes, &b->spent, err, errlen);
    b->spent.since = 0; /* they have counted it */
    return status;
  }
  for (int i = 0; i < list->n && !status; i += RUN_BATCH)
    status = run_batch(run, b, list, i, err, errlen);
  return status;
}

int run_problems(const struct problem_list *list, const struct run_options *o,
                 struct run_summary *sum, char *err, size_t errlen)
{
  struct run run = {.o = o, .sum = sum, .store = {.fd = -1}, .of = list->n};
  struct run_batch *b = worker_shared(sizeof *b);
  int lock = -1, status = b ? ATTN_OK : ATTN_ENOMEM;
  memset(sum, 0, sizeof *sum);
  if (o->group.graph && !o->device->graph) {
    snprintf(err, errlen, "--graph: device %s has no graphs of launches; leave it out",
             o->device->name);
    status = ATTN_EINVAL;
  }
  worker_catch_interrupts();
  if (b)
    spent_enter(&b->spent, SPENT_REST);
  if (!status && (lock = lock_device(o, err, errlen)) == -2)
    status = ATTN_EDEVICE;
  if (!status)
    status = run_begin(&run, err, errlen);
  if (!status && anything_left(&run, list))
    status = measure_ceilings(&run, b, err, errlen);
  if (!status)
    status = run_all(&run, b, list, err, errlen);
  sum->interrupted = worker_interrupted();
  run_end(&run);
  if (b) {
    spent_enter(&b->spent, SPENT_REST);
    sum->spent = b->spent;
  }
  if (lock >= 0)
    close(lock);
  worker_unshare(b, sizeof *b);
  return status;
}
