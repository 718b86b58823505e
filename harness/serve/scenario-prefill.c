/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-prefill.c - TTFT of one prompt by its length and by the share of it that is cached,
 * beside what FLOPs and bytes allow at the ceilings measured in the same run.
 *
 * A measurement is two requests one after the other: the share alone, which fills the cache, and
 * the prompt. Its TTFT counts from the step that admits it: nobody else is there to wait for.
 */
#include "config.h"

#include <math.h>

#include "harness/serve/serve-parts.h"

#define LENGTHS 32
#define REPEATS 1000

static const double shares[] = {0, 0.25, 0.5, 0.75, 0.9, 0.99};
#define SHARES (sizeof shares / sizeof *shares)

struct point {
  int64_t length, cached; /* cached: by the cache's count */
  double share;           /* that was asked for */
  struct quantity ttft;
  double part[TTFT_PARTS], gemm, attention; /* gemm, attention: predicted */
};

/* The larger of both, in steps of the budget: each reads the weights. */
static void predict(const struct serve *s, const struct setting *x, struct point *p)
{
  double flops = s->ceilings.matmul_tflops * 1e12, bytes = s->ceilings.read_gbps * 1e9;
  double weights = decoder_weight_bytes(&x->d, x->dtype);
  double token = decoder_token_bytes(&x->d, x->dtype);
  p->gemm = p->attention = 0;
  for (int64_t at = p->cached; at < p->length; at += x->d.tokens) {
    int64_t n = p->length - at < x->d.tokens ? p->length - at : x->d.tokens;
    p->gemm += fmax(decoder_gemm_flops(&x->d, n) / flops, weights / bytes);
    p->attention +=
        fmax(decoder_attention_flops(&x->d, at, n) / flops, token * (double)(at + n) / bytes);
  }
}

/* Requests 0, 2, 4 ... fill the cache, 1, 3, 5 ... are measured; without a share there are only the
 * latter. */
static int make_trace(struct serve *s, struct trace *t, int64_t length, int64_t cached)
{
  int status = ATTN_OK;
  for (int64_t i = 0; !status && i < s->o->repeat; i++) {
    if (cached)
      status = serve_prompt(t, 0, cached, 1, i + 1);
    if (!status)
      status = serve_prompt(t, 0, length, 1, i + 1);
  }
  return status ? serve_fail(s, status, "no memory for the prompts") : ATTN_OK;
}

static void take(const struct outcome *out, struct point *p, bool shared)
{
  double ttft[REPEATS], part[TTFT_PARTS][REPEATS];
  size_t n = 0;
  for (size_t i = shared; i < out->trace->n; i += 1 + (size_t)shared, n++) {
    const struct request_times *t = &out->times[i];
    ttft[n] = t->first - t->arrival - t->part[TTFT_QUEUE];
    for (int k = 0; k < TTFT_PARTS; k++)
      part[k][n] = k == TTFT_QUEUE ? 0 : t->part[k];
    p->cached = out->cached[i];
  }
  for (int k = 0; k < TTFT_PARTS; k++)
    p->part[k] = quantity_of(part[k], n).median;
  p->ttft = quantity_of(ttft, n);
}

static int emit(struct serve *s, const struct setting *x, const struct point *p)
{
  static const char *const names[] = {"queue", "schedule", "gemm", "attention", "other"};
  json_t *serve = serve_json(s, x), *parts = json_object(), *predicted = json_object();
  for (int k = 0; k < TTFT_PARTS; k++)
    serve_put(parts, names[k], p->part[k]);
  serve_put(parts, "launch", NAN);
  serve_put(predicted, "gemm", p->gemm);
  serve_put(predicted, "attention", p->attention);
  serve_put(predicted, "total", p->gemm + p->attention);
  serve_put(serve, "prompt_tokens", (double)p->length);
  serve_put(serve, "cached_tokens", (double)p->cached);
  serve_put(serve, "asked_share", p->share);
  serve_put(serve, "cached_share", (double)p->cached / (double)p->length);
  serve_json_quantity(serve, "ttft_s", &p->ttft);
  json_object_set_new(serve, "ttft_parts_s", parts);
  json_object_set_new(serve, "predicted_s", predicted);
  return serve_emit(s, x, p->cached, p->length - p->cached, serve);
}

static void show(const struct point *p)
{
  printf("%8lld %8lld %6.1f%% %9.2fms %9.2fms %9.2fms %9.2fms %9.2fms\n", (long long)p->length,
         (long long)p->cached, 100 * (double)p->cached / (double)p->length, p->ttft.median * 1e3,
         (p->gemm + p->attention) * 1e3, p->part[TTFT_GEMM] * 1e3, p->part[TTFT_ATTENTION] * 1e3,
         (p->part[TTFT_OTHER] + p->part[TTFT_SCHEDULE]) * 1e3);
}

/* Whole pages of share k. */
static int64_t cached_of(const struct serve *s, int64_t length, size_t k)
{
  return (int64_t)(shares[k] * (double)length) / s->o->page * s->o->page;
}

static int one(struct serve *s, struct setting *x, int64_t length, size_t k)
{
  int64_t cached = cached_of(s, length, k);
  struct point p = {.length = length, .share = shares[k]};
  struct trace t = {0};
  struct outcome out = {0};
  struct setting alone = *x;
  alone.d.batch = 1;
  int status = make_trace(s, &t, length, cached);
  if (!status)
    status = replay(s, &alone, &t, "prompts", true, 1, &out);
  if (!status && !s->sum->interrupted) {
    take(&out, &p, cached > 0);
    predict(s, x, &p);
    if (!s->o->quiet)
      show(&p);
    status = emit(s, x, &p);
  }
  outcome_free(&out);
  trace_free(&t);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  const char *lengths = s->o->lengths ? s->o->lengths : "256,512,1k";
  int64_t length[LENGTHS];
  int n, status = setting_numbers(s, "--lengths", lengths, length, LENGTHS, &n);
  if (!status && x->d.contiguous)
    status = serve_fail(s, ATTN_EINVAL, "prefill with --contiguous: only pages can be cached");
  if (!status)
    status = setting_check(s, x);
  if (!status && !s->o->quiet)
    printf("%s, %lld layers, prefill %s\n\n%8s %8s %7s %11s %11s %11s %11s %11s\n", x->d.model.name,
           (long long)decoder_layers(&x->d), x->d.prefill->name, "prompt", "cached", "share",
           "TTFT", "predicted", "GEMM", "attention", "rest");
  for (int i = 0; !status && i < n; i++)
    for (size_t k = 0; !status && k < SHARES && !s->sum->interrupted; k++)
      if (!k || cached_of(s, length[i], k) > cached_of(s, length[i], k - 1))
        status = one(s, x, length[i], k);
  return status;
}

int scenario_prefill(struct serve *s)
{
  int status = s->dev.ops->ceilings(&s->dev, MODE_RESTED, &s->ceilings);
  if (status)
    return serve_fail(s, status, "ceilings: %.200s", s->dev.error);
  return setting_each(s, "tiny-gqa", on_model, NULL);
}
