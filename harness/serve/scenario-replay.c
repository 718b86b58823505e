/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-replay.c - a trace on a model, with the prefix cache off and on.
 */
#include "config.h"

#include <math.h>

#include "harness/serve/serve-parts.h"

static void show_heading(const struct setting *x, const struct trace *t, const char *name)
{
  printf("%s, %lld layers, prefill %s%s%s, decode %s; %zu requests of %s\n\n", x->d.model.name,
         (long long)decoder_layers(&x->d), x->d.prefill->name,
         x->d.gathered ? " and, gathered, " : "", x->d.gathered ? x->d.gathered->name : "",
         x->d.decode->name, t->n, name);
  printf("%-6s %9s %10s %10s %9s %9s %9s %9s %9s %9s\n", "prefix", "completed", "TTFT p50",
         "TTFT p99", "TPOT p50", "tokens/s", "cached", "recount", "reusable", "pages");
}

static double share(int64_t part, int64_t whole)
{
  return whole ? 100.0 * (double)part / (double)whole : NAN;
}

static void show(const struct outcome *out)
{
  struct quantity ttft = outcome_ttft(out), tpot = outcome_tpot(out);
  double prompt = 0;
  for (size_t i = 0; i < out->trace->n; i++)
    prompt += (double)out->trace->request[i].input;
  printf("%-6s %9lld %8.1fms %8.1fms %7.2fms %9.0f %8.2f%% %9s %8.2f%% %9lld\n",
         out->prefix ? "on" : "off", (long long)out->done, ttft.median * 1e3, ttft.p99 * 1e3,
         tpot.median * 1e3, (double)out->result.sampled / out->result.seconds,
         share(out->cached_tokens, out->prompt_tokens),
         !out->prefix         ? "-"
         : out->recount_wrong ? "DIFFERS"
                              : "agrees",
         100 * (double)out->reusable / prompt, (long long)out->pages_peak);
}

static void show_parts(const struct outcome *out)
{
  static const char *const names[] = {"queueing",  "scheduling", "GEMM",
                                      "attention", "launching",  "rest"};
  struct quantity ttft = outcome_ttft(out);
  printf("\nTTFT with the prefix cache %s: median %.2f ms", out->prefix ? "on" : "off",
         ttft.median * 1e3);
  if (!isnan(ttft.lo))
    printf(" [%.2f, %.2f]", ttft.lo * 1e3, ttft.hi * 1e3);
  printf("; medians of its parts:");
  for (int p = 0; p < TTFT_PARTS; p++)
    if (p != TTFT_LAUNCH || out->result.launches)
      printf("%s %s %.2f ms", p ? "," : "", names[p], outcome_part(out, p) * 1e3);
  printf("\n");
}

static int64_t longest(const struct trace *t)
{
  int64_t n = 1;
  for (size_t i = 0; i < t->n; i++)
    n = t->request[i].input > n ? t->request[i].input : n;
  return n;
}

struct input {
  struct trace trace;
  const char *name;
};

/* What contradicts itself is a failed verdict: pages that leak, hits that the recount has not. */
static void judge(struct serve *s, const struct outcome *out)
{
  if (out->leaked)
    printf("%lld pages leaked\n", (long long)out->leaked);
  s->sum->failed += out->leaked || out->recount_wrong;
}

static int one(struct serve *s, struct setting *x, const struct input *in, bool prefix)
{
  struct outcome out;
  int status = replay(s, x, &in->trace, in->name, prefix, s->o->rate, &out);
  if (!status && !s->o->quiet) {
    show(&out);
    show_parts(&out);
  }
  if (!status) {
    json_t *serve = serve_json(s, x);
    serve_json_outcome(serve, &out);
    judge(s, &out);
    status = serve_emit(s, x, 0, longest(&in->trace), serve);
  }
  outcome_free(&out);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  const struct input *in = ctx;
  bool both = s->o->prefix == PREFIX_BOTH && !x->d.contiguous;
  int status = replay_check(s, x, &in->trace, in->name);
  if (!status)
    status = setting_check(s, x);
  if (status)
    return status;
  if (!s->o->quiet)
    show_heading(x, &in->trace, in->name);
  if (s->o->prefix != PREFIX_ON)
    status = one(s, x, in, false);
  if (!status && !s->sum->interrupted && (both || s->o->prefix == PREFIX_ON))
    status = one(s, x, in, true);
  return status;
}

int scenario_replay(struct serve *s)
{
  struct input in;
  int status = serve_trace(s, &in.trace, &in.name);
  if (!status)
    status = setting_each(s, false, on_model, &in);
  trace_free(&in.trace);
  return status;
}
