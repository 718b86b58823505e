/* SPDX-License-Identifier: Apache-2.0
 *
 * group-verify.c - one verdict: poisoned outputs, a run, guards, inputs, the bound, the same bits
 * twice.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include <stdio.h>

#include "harness/run/group.h"

/* Multiply-adds of rows that a verdict may cost: a second or two on two host cores, well under one
 * on a GPU with fast fp64. */
#define HOST_BUDGET 5e8
#define CUDA_BUDGET 4e11
#define QUICK 0.125

/* Rows of op=rope: an element costs a cosine; from a GPU each row comes in copies of its own. */
#define HOST_ROTATIONS 1.5e7
#define CUDA_ROPE_ROWS 4096

static int64_t rope_rows(const struct group_work *w)
{
  const struct attn_problem *p = &w->g->problem;
  double rows = (double)attn_problem_total_q(p) * (double)p->hq;
  double allowed = w->dev->info.kind == ATTN_CUDA ? CUDA_ROPE_ROWS : HOST_ROTATIONS / (double)p->d;
  if (w->o->quick)
    allowed *= QUICK;
  return allowed >= rows ? 0 : allowed < 64 ? 64 : (int64_t)allowed;
}

int64_t group_rows(const struct group_work *w)
{
  const struct attn_problem *p = &w->g->problem;
  if (w->o->rows_max)
    return w->o->rows_max;
  if (p->op == ATTN_ROPE)
    return rope_rows(w);
  double budget = w->dev->info.kind == ATTN_CUDA ? CUDA_BUDGET : HOST_BUDGET;
  double rows = (double)attn_problem_total_q(p) * (double)p->hq;
  double keys = rows > 0 ? attn_problem_pairs(p) * (double)p->hq / rows : 0;
  double row_cost = (keys + 1) * (double)(p->d + p->dv);
  double allowed = budget * (w->o->quick ? QUICK : 1) / row_cost;
  return allowed >= rows ? 0 : allowed < 64 ? 64 : (int64_t)allowed;
}

static int read_device(void *ctx, void *to, const void *from, size_t bytes)
{
  struct device *dev = ctx;
  return dev->ops->download(dev, to, from, bytes);
}

/* Rows come from wherever they are, one by one. */
static int rope_truth(struct group_work *w, struct live *l, const struct attn_args *args,
                      const struct ref_plan *plan, struct ref_verdict *v)
{
  struct ref_source source = {read_device, w->dev};
  struct attn_args a = *args;
  a.block_table = w->tensors->host_table;
  return ref_verify_rope(&w->g->problem, &l->c->impl->numerics, &a, plan,
                         w->dev->info.kind == ATTN_CPU ? NULL : &source, v);
}

static int truth(struct group_work *w, struct live *l, const struct attn_args *args,
                 const struct ref_plan *plan, struct ref_verdict *v)
{
  const struct attn_numerics *num = &l->c->impl->numerics;
  if (w->g->problem.op == ATTN_ROPE)
    return rope_truth(w, l, args, plan, v);
  if (w->dev->info.kind == ATTN_CPU)
    return ref_verify_host(&w->g->problem, num, args, plan, v);
#ifdef HAVE_CUDA
  return ref_verify_cuda(&w->g->problem, num, args, plan, w->dev->ops->stream(w->dev), v);
#else
  return ATTN_EUNSUPPORTED;
#endif
}

/* The numbers of a record are those of its first verdict, which its seed repeats; a later one
 * counts if it fails. */
static void merge(struct record *r, const struct ref_verdict *v)
{
  if (r->verified && v->pass)
    return;
  r->verdict = *v;
  r->verified = true;
}

int group_run_once(struct group_work *w, struct live *l)
{
  struct device *dev = w->dev;
  char why[sizeof dev->error];
  int status = tensors_poison_outputs(w->tensors);
  if (!status && l->workspace)
    status = arena_poison(w->arena, l->workspace);
  if (!status)
    status = dev->ops->sync(dev);
  if (status)
    return status;
  int run = group_launch(l, dev->ops->stream(dev));
  status = dev->ops->sync(dev);
  if (status) {
    group_end(l->c, STATUS_CRASH, "run: %s", dev->error);
    return ATTN_EDEVICE;
  }
  if (run) {
    group_end(l->c, STATUS_FAIL, "run returned status %d", run);
    l->ready = false;
    return ATTN_OK;
  }
  if (arena_check_guards(w->arena, why, sizeof why)) {
    l->c->record.guards_intact = 0;
    group_end(l->c, STATUS_FAIL, "%s", why);
    l->ready = false;
    return ATTN_EDEVICE; /* memory of others may be damaged: a new process for the rest */
  }
  l->c->record.guards_intact = 1;
  return ATTN_OK;
}

static void say_worst(struct group_case *c, const char *when)
{
  const struct ref_verdict *v = &c->record.verdict;
  const struct ref_worst *x = &v->worst;
  char want[80] = "a finite number";
  if (isfinite(x->want))
    snprintf(want, sizeof want, "%.9g +- %.3g", x->want, x->bound);
  group_end(c, STATUS_FAIL, "%s%s[seq %lld, row %lld, head %lld, col %lld] is %.9g, want %s", when,
            x->tensor ? x->tensor : "?", (long long)x->seq, (long long)x->row, (long long)x->head,
            (long long)x->col, x->got, want);
}

int group_truth(struct group_work *w, struct live *l, const struct attn_args *args, int64_t rows,
                uint64_t seed, const char *when)
{
  struct record *r = &l->c->record;
  struct ref_plan plan = {rows, seed};
  struct ref_verdict v;
  int status = truth(w, l, args, &plan, &v);
  if (status) {
    group_end(l->c, STATUS_CRASH, "%sthe reference failed with status %d", when, status);
    l->ready = false;
    return status == ATTN_EDEVICE ? status : ATTN_OK;
  }
  merge(r, &v);
  r->status = v.pass ? STATUS_PASS : STATUS_FAIL;
  if (!v.pass)
    say_worst(l->c, when);
  l->ready = v.pass;
  return ATTN_OK;
}

/* A verdict costs more than a run. Where another implementation of the same numerics passed with
 * the same bits on the same inputs, its verdict is this one's too. */
static const struct ref_verdict *twin(const struct group_work *w, const struct live *l)
{
  for (const struct live *x = w->live; x != l; x++)
    if (l->bits && x->bits == l->bits && x->ready && x->c->record.status == STATUS_PASS &&
        !memcmp(&x->c->impl->numerics, &l->c->impl->numerics, sizeof l->c->impl->numerics))
      return &x->c->record.verdict;
  return NULL;
}

static int truth_or_twin(struct group_work *w, struct live *l, int64_t rows, const char *when)
{
  const struct ref_verdict *same = w->fresh_seed ? NULL : twin(w, l);
  if (!same)
    return group_truth(w, l, &l->args, rows, w->o->seed, when);
  merge(&l->c->record, same);
  l->c->record.status = STATUS_PASS;
  return ATTN_OK;
}

static int verdict(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  char when[64] = "";
  if (w->fresh_seed)
    snprintf(when, sizeof when, "with --seed %llu: ", (unsigned long long)w->fresh_seed);
  int64_t rows = group_rows(w);
  int unchanged = tensors_inputs_unchanged(w->tensors);
  int status = truth_or_twin(w, l, rows, when);
  r->inputs_unchanged = unchanged;
  if (status || unchanged != 0)
    return status;
  const char *where = w->tensors->changed;
  group_end(l->c, STATUS_FAIL, "the run changed %s", *where ? where : "its inputs");
  l->ready = false;
  return tensors_restore(w->tensors);
}

int group_verify(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  int status = group_run_once(w, l), unknown;
  if (status || !l->ready)
    return status;
  uint64_t first = tensors_output_digest(w->tensors, &unknown);
  l->bits = unknown ? 0 : first;
  status = verdict(w, l);
  if (status || !l->ready || unknown || r->rerun_bitwise >= 0)
    return status;
  status = group_run_once(w, l);
  if (!status && l->ready) {
    uint64_t second = tensors_output_digest(w->tensors, &unknown);
    r->rerun_bitwise = unknown ? -1 : first == second;
  }
  return status;
}
