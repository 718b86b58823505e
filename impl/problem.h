/* SPDX-License-Identifier: Apache-2.0
 *
 * problem.h - what the parser of problem strings shares with sweeps and model files: one tokenizer,
 * one number format, one way to fail.
 */
#ifndef IMPL_PROBLEM_H
#define IMPL_PROBLEM_H

#include "impl/attn.h"

struct attn_slice {
  const char *text;
  size_t len;
};

/* The words of a problem string, indexed by their enums. */
extern const char *const attn_op_names[],
    *const attn_dtype_names[], *const attn_mask_names[], *const attn_layout_names[],
                                                             *const attn_rope_names[],
                                                                 *const attn_kv_names[];

/* Writes one line into err; returns ATTN_EINVAL. */
__attribute__((format(printf, 3, 4))) int attn_fail(char *err, size_t errlen, const char *fmt, ...);

/* Cuts the next piece (no blank, no comma) off *at; false at the end of the text. */
bool attn_next_piece(const char **at, struct attn_slice *piece);

/* Splits a piece at its first '='; false if it has none. */
bool attn_split_pair(struct attn_slice piece, struct attn_slice *key, struct attn_slice *value);

bool attn_slice_is(struct attn_slice s, const char *word);

/* A whole number >= 0: digits, then k (1024) or M (1048576); false for anything else and for what
 * does not fit. */
bool attn_parse_count(struct attn_slice s, int64_t *out);

/* A finite number, all of the text. */
bool attn_parse_real(const char *text, double *out);

/* A short decimal that reads back as the same double. */
void attn_print_real(double x, char text[32]);

/* ---- op=rope (problem-rope.c) ---- */

/* Setters of the keys, for the parser's table; false if the value is malformed. */
bool attn_rope_set_rope(struct attn_problem *p, const char *value);
bool attn_rope_set_theta(struct attn_problem *p, const char *value);
bool attn_rope_set_trained(struct attn_problem *p, const char *value);
bool attn_rope_set_rotary(struct attn_problem *p, const char *value);
bool attn_rope_set_pairs(struct attn_problem *p, const char *value);
bool attn_rope_set_band(struct attn_problem *p, const char *value);
bool attn_rope_set_ramp(struct attn_problem *p, const char *value);
bool attn_rope_set_attention(struct attn_problem *p, const char *value);

/* What a string left out, with op=rope. */
void attn_rope_defaults(struct attn_problem *p);

int attn_rope_check(const struct attn_problem *p, char *err, size_t errlen);

/* The keys that differ from the defaults, each behind a blank. */
void attn_rope_print(const struct attn_problem *p, char *buf, size_t len);

#endif
