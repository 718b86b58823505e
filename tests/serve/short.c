/* SPDX-License-Identifier: Apache-2.0
 *
 * short.c - attention on a paged cache that leaves the last key out: what attnbench serve must not
 * give a time to. As plain as can be. With TEST_SHORT=crash or hang in the environment it does
 * that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "impl/attn.h"

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  bool fits = p->dtype == ATTN_F32 && p->page && p->nruns && p->d <= 128 && p->sk <= 4096 &&
              (p->op == ATTN_DECODE || p->op == ATTN_APPEND);
  return fits ? NULL : "only short fp32 decode and append on pages";
}

static const float *element(const struct attn_problem *p, const struct attn_args *a,
                            const struct attn_tensor *t, int64_t s, int64_t j, int64_t h)
{
  int64_t page = a->block_table[s * a->block_table_stride + j / p->page];
  return (const float *)t->data + page * t->sb + j % p->page * t->ss + h * t->sh;
}

static void row(const struct attn_problem *p, const struct attn_args *a, int64_t s, int64_t i,
                int64_t h)
{
  int64_t at = a->cu_seqlens_q[s] + i, sq = a->cu_seqlens_q[s + 1] - a->cu_seqlens_q[s];
  int64_t keys = a->seqlens_k[s] - sq + i, kv = h / (p->hq / p->hkv); /* and one too few */
  const float *q = (const float *)a->q.data + at * a->q.ss + h * a->q.sh;
  float *o = (float *)a->o.data + at * a->o.ss + h * a->o.sh;
  double sum = 0, out[128] = {0};
  for (int64_t j = 0; j < keys; j++) {
    const float *k = element(p, a, &a->k, s, j, kv), *v = element(p, a, &a->v, s, j, kv);
    double score = 0;
    for (int64_t c = 0; c < p->d; c++)
      score += (double)q[c] * k[c];
    double weight = exp(score / sqrt((double)p->d));
    sum += weight;
    for (int64_t c = 0; c < p->d; c++)
      out[c] += weight * v[c];
  }
  for (int64_t c = 0; c < p->d; c++)
    o[c] = keys ? (float)(out[c] / sum) : 0;
}

static int run(void *plan, const struct attn_args *a, void *stream)
{
  const struct attn_problem *p = plan;
  const char *ill = getenv("TEST_SHORT");
  if (ill && !strcmp(ill, "crash"))
    abort();
  while (ill && !strcmp(ill, "hang"))
    continue;
  for (int64_t s = 0; s < p->b; s++)
    for (int64_t i = 0; i < a->cu_seqlens_q[s + 1] - a->cu_seqlens_q[s]; i++)
      for (int64_t h = 0; h < p->hq; h++)
        row(p, a, s, i, h);
  return ATTN_OK;
}

static const struct attn_impl attn_short = {
    .abi = ATTN_ABI,
    .name = "test/short",
    .device = ATTN_CPU,
    .summary = "one key too few",
    .provenance = "attnbench",
    .unsupported = unsupported,
    .run = run,
};

static const struct attn_impl *const impls[] = {&attn_short};

const struct attn_plugin attn_plugin = {ATTN_ABI, 1, impls};
