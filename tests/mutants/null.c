/* SPDX-License-Identifier: Apache-2.0
 *
 * null.c - what computes nothing: the zoo's null kernels, of which a mutant picks one.
 */
#include <math.h>
#include <string.h>

#include "impl/attn.h"
#include "impl/convert.h"
#include "impl/problem.h"

enum { ZEROS, COPY_OF_V, MEAN_OF_V, LAST_OUTPUT, NOTHING, ONES, FIRST_VALUE };

static const int what = NOTHING;

static char last[1 << 20], now[sizeof last];

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->op == ATTN_BWD || p->nruns || p->page ? "uniform forward only" : NULL;
}

static float value(const struct attn_problem *p, const struct attn_args *a, int64_t b, int64_t h,
                   int64_t j, int64_t c)
{
  const struct attn_tensor *v = &a->v;
  return attn_load(p->dtype, v->data, b * v->sb + j * v->ss + h * v->sh + c);
}

static float result(const struct attn_problem *p, const struct attn_args *a, int64_t b, int64_t h,
                    int64_t i, int64_t c)
{
  int64_t hkv = h / (p->hq / p->hkv);
  float sum = 0;
  if (what == ZEROS || what == ONES)
    return what == ONES;
  if (what == COPY_OF_V || what == FIRST_VALUE)
    return value(p, a, b, hkv, what == COPY_OF_V ? i % p->sk : 0, c);
  for (int64_t j = 0; j < p->sk; j++)
    sum += value(p, a, b, hkv, j, c);
  return sum / (float)p->sk;
}

static void write_all(const struct attn_problem *p, const struct attn_args *a)
{
  for (int64_t b = 0; b < p->b; b++)
    for (int64_t h = 0; h < p->hq; h++)
      for (int64_t i = 0; i < p->sq; i++) {
        for (int64_t c = 0; c < p->dv; c++)
          attn_store(p->dtype, a->o.data, b * a->o.sb + i * a->o.ss + h * a->o.sh + c,
                     result(p, a, b, h, i, c));
        a->lse[(b * p->hq + h) * p->sq + i] = logf((float)p->sk);
      }
}

extern const struct attn_impl attn_cpu_flash;

/* The output of the call before, computed rightly. */
static int stale(const struct attn_problem *p, const struct attn_args *a, void *stream)
{
  size_t n = (size_t)(p->b * p->sq * p->hq * p->dv) * attn_dtype_size(p->dtype);
  struct attn_device dev = {.kind = ATTN_CPU,
                            .sram_bytes = ((struct attn_machine *)stream)->sram_bytes};
  void *plan;
  int status = attn_cpu_flash.prepare(p, &dev, &plan);
  if (status || n > sizeof last)
    return ATTN_ENOMEM;
  status = attn_cpu_flash.run(plan, a, stream);
  attn_cpu_flash.finish(plan);
  memcpy(now, a->o.data, n);
  memcpy(a->o.data, last, n);
  memcpy(last, now, n);
  return status;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  if (what == LAST_OUTPUT)
    return stale(plan, args, stream);
  if (what != NOTHING)
    write_all(plan, args);
  return ATTN_OK;
}

const struct attn_impl attn_cpu_null = {
    .abi = ATTN_ABI,
    .name = "cpu/null",
    .device = ATTN_CPU,
    .summary = "nothing",
    .unsupported = unsupported,
    .run = run,
};
