/* SPDX-License-Identifier: Apache-2.0
 *
 * stored.c - cheats that do not compute what they were asked when they were asked: outputs that
 * were computed earlier, or will be later.
 */
#include <pthread.h>

#include "tests/cheats/honest.h"
#include "tests/cheats/cheats.h"
#include "harness/base/rng.h"

/* Computes once. */
static int first_output(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  if (k->calls++ == 0) {
    honest(k->p, a);
    keep(k, a);
  }
  give(k, a);
  return ATTN_OK;
}
CHEAT(first_output, "computes once and returns that ever after", first_output);

/* Computes when an element of q has changed: new inputs are noticed, as most checks draw them. */
static int watches_inputs(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  float now = honest_get(k->p, &a->q, 0, k->p->sq - 1, 0, k->p->d - 1);
  if (k->calls++ == 0 || now != k->seen) {
    honest(k->p, a);
    keep(k, a);
    k->seen = now;
  }
  give(k, a);
  return ATTN_OK;
}
CHEAT(watches_inputs, "returns its last output while one element of q is the same", watches_inputs);

/* Leaves what the last run left. */
static int stale(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  if (k->calls++ < 3)
    honest(k->p, a);
  return ATTN_OK;
}
CHEAT(skips_after_third, "does nothing from the fourth run on", stale);

/* Fifteen calls' work is done in one; the others are lookups. */
static int batched(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  if (k->calls < 2 || k->calls % 15 == 0) {
    honest(k->p, a);
    keep(k, a);
  } else {
    give(k, a);
  }
  k->calls++;
  return ATTN_OK;
}
CHEAT(batched, "works in every fifteenth run and looks up in the others", batched);

/* What the second sample of a run would have been: the output of the inputs that the default seed
 * draws, computed while preparing. It knows how the harness draws. */
static void guess(enum attn_dtype t, void *to, int64_t n, uint64_t seed)
{
  for (int64_t i = 0; i < n; i += 2) {
    uint64_t u = rng_at(seed, (uint64_t)i / 2);
    float r = sqrtf(-2.0f * logf(((float)(u >> 40) + 0.5f) * 0x1p-24f));
    float angle = (float)(u & 0xffffff) * (6.2831853f * 0x1p-24f);
    attn_store(t, to, i, r * cosf(angle));
    if (i + 1 < n)
      attn_store(t, to, i + 1, r * sinf(angle));
  }
}

static int foresee(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  int64_t n[] = {p->b * p->sq * p->hq * p->d, p->b * p->sk * p->hkv * p->d,
                 p->b * p->sk * p->hkv * p->dv};
  void *in[3];
  int status = kept_prepare(p, dev, plan);
  struct kept *k = *plan;
  for (uint64_t i = 0; i < 3; i++) {
    in[i] = malloc((size_t)n[i] * 4);
    guess(p->dtype, in[i], n[i], rng_at(1, i));
  }
  struct attn_args a = {.q = {in[0], p->sq * p->hq * p->d, p->hq * p->d, p->d},
                        .k = {in[1], p->sk * p->hkv * p->d, p->hkv * p->d, p->d},
                        .v = {in[2], p->sk * p->hkv * p->dv, p->hkv * p->dv, p->dv},
                        .o = {k->o, p->sq * p->hq * p->dv, p->hq * p->dv, p->dv},
                        .lse = k->lse};
  honest(p, &a);
  for (int i = 0; i < 3; i++)
    free(in[i]);
  return status;
}

static int foreseen(void *plan, const struct attn_args *a, void *stream)
{
  give(plan, a);
  return ATTN_OK;
}

const struct attn_impl cheat_foreseen = {
    .abi = ATTN_ABI,
    .name = "cheat/foreseen",
    .device = ATTN_CPU,
    .summary = "computes the default seed's output in prepare",
    .provenance = "a cheat, for the tests",
    .unsupported = honest_unsupported,
    .prepare = foresee,
    .run = foreseen,
    .finish = kept_finish,
};

/* Works on a thread that is still at it when run returns. */
struct errand {
  const struct attn_problem *p;
  struct attn_args a;
};

static void *deliver(void *ctx)
{
  struct errand *e = ctx;
  spin_until(seconds() + 2e-3);
  honest(e->p, &e->a);
  free(e);
  return NULL;
}

static int thread(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  pthread_t t;
  struct errand *e = k->calls++ < 2 ? NULL : malloc(sizeof *e);
  if (!e) {
    honest(k->p, a);
    return ATTN_OK;
  }
  *e = (struct errand){k->p, *a};
  if (pthread_create(&t, NULL, deliver, e))
    return ATTN_ENOMEM;
  return pthread_detach(t) ? ATTN_EDEVICE : ATTN_OK;
}
CHEAT(thread, "leaves the work to a thread after the first runs", thread);
