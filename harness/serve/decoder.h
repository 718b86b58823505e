/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder.h - a decoder of a model's shape with random weights: what a step of batching runs on.
 *
 * A layer: RMSNorm, QKV, RoPE and append to the cache, attention, output projection, RMSNorm,
 * SwiGLU; then RMSNorm, LM head and the largest logit for the rows that sample. Attention and RoPE
 * are implementations of the registry. The cache is a pool of pages a layer and operand, (pages,
 * page, hkv, d), under one block table; contiguous: a page is all a sequence may ever need,
 * attention sees plain rows, and one call is one sequence.
 *
 * A ragged problem names at most ATTN_MAX_RUNS lengths, so a batch is cut into calls of so many
 * sequences, decoding ones and prompts apart.
 */
#ifndef HARNESS_SERVE_DECODER_H
#define HARNESS_SERVE_DECODER_H

#include "harness/serve/compute.h"
#include "impl/model.h"

struct decoder_options {
  struct attn_model model;
  int64_t layers; /* of them, the first ones; 0: all */
  int64_t page, npages;
  bool contiguous;
  int64_t tokens, batch; /* most of both in a step */
  uint64_t seed;         /* of the weights */
  const struct attn_impl *prefill, *decode, *rope;
  /* Takes chunks of gather_least tokens and more, one by one, on keys and values that are gathered
   * from their pages into rows: for one that reads no pages. NULL: none. */
  const struct attn_impl *gathered;
  int64_t gather_least;
  struct attn_rope scaling; /* rotary 0: the model's own, without extension */
};

struct decoder;

/* An enum attn_status; the reason is in err, of an implementation that refuses, too. */
int decoder_create(struct decoder **d, struct device *dev, const struct decoder_options *o,
                   char *err, size_t errlen);
void decoder_destroy(struct decoder *d);
/* What no token has filled is NaN again, and must not reach a result. */
int decoder_forget(struct decoder *d);

/* A struct step_model's run, with a struct decoder as self. */
int decoder_run(void *decoder, const struct step *step, int32_t *sampled, struct step_times *times,
                char *err, size_t errlen);
/* Logits of the i-th sampling item of the last step, (vocab) floats. */
int decoder_logits(struct decoder *d, int64_t i, float *logits);

double decoder_token_bytes(const struct decoder_options *o,
                           enum attn_dtype t); /* K and V a token */
double decoder_weight_bytes(const struct decoder_options *o, enum attn_dtype t);
/* Work of n tokens behind first others, and of sampling once. */
double decoder_gemm_flops(const struct decoder_options *o, int64_t n);
double decoder_attention_flops(const struct decoder_options *o, int64_t first, int64_t n);
int64_t decoder_layers(const struct decoder_options *o);
/* The largest attention problem that n tokens behind first ask for: for records. */
void decoder_problem(const struct decoder_options *o, enum attn_dtype t, int64_t first, int64_t n,
                     struct attn_problem *p);

#endif
