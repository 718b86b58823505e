/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h - requests as they arrived somewhere: two formats in, one list out.
 *
 *   Mooncake  JSON lines {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids":
 * [..]}, an id a block of 512 prompt tokens: the same id, the same tokens (FAST '25) Azure     CSV
 * TIMESTAMP,ContextTokens,GeneratedTokens (Azure public dataset, LLM inference 2023)
 *
 * The tokens themselves are in neither: they are drawn from the ids, and where there are no ids no
 * two requests share any.
 */
#ifndef HARNESS_SERVE_TRACE_H
#define HARNESS_SERVE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_BLOCK 512       /* tokens a hash id stands for */
#define TRACE_LENGTH 16777216 /* longest prompt or output that is believed */

struct trace_request {
  double arrival_s; /* since the first request */
  int64_t input, output;
  int row;        /* of the file, from 1 */
  size_t id, ids; /* its hash ids, trace.id[id] .. */
  bool apart;     /* its pages do not enter the prefix cache */
};

struct trace {
  struct trace_request *request;
  size_t n, room;
  int64_t *id;
  size_t nids, id_room;
  const char *format; /* "mooncake", "azure", "made" */
};

/* Reads at most limit requests (0: all). On failure ATTN_EINVAL or ATTN_ENOMEM and one line in err:
 * file, row, what, what to do. */
int trace_read(struct trace *t, const char *path, size_t limit, char *err, size_t errlen);
/* Appends a request with ids first_id, first_id + 1, ... */
int trace_add(struct trace *t, double arrival_s, int64_t input, int64_t output, const int64_t *ids,
              size_t nids);
void trace_free(struct trace *t);

/* What token `at` of request i's prompt is known by: equal for equal content, else different. */
uint64_t trace_content(const struct trace *t, size_t i, int64_t at);
/* The prompt of request i, in a vocabulary. */
void trace_tokens(const struct trace *t, size_t i, uint64_t seed, int64_t vocab, int32_t *token);

/* ---- for the two readers ----------------------------------------------------------------------
 */

struct trace_line {
  const char *path, *text; /* text without the end of the line */
  int row;
  char *err;
  size_t errlen;
};

/* Writes "path: row N: ..." into err; ATTN_EINVAL. */
__attribute__((format(printf, 2, 3))) int trace_fail(const struct trace_line *l, const char *fmt,
                                                     ...);
/* Parse a row into r (arrival_s absolute) and, by ids, into t's list of ids. */
int trace_row_mooncake(struct trace *t, struct trace_request *r, const struct trace_line *l);
int trace_row_azure(struct trace *t, struct trace_request *r, const struct trace_line *l);
int trace_id_append(struct trace *t, int64_t id);

#endif
