/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder-calls.c - a step's sequences as problems of attention and RoPE, and their tensors.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/serve/decoder-parts.h"

/* ---- numbers -------------------------------------------------------------------------------- */

int64_t decoder_numbers_row(const struct step *step)
{
  return step->tokens;
}

static int put(struct decoder *d, int64_t n)
{
  if (d->numbers == d->number_room) {
    int64_t room = 2 * d->number_room + 1024;
    int32_t *number = realloc(d->number, (size_t)room * sizeof *number);
    if (!number)
      return ATTN_ENOMEM;
    d->number = number;
    d->number_room = room;
    d->c.dev->ops->free(d->c.dev, d->number_device);
    d->number_device = NULL;
  }
  d->number[d->numbers++] = (int32_t)n;
  return ATTN_OK;
}

static int put_tokens(struct decoder *d, const struct step *step)
{
  int status = ATTN_OK;
  int64_t row = -1;
  d->numbers = 0;
  for (int64_t i = 0; i < step->nitems; i++)
    for (int64_t k = 0; !status && k < step->item[i].n; k++)
      status = put(d, step->item[i].token[k]);
  for (int64_t i = 0; !status && i < step->nitems; i++) {
    row += step->item[i].n;
    if (step->item[i].sample)
      status = put(d, row);
  }
  return status;
}

/* Large chunks, if there is an implementation for them. */
static bool gathers(const struct decoder *d, const struct step_item *item)
{
  return d->o.gathered && item->n > 1 && item->n >= d->o.gather_least;
}

/* Where an item's keys lie in a pool, as rows. */
static int put_rows(struct decoder *d, struct call *call, const struct step_item *item)
{
  int status = ATTN_OK;
  call->rows = d->numbers;
  for (int64_t j = 0; !status && j < item->first + item->n; j++)
    status = put(d, item->table[j / d->o.page] * d->o.page + j % d->o.page);
  return status;
}

/* cu_seqlens of queries, lengths and block tables of n items. */
static int put_call(struct decoder *d, struct call *call, const struct step_item *item, int64_t n)
{
  int status = ATTN_OK;
  int64_t q = 0, stride = 1;
  call->cu_q = d->numbers;
  for (int64_t i = 0; !status && i <= n; q += i < n ? item[i].n : 0, i++)
    status = put(d, q);
  call->seqlens = d->numbers;
  for (int64_t i = 0; !status && i < n; i++) {
    status = put(d, item[i].first + item[i].n);
    stride = item[i].npages > stride ? item[i].npages : stride;
  }
  call->table = d->numbers;
  call->table_stride = stride;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; !status && j < stride; j++)
      status = put(d, j < item[i].npages ? item[i].table[j] : -1);
  return !status && gathers(d, item) ? put_rows(d, call, item) : status;
}

static int bring_numbers(struct decoder *d)
{
  struct device *dev = d->c.dev;
  int status = ATTN_OK;
  if (!d->number_device)
    status =
        dev->ops->alloc(dev, (size_t)d->number_room * sizeof(int32_t), (void **)&d->number_device);
  if (!status)
    status =
        dev->ops->upload(dev, d->number_device, d->number, (size_t)d->numbers * sizeof(int32_t));
  /* plans may have used other streams */
  return status ? status : dev->ops->sync(dev);
}

/* ---- problems ------------------------------------------------------------------------------- */

static void set_lengths(struct attn_problem *p, const struct step_item *item, int64_t n)
{
  p->layout = ATTN_PACKED;
  p->b = n;
  p->sq = p->sk = 0;
  p->nruns = (int)n;
  for (int64_t i = 0; i < n; i++) {
    struct attn_run r = {1, item[i].n, item[i].first + item[i].n};
    p->runs[i] = r;
    p->sq = r.sq > p->sq ? r.sq : p->sq;
    p->sk = r.sk > p->sk ? r.sk : p->sk;
  }
}

static void set_problems(struct decoder *d, struct call *call, const struct step_item *item,
                         int64_t n)
{
  decoder_problem(&d->o, d->c.ops->dtype, item->first, item->n, &call->problem);
  if (!d->o.contiguous)
    set_lengths(&call->problem, item, n);
  call->impl = item->n == 1 ? d->o.decode : d->o.prefill;
  call->rope = call->problem;
  call->rope.op = ATTN_ROPE;
  call->rope.mask = ATTN_MASK_NONE;
  call->rope.window_left = 0;
  call->rope.rope = d->o.scaling;
  if (!gathers(d, item))
    return;
  decoder_problem(&d->o, d->c.ops->dtype, item->first, item->n, &call->problem);
  call->problem.page = 0;
  call->impl = d->o.gathered;
}

static int prepare(struct decoder *d, const struct attn_impl *impl, struct attn_problem *p,
                   void **plan, size_t *workspace, char *err, size_t errlen)
{
  const struct attn_device *info = &d->c.dev->info;
  char text[ATTN_PROBLEM_TEXT];
  const char *why = attn_unsupported(impl, p, info);
  *plan = NULL;
  if (why) {
    attn_problem_print(p, text, sizeof text);
    snprintf(err, errlen, "%s: %s (%.300s); choose another --impl", impl->name, why, text);
    return ATTN_EUNSUPPORTED;
  }
  size_t bytes = impl->workspace ? impl->workspace(p, info) : 0;
  *workspace = bytes > *workspace ? bytes : *workspace;
  if (!impl->prepare) {
    *plan = p;
    return ATTN_OK;
  }
  int status = impl->prepare(p, info, plan);
  if (status)
    snprintf(err, errlen, "%s: no memory for a plan of %lld sequences", impl->name,
             (long long)p->b);
  return status;
}

/* Sequences from item on that go into one call: of one kind, and no more than a problem names. */
static int64_t together(const struct decoder *d, const struct step *step, int64_t from)
{
  int64_t n = 1, most = d->o.contiguous || gathers(d, &step->item[from]) ? 1 : ATTN_MAX_RUNS;
  while (n < most && from + n < step->nitems && !gathers(d, &step->item[from + n]) &&
         (step->item[from + n].n == 1) == (step->item[from].n == 1))
    n++;
  return n;
}

static int reserve_workspace(struct decoder *d, size_t bytes)
{
  struct device *dev = d->c.dev;
  if (bytes <= d->workspace_bytes)
    return ATTN_OK;
  dev->ops->free(dev, d->workspace);
  d->workspace = NULL;
  d->workspace_bytes = 0;
  int status = dev->ops->alloc(dev, bytes, &d->workspace);
  if (!status)
    d->workspace_bytes = bytes;
  return status;
}

/* Room for the gathered rows of the longest sequence. */
static int reserve_gathered(struct decoder *d)
{
  struct device *dev = d->c.dev;
  const struct attn_model *m = &d->o.model;
  size_t row = (size_t)(m->hkv * m->d) * attn_dtype_size(d->c.ops->dtype), bytes = 0;
  for (int64_t i = 0; i < d->ncalls; i++)
    if (d->call[i].rows && (size_t)d->call[i].problem.sk * row > bytes)
      bytes = (size_t)d->call[i].problem.sk * row;
  if (bytes <= d->gathered_bytes)
    return ATTN_OK;
  bytes = bytes < 2 * d->gathered_bytes ? 2 * d->gathered_bytes : bytes;
  dev->ops->free(dev, d->k);
  dev->ops->free(dev, d->v);
  d->k = d->v = NULL;
  d->gathered_bytes = 0;
  int status = dev->ops->alloc(dev, bytes, &d->k);
  if (!status)
    status = dev->ops->alloc(dev, bytes, &d->v);
  if (!status)
    d->gathered_bytes = bytes;
  return status;
}

int decoder_calls_begin(struct decoder *d, const struct step *step, char *err, size_t errlen)
{
  size_t workspace = 0;
  int64_t token = 0;
  int status = put_tokens(d, step);
  d->ncalls = 0;
  for (int64_t i = 0, n; !status && i < step->nitems; i += n) {
    struct call *call = &d->call[d->ncalls++];
    const struct step_item *item = &step->item[i];
    n = together(d, step, i);
    *call = (struct call){.token = token, .slot = item->table[0]};
    set_problems(d, call, item, n);
    status = put_call(d, call, item, n);
    if (!status)
      status = prepare(d, call->impl, &call->problem, &call->plan, &workspace, err, errlen);
    if (!status)
      status = prepare(d, d->o.rope, &call->rope, &call->rope_plan, &workspace, err, errlen);
    for (int64_t k = 0; k < n; k++)
      token += item[k].n;
  }
  if (status)
    return status;
  status = bring_numbers(d);
  if (!status)
    status = reserve_workspace(d, workspace);
  if (!status)
    status = reserve_gathered(d);
  if (status)
    snprintf(err, errlen, "%.200s", d->c.dev->error);
  return status;
}

void decoder_calls_end(struct decoder *d)
{
  for (int64_t i = 0; i < d->ncalls; i++) {
    const struct call *call = &d->call[i];
    if (call->plan && call->impl->prepare && call->impl->finish)
      call->impl->finish(call->plan);
    if (call->rope_plan && d->o.rope->prepare && d->o.rope->finish)
      d->o.rope->finish(call->rope_plan);
  }
  d->ncalls = 0;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Rows of `columns` elements from row `row` on, heads from element `at` on. */
static struct attn_tensor rows(const struct decoder *d, void *data, int64_t row, int64_t columns,
                               int64_t at)
{
  size_t size = attn_dtype_size(d->c.ops->dtype);
  return (struct attn_tensor){.data = (char *)data + (size_t)(row * columns + at) * size,
                              .ss = columns,
                              .sh = d->o.model.d};
}

/* The pool of a layer; contiguous: the sequence's stretch of it. */
static struct attn_tensor pool(const struct decoder *d, void *data, const struct call *call)
{
  int64_t row = d->o.model.hkv * d->o.model.d;
  struct attn_tensor t = rows(d, data, d->o.contiguous ? call->slot * d->o.page : 0, row, 0);
  t.sb = d->o.page * row;
  return t;
}

static void set_common(const struct decoder *d, const struct call *call, struct attn_args *a,
                       const struct layer *l)
{
  a->k = pool(d, l->k, call);
  a->v = pool(d, l->v, call);
  a->workspace = d->workspace;
  a->workspace_bytes = d->workspace_bytes;
  if (d->o.contiguous)
    return;
  a->cu_seqlens_q = d->number_device + call->cu_q;
  a->block_table = d->number_device + call->table;
  a->block_table_stride = call->table_stride;
  a->seqlens_k = d->number_device + call->seqlens;
}

int decoder_call_rope(struct decoder *d, const struct call *call, int64_t layer)
{
  const struct attn_model *m = &d->o.model;
  int64_t q = m->hq * m->d, kv = m->hkv * m->d, all = q + 2 * kv;
  struct attn_args a = {0};
  set_common(d, call, &a, &d->layer[layer]);
  a.q = rows(d, d->qkv, call->token, all, 0);
  a.k_new = rows(d, d->qkv, call->token, all, q);
  a.v_new = rows(d, d->qkv, call->token, all, q + kv);
  a.o = rows(d, d->q, call->token, q, 0);
  return d->o.rope->run(call->rope_plan, &a, d->c.dev->ops->stream(d->c.dev));
}

/* One sequence's keys and values as plain rows. */
static int gather(struct decoder *d, const struct call *call, struct attn_args *a, int64_t layer)
{
  const struct compute_ops *ops = d->c.ops;
  const struct layer *l = &d->layer[layer];
  const int32_t *index = d->number_device + call->rows;
  int64_t row = d->o.model.hkv * d->o.model.d, n = call->problem.sk;
  *a = (struct attn_args){.k = rows(d, d->k, 0, row, 0),
                          .v = rows(d, d->v, 0, row, 0),
                          .workspace = d->workspace,
                          .workspace_bytes = d->workspace_bytes};
  int status = ops->gather(&d->c, d->k, l->k, index, n, row);
  return status ? status : ops->gather(&d->c, d->v, l->v, index, n, row);
}

int decoder_call_attention(struct decoder *d, const struct call *call, int64_t layer)
{
  const struct attn_model *m = &d->o.model;
  struct attn_args a = {0};
  int status = call->rows ? gather(d, call, &a, layer) : ATTN_OK;
  if (status)
    return status;
  if (!call->rows)
    set_common(d, call, &a, &d->layer[layer]);
  a.q = rows(d, d->q, call->token, m->hq * m->d, 0);
  a.o = rows(d, d->attention, call->token, m->hq * m->d, 0);
  a.lse = d->lse;
  return call->impl->run(call->plan, &a, d->c.dev->ops->stream(d->c.dev));
}
