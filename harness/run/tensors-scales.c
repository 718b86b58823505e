/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors-scales.c - the scales of an e4m3 cache: another one for each head and for keys and
 * values, none of them 1 nor a power of two, so that a scale dropped, exchanged or applied twice
 * shows.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/run/tensors.h"

static size_t bytes_of(const struct attn_problem *p)
{
  return (size_t)p->hkv * sizeof(float);
}

int tensors_scales_create(struct tensors *t)
{
  const float **slot[2] = {&t->args.k_scale, &t->args.v_scale};
  int status = ATTN_OK;
  for (int i = 0; i < 2 && !status; i++) {
    t->host_scale[i] = malloc(bytes_of(t->p));
    if (!t->host_scale[i])
      return ATTN_ENOMEM;
    status = arena_alloc(t->arena, i ? "v_scale" : "k_scale", bytes_of(t->p), &t->scale[i]);
    if (!status)
      *slot[i] = t->scale[i]->data;
  }
  return status;
}

/* One in each of as many parts of 1.25 ... 3.25 as there are heads, in turn from a random one on.
 */
int tensors_scales_draw(struct tensors *t, uint64_t seed)
{
  int64_t n = t->p->hkv;
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t first = rng_at(seed, i) % (uint64_t)n;
    for (int64_t h = 0; h < n; h++) {
      double step = (double)((uint64_t)h + first),
             u = (double)(rng_at(seed, 2 + i) >> 40) * 0x1p-24;
      double at = step < (double)n ? step : step - (double)n;
      t->host_scale[i][h] = (float)(1.25 + 2 * (at + 0.25 + 0.5 * u) / (double)n);
    }
  }
  return tensors_scales_upload(t);
}

int tensors_scales_upload(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  int status = ATTN_OK;
  for (int i = 0; i < 2 && !status; i++)
    status = dev->ops->upload(dev, t->scale[i]->data, t->host_scale[i], bytes_of(t->p));
  return status;
}

int tensors_scales_unchanged(struct tensors *t)
{
  int same = 1;
  for (int i = 0; i < 2 && same == 1; i++)
    same = tensors_same_bytes(t, t->scale[i], t->host_scale[i], bytes_of(t->p));
  return same;
}

void tensors_scales_destroy(struct tensors *t)
{
  for (int i = 0; i < 2; i++) {
    free(t->host_scale[i]);
    if (t->scale[i])
      arena_free(t->arena, t->scale[i]);
  }
}
