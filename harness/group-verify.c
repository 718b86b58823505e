/* SPDX-License-Identifier: Apache-2.0
 *
 * group-verify.c - one verdict: poisoned outputs, a run, guards, inputs, the bound, the same bits
 * twice.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "harness/group.h"
#include "harness/tensors.h"

/* Multiply-adds that a verdict may cost: about a second on two host cores, well under one on a
 * GPU with fast fp64. */
#define HOST_BUDGET 4e9
#define CUDA_BUDGET 4e11

static int64_t rows_by_budget(const struct group_work *w)
{
  const struct attn_problem *p = &w->g->problem;
  double budget = w->dev->info.kind == ATTN_CUDA ? CUDA_BUDGET : HOST_BUDGET;
  double rows = (double)attn_problem_total_q(p) * (double)p->hq;
  double keys = rows > 0 ? attn_problem_pairs(p) * (double)p->hq / rows : 0;
  double row_cost = (keys + 1) * (double)(p->d + p->dv);
  double allowed = budget / row_cost;
  return allowed >= rows ? 0 : allowed < 64 ? 64 : (int64_t)allowed;
}

static int truth(struct group_work *w, struct live *l, struct ref_verdict *v)
{
  struct ref_plan plan = {w->o->rows_max ? w->o->rows_max : rows_by_budget(w), w->o->seed};
  const struct attn_numerics *num = &l->c->impl->numerics;
  if (w->dev->info.kind == ATTN_CPU)
    return ref_verify_host(&w->g->problem, num, &l->args, &plan, v);
#ifdef HAVE_CUDA
  return ref_verify_cuda(&w->g->problem, num, &l->args, &plan, w->dev->ops->stream(w->dev), v);
#else
  return ATTN_EUNSUPPORTED;
#endif
}

/* NaN-aware: a NaN ratio is the worst there is. */
static double worse(double a, double b)
{
  return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

/* A record carries the worst of its verdicts. */
static void merge(struct record *r, const struct ref_verdict *v)
{
  if (!r->verified) {
    r->verdict = *v;
    r->verified = true;
    return;
  }
  struct ref_verdict *m = &r->verdict;
  if (m->pass && (!v->pass || v->bound_ratio > m->bound_ratio))
    m->worst = v->worst;
  m->pass = m->pass && v->pass;
  m->bound_ratio = worse(m->bound_ratio, v->bound_ratio);
  m->lse_bound_ratio = worse(m->lse_bound_ratio, v->lse_bound_ratio);
  m->max_ulp = worse(m->max_ulp, v->max_ulp);
  m->rel_fro = worse(m->rel_fro, v->rel_fro);
  m->checked_rows = v->checked_rows > m->checked_rows ? v->checked_rows : m->checked_rows;
}

/* One run on poisoned outputs and workspace. A device error ends the case and loses the device. */
static int run_once(struct group_work *w, struct live *l)
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

static void say_worst(struct group_case *c)
{
  const struct ref_verdict *v = &c->record.verdict;
  const struct ref_worst *x = &v->worst;
  group_end(c, STATUS_FAIL,
            "%s[seq %lld, row %lld, head %lld, col %lld] is %.9g, want %.9g +- %.3g",
            x->tensor ? x->tensor : "?", (long long)x->seq, (long long)x->row, (long long)x->head,
            (long long)x->col, x->got, x->want, x->bound);
}

static int verdict(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  struct ref_verdict v;
  int status = truth(w, l, &v);
  if (status) {
    group_end(l->c, STATUS_CRASH, "the reference failed with status %d", status);
    l->ready = false;
    return status == ATTN_EDEVICE ? status : ATTN_OK;
  }
  merge(r, &v);
  r->inputs_unchanged = tensors_inputs_unchanged(w->tensors);
  if (!r->verdict.pass)
    say_worst(l->c);
  else if (r->inputs_unchanged == 0)
    group_end(l->c, STATUS_FAIL, "the run changed its inputs");
  else
    r->status = STATUS_PASS;
  l->ready = r->status == STATUS_PASS;
  return ATTN_OK;
}

int group_verify(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  int status = run_once(w, l), hashed;
  if (status || !l->ready)
    return status;
  uint64_t first = tensors_output_hash(w->tensors, &hashed);
  status = verdict(w, l);
  if (status || !l->ready || hashed || r->rerun_bitwise >= 0)
    return status;
  status = run_once(w, l);
  if (!status && l->ready) {
    uint64_t second = tensors_output_hash(w->tensors, &hashed);
    r->rerun_bitwise = hashed ? -1 : first == second;
  }
  return status;
}
