/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder-parts.h - what the files of the decoder share: weights, buffers, and the calls of
 * attention that a step is cut into.
 */
#ifndef HARNESS_SERVE_DECODER_PARTS_H
#define HARNESS_SERVE_DECODER_PARTS_H

#include "harness/serve/decoder.h"

struct layer {
  void *qkv, *out, *gate_up, *down; /* matrices */
  void *attention_gain, *mlp_gain;  /* (hidden) */
  void *k, *v;                      /* (pages, page, hkv, d) */
};

/* One call of attention and one of RoPE: some sequences of the step. */
struct call {
  struct attn_problem problem, rope;
  const struct attn_impl *impl;
  void *plan, *rope_plan;
  int64_t token;                              /* the first one's row among the step's */
  int64_t slot;                               /* contiguous: the sequence's page */
  int64_t cu_q, seqlens, table, table_stride; /* places in the step's list of numbers */
  int64_t rows; /* likewise, of a gathered call's keys in the pool; else 0 */
};

struct decoder {
  struct decoder_options o;
  struct compute c;
  struct layer *layer;
  int64_t layers;
  void *embedding, *gain, *head;
  /* of a step: (tokens, ...) */
  void *x, *h, *qkv, *q, *attention, *gate_up, *ffn;
  void *picked, *logits; /* (batch, hidden), (batch, vocab) */
  float *lse;
  int32_t *token;          /* (batch) sampled, on the device */
  void *workspace, *k, *v; /* k, v: gathered rows */
  size_t workspace_bytes, gathered_bytes;
  int32_t *number, *number_device; /* a step's integers, on both sides */
  int64_t numbers, number_room;
  struct call *call; /* (batch) */
  int64_t ncalls;
};

/* Cuts the step into calls, prepares their plans, and brings the numbers to the device. */
int decoder_calls_begin(struct decoder *d, const struct step *step, char *err, size_t errlen);
void decoder_calls_end(struct decoder *d);
int decoder_call_rope(struct decoder *d, const struct call *call, int64_t layer);
int decoder_call_attention(struct decoder *d, const struct call *call, int64_t layer);
/* The numbers that precede those of the calls: the tokens, and the rows that sample. */
int64_t decoder_numbers_row(const struct step *step);

#endif
