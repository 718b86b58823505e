/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.h - guarded, poisoned, counted device memory.
 *
 * Every buffer lies between two guard bands of a known pattern, starts 1024-byte aligned and full
 * of NaN patterns; guards are checked after each run; bytes in use and their peak are counted
 * per class, so that "workspace" and "peak" in a record are what was really allocated.
 */
#ifndef HARNESS_ARENA_H
#define HARNESS_ARENA_H

#include "harness/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ARENA_POISON 0x7fffdeadu /* NaN as fp32, and as bf16 or fp16 in its upper half */

struct arena_buffer {
  struct arena_buffer *next;
  char name[24];
  void *base; /* as allocated */
  void *data; /* what callers see */
  size_t bytes;
};

struct arena {
  struct device *dev;
  struct arena_buffer *buffers;
  size_t in_use, peak; /* payload bytes, guards not counted */
};

void arena_init(struct arena *a, struct device *dev);
/* Allocates and poisons. On ATTN_ENOMEM dev->error says how much was asked for and what is free. */
int arena_alloc(struct arena *a, const char *name, size_t bytes, struct arena_buffer **out);
int arena_poison(struct arena *a, struct arena_buffer *b);
/* ATTN_OK, or ATTN_EDEVICE and which buffer was overrun on which side in err. */
int arena_check_guards(struct arena *a, char *err, size_t errlen);
void arena_free(struct arena *a, struct arena_buffer *b);
void arena_destroy(struct arena *a);

#ifdef __cplusplus
}
#endif
#endif
