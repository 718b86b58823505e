/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-replay.c - a trace on a model, with the prefix cache off and on.
 */
#include "config.h"

#include <math.h>

#include "harness/serve/serve-parts.h"

static void show_heading(const struct serve *s, const struct setting *x, const struct trace *t,
                         const char *name)
{
  int64_t layers = decoder_layers(&x->d);
  printf("%s%s, %lld layer%s, prefill %s%s%s, decode %s; %zu request%s of %s\n\n",
         s->sum->records ? "\n" : "", x->d.model.name, (long long)layers, layers == 1 ? "" : "s",
         x->d.prefill->name, x->d.gathered ? " and, gathered, " : "",
         x->d.gathered ? x->d.gathered->name : "", x->d.decode->name, t->n, t->n == 1 ? "" : "s",
         name);
  printf("%-6s %9s %10s %10s %9s %9s %9s %9s %9s %9s\n", "prefix", "completed", "TTFT p50",
         "TTFT p99", "TPOT p50", "tokens/s", "cached", "recount", "reusable", "pages");
}

/* A cell of the table: what is not known is no number. */
struct word {
  char s[24];
};

static struct word word(double x, int digits, const char *unit)
{
  struct word w = {"-"};
  if (!isnan(x))
    snprintf(w.s, sizeof w.s, "%.*f%s", digits, x, unit);
  return w;
}

static struct word share(int64_t part, double whole)
{
  return word(whole > 0 ? 100 * (double)part / whole : NAN, 2, "%");
}

static void show(const struct outcome *out)
{
  struct quantity ttft = outcome_ttft(out), tpot = outcome_tpot(out);
  double prompt = 0;
  for (size_t i = 0; i < out->trace->n; i++)
    prompt += (double)out->trace->request[i].input;
  printf("%-6s %9lld %10s %10s %9s %9s %9s %9s %9s %9lld\n", out->prefix ? "on" : "off",
         (long long)out->done, word(ttft.median * 1e3, 1, "ms").s, word(ttft.p99 * 1e3, 1, "ms").s,
         word(tpot.median * 1e3, 2, "ms").s,
         word((double)out->result.sampled / out->result.seconds, 0, "").s,
         share(out->cached_tokens, (double)out->prompt_tokens).s,
         !out->prefix         ? "-"
         : out->recount_wrong ? "DIFFERS"
                              : "agrees",
         share(out->reusable, prompt).s, (long long)out->pages_peak);
}

static void show_parts(const struct outcome *out)
{
  static const char *const names[] = {"queueing",  "scheduling", "GEMM",
                                      "attention", "launching",  "rest"};
  struct quantity ttft = outcome_ttft(out);
  printf("TTFT with the prefix cache %s: median %s", out->prefix ? "on" : "off",
         word(ttft.median * 1e3, 2, " ms").s);
  if (!isnan(ttft.lo))
    printf(" [%.2f, %.2f]", ttft.lo * 1e3, ttft.hi * 1e3);
  printf("; medians of its parts:");
  for (int p = 0; p < TTFT_PARTS; p++)
    if (p != TTFT_LAUNCH || out->result.launches)
      printf("%s %s %s", p ? "," : "", names[p], word(outcome_part(out, p) * 1e3, 2, " ms").s);
  printf("\n");
  if (out->result.interrupted)
    printf("interrupted with %lld of %zu requests completed: the figures are of what was done\n",
           (long long)out->done, out->trace->n);
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

static int one(struct serve *s, struct setting *x, const struct input *in, bool prefix,
               struct outcome *out)
{
  int status = replay(s, x, &in->trace, in->name, prefix, s->o->rate, out);
  if (status)
    return status;
  if (!s->o->quiet)
    show(out);
  json_t *serve = serve_json(s, x);
  serve_json_outcome(serve, out);
  judge(s, out);
  return serve_emit(s, x, 0, longest(&in->trace), serve);
}

/* Without the prefix cache and with it, as asked for. */
static int each(struct serve *s, struct setting *x, const struct input *in)
{
  struct outcome out[2] = {{.prefix = false}};
  bool both = s->o->prefix == PREFIX_BOTH && !x->d.contiguous;
  int n = 0, done = 0, status = ATTN_OK;
  if (s->o->prefix != PREFIX_ON)
    status = one(s, x, in, false, &out[n++]);
  done += n && !status;
  if (!status && !s->sum->interrupted && (both || s->o->prefix == PREFIX_ON)) {
    status = one(s, x, in, true, &out[n++]);
    done += !status;
  }
  if (done && !s->o->quiet)
    printf("\n");
  for (int i = 0; i < done && !s->o->quiet; i++)
    show_parts(&out[i]);
  for (int i = 0; i < n; i++)
    outcome_free(&out[i]);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  const struct input *in = ctx;
  int status = replay_check(s, x, &in->trace, in->name);
  if (!status)
    status = setting_check(s, x);
  if (status)
    return status;
  if (!s->o->quiet)
    show_heading(s, x, &in->trace, in->name);
  return each(s, x, in);
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
