/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c - guarded, poisoned, counted device memory.
 *
 * A buffer is GUARD bytes, the payload, GUARD bytes.  The far guard starts on the byte after the
 * payload, so that an overrun by one byte is seen whatever the size.
 */
#include "config.h"

#include "harness/device/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 4096
#define GUARD_PATTERN 0x5ca1ab1eu

void arena_init(struct arena *a, struct device *dev)
{
  *a = (struct arena){.dev = dev};
}

/* The pattern's phase counts from the buffer's base, which is aligned. */
static int fill_guards(struct arena *a, struct arena_buffer *b)
{
  const struct device_ops *ops = a->dev->ops;
  size_t whole = b->bytes / 4 * 4;
  int status = ops->fill(a->dev, b->base, GUARD_PATTERN, GUARD);
  if (!status)
    status = ops->fill(a->dev, (char *)b->data + whole, GUARD_PATTERN, GUARD + b->bytes - whole);
  return status;
}

int arena_poison(struct arena *a, struct arena_buffer *b)
{
  return a->dev->ops->fill(a->dev, b->data, ARENA_POISON, b->bytes);
}

static int allocate(struct arena *a, struct arena_buffer *b)
{
  char reason[sizeof a->dev->error];
  if (b->bytes > SIZE_MAX - 2 * GUARD) {
    snprintf(a->dev->error, sizeof a->dev->error, "buffer %s: size overflows", b->name);
    return ATTN_EINVAL;
  }
  int status = a->dev->ops->alloc(a->dev, b->bytes + 2 * GUARD, &b->base);
  if (!status) {
    b->data = (char *)b->base + GUARD;
    return ATTN_OK;
  }
  snprintf(reason, sizeof reason, "%s", a->dev->error);
  snprintf(a->dev->error, sizeof a->dev->error, "buffer %s: %.200s", b->name, reason);
  return status;
}

int arena_alloc(struct arena *a, const char *name, size_t bytes, struct arena_buffer **out)
{
  struct arena_buffer *b = calloc(1, sizeof *b);
  *out = NULL;
  if (!b) {
    snprintf(a->dev->error, sizeof a->dev->error, "buffer %s: no host memory", name);
    return ATTN_ENOMEM;
  }
  snprintf(b->name, sizeof b->name, "%s", name);
  b->bytes = bytes;
  int status = allocate(a, b);
  if (!status)
    status = fill_guards(a, b);
  if (!status)
    status = arena_poison(a, b);
  if (status) {
    if (b->base)
      a->dev->ops->free(a->dev, b->base);
    free(b);
    return status;
  }
  b->next = a->buffers;
  a->buffers = b;
  a->in_use += bytes;
  a->peak = a->in_use > a->peak ? a->in_use : a->peak;
  *out = b;
  return ATTN_OK;
}

/* The byte of the pattern that belongs at an offset from an aligned address. */
static unsigned char pattern_at(size_t offset)
{
  const uint32_t word = GUARD_PATTERN;
  unsigned char bytes[4];
  memcpy(bytes, &word, 4);
  return bytes[offset % 4];
}

/* -1, or the distance from the payload of the nearest byte that was changed. */
static long damage(const unsigned char *got, size_t phase, bool before)
{
  uint32_t changed = 0, first, word;
  memcpy(&first, got, 4);
  for (size_t i = 0; i < GUARD; i += 4) {
    memcpy(&word, got + i, 4);
    changed |= word ^ first;
  }
  for (size_t i = 0; i < 4; i++)
    changed |= got[i] ^ pattern_at(phase + i);
  if (!changed)
    return -1;
  for (size_t n = 0; n < GUARD; n++) {
    size_t i = before ? GUARD - 1 - n : n;
    if (got[i] != pattern_at(phase + i))
      return (long)n;
  }
  return -1;
}

static int check_buffer(struct arena *a, struct arena_buffer *b, char *err, size_t errlen)
{
  static const char *const side[] = {"before its start", "past its end"};
  unsigned char got[GUARD];
  const char *from[] = {b->base, (char *)b->data + b->bytes};
  for (int s = 0; s < 2; s++) {
    int status = a->dev->ops->download(a->dev, got, from[s], GUARD);
    if (status) {
      snprintf(err, errlen, "buffer %s: guards cannot be read: %.160s", b->name, a->dev->error);
      return status;
    }
    long at = damage(got, s ? b->bytes : 0, s == 0);
    if (at >= 0) {
      snprintf(err, errlen, "buffer %s: byte %ld %s was overwritten", b->name, at + 1, side[s]);
      return ATTN_EDEVICE;
    }
  }
  return ATTN_OK;
}

int arena_check_guards(struct arena *a, char *err, size_t errlen)
{
  for (struct arena_buffer *b = a->buffers; b; b = b->next) {
    int status = check_buffer(a, b, err, errlen);
    if (status)
      return status;
  }
  return ATTN_OK;
}

void arena_free(struct arena *a, struct arena_buffer *b)
{
  struct arena_buffer **link = &a->buffers;
  while (*link && *link != b)
    link = &(*link)->next;
  if (!*link)
    return;
  *link = b->next;
  a->in_use -= b->bytes;
  a->dev->ops->free(a->dev, b->base);
  free(b);
}

void arena_destroy(struct arena *a)
{
  while (a->buffers)
    arena_free(a, a->buffers);
}
