/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.c - the sweep: variants interleaved, verified before and after, and which of them is best.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/worker.h"
#include "harness/tune/tune.h"

/* ---- the device ------------------------------------------------------------------------------ */

/* Lives in shared memory: what a variant takes depends on the device, which only a worker opens. */
struct look {
  const struct run_options *o;
  volatile uint64_t beats;
  struct device dev;
};

static int look_body(void *ctx)
{
  struct look *l = ctx;
  struct device_options how = l->o->device_options;
  struct device dev = {.ops = l->o->device};
  how.beats = &l->beats;
  int status = dev.ops->open(&dev, &how);
  l->dev = dev;
  if (!status)
    dev.ops->close(&dev);
  return status;
}

static int look_tick(void *ctx)
{
  struct look *l = ctx;
  ++l->beats;
  return 0;
}

static int look(const struct run_options *o, struct tune_result *t, char *err, size_t errlen)
{
  struct look *l = worker_shared(sizeof *l);
  if (!l)
    return ATTN_ENOMEM;
  l->o = o;
  struct worker_result end = worker_run(look_body, look_tick, l, &l->beats, o->timeout_s);
  t->device = l->dev.info;
  memcpy(t->driver, l->dev.driver, sizeof t->driver);
  if (end.end != WORKER_DONE)
    snprintf(err, errlen, "device %s: %s; attnbench doctor says more", o->device->name,
             l->dev.error[0] ? l->dev.error : "it cannot be opened");
  worker_unshare(l, sizeof *l);
  return end.end == WORKER_DONE ? ATTN_OK : ATTN_EDEVICE;
}

/* ---- the trials ------------------------------------------------------------------------------ */

static bool timed(const struct trial *t)
{
  return t->status == STATUS_PASS && t->median_s > 0;
}

int tune_best(const struct trial *trial, int n)
{
  int best = n > 0 && timed(&trial[0]) ? 0 : -1;
  for (int i = 1; i < n; i++) {
    const struct trial *own = &trial[0], *x = &trial[i];
    bool beyond =
        !timed(own) || (x->ci_hi_s < own->ci_lo_s && x->median_s < (1 - TUNE_GAIN) * own->median_s);
    if (timed(x) && beyond && (best < 0 || x->median_s < trial[best].median_s))
      best = i;
  }
  return best;
}

struct sweep {
  struct tune_result *t;
  void (*show)(const struct tune_point *p);
  bool open, failed; /* the last point still gets trials; no memory */
};

static void close_point(struct sweep *s)
{
  if (!s->open)
    return;
  struct tune_point *p = &s->t->point[s->t->n - 1];
  s->open = false;
  p->best = tune_best(p->trial, p->n);
  s->show(p);
}

static struct tune_point *open_point(struct sweep *s, const struct record *r)
{
  struct tune_result *t = s->t;
  if (t->n == t->room) {
    int room = t->room ? 2 * t->room : 32;
    struct tune_point *grown = realloc(t->point, (size_t)room * sizeof *grown);
    if (!grown)
      return NULL;
    t->point = grown;
    t->room = room;
  }
  struct tune_point *p = &t->point[t->n++];
  *p = (struct tune_point){.problem = r->problem, .key = choice_key_of(&r->problem)};
  memcpy(p->impl, r->impl, sizeof p->impl);
  s->open = true;
  return p;
}

static bool same_problem(const struct attn_problem *a, const struct attn_problem *b)
{
  char x[ATTN_PROBLEM_TEXT], y[ATTN_PROBLEM_TEXT];
  attn_problem_print(a, x, sizeof x);
  attn_problem_print(b, y, sizeof y);
  return !strcmp(x, y);
}

static const struct group_case *case_of(const struct group *g, const struct record *r)
{
  for (int i = 0; i < g->n; i++)
    if (&g->cases[i].record == r)
      return &g->cases[i];
  return NULL;
}

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct sweep *s = ctx;
  struct tune_point *p = s->open ? &s->t->point[s->t->n - 1] : NULL;
  const struct group_case *c = case_of(g, r);
  if (p && (strcmp(p->impl, r->impl) || !same_problem(&p->problem, &r->problem))) {
    close_point(s);
    p = NULL;
  }
  if (!p && !(p = open_point(s, r))) {
    s->failed = true;
    return;
  }
  struct trial *t = &p->trial[p->n++];
  *t = (struct trial){"", r->status, r->median_s, r->ci_lo_s, r->ci_hi_s};
  memcpy(t->variant, c->variant, sizeof t->variant);
  p->packed |= r->variant.packed;
}

int tune_sweep(const struct problem_list *list, const struct run_options *given,
               void (*show)(const struct tune_point *p), struct tune_result *t, char *err,
               size_t errlen)
{
  struct run_options o = *given;
  struct sweep s = {.t = t, .show = show};
  *t = (struct tune_result){.n = 0};
  worker_catch_interrupts();
  int status = look(&o, t, err, errlen);
  if (status)
    return status;
  o.group.time = o.quiet = true;
  o.group.count = o.group.laws = false;
  o.choices = "none";
  o.variant = NULL;
  o.every_variant = &t->device;
  o.each = see;
  o.ctx = &s;
  status = run_problems(list, &o, &t->summary, err, errlen);
  if (!status && !t->summary.interrupted)
    close_point(&s);
  t->n -= s.open; /* not all of its trials are there */
  return status ? status : s.failed ? ATTN_ENOMEM : ATTN_OK;
}

void tune_free(struct tune_result *t)
{
  free(t->point);
  *t = (struct tune_result){.n = 0};
}
