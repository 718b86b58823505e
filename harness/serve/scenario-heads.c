/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-heads.c - the share of the KV heads: the same model with MHA, GQA and MQA heads. KV
 * bytes a token, the largest batch that fits the cache, TTFT of a prompt alone, and tokens a second
 * while that batch (or --batch, if that is fewer) decodes.
 */
#include "config.h"

#include <math.h>

#include "harness/serve/serve-parts.h"

#define OUTPUT 24 /* steps in which all sequences decode */
#define REPEATS 1000

struct measured {
  int64_t length, fit, sequences;
  struct quantity ttft;
  double decode_per_s;
};

static int prompts(struct serve *s, struct trace *t, int64_t n, int64_t length, int64_t output)
{
  int status = ATTN_OK;
  for (int64_t i = 0; !status && i < n; i++)
    status = serve_prompt(t, 0, length, output, i + 1);
  return status ? serve_fail(s, status, "no memory for the prompts") : ATTN_OK;
}

/* One prompt at a time. */
static int measure_ttft(struct serve *s, const struct setting *x, struct measured *m)
{
  struct trace t = {0};
  struct outcome out = {0};
  struct setting alone = *x;
  double ttft[REPEATS];
  int64_t n = s->o->repeat < REPEATS ? s->o->repeat : REPEATS;
  alone.d.batch = 1;
  int status = prompts(s, &t, n, m->length, 1);
  if (!status)
    status = replay(s, &alone, &t, "prompts", false, 1, &out);
  for (int64_t i = 0; !status && i < n; i++)
    ttft[i] = out.times[i].first - out.times[i].arrival - out.times[i].part[TTFT_QUEUE];
  if (!status)
    m->ttft = quantity_of(ttft, (size_t)n);
  outcome_free(&out);
  trace_free(&t);
  return status;
}

/* The first of n goes on decoding until the last has begun to. */
static int64_t output_of(const struct setting *x, int64_t n, int64_t length)
{
  return OUTPUT + 2 * ((n * (length + 1) + x->d.tokens - 1) / x->d.tokens);
}

/* All at once. */
static int measure_decode(struct serve *s, const struct setting *x, struct measured *m)
{
  struct trace t = {0};
  struct outcome out = {0};
  int status = prompts(s, &t, m->sequences, m->length, output_of(x, m->sequences, m->length));
  if (!status)
    status = replay(s, x, &t, "prompts", false, 1, &out);
  if (!status && out.result.decode_batch == m->sequences)
    m->decode_per_s = (double)out.result.decode_tokens / out.result.decode_s;
  outcome_free(&out);
  trace_free(&t);
  return status;
}

static int emit(struct serve *s, const struct setting *x, const struct measured *m)
{
  json_t *serve = serve_json(s, x);
  if (!s->o->quiet && !s->sum->records)
    printf("%-12s %8s %9s %10s %9s %10s %12s\n", "model", "heads/KV", "KV bytes", "largest",
           "decoding", "TTFT", "tokens/s");
  if (!s->o->quiet)
    printf("%-12s %4lld/%-3lld %9.0f %10lld %9lld %8.2fms %12.0f\n", x->d.model.name,
           (long long)x->d.model.hq, (long long)x->d.model.hkv,
           decoder_token_bytes(&x->d, x->dtype), (long long)m->fit, (long long)m->sequences,
           m->ttft.median * 1e3, m->decode_per_s);
  serve_put(serve, "memory_bytes", s->o->kv_memory);
  serve_put(serve, "prompt_tokens", (double)m->length);
  serve_put(serve, "largest_batch", (double)m->fit);
  serve_put(serve, "sequences", (double)m->sequences);
  serve_put(serve, "tokens_per_s", m->decode_per_s);
  serve_json_quantity(serve, "ttft_s", &m->ttft);
  return serve_emit(s, x, 0, m->length, serve);
}

/* The batch shrinks until its own outputs fit, too. */
static int64_t sequences_that_fit(const struct setting *x, int64_t n, int64_t length)
{
  for (; n > 1; n--) {
    int64_t each = (length + output_of(x, n, length) + x->d.page - 1) / x->d.page;
    if (n * each <= x->d.npages)
      break;
  }
  return n;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  struct measured m = {.decode_per_s = NAN};
  int n = 0, status = setting_numbers(s, "--lengths", s->o->lengths ? s->o->lengths : "256",
                                      &m.length, 1, &n);
  if (status)
    return status;
  m.fit = x->d.npages / ((m.length + OUTPUT + x->d.page - 1) / x->d.page);
  m.sequences = sequences_that_fit(x, m.fit < x->d.batch ? m.fit : x->d.batch, m.length);
  if (m.sequences < 1)
    return serve_fail(s, ATTN_EINVAL,
                      "model %s: the cache holds no sequence of %lld tokens: more --kv-memory",
                      x->d.model.name, (long long)m.length);
  status = setting_length(s, x, m.length, output_of(x, m.sequences, m.length));
  if (!status)
    status = setting_check(s, x);
  if (!status)
    status = measure_decode(s, x, &m); /* first: the decoder of the larger batch serves both */
  if (!status && !s->sum->interrupted)
    status = measure_ttft(s, x, &m);
  return status || s->sum->interrupted ? status : emit(s, x, &m);
}

int scenario_heads(struct serve *s)
{
  return setting_each(s, true, on_model, NULL);
}
