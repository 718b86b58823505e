/* SPDX-License-Identifier: Apache-2.0
 *
 * flip.h - laws of a device's flip, move, digest and around, the same for every device.
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

/* The digest of bytes as it is defined; each bit of the last word and every length counts. */
static uint64_t flip_digest(const unsigned char *x, size_t bytes)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < (bytes + 7) / 8; i++) {
    uint64_t word = 0;
    for (size_t k = 8 * i; k < bytes && k < 8 * i + 8; k++)
      word |= (uint64_t)x[k] << 8 * (k % 8);
    sum += rng_digest_term(i, word);
  }
  return sum;
}

static uint64_t flip_digest_on(struct device *dev, void *at, const void *from, size_t bytes)
{
  uint64_t got = 0;
  if (dev->ops->upload(dev, at, from, bytes) || dev->ops->digest(dev, at, bytes, &got))
    diag("no digest: %s", dev->error);
  return got;
}

static void test_digest(struct device *dev)
{
  unsigned char x[FLIP_N * 4];
  int wrong = 0, unseen = 0;
  void *at;
  if (dev->ops->alloc(dev, sizeof x, &at)) {
    ok(false, "4000 bytes");
    return;
  }
  for (size_t i = 0; i < sizeof x; i++)
    x[i] = (unsigned char)rng_at(9, i);
  for (size_t n = sizeof x - 17; n <= sizeof x; n++)
    wrong += flip_digest_on(dev, at, x, n) != flip_digest(x, n);
  ok(!wrong, "a digest is the sum of its words' terms, whatever the length");
  uint64_t was = flip_digest_on(dev, at, x, sizeof x);
  for (size_t k = 0; k < 64; k++) {
    size_t byte = rng_at(10, k) % sizeof x;
    x[byte] ^= 1;
    unseen += flip_digest_on(dev, at, x, sizeof x) == was;
    x[byte] ^= 1;
  }
  ok(!unseen, "it sees each of 64 flipped bits");
  for (size_t i = 0; i < 8; i++) {
    unsigned char t = x[i];
    x[i] = x[i + 8];
    x[i + 8] = t;
  }
  ok(flip_digest_on(dev, at, x, sizeof x) != was, "and two words that changed places");
  dev->ops->free(dev, at);
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
  test_digest(dev);
  dev->around = &around;
  int status = dev->ops->time(dev, &timing, flip_launch, &t, &s);
  dev->around = NULL;
  ok(!status && !strcmp(t.order, "bla"), "around a timed run: before, launch, after");
}

#endif
