/* SPDX-License-Identifier: Apache-2.0
 *
 * serve-setting.c - a model in the cache that the options give it, and the check of what is
 * computed there: no speed without a verdict.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/run/catalog.h"
#include "harness/serve/serve-parts.h"
#include "impl/problem.h"

#define PROBE 75 /* tokens of the check */

/* Its steps end here: chunks, and single tokens. With few keys a wrong one weighs much. */
static const int64_t ends[] = {3, 4, 5, 41, 42, PROBE - 2, PROBE - 1, PROBE};
#define ENDS (int64_t)(sizeof ends / sizeof *ends)

/* Smaller chunks take an implementation that reads pages: gathering would cost more than it saves.
 */
#define GATHER_LEAST 512

/* Of the largest logit. Two kernels round attention's output each in its own way: bf16 by 2^-9,
 * which the rounding of sums, of each layer's and of the logits themselves makes some 2^-8. */
#define BOUND_F32 0x1p-14
#define BOUND_BF16 0x1p-6

/* The rotation that --rope asks for, from a problem string that says the same. */
static int set_rope(struct serve *s, struct setting *x)
{
  const struct attn_model *m = &x->d.model;
  struct attn_problem p;
  char text[512], trained[48] = "";
  const char *rope = s->o->rope ? s->o->rope : "none";
  bool needs = strncmp(rope, "none", 4) && strncmp(rope, "linear", 6) && strncmp(rope, "ntk", 3);
  if (needs)
    snprintf(trained, sizeof trained, " trained=%lld", (long long)m->context);
  snprintf(text, sizeof text, "op=rope hq=%lld hkv=%lld sq=1 sk=1 d=%lld rope=%.64s theta=%.17g%s",
           (long long)m->hq, (long long)m->hkv, (long long)m->d, rope, m->rope_theta, trained);
  int status = attn_problem_parse(text, &p, s->err, s->errlen);
  x->d.scaling = p.rope;
  return status;
}

int64_t setting_context(const struct serve *s, const struct setting *x)
{
  return s->o->context ? s->o->context : x->d.model.context;
}

int setting_length(struct serve *s, const struct setting *x, int64_t length, int64_t output)
{
  int64_t context = setting_context(s, x), n = length + output;
  if (n <= context)
    return ATTN_OK;
  return serve_fail(s, ATTN_EINVAL,
                    "--lengths %lld: with %lld of output %lld tokens, the context is %lld: give "
                    "--context %lld",
                    (long long)length, (long long)output, (long long)n, (long long)context,
                    (long long)n);
}

static int set_cache(struct serve *s, struct setting *x)
{
  struct decoder_options *d = &x->d;
  int64_t context = setting_context(s, x);
  double token = decoder_token_bytes(d, x->dtype);
  d->contiguous = s->o->contiguous;
  d->page = d->contiguous ? context : s->o->page;
  double pages = floor(s->o->kv_memory / (token * (double)d->page));
  if (!(pages >= 1))
    return serve_fail(s, ATTN_EINVAL,
                      "model %s: --kv-memory %.0f holds no page: %lld tokens of %.0f bytes take "
                      "%.0f",
                      d->model.name, s->o->kv_memory, (long long)d->page, token,
                      token * (double)d->page);
  d->npages = pages < INT32_MAX - 1 ? (int64_t)pages : INT32_MAX - 1;
  return ATTN_OK;
}

/* Fastest first. */
static const char *const prefills[] = {"cuda/flash-sm90", "cuda/flash-sm80", "cpu/flash"};
static const char *const decodes[] = {"cuda/decode", "cpu/flash"};

static const struct attn_impl *named(const struct serve *s, const char *name)
{
  const struct attn_impl *impl = catalog_named(name);
  return impl && impl->device == s->dev.info.kind ? impl : NULL;
}

/* The first that takes n tokens as the decoder asks for them, paged or in rows. */
static const struct attn_impl *best_of(const struct serve *s, const struct setting *x,
                                       const char *const *names, size_t count, int64_t n,
                                       bool paged)
{
  struct attn_problem p;
  decoder_problem(&x->d, x->dtype, x->d.page, n, &p);
  if (paged) {
    p.layout = ATTN_PACKED;
    p.nruns = 1;
    p.runs[0] = (struct attn_run){1, p.sq, p.sk};
  } else {
    p.page = 0;
  }
  for (size_t k = 0; k < count; k++) {
    const struct attn_impl *impl = named(s, names[k]);
    if (impl && !attn_unsupported(impl, &p, &s->dev.info))
      return impl;
  }
  return NULL;
}

static int set_implementations(struct serve *s, struct setting *x)
{
  size_t most = sizeof prefills / sizeof *prefills;
  bool paged = !x->d.contiguous;
  x->d.rope = s->rope;
  x->d.prefill = s->prefill ? s->prefill : best_of(s, x, prefills, most, 64, paged);
  x->d.decode =
      s->decode ? s->decode : best_of(s, x, decodes, sizeof decodes / sizeof *decodes, 1, paged);
  if (paged && !s->prefill)
    x->d.gathered = best_of(s, x, prefills, most, 64, false);
  if (x->d.gathered == x->d.prefill)
    x->d.gathered = NULL;
  x->d.gather_least = GATHER_LEAST;
  if (!x->d.prefill || !x->d.decode)
    return serve_fail(s, ATTN_EUNSUPPORTED,
                      "model %s: no implementation of device %s takes it; name one with --impl",
                      x->d.model.name, s->dev.ops->name);
  return ATTN_OK;
}

int setting_make(struct serve *s, const char *model, struct setting *x)
{
  char models[4096];
  const char *profiles = catalog_profiles();
  const struct compute_ops *ops = compute_find(&s->dev);
  *x = (struct setting){.logit_error = NAN};
  snprintf(models, sizeof models, "%s/models", profiles ? profiles : ".");
  int status = attn_model_read(models, model, &x->d.model, s->err, s->errlen);
  if (status)
    return status;
  if (x->d.model.d % 2 || x->d.model.hq % x->d.model.hkv)
    return serve_fail(s, ATTN_EINVAL, "model %s: d must be even and hq a multiple of hkv", model);
  if (s->o->layers > x->d.model.layers)
    return serve_fail(s, ATTN_EINVAL, "--layers %lld: model %s has %lld", (long long)s->o->layers,
                      model, (long long)x->d.model.layers);
  x->dtype = ops->dtype;
  x->logit_bound = ops->dtype == ATTN_F32 ? BOUND_F32 : BOUND_BF16;
  x->d.layers = s->o->layers;
  x->d.tokens = s->o->budget;
  x->d.batch = s->o->batch;
  x->d.seed = s->o->seed;
  status = set_rope(s, x);
  if (!status)
    status = set_cache(s, x);
  return status ? status : set_implementations(s, x);
}

/* Where a GPU is measured, the model is a real one. */
static const char *models_of(const struct serve *s, bool heads)
{
  if (s->o->models)
    return s->o->models;
  if (s->dev.info.kind == ATTN_CPU)
    return heads ? "tiny-mha,tiny-gqa,tiny-mqa" : "tiny-gqa";
  return heads ? "llama3-8b-mha,llama3-8b,llama3-8b-mqa" : "llama3-8b";
}

int setting_each(struct serve *s, bool heads,
                 int (*each)(struct serve *s, struct setting *x, void *ctx), void *ctx)
{
  char name[64];
  struct setting x;
  int status = ATTN_OK;
  for (const char *at = models_of(s, heads); !status && *at;) {
    size_t n = strcspn(at, ",");
    if (n >= sizeof name)
      return serve_fail(s, ATTN_EINVAL, "--model %.60s...: no such model; attnbench list --models",
                        at);
    memcpy(name, at, n);
    name[n] = '\0';
    at += n + (at[n] == ',');
    status = setting_make(s, name, &x);
    if (!status)
      status = each(s, &x, ctx);
  }
  return status;
}

int setting_numbers(struct serve *s, const char *option, const char *text, int64_t *list, int max,
                    int *n)
{
  for (*n = 0; *text; ++*n) {
    size_t length = strcspn(text, ",");
    if (*n == max)
      return serve_fail(s, ATTN_EINVAL, "%s: give at most %d, there are more", option, max);
    if (!attn_parse_count((struct attn_slice){text, length}, &list[*n]) || list[*n] < 1)
      return serve_fail(s, ATTN_EINVAL, "%s %.40s: want whole numbers above 0, comma-separated",
                        option, text);
    text += length + (text[length] == ',');
  }
  return ATTN_OK;
}

/* ---- check ---------------------------------------------------------------------------------- */

/* The probe's logits at the end of each step, (ENDS, vocab), on a decoder of at most two layers. */
static int probe(struct serve *s, const struct decoder_options *o, float *logits)
{
  struct decoder *d;
  struct kv kv = {.page = o->page};
  struct kv_seq seq = {0};
  int32_t token[PROBE], sampled[1];
  int status = decoder_create(&d, &s->dev, o, s->err, s->errlen);
  if (!status)
    status = kv_init(&kv, (int32_t)o->npages, o->page);
  for (int i = 0; i < PROBE; i++)
    token[i] = (int32_t)rng_below(o->seed + 1, (uint64_t)i, (uint32_t)o->model.vocab);
  for (int64_t i = 0; !status && i < ENDS; i++) {
    int64_t first = seq.length;
    struct kv_copy copy;
    struct step_times times;
    status = kv_append(&kv, &seq, ends[i] - first, &copy);
    struct step_item item = {token + first, first, ends[i] - first, seq.table, seq.npages, true};
    struct step st = {.item = &item, .nitems = 1, .tokens = item.n};
    if (!status)
      status = decoder_run(d, &st, sampled, &times, s->err, s->errlen);
    if (!status)
      status = decoder_logits(d, 0, logits + i * o->model.vocab);
  }
  kv_release(&kv, &seq);
  kv_free(&kv);
  decoder_destroy(d);
  return status;
}

static const struct attn_impl *naive_of(const struct serve *s)
{
  for (int i = 0; catalog_impl(i); i++)
    if (catalog_impl(i)->device == s->dev.info.kind && strstr(catalog_impl(i)->name, "/naive"))
      return catalog_impl(i);
  return NULL;
}

static double difference(const float *a, const float *b, int64_t n)
{
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs((double)a[i] - (double)b[i]);
    worst = isnan(d) ? INFINITY : fmax(worst, d);
    largest = fmax(largest, fabs((double)b[i]));
  }
  return worst / largest;
}

/* Against the same weights with naive attention on contiguous memory. */
int setting_check(struct serve *s, struct setting *x)
{
  replay_end(s);
  struct decoder_options o = x->d, plain;
  int64_t vocab = o.model.vocab, count = ENDS * vocab;
  float *logits = malloc(2 * (size_t)count * sizeof *logits);
  if (!logits)
    return serve_fail(s, ATTN_ENOMEM, "no memory for the check's logits");
  o.gather_least = 1;                    /* so that it is checked, too */
  o.layers = o.model.layers < 2 ? 1 : 2; /* rows but the last are seen by the second alone */
  o.tokens = o.batch = PROBE;
  o.npages = o.contiguous ? 1 : (PROBE + o.page - 1) / o.page;
  o.page = o.contiguous && o.page < PROBE ? PROBE : o.page;
  plain = o;
  plain.prefill = plain.decode = naive_of(s);
  plain.gathered = NULL;
  plain.contiguous = true;
  plain.page = PROBE;
  plain.npages = 1;
  int status = probe(s, &o, logits);
  if (!status && plain.prefill)
    status = probe(s, &plain, logits + count);
  if (!status && plain.prefill)
    x->logit_error = 0;
  for (int64_t i = 0; !status && plain.prefill && i < ENDS; i++)
    x->logit_error =
        fmax(x->logit_error, difference(logits + i * vocab, logits + count + i * vocab, vocab));
  if (!status && x->logit_error > x->logit_bound) {
    s->sum->failed++;
    printf("%s: FAIL: logits differ from naive attention's by %.2e of the largest, the bound is "
           "%.2e; no time is recorded\n",
           x->d.prefill->name, x->logit_error, x->logit_bound);
  }
  free(logits);
  return status;
}
