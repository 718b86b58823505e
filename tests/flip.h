/* SPDX-License-Identifier: Apache-2.0
 *
 * flip.h - laws of a device's flip, move and around, the same for every device.
 */
#ifndef TESTS_FLIP_H
#define TESTS_FLIP_H

#include "harness/device/device.h"
#include "harness/base/rng.h"
#include "tests/tap.h"

#define FLIP_N 1000 /* no multiple of 64 */

/* Elements whose bits are not what the definition says. */
static int flip_wrong(struct device *dev, size_t width, uint64_t key)
{
  unsigned char was[FLIP_N * 4], is[FLIP_N * 4];
  int wrong = 0;
  void *at, *copy;
  if (dev->ops->alloc(dev, sizeof was, &at) || dev->ops->alloc(dev, sizeof was, &copy))
    return -1;
  for (size_t i = 0; i < sizeof was; i++)
    was[i] = (unsigned char)rng_at(5, i);
  int status = dev->ops->upload(dev, at, was, sizeof was);
  if (!status)
    status = dev->ops->flip(dev, at, width, FLIP_N, key);
  if (!status)
    status = dev->ops->move(dev, copy, at, sizeof was);
  if (!status)
    status = dev->ops->download(dev, is, copy, sizeof is);
  for (size_t i = 0; i < FLIP_N; i++)
    was[i * width + width - 1] ^= (unsigned char)((rng_at(key, i / 64) >> (i % 64) & 1) << 7);
  for (size_t i = 0; i < sizeof was; i++)
    wrong += was[i] != is[i];
  dev->ops->free(dev, at);
  dev->ops->free(dev, copy);
  return status ? -1 : wrong;
}

struct flip_trace {
  char order[8];
  int n;
};

static int flip_before(void *ctx, void *stream)
{
  struct flip_trace *t = ctx;
  t->order[t->n++] = 'b';
  return ATTN_OK;
}

static int flip_after(void *ctx, void *stream)
{
  struct flip_trace *t = ctx;
  t->order[t->n++] = 'a';
  return ATTN_OK;
}

static int flip_launch(void *ctx, void *stream)
{
  struct flip_trace *t = ctx;
  t->order[t->n++] = 'l';
  return ATTN_OK;
}

static void test_flip(struct device *dev)
{
  struct flip_trace t = {"", 0};
  const struct device_around around = {flip_before, flip_after, &t};
  const struct device_timing timing = {CACHE_COLD, MODE_SUSTAINED, 0};
  struct device_sample s;
  ok(flip_wrong(dev, 2, 7) == 0, "2-byte signs flip where the key says, and nothing else changes");
  ok(flip_wrong(dev, 4, 8) == 0, "4-byte signs likewise");
  dev->around = &around;
  int status = dev->ops->time(dev, &timing, flip_launch, &t, &s);
  dev->around = NULL;
  ok(!status && !strcmp(t.order, "bla"), "around a timed run: before, launch, after");
}

#endif
