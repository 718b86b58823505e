/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h - the operands of a problem: sizes and strides by layout, seeded random inputs, their
 * copies on the host and on the device.
 */
#ifndef HARNESS_TENSORS_H
#define HARNESS_TENSORS_H

#include "harness/device/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum operand {
  OP_Q,
  OP_K,
  OP_V,
  OP_O,
  OP_DOUT,
  OP_DQ,
  OP_DK,
  OP_DV,
  OP_LSE,
  OP_K_NEW,
  OP_V_NEW,
  OPERANDS
};

struct regime;

struct tensors {
  const struct attn_problem *p;
  const struct regime *regime; /* of what is drawn; NULL: normal. Set after tensors_create */
  struct arena *arena;
  bool used[OPERANDS], output[OPERANDS]; /* by the problem's op */
  size_t bytes[OPERANDS];
  struct arena_buffer *buffer[OPERANDS];
  struct arena_buffer *before[OPERANDS]; /* of an output that a run writes in part; or NULL */
  struct arena_buffer *cu_q, *cu_k;
  struct arena_buffer *table, *seqlens; /* of a paged cache, and what was uploaded there */
  int32_t *host_table, *host_seqlens;
  struct arena_buffer *scale[2]; /* of the keys and of the values of an e4m3 cache */
  float *host_scale[2];
  void *host[OPERANDS];      /* inputs as uploaded; owned */
  uint64_t *signs;           /* flips that the host's copy has not followed yet; or NULL */
  uint64_t digest[OPERANDS]; /* of inputs as uploaded */
  bool digested[OPERANDS];   /* and not flipped since */
  char changed[96];          /* what a run changed and should not have; or "" */
  struct attn_args args;     /* device pointers; workspace left for the caller to set */
};

const char *operand_name(enum operand op);

/* Strides of an operand under p->layout, and its bytes. */
struct attn_tensor operand_strides(const struct attn_problem *p, enum operand op);
size_t operand_bytes(const struct attn_problem *p, enum operand op);
enum attn_dtype operand_type(const struct attn_problem *p, enum operand op);

/* Fills n elements with standard normal values of seed, rounded to t; all cores. */
void tensors_random(enum attn_dtype t, void *to, int64_t n, uint64_t seed);

/* Allocates every operand on the device (outputs poisoned). */
int tensors_create(struct tensors *t, const struct attn_problem *p, struct arena *arena);
/* Draws q, k, v (and dout) from seed, uploads them; backward also makes o and lse exact. */
int tensors_draw(struct tensors *t, uint64_t seed);
int tensors_poison_outputs(struct tensors *t);
/* 1: the inputs on the device still are what was uploaded, 0: changed, -1: could not tell */
int tensors_inputs_unchanged(struct tensors *t);
/* tensors-pages.c: the pool and block table of a paged cache, drawn anew after k and v. */
int64_t tensors_pool_pages(const struct attn_problem *p);
int tensors_pages_create(struct tensors *t);
int tensors_pages_draw(struct tensors *t, uint64_t seed);
int tensors_pages_upload(struct tensors *t);
int tensors_pages_unchanged(struct tensors *t);
void tensors_pages_destroy(struct tensors *t);
/* 1: n bytes of a buffer are those on the host, 0: they are not, -1: could not tell */
int tensors_same_bytes(struct tensors *t, const struct arena_buffer *device, const void *host,
                       size_t bytes);
/* tensors-scales.c: the scales of an e4m3 cache, drawn before k and v. */
int tensors_scales_create(struct tensors *t);
int tensors_scales_draw(struct tensors *t, uint64_t seed);
int tensors_scales_upload(struct tensors *t);
int tensors_scales_unchanged(struct tensors *t);
void tensors_scales_destroy(struct tensors *t);
/* tensors-cache.c: the cache of op=rope. What it holds before a run: drawn, and put there. */
int tensors_cache_create(struct tensors *t);
/* First element of a token of k or v; k0 tokens lie before the sequence in a packed cache. */
int64_t tensors_cache_slot(const struct tensors *t, enum operand op, int64_t seq, int64_t k0,
                           int64_t token);
int tensors_cache_draw(struct tensors *t);
int tensors_cache_reset(struct tensors *t, enum operand op); /* enqueued */
/* As tensors_inputs_unchanged, for everything but the new tokens. */
int tensors_cache_kept(struct tensors *t);
/* tensors-flip.c: new signs for one input, on the device; enqueued. */
int tensors_flip(struct tensors *t, uint64_t key);
/* The host's copies follow. */
void tensors_settle(struct tensors *t);
/* Uploads the inputs again, after something has changed them. */
int tensors_restore(struct tensors *t);
/* As tensors_inputs_unchanged, for a few random elements of each input. */
int tensors_probe(struct tensors *t, uint64_t seed);
/* Whether an operand is something that was uploaded. */
bool tensors_is_input(const struct tensors *t, enum operand op);
/* Remembers what was uploaded. */
int tensors_digest_inputs(struct tensors *t);
/* A 64-bit digest of the output bits; *status is ATTN_OK or the reason why 0 came back. */
uint64_t tensors_output_digest(struct tensors *t, int *status);
void tensors_destroy(struct tensors *t);

#ifdef __cplusplus
}
#endif
#endif
