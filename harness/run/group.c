/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c - the life of a group in its process: operands, preparation, verdict, samples, counters,
 * and the verdict again.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/run/group.h"
#include "harness/base/rng.h"
#include "harness/tune/advice.h"

int group_launch(void *live, void *stream)
{
  struct live *l = live;
  return l->c->impl->run(l->plan, &l->args, stream);
}

void group_end(struct group_case *c, enum record_status status, const char *format, ...)
{
  va_list ap;
  va_start(ap, format);
  vsnprintf(c->record.reason, sizeof c->record.reason, format, ap);
  va_end(ap);
  c->record.status = status;
  c->done = true;
}

void group_stage(struct group *g, int current, const char *what)
{
  ++*g->beats;
  g->current = current;
  snprintf(g->stage, sizeof g->stage, "%s", what);
}

static enum record_status status_of(int status)
{
  return status == ATTN_ENOMEM         ? STATUS_OOM
         : status == ATTN_EUNSUPPORTED ? STATUS_UNSUPPORTED
                                       : STATUS_CRASH;
}

static size_t operands_bytes(const struct tensors *t)
{
  size_t sum = 0;
  for (int op = 0; op < OPERANDS; op++)
    sum += t->used[op] ? t->bytes[op] : 0;
  return sum;
}

void group_want(struct group_work *w, const struct group_case *c)
{
  w->dev->info = w->info;
  if (c && c->variant[0])
    advice_force(c->variant, &w->dev->info);
}

/* Which variant the case gets; NULL, or why it cannot be the one that it must. */
static const char *choose_variant(struct group_work *w, struct group_case *c)
{
  struct record *r = &c->record;
  const char *by = advice_variant(c->impl, &w->g->problem, &w->dev->info, &r->variant);
  if (c->variant[0] && (!by || strcmp(by, "forced")))
    return ADVICE_NO_VARIANT;
  r->variant_by = by;
  if (by && strcmp(by, "forced"))
    advice_name(&w->info, r->variant_table, sizeof r->variant_table);
  return NULL;
}

/* Adds to the reason that others hold what a case lacks, where it would fit without them. */
static void blame_others(const struct group_work *w, struct record *r, size_t wanted)
{
  double held = 0;
  size_t free, used = strlen(r->reason);
  for (int i = 0; i < w->g->n; i++)
    held += w->live[i].ready ? w->live[i].c->record.workspace_bytes : 0;
  if (held > 0 && !w->dev->ops->available(w->dev, &free) && (double)wanted < (double)free + held)
    snprintf(r->reason + used, sizeof r->reason - used,
             "; workspaces of others hold %.3f GiB: run it alone", held / (1 << 30));
}

/* Plan and workspace of one case. */
static int prepare(struct group_work *w, struct live *l)
{
  const struct attn_impl *impl = l->c->impl;
  const struct attn_problem *p = &w->g->problem;
  struct record *r = &l->c->record;
  group_want(w, l->c);
  const char *no = attn_unsupported(impl, p, &w->dev->info);
  if (!no && (no = choose_variant(w, l->c))) {
    group_end(l->c, STATUS_UNSUPPORTED, "--variant %s: %s", l->c->variant, no);
    return ATTN_OK;
  }
  if (no) {
    group_end(l->c, STATUS_UNSUPPORTED, "%s", no);
    if (strstr(no, "GiB") && impl->workspace) /* too large: by how much is worth a record */
      r->workspace_bytes = (double)impl->workspace(p, &w->dev->info);
    return ATTN_OK;
  }
  size_t bytes = impl->workspace ? impl->workspace(p, &w->dev->info) : 0;
  int status = arena_alloc(w->arena, "workspace", bytes, &l->workspace);
  if (status) {
    group_end(l->c, status_of(status), "workspace: %s", w->dev->error);
    if (status == ATTN_ENOMEM)
      blame_others(w, r, bytes);
    return ATTN_OK;
  }
  l->plan = (void *)p;
  if (impl->prepare && (status = impl->prepare(p, &w->dev->info, &l->plan))) {
    l->plan = NULL;
    group_end(l->c, status_of(status), "prepare failed with status %d", status);
    return ATTN_OK;
  }
  l->args = w->tensors->args;
  l->args.workspace = l->workspace->data;
  l->args.workspace_bytes = bytes;
  l->ready = true;
  r->workspace_bytes = (double)bytes;
  r->peak_bytes = (double)(bytes + operands_bytes(w->tensors));
  if (impl->traffic) {
    struct attn_traffic t;
    impl->traffic(p, &w->dev->info, &t);
    r->model_bytes = t.read_bytes + t.write_bytes;
  }
  return ATTN_OK;
}

static int each_ready(struct group_work *w, const char *what,
                      int (*step)(struct group_work *, struct live *))
{
  for (int i = 0; i < w->g->n; i++) {
    if (!w->live[i].ready)
      continue;
    group_stage(w->g, i, what);
    group_want(w, &w->g->cases[i]);
    int status = step(w, &w->live[i]);
    if (status)
      return status;
  }
  group_stage(w->g, -1, "");
  group_want(w, NULL);
  return ATTN_OK;
}

/* The second verdict is on inputs that no run has seen yet and that nothing could foresee: what
 * returns a stored, a stale or a precomputed output fails it. */
static int verify_afresh(struct group_work *w)
{
  if (!w->o->recheck)
    return ATTN_OK;
  w->fresh_seed = group_entropy() >> 11; /* a number that --seed takes */
  int status = tensors_draw(w->tensors, w->fresh_seed);
  return status ? status : each_ready(w, "verify after timing", group_verify);
}

/* Where an implementation says whose bits it has on any input, and both passed on these. */
static void compare_twins(struct group_work *w)
{
  for (int i = 0; i < w->g->n; i++)
    for (int k = 0; k < w->g->n; k++) {
      struct live *l = &w->live[i];
      const struct live *of = &w->live[k];
      if (!l->ready || !l->bits || !l->c->impl->twin || !of->ready || !of->bits ||
          strcmp(l->c->impl->twin, of->c->impl->name))
        continue;
      l->c->record.same_bits = l->bits == of->bits;
      if (l->bits != of->bits) {
        group_end(l->c, STATUS_FAIL, "same-bits: its outputs are not those of %s bit for bit",
                  l->c->impl->twin);
        l->ready = false;
      }
    }
}

/* How many cases there are to run. */
static int prepare_cases(struct group_work *w, int *ready)
{
  int status = ATTN_OK;
  for (int i = 0; i < w->g->n && !status; i++) {
    w->live[i].c = &w->g->cases[i];
    if (w->g->cases[i].done)
      continue;
    group_stage(w->g, i, "prepare");
    status = prepare(w, &w->live[i]);
    *ready += w->live[i].ready;
  }
  return status;
}

static int run_cases(struct group_work *w)
{
  int ready = 0, status = prepare_cases(w, &ready);
  if (status || !ready)
    return status;
  spent_enter(w->g->spent, SPENT_CHECKS);
  status = each_ready(w, "verify", w->o->zoo ? group_zoo : group_verify);
  if (!status)
    compare_twins(w);
  if (!status && w->o->laws && !w->o->zoo)
    status = each_ready(w, "laws", group_laws);
  spent_enter(w->g->spent, SPENT_REST);
  if (!status && w->o->time)
    status = group_time(w);
  spent_enter(w->g->spent, SPENT_COUNTERS);
  if (!status && w->o->count)
    status = group_count(w);
  spent_enter(w->g->spent, SPENT_CHECKS);
  if (!status && (w->o->time || w->o->count))
    status = verify_afresh(w);
  spent_enter(w->g->spent, SPENT_REST);
  return status;
}

/* What stays open when the operands themselves cannot be had. */
static void end_all(struct group *g, enum record_status status, const char *what, const char *why)
{
  for (int i = 0; i < g->n; i++)
    if (!g->cases[i].done)
      group_end(&g->cases[i], status, "%s: %s", what, why);
}

/* Relative to naive in the same types and the same run. */
static void against_naive(struct group *g)
{
  double naive = NAN;
  for (int i = 0; i < g->n; i++) {
    const char *slash = strchr(g->cases[i].record.impl, '/');
    if (slash && !strcmp(slash, "/naive") && g->cases[i].record.verified)
      naive = g->cases[i].record.verdict.rel_fro;
  }
  for (int i = 0; i < g->n; i++)
    if (g->cases[i].record.verified && naive > 0)
      g->cases[i].record.err_vs_naive = g->cases[i].record.verdict.rel_fro / naive;
}

static void conclude(struct group_work *w)
{
  struct group *g = w->g;
  against_naive(g);
  for (int i = 0; i < g->n; i++) {
    struct group_case *c = &g->cases[i];
    if (c->done || !w->live[i].ready)
      continue;
    group_judge(g, c);
    c->done = true;
  }
}

static void release(struct group_work *w)
{
  for (int i = 0; i < w->g->n; i++) {
    struct live *l = &w->live[i];
    if (l->c && l->c->impl->finish && l->c->impl->prepare && l->plan)
      l->c->impl->finish(l->plan);
  }
}

/* Inputs that nobody takes need not be drawn: of a long problem they are most of the work. */
static bool anybody_takes(const struct group_work *w)
{
  for (int i = 0; i < w->g->n; i++)
    if (!w->g->cases[i].done &&
        !attn_unsupported(w->g->cases[i].impl, &w->g->problem, &w->dev->info))
      return true;
  return false;
}

int group_run(struct group *g, struct device *dev, const struct group_options *o)
{
  struct arena arena;
  struct tensors tensors;
  struct group_work w = {
      .g = g, .dev = dev, .o = o, .arena = &arena, .tensors = &tensors, .info = dev->info};
  arena_init(&arena, dev);
  group_stage(g, -1, "operands");
  spent_enter(g->spent, SPENT_INPUTS);
  int status = tensors_create(&tensors, &g->problem, &arena);
  tensors.regime = o->regime;
  if (!status && anybody_takes(&w))
    status = tensors_draw(&tensors, o->seed);
  if (status) {
    end_all(g, status_of(status), "operands", dev->error);
    goto out;
  }
  spent_enter(g->spent, SPENT_REST);
  status = run_cases(&w);
  spent_enter(g->spent, SPENT_INPUTS); /* their end */
  if (!status)
    conclude(&w);
  else if (status != ATTN_EDEVICE)
    end_all(g, status_of(status), g->stage[0] ? g->stage : "run", dev->error);
out:
  group_want(&w, NULL);
  group_zoo_end(&w);
  if (status != ATTN_EDEVICE) {
    release(&w);
    tensors_destroy(&tensors);
    arena_destroy(&arena);
    __atomic_store_n(&g->finished, true, __ATOMIC_RELEASE);
    status = ATTN_OK;
  }
  return status;
}
