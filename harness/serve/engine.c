/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c - the loop: arrivals, plan, step, commit. Everything that it knows of time comes from
 * the clock it is given.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/serve/engine.h"
#include "impl/attn.h"

struct loop {
  const struct engine_task *task;
  struct engine_result *out;
  struct sched *s;
  double start, now; /* now: since start; the end of the last step is the beginning of the next */
  size_t next;       /* request to come */
  int32_t *sampled;
  double (*admitted)[TTFT_PARTS]; /* busy[] when request was admitted */
  bool *seen;                     /* admitted */
  char *err;
  size_t errlen;
};

static double look(const struct loop *l)
{
  const struct serve_clock *c = &l->task->clock;
  return c->now(c->self) - l->start;
}

static double arrival_of(const struct loop *l, size_t i)
{
  return l->s->trace->request[i].arrival_s / l->task->rate;
}

static int take_arrivals(struct loop *l)
{
  int status = ATTN_OK;
  for (; !status && l->next < l->s->trace->n && arrival_of(l, l->next) <= l->now; l->next++)
    status = sched_arrive(l->s, (int32_t)l->next);
  if (status)
    snprintf(l->err, l->errlen, "no memory for the tokens of request %zu", l->next);
  return status;
}

/* The busy times at admission; the queue's part is known then. */
static void note_admissions(struct loop *l)
{
  for (int64_t i = 0; i < l->s->step.nitems; i++) {
    int32_t r = l->s->who[i];
    if (l->seen[r])
      continue;
    l->seen[r] = true;
    l->out->request[r].part[TTFT_QUEUE] = l->now - l->out->request[r].arrival;
    for (int p = TTFT_SCHEDULE; p < TTFT_PARTS; p++)
      l->admitted[r][p] = l->out->busy[p];
  }
}

static void note_tokens(struct loop *l, double now)
{
  for (int64_t i = 0; i < l->s->step.nitems; i++) {
    int32_t r = l->s->who[i];
    struct request_times *t = &l->out->request[r];
    if (!l->s->step.item[i].sample)
      continue;
    l->out->sampled++;
    if (isnan(t->first)) {
      t->first = now;
      for (int p = TTFT_SCHEDULE; p < TTFT_PARTS; p++)
        t->part[p] = l->out->busy[p] - l->admitted[r][p];
    }
    if (l->s->request[r].state == REQUEST_DONE)
      t->done = now;
  }
}

static void note_decode(struct loop *l, double seconds)
{
  const struct step *st = &l->s->step;
  struct engine_result *out = l->out;
  if (st->tokens > st->nitems || st->nitems < out->decode_batch)
    return;
  if (st->nitems > out->decode_batch) {
    out->decode_tokens = 0;
    out->decode_s = 0;
  }
  out->decode_batch = st->nitems;
  out->decode_tokens += st->tokens;
  out->decode_s += seconds;
}

/* One step; what neither the model nor its parts account for is scheduling, or the rest. */
static int step(struct loop *l)
{
  struct step_times times;
  const struct step_model *m = &l->task->model;
  double *busy = l->out->busy, before = look(l);
  int status = m->run(m->self, &l->s->step, l->sampled, &times, l->err, l->errlen);
  double after = look(l), part = 0;
  if (status)
    return status;
  status = sched_commit(l->s, l->sampled);
  double now = look(l);
  for (int p = 0; p < STEP_PARTS; p++)
    part += (times.launches || p != PART_OTHER) && times.part[p] > 0 ? times.part[p] : 0;
  l->out->launches |= times.launches;
  busy[TTFT_GEMM] += times.part[PART_GEMM];
  busy[TTFT_ATTENTION] += times.part[PART_ATTENTION];
  busy[TTFT_OTHER] += times.launches ? times.part[PART_OTHER] : after - before - part;
  busy[TTFT_LAUNCH] += times.launches ? after - before - part : 0;
  busy[TTFT_SCHEDULE] += before - l->now + (now - after);
  l->out->steps++;
  l->out->computed += l->s->step.tokens;
  note_tokens(l, now);
  note_decode(l, now - l->now);
  l->now = now;
  return status;
}

static int wait_for_arrival(struct loop *l)
{
  const struct serve_clock *c = &l->task->clock;
  if (l->next == l->s->trace->n) {
    snprintf(l->err, l->errlen, "%lld requests wait and none can be admitted",
             (long long)l->s->waits);
    return ATTN_EDEVICE;
  }
  c->wait_until(c->self, l->start + arrival_of(l, l->next));
  double now = look(l);
  l->out->busy[TTFT_QUEUE] += now - l->now;
  l->now = now;
  return ATTN_OK;
}

static int turn(struct loop *l)
{
  int status = take_arrivals(l);
  if (status)
    return status;
  status = sched_plan(l->s);
  if (status) {
    snprintf(l->err, l->errlen, "no memory for the next step's plan");
    return status;
  }
  if (!l->s->step.nitems)
    return wait_for_arrival(l);
  note_admissions(l);
  status = step(l);
  if (!status && l->task->progress)
    l->task->progress(l->task->ctx, l->s, l->now);
  return status;
}

static void unknown(struct loop *l)
{
  for (size_t i = 0; i < l->s->trace->n; i++) {
    struct request_times *t = &l->out->request[i];
    *t = (struct request_times){arrival_of(l, i), NAN, NAN, {0}};
    for (int p = 0; p < TTFT_PARTS; p++)
      t->part[p] = NAN;
  }
}

int engine_run(const struct engine_task *task, struct engine_result *result, char *err,
               size_t errlen)
{
  struct sched *s = task->sched;
  struct loop l = {.task = task, .out = result, .s = s, .err = err, .errlen = errlen};
  *result = (struct engine_result){.request = result->request};
  l.sampled = malloc((size_t)s->o.batch * sizeof *l.sampled);
  l.admitted = calloc(s->trace->n, sizeof *l.admitted);
  l.seen = calloc(s->trace->n, sizeof *l.seen);
  int status = l.sampled && l.admitted && l.seen ? ATTN_OK : ATTN_ENOMEM;
  if (status)
    snprintf(err, errlen, "no memory for the times of %zu requests", s->trace->n);
  l.start = task->clock.now(task->clock.self);
  unknown(&l);
  while (!status && s->ndone < (int64_t)s->trace->n && !result->interrupted) {
    status = turn(&l);
    result->interrupted = task->stopped && task->stopped(task->ctx);
  }
  result->seconds = l.now;
  sched_stop(s);
  free(l.sampled);
  free(l.admitted);
  free(l.seen);
  return status;
}
