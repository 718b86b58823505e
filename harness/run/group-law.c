/* SPDX-License-Identifier: Apache-2.0
 *
 * group-law.c - the laws on the device: operands of related problems go there, one run, and back.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/group.h"
#include "impl/convert.h"

/* Scores of the base problem up to which all laws are tried, and multiply-adds that one may cost
 * beyond: each takes some runs, and the host reads what they wrote. */
#define HOST_SCORES 4e5
#define CUDA_SCORES 4e6
#define WORK 4e9

/* A run elsewhere: its operands and what it prepared. */
struct away {
  const struct attn_impl *impl;
  struct device *dev;
  struct arena arena;
  struct arena_buffer *buffer[LAW_OPERANDS], *cu_q, *cu_k, *table, *lengths, *scale[2], *workspace;
  struct attn_args args;
  void *plan;
};

static int upload(struct away *a, const struct law_set *s)
{
  struct attn_args *x = &a->args;
  struct attn_tensor *slot[LAW_OPERANDS] = {&x->q,  &x->k,  &x->v, &x->o,     &x->dout, &x->dq,
                                            &x->dk, &x->dv, NULL,  &x->k_new, &x->v_new};
  int status = ATTN_OK;
  for (int op = 0; op < LAW_OPERANDS && !status; op++) {
    if (!s->used[op])
      continue;
    status = arena_alloc(&a->arena, law_operand_name(op), s->bytes[op], &a->buffer[op]);
    if (!status && s->bytes[op])
      status = a->dev->ops->upload(a->dev, a->buffer[op]->data, s->t[op].data, s->bytes[op]);
    if (status)
      break;
    if (slot[op]) {
      *slot[op] = s->t[op];
      slot[op]->data = a->buffer[op]->data;
    } else {
      x->lse = a->buffer[op]->data;
    }
  }
  return status;
}

static int upload_starts(struct away *a, const struct law_set *s, bool query,
                         struct arena_buffer **out)
{
  size_t n = (size_t)s->r.shape.b + 1;
  int32_t *cu = calloc(n, sizeof *cu);
  int status = cu ? arena_alloc(&a->arena, "cu_seqlens", n * sizeof *cu, out) : ATTN_ENOMEM;
  for (size_t i = 0; !status && i + 1 < n; i++)
    cu[i + 1] = cu[i] + (int32_t)(query ? s->r.seqs[i].sq : s->r.seqs[i].sk);
  if (!status)
    status = a->dev->ops->upload(a->dev, (*out)->data, cu, n * sizeof *cu);
  free(cu);
  return status;
}

/* Four bytes each. */
static int upload_numbers(struct away *a, const char *name, const void *from, int64_t n,
                          struct arena_buffer **out)
{
  size_t bytes = (size_t)n * 4;
  int status = arena_alloc(&a->arena, name, bytes, out);
  return status || !bytes ? status : a->dev->ops->upload(a->dev, (*out)->data, from, bytes);
}

static int upload_pages(struct away *a, const struct law_set *s)
{
  struct attn_args *x = &a->args;
  int64_t b = s->r.shape.b;
  int status = upload_numbers(a, "block_table", s->table, b * s->table_stride, &a->table);
  if (!status)
    status = upload_numbers(a, "seqlens_k", s->lengths, b, &a->lengths);
  for (int i = 0; i < 2 && !status && s->p.kv; i++)
    status = upload_numbers(a, "scale", s->scale[i], s->p.hkv, &a->scale[i]);
  if (status)
    return status;
  x->k_scale = s->p.kv ? a->scale[0]->data : NULL;
  x->v_scale = s->p.kv ? a->scale[1]->data : NULL;
  x->block_table = a->table->data;
  x->block_table_stride = s->table_stride;
  x->seqlens_k = a->lengths->data;
  return ATTN_OK;
}

static int prepare(struct away *a, const struct law_set *s)
{
  const struct attn_impl *impl = a->impl;
  struct attn_args *x = &a->args;
  int status = upload(a, s);
  if (!status && s->p.layout == ATTN_PACKED) {
    status = upload_starts(a, s, true, &a->cu_q);
    if (!status && !s->p.page)
      status = upload_starts(a, s, false, &a->cu_k);
    x->cu_seqlens_q = status ? NULL : a->cu_q->data;
    x->cu_seqlens_k = status || s->p.page ? NULL : a->cu_k->data;
  }
  if (!status && s->p.page)
    status = upload_pages(a, s);
  x->workspace_bytes = impl->workspace ? impl->workspace(&s->p, &a->dev->info) : 0;
  if (!status)
    status = arena_alloc(&a->arena, "workspace", x->workspace_bytes, &a->workspace);
  if (status)
    return status;
  x->workspace = a->workspace->data;
  a->plan = (void *)&s->p;
  if (impl->prepare && (status = impl->prepare(&s->p, &a->dev->info, &a->plan)))
    a->plan = NULL;
  return status;
}

static int run_and_fetch(struct away *a, struct law_set *s)
{
  struct device *dev = a->dev;
  char why[sizeof dev->error];
  int status = dev->ops->sync(dev);
  int run = status ? ATTN_OK : a->impl->run(a->plan, &a->args, dev->ops->stream(dev));
  if (!status)
    status = dev->ops->sync(dev);
  if (!status && run)
    status = run == ATTN_EUNSUPPORTED && !s->gaps ? ATTN_EINVAL : run;
  if (!status && arena_check_guards(&a->arena, why, sizeof why)) {
    snprintf(dev->error, sizeof dev->error, "%s", why);
    status = ATTN_EDEVICE;
  }
  for (int op = 0; op < LAW_OPERANDS && !status; op++)
    if (s->output[op] && s->bytes[op])
      status = dev->ops->download(dev, s->t[op].data, a->buffer[op]->data, s->bytes[op]);
  return status;
}

int group_law_run(const struct attn_impl *impl, struct device *dev, struct law_set *s)
{
  struct away a = {.impl = impl, .dev = dev};
  char err[128];
  if (attn_problem_check(&s->p, err, sizeof err) || attn_unsupported(impl, &s->p, &dev->info))
    return ATTN_EUNSUPPORTED;
  arena_init(&a.arena, dev);
  int status = prepare(&a, s);
  if (!status)
    status = run_and_fetch(&a, s);
  if (impl->prepare && a.plan)
    impl->finish(a.plan);
  arena_destroy(&a.arena);
  return status;
}

/* ---- of a group ------------------------------------------------------------------------------ */

struct context {
  struct group_work *w;
  struct live *l;
};

static int run(void *ctx, struct law_set *s)
{
  struct context *c = ctx;
  ++*c->w->g->beats;
  return group_law_run(c->l->c->impl, c->w->dev, s);
}

/* Of an e4m3 cache as codes, into one; rounded to the set's type, as those who follow a customary
 * rule have them, into another. */
void group_law_gather(const struct tensors *from, enum law_operand op, struct law_set *s)
{
  const struct attn_problem *p = from->p;
  enum operand which = op == LAW_K ? OP_K : OP_V;
  struct attn_tensor t = operand_strides(p, which);
  const float *scale = s->p.kv ? NULL : from->host_scale[op == LAW_V];
  int64_t stride = attn_problem_pages(p, p->sk);
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at)) {
    int64_t page = from->host_table[at.seq * stride + at.row / p->page];
    int64_t row = page * t.sb + at.row % p->page * t.ss + at.head * t.sh;
    for (int64_t c = 0; c < law_width(s, op); c++)
      law_put(s, op, &at, c,
              (scale ? scale[at.head] : law_factor(s, op)) *
                  attn_load(attn_problem_kv_type(p), from->host[which], row + c));
  }
}

/* The inputs that were verified; dense and in the same order, or page by page. */
static void fill(void *ctx, struct law_set *s)
{
  struct context *c = ctx;
  static const enum operand of[LAW_OPERANDS] = {
      [LAW_Q] = OP_Q,       [LAW_K] = OP_K,         [LAW_V] = OP_V,
      [LAW_DOUT] = OP_DOUT, [LAW_K_NEW] = OP_K_NEW, [LAW_V_NEW] = OP_V_NEW};
  for (int op = 0; op < LAW_OPERANDS; op++)
    if (s->p.page && !s->output[op] && (op == LAW_K || op == LAW_V))
      group_law_gather(c->w->tensors, op, s);
    else if (s->used[op] && !s->output[op] && (op == LAW_Q || of[op] != OP_Q))
      memcpy(s->t[op].data, c->w->tensors->host[of[op]], s->bytes[op]);
}

static void blame(struct live *l, const struct law_result *result)
{
  for (int i = 0; i < law_count(); i++)
    if (result[i].state == LAW_FAIL && l->ready) {
      group_end(l->c, STATUS_FAIL, "law %s: %s", law_name(i), result[i].text);
      l->ready = false;
    }
}

/* Gradients; and what peers split, who promise nothing. */
static bool adds_in_any_order(const struct attn_impl *impl, const struct attn_problem *p)
{
  return p->op == ATTN_BWD || (p->op == ATTN_DECODE && !strncmp(impl->name, "peer/", 5));
}

int group_laws(struct group_work *w, struct live *l)
{
  const struct attn_problem *p = &w->g->problem;
  bool cuda = w->dev->info.kind == ATTN_CUDA;
  double scores = cuda ? CUDA_SCORES : HOST_SCORES;
  struct context c = {w, l};
  struct law_subject subject = {&l->c->impl->numerics,
                                run,
                                fill,
                                &c,
                                w->o->seed,
                                scores,
                                WORK,
                                cuda && !p->deterministic && adds_in_any_order(l->c->impl, p)};
  struct law_result result[LAWS_MAX];
  int status = law_check(p, &subject, result);
  for (int i = 0; i < LAWS_MAX; i++)
    l->c->record.law[i] = (int8_t)result[i].state;
  for (int i = 0; i < law_count(); i++)
    if (result[i].state == LAW_UNTRIED)
      snprintf(l->c->record.laws_left_out, sizeof l->c->record.laws_left_out, "%s",
               law_too_long(p, &subject, i));
  blame(l, result);
  if (!status && l->ready && !w->o->zoo)
    status = law_observe(p, &subject, &l->c->record.properties);
  if (status == ATTN_EDEVICE) {
    if (l->ready)
      group_end(l->c, STATUS_CRASH, "laws: %s", w->dev->error);
    return status;
  }
  if (status && l->ready) {
    group_end(l->c, STATUS_FAIL, "laws: a run returned status %d", status);
    l->ready = false;
  }
  return ATTN_OK;
}
