/* SPDX-License-Identifier: Apache-2.0
 *
 * serve-replay.c - one trace on one model in real time, with its progress, and what comes of it.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/gate/stats.h"
#include "harness/run/worker.h"
#include "harness/serve/serve-parts.h"

#define SHOW_S 0.2 /* between updates of the progress line */

static double real_now(void *self)
{
  return clock_now();
}

static void real_wait(void *self, double when)
{
  while (clock_now() < when && !worker_interrupted())
    clock_pause(fmin(when - clock_now(), 0.05));
}

static bool stopped(void *ctx)
{
  return worker_interrupted();
}

static void progress(void *ctx, const struct sched *sched, double now)
{
  struct serve *s = ctx;
  if (!s->o->progress || now - s->shown_s < SHOW_S)
    return;
  s->shown_s = now;
  fprintf(
      stderr,
      "\r%-8.8s %lld of %zu requests, %lld running, %lld waiting, %d of %lld pages, %.0f s \033[K",
      s->scenario, (long long)sched->ndone, sched->trace->n, (long long)sched->nrunning,
      (long long)sched->waits, pages_used(&sched->kv.pages), (long long)sched->o.npages, now);
}

static void take_counts(struct outcome *out, const struct sched *sched)
{
  const struct pages *p = &sched->kv.pages;
  for (size_t i = 0; i < out->trace->n; i++) {
    out->cached[i] = sched->request[i].cached;
    if (!sched->request[i].admissions)
      continue;
    out->prompt_tokens += out->trace->request[i].input;
    out->cached_tokens += out->cached[i];
  }
  out->done = sched->ndone;
  out->pages_peak = p->used_peak;
  out->evicted = p->evicted;
  out->preemptions = sched->preemptions;
  out->leaked = pages_used(p) + (pages_check(p) != NULL);
  out->collisions = sched->px.collisions;
}

static int count_again(struct serve *s, struct outcome *out, const struct sched *sched)
{
  struct recount_task task = {out->trace, sched->event, sched->nevents, sched->o.page,
                              sched->o.npages};
  struct recount again = {0};
  int status = out->prefix ? recount_run(&task, &again) : ATTN_OK;
  if (!status)
    status = recount_unlimited(out->trace, sched->o.page, &out->reusable);
  out->recounted = again.cached;
  out->recount_wrong = again.wrong;
  return status ? serve_fail(s, status, "no memory to count the trace's hits again") : ATTN_OK;
}

static int run_engine(struct serve *s, struct outcome *out, struct sched *sched,
                      struct decoder *decoder)
{
  struct engine_task task = {.sched = sched,
                             .model = {decoder_run, decoder},
                             .clock = {real_now, real_wait, NULL},
                             .rate = out->rate,
                             .stopped = stopped,
                             .progress = progress,
                             .ctx = s};
  s->shown_s = 0;
  int status = engine_run(&task, &out->result, s->err, s->errlen);
  if (s->o->progress)
    fprintf(stderr, "\r\033[K");
  s->sum->interrupted |= out->result.interrupted;
  take_counts(out, sched);
  return status ? status : count_again(s, out, sched);
}

static struct sched_options options_of(const struct serve *s, const struct setting *x, bool prefix)
{
  return (struct sched_options){x->d.page,        x->d.npages, x->d.tokens, x->d.batch,
                                x->d.model.vocab, s->o->seed,  prefix};
}

/* A request longer than the context has no place in the model, whatever the cache holds. */
int replay_check_context(struct serve *s, const struct setting *x, const struct trace *t,
                         const char *trace_name)
{
  const struct trace_request *first = NULL;
  int64_t context = setting_context(s, x), longest = 0;
  for (size_t i = t->n; i-- > 0;) {
    int64_t n = t->request[i].input + t->request[i].output;
    longest = n > longest ? n : longest;
    first = n > context ? &t->request[i] : first;
  }
  if (!first)
    return ATTN_OK;
  return serve_fail(s, ATTN_EINVAL,
                    "%s: row %d: %lld tokens of prompt and output, the context is %lld: leave "
                    "such rows out, or give --context %lld, which takes them all",
                    trace_name, first->row, (long long)(first->input + first->output),
                    (long long)context, (long long)longest);
}

int replay_check(struct serve *s, const struct setting *x, const struct trace *t,
                 const char *trace_name)
{
  struct sched_options o = options_of(s, x, false);
  int status = replay_check_context(s, x, t, trace_name);
  return status ? status : sched_check(t, trace_name, &o, s->err, s->errlen);
}

void replay_end(struct serve *s)
{
  decoder_destroy(s->decoder);
  s->decoder = NULL;
}

/* The kept one, if it does; weights take seconds on a large model. */
static int take_decoder(struct serve *s, const struct decoder_options *o)
{
  struct decoder_options kept = s->decoder_options;
  bool roomy = kept.batch >= o->batch;
  kept.batch = o->batch;
  if (s->decoder && roomy && !memcmp(&kept, o, sizeof *o))
    return decoder_forget(s->decoder) ? serve_fail(s, ATTN_EDEVICE, "%.200s", s->dev.error)
                                      : ATTN_OK;
  replay_end(s);
  int status = decoder_create(&s->decoder, &s->dev, o, s->err, s->errlen);
  s->decoder_options = *o;
  if (status)
    replay_end(s);
  return status;
}

int replay(struct serve *s, const struct setting *x, const struct trace *t, const char *trace_name,
           bool prefix, double rate, struct outcome *out)
{
  struct sched sched = {0};
  struct sched_options o = options_of(s, x, prefix);
  *out = (struct outcome){
      .setting = x, .trace = t, .trace_name = trace_name, .prefix = prefix, .rate = rate};
  out->times = malloc((t->n + 1) * sizeof *out->times);
  out->cached = calloc(t->n + 1, sizeof *out->cached);
  out->result.request = out->times;
  if (!out->times || !out->cached)
    return serve_fail(s, ATTN_ENOMEM, "no memory for %zu requests", t->n);
  int status = replay_check(s, x, t, trace_name);
  if (!status)
    status = sched_init(&sched, t, trace_name, &o, s->err, s->errlen);
  if (status)
    return status;
  status = take_decoder(s, &x->d);
  if (!status)
    status = run_engine(s, out, &sched, s->decoder);
  sched_free(&sched);
  return status;
}

void outcome_free(struct outcome *out)
{
  free(out->times);
  free(out->cached);
  out->times = NULL;
  out->cached = NULL;
}

/* ---- numbers -------------------------------------------------------------------------------- */

struct quantity quantity_of(double *x, size_t n)
{
  size_t known = 0;
  for (size_t i = 0; i < n; i++)
    if (!isnan(x[i]))
      x[known++] = x[i];
  struct stats_interval median = stats_median_interval(x, known, 1);
  struct stats_interval tail = stats_quantile_interval(x, known, 0.99, 1);
  return (struct quantity){.median = stats_median(x, known),
                           .lo = median.lo,
                           .hi = median.hi,
                           .p90 = stats_quantile(x, known, 0.9),
                           .p99 = stats_quantile(x, known, 0.99),
                           .p99_lo = tail.lo,
                           .p99_hi = tail.hi,
                           .n = known};
}

static double ttft_of(const struct outcome *out, size_t i)
{
  return out->times[i].first - out->times[i].arrival;
}

static double tpot_of(const struct outcome *out, size_t i)
{
  int64_t behind = out->trace->request[i].output - 1;
  return behind > 0 ? (out->times[i].done - out->times[i].first) / (double)behind : NAN;
}

static struct quantity over_requests(const struct outcome *out,
                                     double (*of)(const struct outcome *out, size_t i))
{
  double *x = malloc((out->trace->n + 1) * sizeof *x);
  struct quantity q = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};
  if (!x)
    return q;
  for (size_t i = 0; i < out->trace->n; i++)
    x[i] = of(out, i);
  q = quantity_of(x, out->trace->n);
  free(x);
  return q;
}

struct quantity outcome_ttft(const struct outcome *out)
{
  return over_requests(out, ttft_of);
}

struct quantity outcome_tpot(const struct outcome *out)
{
  return over_requests(out, tpot_of);
}

double outcome_part(const struct outcome *out, enum ttft_part part)
{
  double *x = malloc((out->trace->n + 1) * sizeof *x), median = NAN;
  size_t n = 0;
  for (size_t i = 0; x && i < out->trace->n; i++)
    if (!isnan(out->times[i].part[part]))
      x[n++] = out->times[i].part[part];
  if (x)
    median = stats_median_of(x, n);
  free(x);
  return median;
}
