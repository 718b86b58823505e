/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-rope.c - contexts of 4, 16 and 32 times the trained length with each scaling of RoPE:
 * what rotation costs, how far angles and logits are off, and whether two hand-built attention
 * heads find what they look for, by the implementations that serve uses.
 *
 * The far head looks for a needle at the other end of the context with pairs so slow that within
 * the trained length they turn little, and over this context more than a right angle: without a
 * scaling the needle points the other way. The near head looks for the token before its own with
 * fast pairs: where a scaling slows them down, it looks further away. So no scaling loses the
 * needle, linear interpolation loses the neighbour, and NTK, dynamic NTK, YaRN and Llama 3 keep
 * both.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/serve/serve-parts.h"
#include "impl/convert.h"
#include "reference/reference.h"

#define D 128 /* of a head */
#define HEADS 2
#define FAR 0
#define NEAR 1
#define NEAR_ANGLE 0.2 /* radians a token: pairs of the near head turn faster */
#define FAR_LEAST 2.2  /* radians over the context: those of the far head */
#define FAR_MOST 4.1
#define LOGIT 4      /* of a perfect match, in units of ln(context) */
#define RUNS 6       /* for the time */
#define TRAINED 1024 /* unless --context says otherwise, or the model has less */
#define CHECKED 64   /* rows whose angles are checked */

static const struct scaling {
  const char *rope; /* as --rope; %d is the extension */
  bool trained, far, near;
} scalings[] = {{"none", false, false, true},  {"linear:%d", false, true, false},
                {"ntk:%d", false, true, true}, {"dyn:1", true, true, true},
                {"yarn:%d", true, true, true}, {"llama3:%d", true, true, true}};

static const int extensions[] = {4, 16, 32};

enum { Q, K_NEW, V_NEW, K, V, O, TENSORS };

/* Tensors of a context of n tokens, (n, HEADS, D), on both sides. */
struct scene {
  struct attn_problem rope, decode;
  struct attn_args host, device;
  void *out; /* (HEADS, D) */
  float *lse;
  void *workspace;
  size_t workspace_bytes;
  int64_t n;
  double seconds[RUNS];
};

struct found {
  struct quantity seconds;
  double angle, logit, needle, neighbour;
};

static int make_problems(struct serve *s, const struct setting *x, struct scene *sc,
                         const struct scaling *how, int64_t trained, int extension)
{
  char rope[32], text[512], suffix[48] = "";
  snprintf(rope, sizeof rope, how->rope, extension);
  if (how->trained)
    snprintf(suffix, sizeof suffix, " trained=%lld", (long long)trained);
  sc->n = trained * extension;
  snprintf(text, sizeof text,
           "op=rope dtype=%s hq=2 hkv=2 sq=%lld sk=%lld d=%d rope=%s theta=%.17g%s",
           attn_dtype_name(x->dtype), (long long)sc->n, (long long)sc->n, D, rope,
           x->d.model.rope_theta, suffix);
  int status = attn_problem_parse(text, &sc->rope, s->err, s->errlen);
  snprintf(text, sizeof text, "op=decode dtype=%s hq=2 hkv=2 sk=%lld d=%d scale=1",
           attn_dtype_name(x->dtype), (long long)sc->n, D);
  return status ? status : attn_problem_parse(text, &sc->decode, s->err, s->errlen);
}

static struct attn_tensor *tensor_of(struct attn_args *a, int i)
{
  struct attn_tensor *all[] = {&a->q, &a->k_new, &a->v_new, &a->k, &a->v, &a->o};
  return all[i];
}

static size_t tensor_bytes(const struct scene *sc)
{
  return (size_t)sc->n * HEADS * D * attn_dtype_size(sc->rope.dtype);
}

static int allocate(struct serve *s, const struct setting *x, struct scene *sc)
{
  struct device *dev = &s->dev;
  const struct attn_impl *impl = x->d.decode;
  int status = ATTN_OK;
  for (int i = 0; !status && i < TENSORS; i++) {
    struct attn_tensor *host = tensor_of(&sc->host, i), *device = tensor_of(&sc->device, i);
    *device = *host = (struct attn_tensor){.ss = HEADS * D, .sh = D};
    host->data = calloc(1, tensor_bytes(sc));
    status = host->data ? dev->ops->alloc(dev, tensor_bytes(sc), &device->data) : ATTN_ENOMEM;
  }
  if (!status)
    status = dev->ops->alloc(dev, HEADS * D * sizeof(float), &sc->out);
  if (!status)
    status = dev->ops->alloc(dev, HEADS * sizeof(float), (void **)&sc->lse);
  sc->workspace_bytes = impl->workspace ? impl->workspace(&sc->decode, &dev->info) : 0;
  if (!status && sc->workspace_bytes)
    status = dev->ops->alloc(dev, sc->workspace_bytes, &sc->workspace);
  return status ? serve_fail(s, status, "a context of %lld tokens: %.150s", (long long)sc->n,
                             *dev->error ? dev->error : "no memory")
                : ATTN_OK;
}

static void release(struct serve *s, struct scene *sc)
{
  void *all[] = {sc->out, sc->lse, sc->workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    s->dev.ops->free(&s->dev, all[i]);
  for (int i = 0; i < TENSORS; i++) {
    s->dev.ops->free(&s->dev, tensor_of(&sc->device, i)->data);
    free(tensor_of(&sc->host, i)->data);
  }
}

static void put(struct scene *sc, int tensor, int64_t token, int64_t at, double x)
{
  attn_store(sc->rope.dtype, tensor_of(&sc->host, tensor)->data, token * HEADS * D + at, (float)x);
}

/* The heads' keys and the last token's queries; values are 1 at what is looked for. */
static void fill(struct scene *sc)
{
  const struct attn_rope *r = &sc->rope.rope;
  int64_t last = sc->n - 1, needle = 1, row = HEADS * D;
  double far = 0, near = 0, logit = LOGIT * log((double)sc->n);
  for (int64_t i = 0; i < D / 2; i++) {
    double turn = pow(r->theta, -2.0 * (double)i / D), over = turn * (double)sc->n;
    far += over >= FAR_LEAST && over <= FAR_MOST;
    near += turn >= NEAR_ANGLE;
  }
  for (int64_t i = 0; i < last * row; i++) /* any queries but the last: their angles are checked */
    put(sc, Q, 0, i, (double)rng_below(1, (uint64_t)i, 2001) / 1000 - 1);
  for (int64_t i = 0; i < D / 2; i++) {
    double turn = pow(r->theta, -2.0 * (double)i / D), over = turn * (double)sc->n;
    if (over >= FAR_LEAST && over <= FAR_MOST) {
      put(sc, Q, last, FAR * D + i, logit / far);
      put(sc, K_NEW, needle, FAR * D + i, 1);
    }
    if (turn < NEAR_ANGLE)
      continue;
    /* turned back by one token: the best match is the token before */
    put(sc, Q, last, NEAR * D + i, logit / near * cos(turn));
    put(sc, Q, last, NEAR * D + i + D / 2, -logit / near * sin(turn));
    for (int64_t j = 0; j < last; j++)
      put(sc, K_NEW, j, NEAR * D + i, 1);
  }
  put(sc, V_NEW, needle, FAR * D, 1);
  put(sc, V_NEW, last - 1, NEAR * D, 1);
}

/* ---- running -------------------------------------------------------------------------------- */

struct launch {
  const struct attn_impl *impl;
  const struct attn_args *args;
  void *plan;
};

static int enqueue(void *ctx, void *stream)
{
  const struct launch *l = ctx;
  return l->impl->run(l->plan, l->args, stream);
}

/* As often as there are places for its seconds. */
static int run_timed(struct serve *s, const struct attn_impl *impl, const struct attn_problem *p,
                     const struct attn_args *args, double *seconds, int n)
{
  const struct device_timing warm = {CACHE_WARM, MODE_SUSTAINED, 0};
  struct launch l = {impl, args, (void *)p};
  const char *why = attn_unsupported(impl, p, &s->dev.info);
  if (why)
    return serve_fail(s, ATTN_EUNSUPPORTED, "%s: %s; choose another --impl", impl->name, why);
  int status = impl->prepare ? impl->prepare(p, &s->dev.info, &l.plan) : ATTN_OK;
  bool made = impl->prepare && !status;
  if (!status)
    status = enqueue(&l, s->dev.ops->stream(&s->dev)); /* loads the kernel */
  if (!status)
    status = s->dev.ops->sync(&s->dev);
  for (int i = 0; !status && i < n; i++) {
    struct device_sample sample;
    status = s->dev.ops->time(&s->dev, &warm, enqueue, &l, &sample);
    seconds[i] = sample.seconds;
  }
  if (made && impl->finish)
    impl->finish(l.plan);
  return status ? serve_fail(s, status, "%s failed on a context of %lld tokens", impl->name,
                             (long long)p->sk)
                : ATTN_OK;
}

static int copy(struct serve *s, struct scene *sc, int first, int end, bool up)
{
  struct device *dev = &s->dev;
  int status = ATTN_OK;
  for (int i = first; !status && i < end; i++) {
    void *host = tensor_of(&sc->host, i)->data, *device = tensor_of(&sc->device, i)->data;
    status = up ? dev->ops->upload(dev, device, host, tensor_bytes(sc))
                : dev->ops->download(dev, host, device, tensor_bytes(sc));
  }
  return status ? serve_fail(s, status, "%.200s", dev->error) : ATTN_OK;
}

/* The last token's attention, at the place in each head that is 1 for what it looks for. */
static int look(struct serve *s, const struct setting *x, struct scene *sc, struct found *f)
{
  struct attn_args a = sc->device;
  size_t size = attn_dtype_size(sc->rope.dtype);
  float out[HEADS * D];
  a.q.data = (char *)a.o.data + (size_t)((sc->n - 1) * HEADS * D) * size;
  a.o.data = sc->out;
  a.lse = sc->lse;
  a.workspace = sc->workspace;
  a.workspace_bytes = sc->workspace_bytes;
  int status = run_timed(s, x->d.decode, &sc->decode, &a, NULL, 0);
  if (!status && s->dev.ops->download(&s->dev, out, sc->out, HEADS * D * size))
    status = serve_fail(s, ATTN_EDEVICE, "%.200s", s->dev.error);
  if (!status) {
    f->needle = attn_load(sc->rope.dtype, out, FAR * D);
    f->neighbour = attn_load(sc->rope.dtype, out, NEAR * D);
  }
  return status;
}

static int measure(struct serve *s, const struct setting *x, struct scene *sc, struct found *f)
{
  struct ref_plan plan = {CHECKED, s->o->seed};
  struct ref_verdict verdict = {0};
  int status = copy(s, sc, Q, K, true);
  if (!status)
    status = run_timed(s, s->rope, &sc->rope, &sc->device, sc->seconds, RUNS);
  if (!status)
    status = look(s, x, sc, f);
  if (!status)
    status = copy(s, sc, K, TENSORS, false);
  if (!status)
    status = ref_verify_rope(&sc->rope, &s->rope->numerics, &sc->host, &plan, NULL, &verdict);
  s->sum->failed += !status && !verdict.pass;
  f->seconds = quantity_of(sc->seconds, RUNS);
  f->angle = verdict.drift.angle_max;
  f->logit = verdict.drift.logit_rel;
  return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int emit(struct serve *s, const struct setting *x, const struct scene *sc,
                const struct scaling *how, int extension, int64_t trained, const struct found *f)
{
  char rope[32];
  snprintf(rope, sizeof rope, how->rope, extension);
  bool right = (f->needle > 0.5) == how->far && (f->neighbour > 0.5) == how->near;
  if (!s->o->quiet)
    printf("%3dx %-10s %8.2f ns %9.1e %9.1e %9.4f %9.4f  %s\n", extension, rope,
           f->seconds.median / (double)sc->n * 1e9, f->angle, f->logit, f->needle, f->neighbour,
           right ? "as it should" : "NOT AS IT SHOULD");
  s->sum->failed += !right;
  json_t *serve = serve_json(s, x);
  json_object_set_new(serve, "rope", json_string(rope));
  serve_put(serve, "extension", extension);
  serve_put(serve, "trained_tokens", (double)trained);
  serve_put(serve, "prompt_tokens", (double)sc->n);
  serve_json_quantity(serve, "rope_s", &f->seconds);
  serve_put(serve, "angle_error", f->angle);
  serve_put(serve, "rope_logit_error", f->logit);
  serve_put(serve, "needle_weight", f->needle);
  serve_put(serve, "neighbour_weight", f->neighbour);
  json_object_set_new(serve, "retrieval", json_string(right ? "pass" : "fail"));
  return serve_emit_problem(s, x, &sc->rope, s->rope, serve);
}

static int one(struct serve *s, const struct setting *x, const struct scaling *how, int64_t trained,
               int extension)
{
  struct scene sc = {0};
  struct found f = {0};
  int status = make_problems(s, x, &sc, how, trained, extension);
  if (!status)
    status = allocate(s, x, &sc);
  if (!status) {
    fill(&sc);
    status = measure(s, x, &sc, &f);
  }
  if (!status)
    status = emit(s, x, &sc, how, extension, trained, &f);
  release(s, &sc);
  return status;
}

/* Trained on fewer tokens, NTK leaves the pairs that see the end of 4 times as many nearly as they
 * are: their index is ln(context) / ln(theta) of d/2, and the stretch grows with it. */
static int64_t least_trained(double theta)
{
  return (int64_t)ceil(0.75 * pow(theta, 0.633));
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  int64_t context = x->d.model.context, least = least_trained(x->d.model.rope_theta);
  int64_t trained = TRAINED;
  while (trained < least)
    trained *= 2;
  trained = context < trained ? context : trained;
  double slowest = pow(x->d.model.rope_theta, -(double)(D - 2) / D);
  double most = FAR_MOST / slowest / extensions[sizeof extensions / sizeof *extensions - 1];
  trained = s->o->context ? s->o->context : trained;
  if (trained < least)
    return serve_fail(s, ATTN_EINVAL,
                      "--context %lld: NTK leaves the pairs that see the end of so short a context "
                      "nearly as they are, so no head can tell: give at least %lld",
                      (long long)trained, (long long)least);
  if ((double)trained > most)
    return serve_fail(
        s, ATTN_EINVAL,
        "--context %lld: with theta %g the slowest pair turns too far over 32 times as "
        "many tokens for the far head: give at most %.0f",
        (long long)trained, x->d.model.rope_theta, floor(most));
  int status = setting_check(s, x);
  if (!status && !s->o->quiet)
    printf("theta %g, trained on %lld tokens, %s and %s\n\n%4s %-10s %11s %9s %9s %9s %9s\n",
           x->d.model.rope_theta, (long long)trained, s->rope->name, x->d.decode->name, "",
           "scaling", "a token", "angle", "logit", "needle", "neighbour");
  for (size_t e = 0; !status && e < sizeof extensions / sizeof *extensions; e++)
    for (size_t i = 0; !status && i < sizeof scalings / sizeof *scalings; i++)
      status = one(s, x, &scalings[i], trained, extensions[e]);
  return status;
}

int scenario_rope(struct serve *s)
{
  return setting_each(s, false, on_model, NULL);
}
