/* SPDX-License-Identifier: Apache-2.0
 *
 * run-lanes.c - verdicts through several workers at a time.
 *
 * Most of a verdict's work, and of the laws', runs on one core of the host.  Where nothing is timed
 * or counted batches can go side by side: same isolation, each in a worker of its own; same records
 * in the same order, for a batch is recorded when those before it are.
 */
#include "config.h"

#include <string.h>

#include "harness/base/clock.h"
#include "harness/device/host-info.h"
#include "harness/run/run-parts.h"

#define LANES 16
#define AHEAD 2 /* batches a lane that may have finished before their turn */
#define BATCH 2 /* problems of one; few, so that the lanes end together */

/* On a GPU each worker pays for a context, in time and in memory of the card. */
#define GPU_LANES 6
#define GPU_BATCH 10

/* The host works longer at a group of the zoo: customary rules, verdicts and laws of many cases. */
#define ZOO_LANES 12
#define ZOO_BATCH 6

/* Bytes of the largest problem: beside others it must not be out of memory. */
#define ROOM 0x100p+20

struct slot {
  struct run_task task;
  struct run_batch *b; /* shared with its worker */
  struct worker worker;
  int turn; /* number of its batch; -1: none */
  bool running, done;
};

struct lanes {
  struct run *run;
  const struct problem_list *list;
  struct slot slot[LANES * AHEAD];
  int nslots, running, most;
  int batch;      /* problems of one */
  int next, head; /* batch to begin, batch to record */
  struct spent spent;
  char *err;
  size_t errlen;
};

/* Operands, and a matrix of scores in fp32. */
static double room_of(const struct attn_problem *p)
{
  return attn_problem_compulsory_read(p) + attn_problem_compulsory_write(p) +
         4 * attn_problem_pairs(p) * (double)p->hq;
}

bool run_takes_all(const struct attn_problem *p)
{
  return room_of(p) > ROOM;
}

static bool on_gpu(const struct run *run)
{
  return !strcmp(run->o->device->name, "cuda");
}

static int batch_of(const struct run *run)
{
  return !on_gpu(run) ? BATCH : run->o->group.zoo ? ZOO_BATCH : GPU_BATCH;
}

static int batches(const struct problem_list *list, int batch)
{
  return (list->n + batch - 1) / batch;
}

int run_lanes(const struct run *run, const struct problem_list *list)
{
  const struct run_options *o = run->o;
  int cores = o->device_options.cores ? o->device_options.cores : host_cores();
  int most = !on_gpu(run) ? LANES : o->group.zoo ? ZOO_LANES : GPU_LANES;
  int work = batches(list, batch_of(run));
  if (o->group.time || o->group.count || o->processes != 1)
    return 1;
  for (int i = 0; i < list->n; i++)
    if (run_takes_all(&list->item[i]))
      return 1;
  most = work < most ? work : most;
  most = cores < most ? cores : most;
  most = o->lanes && o->lanes < most ? o->lanes : most;
  return most < 1 ? 1 : most;
}

static void take(struct lanes *l, struct slot *s)
{
  memset(&s->b->spent, 0, sizeof s->b->spent);
  spent_enter(&s->b->spent, SPENT_REST);
  s->turn = l->next++;
  run_task_begin(&s->task, l->run, s->b, l->list, s->turn * l->batch, l->batch, l->err, l->errlen);
  s->done = false;
}

/* Begins what may begin, sees what has ended. */
static int advance(struct lanes *l, struct slot *s)
{
  struct worker_result end = {WORKER_FAILED, 0};
  double timeout_s = l->run->o->timeout_s;
  if (s->turn < 0 && l->next < batches(l->list, l->batch) && l->running < l->most)
    take(l, s);
  if (s->turn < 0 || s->done)
    return ATTN_OK;
  if (s->running) {
    if (!worker_ended(&s->worker, &s->b->beats, timeout_s, &end))
      return ATTN_OK;
    s->running = false;
    l->running--;
    int status = run_task_ended(&s->task, end);
    if (status)
      return status;
  }
  if (!run_task_next(&s->task)) {
    s->done = true;
    spent_enter(&s->b->spent, SPENT_REST);
    return ATTN_OK;
  }
  if (worker_start(&s->worker, run_task_body, &s->task, &s->b->beats))
    return run_task_ended(&s->task, end);
  s->running = true;
  l->running++;
  return ATTN_OK;
}

/* Only the first of the batches that are not recorded yet records. */
static int record(struct lanes *l, struct slot *s)
{
  if (s->turn < 0)
    return ATTN_OK;
  s->task.emit = s->turn == l->head;
  int status = run_task_tick(&s->task);
  if (status || !s->task.emit || !s->done)
    return status;
  for (int k = 0; k < SPENT_KINDS; k++)
    l->spent.s[k] += s->b->spent.s[k];
  s->turn = -1;
  l->head++;
  return ATTN_OK;
}

static int look_after(struct lanes *l)
{
  long pause_ns = WORKER_LEAST_NS;
  int status = ATTN_OK;
  while (!status && l->head < batches(l->list, l->batch)) {
    int head = l->head, running = l->running;
    for (int i = 0; i < l->nslots && !status; i++)
      status = advance(l, &l->slot[i]);
    for (int i = 0; i < l->nslots && !status; i++)
      status = record(l, &l->slot[i]);
    if (!status && worker_interrupted())
      status = ATTN_EINVAL;
    if (l->head != head || l->running < running)
      pause_ns = WORKER_LEAST_NS;
    worker_nap(&pause_ns);
  }
  for (int i = 0; i < l->nslots; i++)
    if (l->slot[i].running)
      worker_stop(&l->slot[i].worker, WORKER_STOPPED);
  return status;
}

/* The lanes' time as parts of the wall's. */
static void share(struct spent *sum, const struct spent *lanes, double wall_s)
{
  double total = spent_total(lanes);
  for (int k = 0; k < SPENT_KINDS && total > 0; k++)
    sum->s[k] += lanes->s[k] / total * wall_s;
}

int run_in_lanes(struct run *run, const struct problem_list *list, int lanes, struct spent *spent,
                 char *err, size_t errlen)
{
  static struct lanes l;
  double begun = clock_now();
  int status = ATTN_OK;
  l = (struct lanes){.run = run, .list = list, .most = lanes, .err = err, .errlen = errlen};
  l.batch = batch_of(run);
  for (; l.nslots < lanes * AHEAD && !status; l.nslots++) {
    struct slot *s = &l.slot[l.nslots];
    s->turn = -1;
    if (!(s->b = worker_shared(sizeof *s->b)))
      status = ATTN_ENOMEM;
  }
  if (!status)
    status = look_after(&l);
  for (int i = 0; i < l.nslots; i++)
    worker_unshare(l.slot[i].b, sizeof *l.slot[i].b);
  share(spent, &l.spent, clock_now() - begun);
  return status;
}
