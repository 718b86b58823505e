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

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "harness/serve/serve-parts.h"
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
#define TRAINED_LEAST 256
#define CHECKED 64 /* rows whose angles are checked */

static const struct scaling {
  const char *rope; /* as --rope; %d is the extension */
  bool trained, far, near;
} scalings[] = {{"none", false, false, true},  {"linear:%d", false, true, false},
                {"ntk:%d", false, true, true}, {"dyn:1", true, true, true},
                {"yarn:%d", true, true, true}, {"llama3:%d", true, true, true}};

static const int extensions[] = {4, 16, 32};

/* Tensors of a context of n tokens, (n, HEADS, D), on the device: the cpu's is the host's. */
struct scene {
  struct attn_problem rope, decode;
  struct attn_args args;
  float *q, *k_new, *v_new, *k, *v, *o, *out, *lse;
  void *workspace;
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
           "op=rope dtype=fp32 hq=2 hkv=2 sq=%lld sk=%lld d=%d rope=%s theta=%.17g%s",
           (long long)sc->n, (long long)sc->n, D, rope, x->d.model.rope_theta, suffix);
  int status = attn_problem_parse(text, &sc->rope, s->err, s->errlen);
  snprintf(text, sizeof text, "op=decode dtype=fp32 hq=2 hkv=2 sk=%lld d=%d scale=1",
           (long long)sc->n, D);
  return status ? status : attn_problem_parse(text, &sc->decode, s->err, s->errlen);
}

static int allocate(struct serve *s, struct scene *sc)
{
  struct device *dev = &s->dev;
  size_t bytes = (size_t)sc->n * HEADS * D * sizeof(float);
  float **all[] = {&sc->q, &sc->k_new, &sc->v_new, &sc->k, &sc->v, &sc->o};
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof all / sizeof *all; i++)
    status = dev->ops->alloc(dev, bytes, (void **)all[i]);
  if (!status)
    status = dev->ops->alloc(dev, HEADS * D * sizeof(float), (void **)&sc->out);
  if (!status)
    status = dev->ops->alloc(dev, HEADS * sizeof(float), (void **)&sc->lse);
  const struct attn_impl *impl = s->decode;
  size_t more = impl->workspace ? impl->workspace(&sc->decode, &dev->info) : 0;
  if (!status && more)
    status = dev->ops->alloc(dev, more, &sc->workspace);
  sc->args.workspace = sc->workspace;
  sc->args.workspace_bytes = more;
  return status ? serve_fail(s, status, "a context of %lld tokens: %.150s", (long long)sc->n,
                             dev->error)
                : ATTN_OK;
}

static void release(struct serve *s, struct scene *sc)
{
  void *all[] = {sc->q, sc->k_new, sc->v_new, sc->k, sc->v, sc->o, sc->out, sc->lse, sc->workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    s->dev.ops->free(&s->dev, all[i]);
}

/* The heads' keys and the last token's queries; values are 1 at what is looked for. */
static void fill(struct scene *sc)
{
  const struct attn_rope *r = &sc->rope.rope;
  size_t count = (size_t)sc->n * HEADS * D;
  int64_t last = sc->n - 1, needle = 1, row = HEADS * D;
  double far = 0, near = 0, logit = LOGIT * log((double)sc->n);
  for (int64_t i = 0; i < D / 2; i++) {
    double turn = pow(r->theta, -2.0 * (double)i / D), over = turn * (double)sc->n;
    far += over >= FAR_LEAST && over <= FAR_MOST;
    near += turn >= NEAR_ANGLE;
  }
  for (size_t i = 0; i < count; i++) /* any queries but the last: their angles are checked */
    sc->q[i] = (int64_t)i < last * row ? (float)rng_below(1, i, 2001) / 1000 - 1 : 0;
  memset(sc->k_new, 0, count * sizeof(float));
  memset(sc->v_new, 0, count * sizeof(float));
  for (int64_t i = 0; i < D / 2; i++) {
    double turn = pow(r->theta, -2.0 * (double)i / D), over = turn * (double)sc->n;
    if (over >= FAR_LEAST && over <= FAR_MOST) {
      sc->q[last * row + FAR * D + i] = (float)(logit / far);
      sc->k_new[needle * row + FAR * D + i] = 1;
    }
    if (turn < NEAR_ANGLE)
      continue;
    /* turned back by one token: the best match is the token before */
    sc->q[last * row + NEAR * D + i] = (float)(logit / near * cos(turn));
    sc->q[last * row + NEAR * D + i + D / 2] = (float)(-logit / near * sin(turn));
    for (int64_t j = 0; j < last; j++)
      sc->k_new[j * row + NEAR * D + i] = 1;
  }
  sc->v_new[needle * row + FAR * D] = 1;
  sc->v_new[(last - 1) * row + NEAR * D] = 1;
}

static struct attn_tensor tensor(float *data)
{
  return (struct attn_tensor){.data = data, .ss = HEADS * D, .sh = D};
}

static int run_one(struct serve *s, const struct attn_impl *impl, const struct attn_problem *p,
                   const struct attn_args *args, double *seconds)
{
  void *plan = (void *)p;
  const char *why = attn_unsupported(impl, p, &s->dev.info);
  if (why)
    return serve_fail(s, ATTN_EUNSUPPORTED, "%s: %s; choose another --impl", impl->name, why);
  int status = impl->prepare ? impl->prepare(p, &s->dev.info, &plan) : ATTN_OK;
  double start = clock_now();
  if (!status)
    status = impl->run(plan, args, s->dev.ops->stream(&s->dev));
  if (!status)
    status = s->dev.ops->sync(&s->dev);
  if (seconds)
    *seconds = clock_now() - start;
  if (impl->prepare && impl->finish && plan)
    impl->finish(plan);
  return status ? serve_fail(s, status, "%s failed on a context of %lld tokens", impl->name,
                             (long long)p->sk)
                : ATTN_OK;
}

static int measure(struct serve *s, struct scene *sc, struct found *f)
{
  struct attn_args *a = &sc->args, decode = {0};
  struct ref_plan plan = {CHECKED, s->o->seed};
  struct ref_verdict verdict = {0};
  int status = ATTN_OK;
  a->q = tensor(sc->q);
  a->k_new = tensor(sc->k_new);
  a->v_new = tensor(sc->v_new);
  a->k = tensor(sc->k);
  a->v = tensor(sc->v);
  a->o = tensor(sc->o);
  for (int i = 0; !status && i < RUNS; i++)
    status = run_one(s, s->rope, &sc->rope, a, &sc->seconds[i]);
  decode = *a;
  decode.q = tensor(sc->o + (sc->n - 1) * HEADS * D);
  decode.o = tensor(sc->out);
  decode.lse = sc->lse;
  if (!status)
    status = run_one(s, s->decode, &sc->decode, &decode, NULL);
  f->seconds = quantity_of(sc->seconds, RUNS);
  f->needle = sc->out[FAR * D];
  f->neighbour = sc->out[NEAR * D];
  if (!status)
    status = ref_verify_rope(&sc->rope, &s->rope->numerics, a, &plan, NULL, &verdict);
  s->sum->failed += !status && !verdict.pass;
  f->angle = verdict.drift.angle_max;
  f->logit = verdict.drift.logit_rel;
  return status;
}

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
    status = allocate(s, &sc);
  if (!status) {
    fill(&sc);
    status = measure(s, &sc, &f);
  }
  if (!status)
    status = emit(s, x, &sc, how, extension, trained, &f);
  release(s, &sc);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  int64_t context = x->d.model.context, trained = context < TRAINED ? context : TRAINED;
  double slowest = pow(x->d.model.rope_theta, -(double)(D - 2) / D);
  double most = FAR_MOST / slowest / extensions[sizeof extensions / sizeof *extensions - 1];
  trained = s->o->context ? s->o->context : trained;
  if (trained < TRAINED_LEAST)
    return serve_fail(s, ATTN_EINVAL,
                      "--context %lld: NTK leaves the pairs that see the end of so short a context "
                      "nearly as they are, so no head can tell: give at least %d",
                      (long long)trained, TRAINED_LEAST);
  if ((double)trained > most)
    return serve_fail(
        s, ATTN_EINVAL,
        "--context %lld: with theta %g the slowest pair turns too far over 32 times as "
        "many tokens for the far head: give at most %.0f",
        (long long)trained, x->d.model.rope_theta, floor(most));
  int status = setting_check(s, x);
  if (s->dev.info.kind != ATTN_CPU)
    return serve_fail(s, ATTN_EUNSUPPORTED, "rope builds its heads in host memory: --device cpu");
  if (!status && !s->o->quiet)
    printf("theta %g, trained on %lld tokens, %s and %s\n\n%4s %-10s %11s %9s %9s %9s %9s\n",
           x->d.model.rope_theta, (long long)trained, s->rope->name, s->decode->name, "", "scaling",
           "a token", "angle", "logit", "needle", "neighbour");
  for (size_t e = 0; !status && e < sizeof extensions / sizeof *extensions; e++)
    for (size_t i = 0; !status && i < sizeof scalings / sizeof *scalings; i++)
      status = one(s, x, &scalings[i], trained, extensions[e]);
  return status;
}

int scenario_rope(struct serve *s)
{
  return setting_each(s, "tiny-gqa", on_model, NULL);
}
