/* SPDX-License-Identifier: Apache-2.0
 *
 * group-zoo.c - every check and every customary rule on one run, none of which ends the case: a row
 * of the kill matrix.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/run/group.h"
#include "harness/run/rules.h"

/* Scores beyond which no customary rule is asked: they are computed on the host. */
#define RULES_PAIRS 1e7

/* Of the group's problem, in the process that runs it. */
struct group_zoo {
  struct law_set s; /* inputs; outputs of the run at hand */
  struct rule_truth truth;
  bool ready;
};

static const enum operand operand_of[LAW_OPERANDS] = {
    [LAW_Q] = OP_Q,   [LAW_K] = OP_K,   [LAW_V] = OP_V,   [LAW_O] = OP_O,    [LAW_DOUT] = OP_DOUT,
    [LAW_DQ] = OP_DQ, [LAW_DK] = OP_DK, [LAW_DV] = OP_DV, [LAW_LSE] = OP_LSE};

static int zoo_prepare(struct group_work *w, struct group_zoo *z)
{
  struct attn_problem p = w->g->problem;
  p.page = p.prefix = 0;
  p.kv = ATTN_KV_DTYPE;
  int status = law_set_make(&z->s, &p, false);
  if (status)
    return status;
  for (int op = 0; op < LAW_OPERANDS; op++) {
    if (!z->s.used[op] || z->s.output[op])
      continue;
    if (w->g->problem.page && op != LAW_Q)
      group_law_gather(w->tensors, op, &z->s);
    else
      memcpy(z->s.t[op].data, w->tensors->host[operand_of[op]], z->s.bytes[op]);
  }
  w->g->busy = clock_now();
  status = rules_prepare(&z->s, &z->truth, w->g->beats);
  w->g->busy = 0;
  z->ready = !status;
  ++*w->g->beats;
  return status;
}

void group_zoo_end(struct group_work *w)
{
  if (!w->zoo)
    return;
  law_set_free(&w->zoo->s);
  rules_free(&w->zoo->truth);
  free(w->zoo);
  w->zoo = NULL;
}

/* The outputs as they are on the device. */
static int fetch(struct group_work *w, struct group_zoo *z)
{
  int status = ATTN_OK;
  for (int op = 0; op < LAW_OPERANDS && !status; op++)
    if (z->s.output[op] && z->s.bytes[op])
      status = w->dev->ops->download(w->dev, z->s.t[op].data,
                                     w->tensors->buffer[operand_of[op]]->data, z->s.bytes[op]);
  return status;
}

/* Verdicts cost more than runs, and most mutants leave most problems alone. */
static const struct record *twin(const struct group_work *w, const struct live *l)
{
  for (int i = 0; &w->live[i] != l; i++) {
    const struct group_case *c = w->live[i].c;
    if (c && c->record.rules.known && c->record.rules.bits == l->c->record.rules.bits &&
        !memcmp(&c->impl->numerics, &l->c->impl->numerics, sizeof c->impl->numerics))
      return &c->record;
  }
  return NULL;
}

static int judge(struct group_work *w, struct live *l, struct group_zoo *z)
{
  struct record *r = &l->c->record;
  const struct record *same = twin(w, l);
  if (same) {
    r->rules = same->rules;
    r->verdict = same->verdict;
    r->verified = true;
    r->status = same->status;
    memcpy(r->reason, same->reason, sizeof r->reason);
    return ATTN_OK;
  }
  int status = group_truth(w, l, &l->args, 0, w->o->seed, "");
  bool rope = w->g->problem.op == ATTN_ROPE;
  if (!status && rope)
    status = group_rope_rules(w, r->rules.customary);
  else if (!status && z->ready)
    status = fetch(w, z);
  r->rules.known = true;
  r->rules.bound = r->verdict.bound_ratio <= 1;
  r->rules.lse = w->g->problem.op == ATTN_BWD || rope || r->verdict.lse_bound_ratio <= 1;
  for (int i = 0; i < RULES && !status && z->ready; i++)
    r->rules.customary[i] = rules_pass(&z->truth, &z->s, i);
  return status;
}

/* On a GPU once more with the same plan: what a run leaves behind must not reach the next. */
static int judge_again(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  int unknown, status = group_run_once(w, l);
  if (status || !l->ready) {
    r->rules.known = false;
    return status;
  }
  uint64_t bits = tensors_output_digest(w->tensors, &unknown);
  if (bits == r->rules.bits)
    return ATTN_OK;
  r->rules.bits = bits;
  return judge(w, l, w->zoo);
}

int group_zoo(struct group_work *w, struct live *l)
{
  double pairs = attn_problem_pairs(&w->g->problem) * (double)w->g->problem.hq;
  struct record *r = &l->c->record;
  int status = ATTN_OK, unknown;
  if (!w->zoo && !(w->zoo = calloc(1, sizeof *w->zoo)))
    return ATTN_ENOMEM;
  if (!w->zoo->ready && w->g->problem.op != ATTN_ROPE && pairs <= RULES_PAIRS)
    status = zoo_prepare(w, w->zoo);
  if (!status)
    status = group_run_once(w, l);
  if (status || !l->ready)
    return status;
  r->rules.bits = tensors_output_digest(w->tensors, &unknown);
  r->inputs_unchanged = tensors_inputs_unchanged(w->tensors);
  if (r->inputs_unchanged == 0)
    status = tensors_restore(w->tensors);
  if (!status)
    status = judge(w, l, w->zoo);
  if (!status && r->status == STATUS_PASS && w->dev->info.kind == ATTN_CUDA)
    status = judge_again(w, l);
  if (status || !w->o->laws)
    return status;
  l->ready = true;
  return group_laws(w, l);
}
