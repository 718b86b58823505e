/* SPDX-License-Identifier: Apache-2.0
 *
 * table-serving.c - replays of traces: times, their parts, and what the prefix cache found.
 */
#include "config.h"

#include <math.h>

#include "reports/format.h"
#include "reports/serving.h"
#include "reports/tables.h"

static const struct table_column columns[] = {
    {"Trace", "trace", 'l'},
    {"Model", "model", 'l'},
    {"Prefix cache", "prefix_cache", 'l'},
    {"Requests", "completed", 'r'},
    {"TTFT p50", "ttft_s", 'r'},
    {"p99", "ttft_p99_s", 'r'},
    {"Queueing", "queue_s", 'r'},
    {"Scheduling", "schedule_s", 'r'},
    {"GEMM", "gemm_s", 'r'},
    {"Attention", "attention_s", 'r'},
    {"Launch", "launch_s", 'r'},
    {"Rest", "other_s", 'r'},
    {"TPOT p50", "tpot_s", 'r'},
    {"Tokens/s", "tokens_per_s", 'r'},
    {"Cached", "cached_share", 'r'},
    {"Recount", "recount", 'l'},
    {"Reusable", "reusable_tokens", 'r'},
    {"Evicted", "evictions", 'r'},
    {"Preempted", "preemptions", 'r'},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add_times(struct table *t, const json_t *v)
{
  static const char *const parts[] = {"queue", "schedule", "gemm", "attention", "launch", "other"};
  enum { PARTS = sizeof parts / sizeof *parts };
  double x[PARTS + 3] = {serving_inner(v, "ttft_s", "median"), serving_inner(v, "ttft_s", "p99")};
  for (int i = 0; i < PARTS; i++)
    x[2 + i] = serving_inner(v, "ttft_parts_s", parts[i]);
  x[PARTS + 2] = serving_inner(v, "tpot_s", "median");
  for (int i = 0; i < PARTS + 3; i++)
    table_number(t, 4 + i, x[i], format_seconds(x[i]).s);
}

static void add_row(struct table *t, const struct report_serving *s)
{
  const json_t *v = s->serve;
  bool on = json_is_true(json_object_get(v, "prefix_cache"));
  char name[256], count[160];
  serving_name(s, name, sizeof name);
  double share = serving_number(v, "cached_tokens") / serving_number(v, "prompt_tokens");
  double rate = serving_number(v, "tokens_per_s"), done = serving_number(v, "completed");
  double differs = serving_number(v, "recount_differs");
  double counts[3] = {serving_number(v, "reusable_tokens"), serving_number(v, "evictions"),
                      serving_number(v, "preemptions")};
  table_row(t);
  table_text(t, 0, serving_trace(s, SERVING_TRACE).s);
  table_text(t, 1, name);
  table_text(t, 2, on ? "on" : "off");
  snprintf(count, sizeof count, "%s%s%s", format_exact(done).s,
           serving_interrupted(v) ? " of " : "",
           serving_interrupted(v) ? format_exact(serving_number(v, "requests")).s : "");
  table_number(t, 3, done, count);
  add_times(t, v);
  table_number(t, 13, rate, format_number(rate, 3).s);
  table_number(t, 14, on ? share : NAN, on ? format_percent(share).s : "");
  table_text(t, 15, isnan(differs) ? "" : differs > 0 ? "differs" : "agrees");
  for (int i = 0; i < 3; i++)
    table_number(t, 16 + i, counts[i], format_exact(counts[i]).s);
}

struct table *table_serving(const struct report *r)
{
  const struct report_serving *s;
  struct table *t = table_new("serving", "Serving",
                              "Replays of traces: medians over requests, and what the prefix cache "
                              "found beside the recount from the trace. A replay that was "
                              "interrupted has the requests that were completed, of all.",
                              columns, COLUMNS);
  for (int i = 0; t && (s = serving_nth(r, "replay", i)); i++)
    add_row(t, s);
  return t;
}

/* ---- RoPE beyond the trained length ---------------------------------------------------------- */

struct table *table_serving_rope(const struct report *r)
{
  static const struct table_column rope[] = {{"Context", "prompt_tokens", 'r'},
                                             {"Extension", "extension", 'r'},
                                             {"Scaling", "rope", 'l'},
                                             {"A token", "token_s", 'r'},
                                             {"Angle error", "angle_error", 'r'},
                                             {"Logit error", "rope_logit_error", 'r'},
                                             {"Needle", "needle_weight", 'r'},
                                             {"Neighbour", "neighbour_weight", 'r'},
                                             {"Retrieval", "retrieval", 'l'}};
  const struct report_serving *s;
  struct table *t = table_new("serving-rope", "RoPE beyond the trained length",
                              "Rotation and append of two heads of 128, errors against fp64, and "
                              "what two hand-built heads find: a needle at the other end, and the "
                              "token before.",
                              rope, 9);
  for (int i = 0; t && (s = serving_nth(r, "rope", i)); i++) {
    double tokens = serving_number(s->serve, "prompt_tokens");
    double token_s = serving_inner(s->serve, "rope_s", "median") / tokens;
    table_row(t);
    for (int k = 0; k < 8; k++) {
      double x = serving_number(s->serve, rope[k].csv);
      if (k != 2 && k != 3)
        table_number(t, k, x, k < 2 ? format_exact(x).s : format_number(x, 3).s);
    }
    table_text(t, 2, serving_text(s->serve, "rope"));
    table_number(t, 3, token_s, format_seconds(token_s).s);
    table_text(t, 8, serving_text(s->serve, "retrieval"));
  }
  return t;
}
