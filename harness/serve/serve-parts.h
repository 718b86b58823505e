/* SPDX-License-Identifier: Apache-2.0
 *
 * serve-parts.h - what the scenarios share: an open device, one replay of a trace on a model, and
 * its numbers on the way to a record and to the terminal.
 */
#ifndef HARNESS_SERVE_PARTS_H
#define HARNESS_SERVE_PARTS_H

#include <jansson.h>

#include "harness/record/store.h"
#include "harness/tune/advice.h"
#include "harness/serve/decoder.h"
#include "harness/serve/engine.h"
#include "harness/serve/fragment.h"
#include "harness/serve/serve.h"

struct serve {
  const struct serve_options *o;
  const char *scenario;
  struct device dev;
  struct advice advice;
  struct store store;
  char run_id[40];
  const struct attn_impl *prefill, *decode; /* --impl; NULL: the device's best */
  const struct attn_impl *rope;
  struct decoder *decoder;                /* of the last replay, kept for the next */
  struct decoder_options decoder_options; /* that it was made with */
  struct device_ceilings ceilings;
  struct serve_summary *sum;
  double shown_s; /* when progress was last shown */
  char *err;
  size_t errlen;
};

/* A model in one setting. */
struct setting {
  struct decoder_options d;
  enum attn_dtype dtype;
  double logit_error; /* of the check, over the largest logit; NaN: not checked */
  double logit_bound; /* between the stack and one of naive kernels */
};

/* One replay. */
struct outcome {
  const struct setting *setting;
  const struct trace *trace;
  const char *trace_name;
  bool prefix;
  double rate;
  struct engine_result result;
  struct request_times *times;                /* (trace->n), also result.request */
  int64_t *cached;                            /* (trace->n) */
  int64_t done, prompt_tokens, cached_tokens; /* of admitted requests */
  int64_t recounted, recount_wrong, reusable;
  int64_t pages_peak, evicted, preemptions, leaked, collisions;
};

/* Median with its interval, and tails with theirs. */
struct quantity {
  double median, lo, hi, p90, p99, p99_lo, p99_hi;
  size_t n;
};

__attribute__((format(printf, 3, 4))) int serve_fail(struct serve *s, int status, const char *fmt,
                                                     ...);

/* serve-setting.c: a model by name with the options' cache, and its check. */
int setting_make(struct serve *s, const char *model, struct setting *out);
/* Calls each for every model of --model, or of the device's default: one, or those that differ in
 * their KV heads. */
int setting_each(struct serve *s, bool heads,
                 int (*each)(struct serve *s, struct setting *x, void *ctx), void *ctx);
int setting_check(struct serve *s, struct setting *x);
/* The longest sequence: --context, or the model's. */
int64_t setting_context(const struct serve *s, const struct setting *x);
/* ATTN_EINVAL and a line if a prompt of --lengths with so much output has no place in it. */
int setting_length(struct serve *s, const struct setting *x, int64_t length, int64_t output);
/* Comma-separated whole numbers; at most max. ATTN_EINVAL and a line. */
int setting_numbers(struct serve *s, const char *option, const char *text, int64_t *list, int max,
                    int *n);

/* serve-replay.c. The checks: ATTN_EINVAL and a line if a request has no place in the context; in
 * the context and in the cache. */
int replay_check_context(struct serve *s, const struct setting *x, const struct trace *t,
                         const char *trace_name);
int replay_check(struct serve *s, const struct setting *x, const struct trace *t,
                 const char *trace_name);
int replay(struct serve *s, const struct setting *x, const struct trace *t, const char *trace_name,
           bool prefix, double rate, struct outcome *out);
void outcome_free(struct outcome *out);
/* Gives up the kept decoder's memory. */
void replay_end(struct serve *s);
struct quantity quantity_of(double *x, size_t n); /* NaNs are left out; reorders x */
struct quantity outcome_ttft(const struct outcome *out);
struct quantity outcome_tpot(const struct outcome *out);
double outcome_part(const struct outcome *out, enum ttft_part part); /* median */

extern const char *const serve_part_names[]; /* of an enum ttft_part, in records */

/* serve-record.c: the members that every serving record has; the outcome's (out may be NULL). */
json_t *serve_json(const struct serve *s, const struct setting *x);
void serve_json_outcome(json_t *serve, const struct outcome *out);
void serve_json_quantity(json_t *serve, const char *name, const struct quantity *q);
void serve_put(json_t *serve, const char *name, double x); /* NaN: null */
/* Writes the record; takes serve over. problem: the largest attention of the scenario. */
int serve_emit(struct serve *s, const struct setting *x, int64_t first, int64_t n, json_t *serve);
/* The same of a problem and an implementation of the scenario's own. */
int serve_emit_problem(struct serve *s, const struct setting *x, const struct attn_problem *p,
                       const struct attn_impl *impl, json_t *serve);

/* Scenarios. */
int scenario_replay(struct serve *s);
int scenario_prefill(struct serve *s);
int scenario_heads(struct serve *s);
int scenario_memory(struct serve *s);
int scenario_fork(struct serve *s);
int scenario_rope(struct serve *s);

/* serve-trace.c: --trace, or conversations made from the seed. */
int serve_trace(struct serve *s, struct trace *t, const char **name);
/* A prompt of n tokens by a name: the first tokens of prompts of one name are the same. */
int serve_prompt(struct trace *t, double arrival_s, int64_t n, int64_t output, int64_t name);

#endif
