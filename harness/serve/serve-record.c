/* SPDX-License-Identifier: Apache-2.0
 *
 * serve-record.c - the serve object of a record; its names are in profiles/record.schema.json.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "harness/base/path.h"
#include "harness/record/fields.h"
#include "harness/record/record.h"
#include "harness/serve/serve-parts.h"

int serve_fail(struct serve *s, int status, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(s->err, s->errlen, fmt, ap);
  va_end(ap);
  return status;
}

void serve_put(json_t *serve, const char *name, double x)
{
  json_object_set_new(serve, name, field_count(x));
}

static void put_real(json_t *o, const char *name, double x)
{
  json_object_set_new(o, name, field_real(x));
}

void serve_json_quantity(json_t *serve, const char *name, const struct quantity *q)
{
  json_t *o = json_object();
  put_real(o, "median", q->median);
  put_real(o, "ci_lo", q->lo);
  put_real(o, "ci_hi", q->hi);
  put_real(o, "p90", q->p90);
  put_real(o, "p99", q->p99);
  put_real(o, "p99_lo", q->p99_lo);
  put_real(o, "p99_hi", q->p99_hi);
  serve_put(o, "n", (double)q->n);
  json_object_set_new(serve, name, o);
}

json_t *serve_json(const struct serve *s, const struct setting *x)
{
  const struct decoder_options *d = &x->d;
  json_t *o = json_object();
  json_object_set_new(o, "scenario", json_string(s->scenario));
  json_object_set_new(o, "model", json_string(d->model.name));
  serve_put(o, "layers", (double)decoder_layers(d));
  json_object_set_new(o, "gathered_impl",
                      d->gathered ? json_string(d->gathered->name) : json_null());
  json_object_set_new(o, "decode_impl", json_string(d->decode->name));
  json_object_set_new(o, "rope_impl", json_string(d->rope->name));
  json_object_set_new(o, "rope", s->o->rope ? json_string(s->o->rope) : json_null());
  json_object_set_new(o, "contiguous", json_boolean(d->contiguous));
  serve_put(o, "page_tokens", (double)d->page);
  serve_put(o, "pages", (double)d->npages);
  serve_put(o, "kv_token_bytes", decoder_token_bytes(d, x->dtype));
  serve_put(o, "budget_tokens", (double)d->tokens);
  serve_put(o, "batch", (double)d->batch);
  put_real(o, "logit_error", x->logit_error);
  put_real(o, "logit_bound", x->logit_bound);
  return o;
}

const char *const serve_part_names[] = {"queue",     "schedule", "gemm",
                                        "attention", "launch",   "other"};

static void put_parts(json_t *serve, const struct outcome *out)
{
  json_t *parts = json_object();
  for (int p = 0; p < TTFT_PARTS; p++)
    put_real(parts, serve_part_names[p], outcome_part(out, p));
  if (!out->result.launches)
    put_real(parts, "launch", NAN);
  json_object_set_new(serve, "ttft_parts_s", parts);
}

void serve_json_outcome(json_t *serve, const struct outcome *out)
{
  struct quantity ttft = outcome_ttft(out), tpot = outcome_tpot(out);
  double seconds = out->result.seconds;
  json_object_set_new(serve, "trace", json_string(path_base(out->trace_name)));
  json_object_set_new(serve, "trace_format", json_string(out->trace->format));
  json_object_set_new(serve, "prefix_cache", json_boolean(out->prefix));
  put_real(serve, "rate", out->rate);
  json_object_set_new(serve, "interrupted", json_boolean(out->result.interrupted));
  serve_put(serve, "requests", (double)out->trace->n);
  serve_put(serve, "completed", (double)out->done);
  serve_put(serve, "prompt_tokens", (double)out->prompt_tokens);
  serve_put(serve, "cached_tokens", (double)out->cached_tokens);
  serve_put(serve, "recounted_tokens", out->prefix ? (double)out->recounted : NAN);
  serve_put(serve, "recount_differs", out->prefix ? (double)out->recount_wrong : NAN);
  serve_put(serve, "reusable_tokens", (double)out->reusable);
  serve_put(serve, "computed_tokens", (double)out->result.computed);
  serve_put(serve, "output_tokens", (double)out->result.sampled);
  serve_put(serve, "steps", (double)out->result.steps);
  put_real(serve, "seconds", seconds);
  put_real(serve, "tokens_per_s", seconds > 0 ? (double)out->result.sampled / seconds : NAN);
  serve_json_quantity(serve, "ttft_s", &ttft);
  serve_json_quantity(serve, "tpot_s", &tpot);
  put_parts(serve, out);
  serve_put(serve, "pages_peak", (double)out->pages_peak);
  serve_put(serve, "pages_leaked", (double)out->leaked);
  serve_put(serve, "evictions", (double)out->evicted);
  serve_put(serve, "preemptions", (double)out->preemptions);
  serve_put(serve, "hash_collisions", (double)out->collisions);
}

/* A scenario that computes no logits has none to check; what should be a number and is none counts
 * as infinite. */
static bool sound(const struct setting *x)
{
  return isnan(x->logit_error) || x->logit_error <= x->logit_bound;
}

/* No speed without a verdict. */
static void strip_times(json_t *serve)
{
  static const char *const names[] = {"ttft_s",       "ttft_parts_s", "tpot_s",
                                      "tokens_per_s", "seconds",      "rope_s"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    json_object_del(serve, names[i]);
}

int serve_emit(struct serve *s, const struct setting *x, int64_t first, int64_t n, json_t *serve)
{
  struct attn_problem p;
  decoder_problem(&x->d, x->dtype, first, n, &p);
  return serve_emit_problem(s, x, &p, x->d.prefill, serve);
}

int serve_emit_problem(struct serve *s, const struct setting *x, const struct attn_problem *p,
                       const struct attn_impl *impl, json_t *serve)
{
  struct record r;
  int status = ATTN_OK;
  record_init(&r);
  r.problem = *p;
  snprintf(r.run_id, sizeof r.run_id, "%s", s->run_id);
  snprintf(r.suite, sizeof r.suite, "serve");
  snprintf(r.impl, sizeof r.impl, "%s", impl->name);
  snprintf(r.provenance, sizeof r.provenance, "%s", impl->provenance);
  r.seed = s->o->seed;
  r.status = sound(x) ? STATUS_PASS : STATUS_FAIL;
  if (!sound(x)) {
    strip_times(serve);
    snprintf(r.reason, sizeof r.reason,
             "logits differ from naive attention's by %.2e of the largest; the bound is %.2e",
             x->logit_error, x->logit_bound);
  }
  r.ceilings = s->ceilings;
  r.serve = serve;
  s->sum->records++;
  if (s->o->out) {
    json_t *j = record_to_json(&r, &s->dev, s->o->repro);
    status = store_append(&s->store, j, s->err, s->errlen) ? ATTN_EDEVICE : ATTN_OK;
    json_decref(j);
  }
  json_decref(serve);
  return status;
}
