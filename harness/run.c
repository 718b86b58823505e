/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - one worker a problem and process; what it leaves in shared memory becomes records.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "harness/run.h"
#include "harness/run-parts.h"
#include "harness/stats.h"
#include "harness/store.h"
#include "harness/worker.h"

/* Rows that the second and later processes verify: the first has verified by the full budget. */
#define LATER_ROWS 512

/* ---- workers -------------------------------------------------------------------------------- */

struct task {
  const struct run_options *o;
  struct group *g;
  struct group_options options; /* of this process */
};

static int open_device(struct task *t, struct device *dev)
{
  group_stage(t->g, -1, "open the device");
  memset(dev, 0, sizeof *dev);
  dev->ops = t->o->device;
  int status = dev->ops->open(dev, &t->o->device_options);
  t->g->device = *dev;
  return status;
}

static int group_body(void *ctx)
{
  struct task *t = ctx;
  struct device dev;
  if (open_device(t, &dev))
    return RUN_NO_DEVICE;
  if (group_run(t->g, &dev, &t->options)) {
    t->g->device = dev;
    return RUN_DEVICE_LOST;
  }
  dev.ops->close(&dev);
  return 0;
}

static int ceilings_body(void *ctx)
{
  struct task *t = ctx;
  struct device dev;
  if (open_device(t, &dev))
    return RUN_NO_DEVICE;
  group_stage(t->g, -1, "measure the ceilings");
  int status = dev.ops->ceilings(&dev, t->options.timing.mode, &t->g->ceilings);
  t->g->device = dev;
  dev.ops->close(&dev);
  return status ? RUN_DEVICE_LOST : 0;
}

/* Blames the case at work, or every open one where none was. */
static void blame(struct group *g, struct worker_result end, double timeout_s)
{
  enum record_status status = end.end == WORKER_TIMEOUT ? STATUS_TIMEOUT : STATUS_CRASH;
  char why[sizeof g->device.error];
  if (end.end == WORKER_TIMEOUT)
    snprintf(why, sizeof why, "no progress for %g s", timeout_s);
  else if (end.end == WORKER_SIGNAL)
    snprintf(why, sizeof why, "signal %d (%s)", end.detail, strsignal(end.detail));
  else
    snprintf(why, sizeof why, "%s", g->device.error[0] ? g->device.error : "the worker gave up");
  for (int i = 0; i < g->n; i++)
    if (!g->cases[i].done && (g->current < 0 || g->current == i))
      group_end(&g->cases[i], status, "%s: %s", g->stage, why);
}

static bool open_cases(const struct group *g)
{
  for (int i = 0; i < g->n; i++)
    if (!g->cases[i].done)
      return true;
  return false;
}

/* Runs the group in as many workers as it takes: a crash costs the case that crashed. */
static int run_group(struct task *t, char *err, size_t errlen)
{
  struct group *g = t->g;
  while (open_cases(g)) {
    g->finished = false;
    for (int i = 0; i < g->n; i++)
      if (!g->cases[i].done)
        group_case_reset(&g->cases[i]);
    struct worker_result end = worker_run(group_body, t, &g->beats, t->o->timeout_s);
    if (end.end == WORKER_INTERRUPTED)
      return ATTN_EINVAL;
    if (end.end == WORKER_FAILED && end.detail == RUN_NO_DEVICE) {
      snprintf(err, errlen, "device %s: %s; attnbench doctor says more", t->o->device->name,
               g->device.error);
      return ATTN_EDEVICE;
    }
    if (!g->finished)
      blame(g, end, t->o->timeout_s);
  }
  return ATTN_OK;
}

/* ---- one problem ---------------------------------------------------------------------------- */

static void prepare_group(struct group *g, const struct run *run, const struct attn_problem *p)
{
  struct device_ceilings ceilings = g->ceilings;
  memset(g, 0, sizeof *g);
  g->problem = *p;
  g->ceilings = ceilings;
  for (int i = 0; i < run->nimpls; i++) {
    if (run->o->resume && run_is_recorded(run, p, run->impls[i]->name)) {
      run->sum->resumed++;
      continue;
    }
    struct group_case *c = &g->cases[g->n++];
    c->impl = run->impls[i];
    group_case_reset(c);
    run_describe(run, p, c);
  }
}

/* Later processes only add samples, except that a failure in any of them is a failure. */
static int more_processes(struct task *t, const struct run *run, struct run_merge *m, char *err,
                          size_t errlen)
{
  struct group *g = t->g;
  for (int k = 1; k < run->o->processes; k++) {
    run_merge_restart(m, g);
    t->options.count = t->options.recheck = false;
    t->options.rows_max = LATER_ROWS;
    t->options.seed = run->o->group.seed + (uint64_t)k;
    int status = run_group(t, err, errlen);
    if (status)
      return status;
    run_merge_add(m, g);
  }
  return ATTN_OK;
}

static int run_one(struct run *run, struct group *g, const struct attn_problem *p, char *err,
                   size_t errlen)
{
  struct task t = {run->o, g, run->o->group};
  struct run_merge *m = NULL;
  prepare_group(g, run, p);
  if (g->n == 0)
    return ATTN_OK;
  int status = run_group(&t, err, errlen);
  if (!status && !(m = run_merge_begin(g, run->o->processes)))
    status = ATTN_ENOMEM;
  if (!status)
    status = more_processes(&t, run, m, err, errlen);
  if (!status)
    run_merge_end(m, g);
  for (int i = 0; i < g->n && !status; i++)
    status = run_emit(run, g, &g->cases[i], err, errlen);
  run_merge_free(m);
  return status;
}

/* ---- the list ------------------------------------------------------------------------------- */

static int measure_ceilings(struct run *run, struct group *g, char *err, size_t errlen)
{
  struct task t = {run->o, g, run->o->group};
  if (!run->o->group.time)
    return ATTN_OK;
  struct worker_result end = worker_run(ceilings_body, &t, &g->beats, run->o->timeout_s);
  if (end.end == WORKER_DONE)
    return ATTN_OK;
  snprintf(err, errlen, "device %s: cannot %s: %s; attnbench doctor says more",
           run->o->device->name, g->stage[0] ? g->stage : "start",
           g->device.error[0] ? g->device.error : "the worker died");
  return ATTN_EDEVICE;
}

/* One run a GPU at a time; the kernel drops the lock of whoever dies. */
static int lock_device(const struct run_options *o, char *err, size_t errlen)
{
  char path[64];
  if (strcmp(o->device->name, "cuda"))
    return -1;
  snprintf(path, sizeof path, "/tmp/attnbench-gpu%d.lock", o->device_options.index);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
    snprintf(err, errlen,
             "GPU %d is being measured by another attnbench (lock %s): wait for it, or "
             "choose another with --gpu",
             o->device_options.index, path);
    close(fd);
    return -2;
  }
  return fd;
}

int run_problems(const struct problem_list *list, const struct run_options *o,
                 struct run_summary *sum, char *err, size_t errlen)
{
  struct run run = {.o = o, .sum = sum, .store = {.fd = -1}};
  struct group *g = worker_shared(sizeof *g);
  int lock = -1, status = g ? ATTN_OK : ATTN_ENOMEM;
  memset(sum, 0, sizeof *sum);
  worker_catch_interrupts();
  if (!status && (lock = lock_device(o, err, errlen)) == -2)
    status = ATTN_EDEVICE;
  if (!status)
    status = run_begin(&run, err, errlen);
  if (!status)
    status = measure_ceilings(&run, g, err, errlen);
  for (int i = 0; i < list->n && !status; i++) {
    run_progress(&run, i, list->n);
    status = run_one(&run, g, &list->item[i], err, errlen);
  }
  sum->interrupted = worker_interrupted();
  run_end(&run);
  if (lock >= 0)
    close(lock);
  worker_unshare(g, sizeof *g);
  return status;
}
