/* SPDX-License-Identifier: Apache-2.0
 *
 * honest.h - plain attention on the host, for implementations that are honest some of the time.
 */
#ifndef TESTS_CHEATS_HONEST_H
#define TESTS_CHEATS_HONEST_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "impl/attn.h"
#include "impl/convert.h"

#define MAX_KEYS 4096

static inline const char *honest_unsupported(const struct attn_problem *p,
                                             const struct attn_device *dev)
{
  if (p->op != ATTN_FWD || p->mask != ATTN_MASK_NONE || p->layout != ATTN_BSHD || p->nruns)
    return "only op=fwd, no mask, layout bshd";
  if (p->softcap != 0 || p->alibi || p->dropout_p != 0 || p->page || p->sk > MAX_KEYS)
    return "no softcap, ALiBi, dropout, pages or more than 4096 keys";
  return NULL;
}

static inline float honest_get(const struct attn_problem *p, const struct attn_tensor *t, int64_t b,
                               int64_t s, int64_t h, int64_t i)
{
  return attn_load(p->dtype, t->data, b * t->sb + s * t->ss + h * t->sh + i);
}

static inline void honest_put(const struct attn_problem *p, const struct attn_args *a, int64_t b,
                              int64_t s, int64_t h, int64_t i, float x)
{
  attn_store(p->dtype, a->o.data, b * a->o.sb + s * a->o.ss + h * a->o.sh + i, x);
}

static inline float *honest_lse(const struct attn_problem *p, const struct attn_args *a, int64_t b,
                                int64_t h, int64_t i)
{
  return &a->lse[(b * p->hq + h) * p->sq + i];
}

/* One row, over the first keys only. */
static inline void honest_row(const struct attn_problem *p, const struct attn_args *a, int64_t b,
                              int64_t h, int64_t i, int64_t keys)
{
  float s[MAX_KEYS], top = -INFINITY, sum = 0;
  float scale = (float)(p->scale != 0 ? p->scale : 1 / sqrt((double)p->d));
  int64_t g = h / (p->hq / p->hkv);
  for (int64_t j = 0; j < keys; j++) {
    float dot = 0;
    for (int64_t c = 0; c < p->d; c++)
      dot += honest_get(p, &a->q, b, i, h, c) * honest_get(p, &a->k, b, j, g, c);
    s[j] = dot * scale;
    top = fmaxf(top, s[j]);
  }
  for (int64_t j = 0; j < keys; j++)
    sum += s[j] = expf(s[j] - top);
  for (int64_t c = 0; c < p->dv; c++) {
    float o = 0;
    for (int64_t j = 0; j < keys; j++)
      o += s[j] * honest_get(p, &a->v, b, j, g, c);
    honest_put(p, a, b, i, h, c, o / sum);
  }
  *honest_lse(p, a, b, h, i) = top + logf(sum);
}

/* The first rows of every head. */
static inline void honest_rows(const struct attn_problem *p, const struct attn_args *a,
                               int64_t rows, int64_t keys)
{
  for (int64_t b = 0; b < p->b; b++)
    for (int64_t h = 0; h < p->hq; h++)
      for (int64_t i = 0; i < rows; i++)
        honest_row(p, a, b, h, i, keys);
}

static inline void honest(const struct attn_problem *p, const struct attn_args *a)
{
  honest_rows(p, a, p->sq, p->sk);
}

static inline size_t honest_o_bytes(const struct attn_problem *p)
{
  return (size_t)(p->b * p->sq * p->hq * p->dv) * (p->dtype == ATTN_F32 ? 4 : 2);
}

static inline size_t honest_lse_bytes(const struct attn_problem *p)
{
  return (size_t)(p->b * p->sq * p->hq) * sizeof(float);
}

/* Outputs of one run, kept. */
struct kept {
  const struct attn_problem *p;
  void *o;
  float *lse;
  int calls;
  float seen; /* an element of q */
};

static inline void keep(struct kept *k, const struct attn_args *a)
{
  memcpy(k->o, a->o.data, honest_o_bytes(k->p));
  memcpy(k->lse, a->lse, honest_lse_bytes(k->p));
}

static inline void give(const struct kept *k, const struct attn_args *a)
{
  memcpy(a->o.data, k->o, honest_o_bytes(k->p));
  memcpy(a->lse, k->lse, honest_lse_bytes(k->p));
}

static inline int kept_prepare(const struct attn_problem *p, const struct attn_device *dev,
                               void **plan)
{
  struct kept *k = calloc(1, sizeof *k);
  if (k) {
    k->p = p;
    k->o = malloc(honest_o_bytes(p));
    k->lse = malloc(honest_lse_bytes(p));
  }
  *plan = k;
  return k && k->o && k->lse ? ATTN_OK : ATTN_ENOMEM;
}

static inline void kept_finish(void *plan)
{
  struct kept *k = plan;
  free(k->o);
  free(k->lse);
  free(k);
}

static inline double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void spin_until(double when)
{
  while (seconds() < when)
    ;
}

#define CHEAT(id, words, how)                 \
  const struct attn_impl cheat_##id = {       \
      .abi = ATTN_ABI,                        \
      .name = "cheat/" #id,                   \
      .device = ATTN_CPU,                     \
      .summary = words,                       \
      .provenance = "a cheat, for the tests", \
      .unsupported = honest_unsupported,      \
      .prepare = kept_prepare,                \
      .run = how,                             \
      .finish = kept_finish,                  \
  }

#endif
