/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-prefill.c - TTFT of one prompt by its length and by the share of it that is cached,
 * beside what FLOPs and bytes allow at the ceilings measured in the same run.
 *
 * A length is one replay: for every share a request that fills the cache so far, then the prompt as
 * often as it is repeated, whose pages do not enter the cache. Its TTFT counts from the step that
 * admits it: nobody else is there to wait for.
 */
#include "config.h"

#include <math.h>

#include "harness/serve/serve-parts.h"

#define LENGTHS 32
#define REPEATS 1000

#define SHARES 16

/* Percent, ascending; the first is none. */
struct shares {
  int64_t percent[SHARES];
  int n;
};

struct point {
  int64_t length, cached; /* cached: by the cache's count */
  size_t first;           /* of its measured requests */
  double share;           /* that was asked for */
  struct quantity ttft;
  double part[TTFT_PARTS], gemm, attention; /* gemm, attention: predicted */
  bool launches;
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

/* Whole pages of a share. */
static int64_t cached_of(const struct serve *s, int64_t length, int64_t percent)
{
  return length * percent / 100 / s->o->page * s->o->page;
}

/* Points of a length: shares that differ by a page. */
static int points_of(const struct serve *s, const struct shares *shares, int64_t length,
                     struct point *p)
{
  int n = 0;
  for (int k = 0; k < shares->n; k++) {
    int64_t cached = cached_of(s, length, shares->percent[k]);
    if (!n || cached > p[n - 1].cached)
      p[n++] = (struct point){
          .length = length, .cached = cached, .share = (double)shares->percent[k] / 100};
  }
  return n;
}

static int make_trace(struct serve *s, struct trace *t, struct point *p, int n)
{
  int status = ATTN_OK;
  for (int k = 0; !status && k < n; k++) {
    if (p[k].cached)
      status = serve_prompt(t, 0, p[k].cached, 1, 1);
    p[k].first = t->n;
    for (int64_t i = 0; !status && i < s->o->repeat; i++) {
      status = serve_prompt(t, 0, p[k].length, 1, 1);
      if (!status)
        t->request[t->n - 1].apart = true;
    }
  }
  return status ? serve_fail(s, status, "no memory for the prompts") : ATTN_OK;
}

static void take(const struct outcome *out, struct point *p, size_t n)
{
  double ttft[REPEATS], part[TTFT_PARTS][REPEATS];
  for (size_t i = 0; i < n; i++) {
    const struct request_times *t = &out->times[p->first + i];
    ttft[i] = t->first - t->arrival - t->part[TTFT_QUEUE];
    for (int k = 0; k < TTFT_PARTS; k++)
      part[k][i] = k == TTFT_QUEUE ? 0 : t->part[k];
    p->cached = out->cached[p->first + i];
  }
  for (int k = 0; k < TTFT_PARTS; k++)
    p->part[k] = quantity_of(part[k], n).median;
  p->ttft = quantity_of(ttft, n);
  p->launches = out->result.launches;
}

static int emit(struct serve *s, const struct setting *x, const struct point *p)
{
  json_t *serve = serve_json(s, x), *parts = json_object(), *predicted = json_object();
  for (int k = 0; k < TTFT_PARTS; k++)
    serve_put(parts, serve_part_names[k], p->part[k]);
  if (!p->launches)
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
         (p->part[TTFT_OTHER] + p->part[TTFT_LAUNCH] + p->part[TTFT_SCHEDULE]) * 1e3);
}

static int one(struct serve *s, struct setting *x, const struct shares *shares, int64_t length)
{
  struct point p[SHARES];
  struct trace t = {0};
  struct outcome out = {0};
  struct setting alone = *x;
  int n = points_of(s, shares, length, p);
  alone.d.batch = 1;
  int status = make_trace(s, &t, p, n);
  if (!status)
    status = replay(s, &alone, &t, "prompts", true, 1, &out);
  for (int k = 0; !status && k < n && !s->sum->interrupted; k++) {
    take(&out, &p[k], (size_t)s->o->repeat);
    predict(s, x, &p[k]);
    if (!s->o->quiet)
      show(&p[k]);
    status = emit(s, x, &p[k]);
  }
  outcome_free(&out);
  trace_free(&t);
  return status;
}

static int read_shares(struct serve *s, struct shares *shares)
{
  const char *text = s->o->shares ? s->o->shares : "25,50,75,90,99";
  int status = setting_numbers(s, "--shares", text, shares->percent + 1, SHARES - 1, &shares->n);
  shares->percent[0] = 0;
  shares->n++;
  for (int i = 1; !status && i < shares->n; i++)
    if (shares->percent[i] > 99 || shares->percent[i] <= shares->percent[i - 1])
      status = serve_fail(s, ATTN_EINVAL, "--shares %.60s: want percent up to 99, ascending", text);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  const char *lengths = s->o->lengths ? s->o->lengths : "256,512,1k";
  int64_t length[LENGTHS];
  struct shares shares;
  int n, status = setting_numbers(s, "--lengths", lengths, length, LENGTHS, &n);
  if (!status)
    status = read_shares(s, &shares);
  if (!status && x->d.contiguous)
    status = serve_fail(s, ATTN_EINVAL, "prefill with --contiguous: only pages can be cached");
  for (int i = 0; !status && i < n; i++)
    status = setting_length(s, x, length[i], 1);
  if (!status)
    status = setting_check(s, x);
  if (!status && !s->o->quiet)
    printf("%s%s, %lld layer%s, prefill %s%s%s\n\n%8s %8s %7s %11s %11s %11s %11s %11s\n",
           s->sum->records ? "\n" : "", x->d.model.name, (long long)decoder_layers(&x->d),
           decoder_layers(&x->d) == 1 ? "" : "s", x->d.prefill->name,
           x->d.gathered ? " and, gathered, " : "", x->d.gathered ? x->d.gathered->name : "",
           "prompt", "cached", "share", "TTFT", "predicted", "GEMM", "attention", "rest");
  for (int i = 0; !status && i < n && !s->sum->interrupted; i++)
    status = one(s, x, &shares, length[i]);
  return status;
}

int scenario_prefill(struct serve *s)
{
  int status = s->dev.ops->ceilings(&s->dev, MODE_RESTED, &s->ceilings);
  if (status)
    return serve_fail(s, status, "ceilings: %.200s", s->dev.error);
  return setting_each(s, false, on_model, NULL);
}
