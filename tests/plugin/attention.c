/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c - a plugin: the plainest exact attention there is, for the cpu device.
 *
 * Everything a plugin needs is attn.h.  Built with -DWRONG it forgets the last key of every row, as
 * a kernel with a tail bug does; the suite must catch it.
 *
 *   cc -shared -fPIC -I. -o attention.so tests/plugin/attention.c -lm
 *   attnbench verify --plugin ./attention.so --impl plugin/plain 'b=1 hq=2 sq=33 sk=57 d=64'
 */
#include <math.h>
#include <stdlib.h>

#include "impl/attn.h"
#include "impl/convert.h"

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op != ATTN_FWD)
    return "only op=fwd";
  if (p->softcap != 0 || p->alibi || p->dropout_p != 0 || p->page)
    return "no softcap, ALiBi, dropout or pages";
  if (p->nruns || p->layout == ATTN_PACKED)
    return "no ragged batches";
  return NULL;
}

struct job {
  const struct attn_problem *p;
  const struct attn_args *a;
};

static float load(const struct attn_problem *p, const struct attn_tensor *t, int64_t b, int64_t s,
                  int64_t h, int64_t i)
{
  return attn_load(p->dtype, t->data, b * t->sb + s * t->ss + h * t->sh + i);
}

/* q k^T * scale for the visible keys of one row; returns their maximum. */
static float scores(const struct job *job, int64_t b, int64_t h, int64_t i, int64_t lo, int64_t hi,
                    float *s)
{
  const struct attn_problem *p = job->p;
  float top = -INFINITY, scale = (float)(p->scale != 0 ? p->scale : 1 / sqrt((double)p->d));
  for (int64_t j = lo; j < hi; j++) {
    float dot = 0;
    for (int64_t c = 0; c < p->d; c++)
      dot += load(p, &job->a->q, b, i, h, c) * load(p, &job->a->k, b, j, h / (p->hq / p->hkv), c);
    s[j] = dot * scale;
    top = fmaxf(top, s[j]);
  }
  return top;
}

static void visible(const struct attn_problem *p, int64_t i, int64_t *lo, int64_t *hi)
{
  int64_t diagonal = i + (p->mask == ATTN_MASK_CAUSAL_TOPLEFT ? 0 : p->sk - p->sq);
  bool right = p->mask == ATTN_MASK_WINDOW ? p->window_right >= 0 : p->mask != ATTN_MASK_NONE;
  bool left = p->mask == ATTN_MASK_WINDOW && p->window_left >= 0;
  *lo = left && diagonal - p->window_left > 0 ? diagonal - p->window_left : 0;
  *hi = right ? diagonal + (p->mask == ATTN_MASK_WINDOW ? p->window_right : 0) + 1 : p->sk;
  *hi = *hi > p->sk ? p->sk : *hi;
#ifdef WRONG
  --*hi;
#endif
}

static int row(struct attn_core *core, int64_t n, void *ctx)
{
  const struct job *job = ctx;
  const struct attn_problem *p = job->p;
  int64_t i = n % p->sq, h = n / p->sq % p->hq, b = n / p->sq / p->hq, lo, hi;
  float sum = 0, *s = malloc((size_t)(p->sk + 1) * sizeof *s);
  (void)core;
  if (!s)
    return ATTN_ENOMEM;
  visible(p, i, &lo, &hi);
  float top = scores(job, b, h, i, lo, hi, s);
  for (int64_t j = lo; j < hi; j++)
    sum += s[j] = expf(s[j] - top);
  for (int64_t c = 0; c < p->dv; c++) {
    float o = 0;
    for (int64_t j = lo; j < hi; j++)
      o += s[j] * load(p, &job->a->v, b, j, h / (p->hq / p->hkv), c);
    attn_store(p->dtype, job->a->o.data, b * job->a->o.sb + i * job->a->o.ss + h * job->a->o.sh + c,
               lo < hi ? o / sum : 0);
  }
  job->a->lse[(b * p->hq + h) * p->sq + i] = lo < hi ? top + logf(sum) : -INFINITY;
  free(s);
  return ATTN_OK;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  struct attn_machine *m = stream;
  struct job job = {plan, args};
  return m->parallel(m, job.p->b * job.p->hq * job.p->sq, row, &job);
}

static const struct attn_impl plain = {
    .abi = ATTN_ABI,
    .name = "plugin/plain",
    .device = ATTN_CPU,
    .summary = "example plugin: plain loops in fp32",
    .provenance = "attnbench's example plugin",
    .unsupported = unsupported,
    .run = run,
};

static const struct attn_impl *const impls[] = {&plain};

const struct attn_plugin attn_plugin = {ATTN_ABI, 1, impls};
