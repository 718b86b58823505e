/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder.c - the decoder's memory and its step.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/base/rng.h"
#include "harness/serve/decoder-parts.h"
#include "impl/convert.h"

/* ---- memory --------------------------------------------------------------------------------- */

#define NAN_PATTERN 0x7fc07fc0u /* NaN in fp32, bf16 and fp16 alike */

/* Buffers of a step and of the cache, by elements of the device's type. */
static int alloc(struct decoder *d, void **p, double elements)
{
  return d->c.dev->ops->alloc(d->c.dev, (size_t)elements * attn_dtype_size(d->c.ops->dtype), p);
}

static int alloc_step(struct decoder *d)
{
  const struct attn_model *m = &d->o.model;
  double n = (double)d->o.tokens, batch = (double)d->o.batch;
  double q = (double)(m->hq * m->d), kv = (double)(m->hkv * m->d);
  const struct {
    void **p;
    double elements;
  } list[] = {{&d->x, n * (double)m->hidden},
              {&d->h, n * (double)m->hidden},
              {&d->qkv, n * (q + 2 * kv)},
              {&d->q, n * q},
              {&d->attention, n * q},
              {&d->gate_up, 2 * n * (double)m->ffn},
              {&d->ffn, n * (double)m->ffn},
              {&d->picked, batch * (double)m->hidden},
              {&d->logits, batch * (double)m->vocab}};
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
    status = alloc(d, list[i].p, list[i].elements);
  struct device *dev = d->c.dev;
  if (!status)
    status = dev->ops->alloc(dev, (size_t)(d->o.tokens * m->hq) * sizeof(float), (void **)&d->lse);
  if (!status)
    status = dev->ops->alloc(dev, (size_t)d->o.batch * sizeof(int32_t), (void **)&d->token);
  d->call = malloc((size_t)d->o.batch * sizeof *d->call);
  return status || d->call ? status : ATTN_ENOMEM;
}

static int alloc_cache(struct decoder *d, void **p)
{
  const struct attn_model *m = &d->o.model;
  return alloc(d, p, (double)d->o.npages * (double)(d->o.page * m->hkv * m->d));
}

int decoder_forget(struct decoder *d)
{
  size_t bytes = (size_t)(d->o.npages * d->o.page * d->o.model.hkv * d->o.model.d) *
                 attn_dtype_size(d->c.ops->dtype);
  int status = ATTN_OK;
  for (int64_t i = 0; !status && i < d->layers; i++) {
    status = d->c.dev->ops->fill(d->c.dev, d->layer[i].k, NAN_PATTERN, bytes);
    if (!status)
      status = d->c.dev->ops->fill(d->c.dev, d->layer[i].v, NAN_PATTERN, bytes);
  }
  return status;
}

static int matrix(struct decoder *d, void **w, int64_t out, int64_t in, uint64_t name)
{
  return d->c.ops->weights(&d->c, w, out, in, rng_at(d->o.seed, name), 1 / sqrt((double)in));
}

static int gain(struct decoder *d, void **w, uint64_t name)
{
  return d->c.ops->plain(&d->c, w, 1, d->o.model.hidden, rng_at(d->o.seed, name), 1, 0.1);
}

static int create_layer(struct decoder *d, int64_t i)
{
  const struct attn_model *m = &d->o.model;
  struct layer *l = &d->layer[i];
  uint64_t name = 16 * (uint64_t)(i + 1);
  int64_t q = m->hq * m->d, kv = m->hkv * m->d;
  int status = matrix(d, &l->qkv, q + 2 * kv, m->hidden, name);
  if (!status)
    status = matrix(d, &l->out, m->hidden, q, name + 1);
  if (!status)
    status = matrix(d, &l->gate_up, 2 * m->ffn, m->hidden, name + 2);
  if (!status)
    status = matrix(d, &l->down, m->hidden, m->ffn, name + 3);
  if (!status)
    status = gain(d, &l->attention_gain, name + 4);
  if (!status)
    status = gain(d, &l->mlp_gain, name + 5);
  if (!status)
    status = alloc_cache(d, &l->k);
  return status ? status : alloc_cache(d, &l->v);
}

static int create(struct decoder *d)
{
  const struct attn_model *m = &d->o.model;
  d->layer = calloc((size_t)d->layers, sizeof *d->layer);
  int status = d->layer ? d->c.ops->open(&d->c) : ATTN_ENOMEM;
  for (int64_t i = 0; !status && i < d->layers; i++)
    status = create_layer(d, i);
  if (!status)
    status = d->c.ops->plain(&d->c, &d->embedding, m->vocab, m->hidden, rng_at(d->o.seed, 0), 0, 1);
  if (!status)
    status = gain(d, &d->gain, 1);
  if (!status)
    status = matrix(d, &d->head, m->vocab, m->hidden, 2);
  if (!status)
    status = alloc_step(d);
  return status ? status : decoder_forget(d);
}

int decoder_create(struct decoder **out, struct device *dev, const struct decoder_options *o,
                   char *err, size_t errlen)
{
  struct decoder *d = calloc(1, sizeof *d);
  *out = d;
  if (!d) {
    snprintf(err, errlen, "no memory for a decoder");
    return ATTN_ENOMEM;
  }
  d->o = *o;
  d->layers = decoder_layers(o);
  d->c = (struct compute){compute_find(dev), dev, NULL};
  if (!d->c.ops) {
    snprintf(err, errlen, "serve does not run on device %s: choose --device cpu", dev->ops->name);
    return ATTN_EUNSUPPORTED;
  }
  int status = create(d);
  if (status)
    snprintf(err, errlen,
             "model %s, %lld layers, %lld pages of %lld tokens: %.150s; take fewer "
             "--layers or less --kv-memory",
             o->model.name, (long long)d->layers, (long long)o->npages, (long long)o->page,
             *dev->error ? dev->error : "no memory");
  return status;
}

void decoder_destroy(struct decoder *d)
{
  if (!d)
    return;
  struct device *dev = d->c.dev;
  for (int64_t i = 0; d->layer && i < d->layers; i++) {
    struct layer *l = &d->layer[i];
    void *all[] = {l->qkv, l->out, l->gate_up, l->down, l->attention_gain, l->mlp_gain, l->k, l->v};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
      dev->ops->free(dev, all[k]);
  }
  void *all[] = {d->embedding, d->gain,          d->head, d->x,      d->h,      d->qkv, d->q,
                 d->attention, d->gate_up,       d->ffn,  d->picked, d->logits, d->lse, d->token,
                 d->workspace, d->number_device, d->k,    d->v};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    dev->ops->free(dev, all[k]);
  if (d->c.self)
    d->c.ops->close(&d->c);
  free(d->number);
  free(d->call);
  free(d->layer);
  free(d);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Copies on write, in all layers. */
static int copy_pages(struct decoder *d, const struct step *step)
{
  struct device *dev = d->c.dev;
  size_t row = (size_t)(d->o.model.hkv * d->o.model.d) * attn_dtype_size(d->c.ops->dtype);
  size_t page = row * (size_t)d->o.page;
  int status = ATTN_OK;
  for (int64_t i = 0; i < step->ncopies; i++) {
    const struct kv_copy *copy = &step->copy[i];
    size_t to = (size_t)copy->to * page, from = (size_t)copy->from * page;
    size_t bytes = (size_t)copy->slots * row;
    for (int64_t l = 0; !status && l < d->layers; l++) {
      char *k = d->layer[l].k, *v = d->layer[l].v;
      status = dev->ops->move(dev, k + to, k + from, bytes);
      if (!status)
        status = dev->ops->move(dev, v + to, v + from, bytes);
    }
  }
  return status;
}

/* Of layer i. */
static void mark(struct decoder *d, int64_t i, enum step_part part)
{
  int64_t marked = d->c.ops->marked_layers;
  if (!marked || i < marked)
    d->c.ops->mark(&d->c, part);
}

/* Attention's half of a layer: x += Wo attention(rope(Wqkv norm(x))). */
static int attend(struct decoder *d, const struct step *step, int64_t i)
{
  const struct compute_ops *ops = d->c.ops;
  const struct attn_model *m = &d->o.model;
  const struct layer *l = &d->layer[i];
  int64_t n = step->tokens, q = m->hq * m->d, kv = m->hkv * m->d;
  int status = ops->norm(&d->c, d->h, d->x, l->attention_gain, n, m->hidden);
  mark(d, i, PART_GEMM);
  if (!status)
    status = ops->gemm(&d->c, d->qkv, d->h, l->qkv, n, q + 2 * kv, m->hidden, false);
  mark(d, i, PART_OTHER);
  for (int64_t k = 0; !status && k < d->ncalls; k++)
    status = decoder_call_rope(d, &d->call[k], i);
  mark(d, i, PART_ATTENTION);
  for (int64_t k = 0; !status && k < d->ncalls; k++)
    status = decoder_call_attention(d, &d->call[k], i);
  mark(d, i, PART_GEMM);
  if (!status)
    status = ops->gemm(&d->c, d->x, d->attention, l->out, n, m->hidden, q, true);
  mark(d, i, PART_OTHER);
  return status;
}

/* The other half: x += Wdown swiglu(Wup norm(x)). */
static int feed_forward(struct decoder *d, const struct step *step, int64_t i)
{
  const struct compute_ops *ops = d->c.ops;
  const struct attn_model *m = &d->o.model;
  const struct layer *l = &d->layer[i];
  int64_t n = step->tokens;
  int status = ops->norm(&d->c, d->h, d->x, l->mlp_gain, n, m->hidden);
  mark(d, i, PART_GEMM);
  if (!status)
    status = ops->gemm(&d->c, d->gate_up, d->h, l->gate_up, n, 2 * m->ffn, m->hidden, false);
  mark(d, i, PART_OTHER);
  if (!status)
    status = ops->swiglu(&d->c, d->ffn, d->gate_up, n, m->ffn);
  mark(d, i, PART_GEMM);
  if (!status)
    status = ops->gemm(&d->c, d->x, d->ffn, l->down, n, m->hidden, m->ffn, true);
  mark(d, i, PART_OTHER);
  return status;
}

/* Logits and the largest of them, for the rows that sample. */
static int sample(struct decoder *d, const struct step *step, int32_t *sampled)
{
  const struct compute_ops *ops = d->c.ops;
  const struct attn_model *m = &d->o.model;
  const int32_t *row = d->number_device + decoder_numbers_row(step);
  int64_t n = 0;
  for (int64_t i = 0; i < step->nitems; i++)
    n += step->item[i].sample;
  if (!n)
    return ATTN_OK;
  int status = ops->gather(&d->c, d->h, d->x, row, n, m->hidden);
  if (!status)
    status = ops->norm(&d->c, d->picked, d->h, d->gain, n, m->hidden);
  ops->mark(&d->c, PART_GEMM);
  if (!status)
    status = ops->gemm(&d->c, d->logits, d->picked, d->head, n, m->vocab, m->hidden, false);
  ops->mark(&d->c, PART_OTHER);
  if (!status)
    status = ops->argmax(&d->c, d->token, d->logits, n, m->vocab);
  if (!status)
    status = d->c.dev->ops->download(d->c.dev, sampled, d->token, (size_t)n * sizeof *sampled);
  for (int64_t i = step->nitems; i-- > 0;)
    sampled[i] = step->item[i].sample ? sampled[--n] : -1;
  return status;
}

int decoder_run(void *self, const struct step *step, int32_t *sampled, struct step_times *times,
                char *err, size_t errlen)
{
  struct decoder *d = self;
  const struct compute_ops *ops = d->c.ops;
  *err = '\0';
  int status = decoder_calls_begin(d, step, err, errlen);
  ops->mark(&d->c, PART_OTHER);
  if (!status)
    status = copy_pages(d, step);
  if (!status)
    status =
        ops->gather(&d->c, d->x, d->embedding, d->number_device, step->tokens, d->o.model.hidden);
  for (int64_t i = 0; !status && i < d->layers; i++) {
    if (i && i == ops->marked_layers)
      ops->mark(&d->c, PART_LAYERS);
    status = attend(d, step, i);
    if (!status)
      status = feed_forward(d, step, i);
  }
  ops->mark(&d->c, PART_OTHER);
  if (!status)
    status = sample(d, step, sampled);
  if (!status)
    status = ops->times(&d->c, times);
  decoder_calls_end(d);
  if (status && !*err)
    snprintf(err, errlen, "a step of %lld tokens failed: %.150s", (long long)step->tokens,
             *d->c.dev->error ? d->c.dev->error : "an implementation returned an error");
  return status;
}

int decoder_logits(struct decoder *d, int64_t i, float *logits)
{
  enum attn_dtype t = d->c.ops->dtype;
  int64_t vocab = d->o.model.vocab;
  size_t bytes = (size_t)vocab * attn_dtype_size(t);
  void *raw = malloc(bytes);
  if (!raw)
    return ATTN_ENOMEM;
  int status = d->c.dev->ops->download(d->c.dev, raw, (char *)d->logits + (size_t)i * bytes, bytes);
  for (int64_t k = 0; !status && k < vocab; k++)
    logits[k] = attn_load(t, raw, k);
  free(raw);
  return status;
}
