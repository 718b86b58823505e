/* SPDX-License-Identifier: Apache-2.0
 *
 * trace-mooncake.c - a row of a Mooncake trace: a JSON object with times in milliseconds.
 */
#include "config.h"

#include <jansson.h>

#include "harness/serve/trace.h"
#include "impl/attn.h"

static int count(const json_t *o, const char *key, int64_t *n, const struct trace_line *l)
{
  const json_t *j = json_object_get(o, key);
  if (!json_is_integer(j))
    return trace_fail(l, "%s is %s: want a whole number", key, j ? "no whole number" : "missing");
  *n = json_integer_value(j);
  return ATTN_OK;
}

static int take_ids(struct trace *t, struct trace_request *r, const json_t *list,
                    const struct trace_line *l)
{
  int64_t want = (r->input + TRACE_BLOCK - 1) / TRACE_BLOCK;
  size_t n = json_array_size(list);
  if (!json_is_array(list) || (int64_t)n != want)
    return trace_fail(l, "hash_ids has %zu entries: input_length %lld takes %lld blocks of %d", n,
                      (long long)r->input, (long long)want, TRACE_BLOCK);
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < n; i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id))
      return trace_fail(l, "hash_ids[%zu] is no whole number", i);
    status = trace_id_append(t, json_integer_value(id));
  }
  r->ids = n;
  return status;
}

int trace_row_mooncake(struct trace *t, struct trace_request *r, const struct trace_line *l)
{
  json_error_t why;
  json_t *o = json_loads(l->text, JSON_REJECT_DUPLICATES, &why);
  const json_t *ms = json_object_get(o, "timestamp");
  int status = ATTN_OK;
  if (!json_is_object(o))
    status = trace_fail(l, "no JSON object: %.80s (column %d)", o ? "something else" : why.text,
                        o ? 1 : why.column);
  else if (!json_is_number(ms))
    status = trace_fail(l, "timestamp is %s: want milliseconds", ms ? "no number" : "missing");
  if (!status)
    status = count(o, "input_length", &r->input, l);
  if (!status)
    status = count(o, "output_length", &r->output, l);
  if (!status)
    status = take_ids(t, r, json_object_get(o, "hash_ids"), l);
  r->arrival_s = json_number_value(ms) * 1e-3;
  json_decref(o);
  return status;
}
