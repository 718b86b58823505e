/* SPDX-License-Identifier: Apache-2.0
 *
 * table-training.c - one attention layer in training: a forward and a backward pass of the same
 * problem, what recomputation costs, and what the naive algorithm pays for not having it.
 *
 * Backward is given Q, K, V, O and LSE. An algorithm that stores no N x N matrix computes Q K^T
 * once more there: 2 d FLOPs a pair and head, of the 10 d (for dv = d) that backward is counted
 * with.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/tables.h"

enum {
  IMPL,
  PROBLEM,
  LENGTH,
  TOKENS,
  FORWARD,
  BACKWARD,
  DETERMINISTIC,
  RATE,
  PEAK,
  NAIVE_PEAK,
  TRAFFIC,
  NAIVE_TRAFFIC,
  RECOMPUTED,
  RECOMPUTED_TIME,
  COLUMNS
};

static const struct table_column columns[COLUMNS] = {
    [IMPL] = {"Implementation", "impl", 'l'},
    [PROBLEM] = {NULL, "problem", 'l'},
    [LENGTH] = {"Sequence", "seqlen", 'r'},
    [TOKENS] = {"Tokens", "tokens", 'r'},
    [FORWARD] = {"Forward", "forward_s", 'r'},
    [BACKWARD] = {"Backward", "backward_s", 'r'},
    [DETERMINISTIC] = {"Deterministic backward", "deterministic_s", 'r'},
    [RATE] = {"Tokens/s", "tokens_per_s", 'r'},
    [PEAK] = {"Peak memory", "peak_bytes", 'r'},
    [NAIVE_PEAK] = {"Naive's", "naive_peak_bytes", 'r'},
    [TRAFFIC] = {"HBM bytes", "moved_bytes", 'r'},
    [NAIVE_TRAFFIC] = {"Naive's", "naive_moved_bytes", 'r'},
    [RECOMPUTED] = {"Recomputed FLOPs", "recomputed_flops", 'r'},
    [RECOMPUTED_TIME] = {"As time", "recomputed_s", 'r'},
};

/* The row of another operation on the same problem, by an implementation (NULL: by naive). */
static const struct report_row *find(const struct report_view *v, const struct report_row *of,
                                     enum attn_op op, bool deterministic, const char *impl)
{
  char wanted[ATTN_PROBLEM_TEXT], text[ATTN_PROBLEM_TEXT];
  struct attn_problem p = of->p;
  p.op = op;
  p.deterministic = deterministic;
  attn_problem_print(&p, wanted, sizeof wanted);
  for (int i = 0; i < v->nrows; i++) {
    const struct report_row *row = v->rows[i];
    if (!row->parsed || row->p.op != op || row->p.deterministic != deterministic ||
        strcmp(impl ? impl : "naive", impl ? row->impl : report_algorithm(row->impl)))
      continue;
    attn_problem_print(&row->p, text, sizeof text);
    if (!strcmp(text, wanted))
      return row;
  }
  return NULL;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static double moved(const struct report_row *forward, const struct report_row *backward)
{
  return forward && backward ? forward->moved_bytes + backward->moved_bytes : NAN;
}

static void add_times(const struct report_view *v, struct table *t, const struct report_row *f,
                      const struct report_row *b)
{
  const struct report_row *same_bits = find(v, f, ATTN_BWD, true, f->impl);
  double slow = same_bits && report_timed(same_bits) ? same_bits->median_s : NAN;
  double tokens = (double)attn_problem_total_q(&f->p), rate = tokens / (f->median_s + b->median_s);
  char text[160] = "";
  if (isfinite(slow))
    snprintf(text, sizeof text, "%s (%s×)", format_seconds(slow).s,
             format_number(slow / b->median_s, 3).s);
  table_number(t, LENGTH, (double)f->p.sk, format_tokens((double)f->p.sk).s);
  table_number(t, TOKENS, tokens, format_tokens(tokens).s);
  table_number(t, FORWARD, f->median_s, format_seconds(f->median_s).s);
  table_number(t, BACKWARD, b->median_s, format_seconds(b->median_s).s);
  table_number(t, DETERMINISTIC, slow, text);
  table_number(t, RATE, rate, format_number(rate, 3).s);
}

/* Naive that was refused has no peak, but says what it would have needed. */
static void add_bytes(struct table *t, const struct report_row *f, const struct report_row *b,
                      const struct report_row *naive_f, const struct report_row *naive_b)
{
  double peak = naive_b ? fmax(naive_b->peak_bytes, naive_b->workspace_bytes) : NAN;
  double bytes = moved(f, b), naive_bytes = moved(naive_f, naive_b);
  char text[160] = "";
  if (isfinite(peak))
    snprintf(text, sizeof text, "%s%s", format_binary(peak).s,
             report_too_large(naive_b) ? ", does not fit" : "");
  table_number(t, PEAK, b->peak_bytes, format_binary(b->peak_bytes).s);
  table_number(t, NAIVE_PEAK, peak, text);
  table_number(t, TRAFFIC, bytes, format_bytes(bytes).s);
  table_number(t, NAIVE_TRAFFIC, naive_bytes, format_bytes(naive_bytes).s);
}

/* At the rate that backward reached. */
static void add_recomputed(struct table *t, const struct report_row *b)
{
  double flops = 2.0 * (double)b->p.d * (double)b->p.hq * attn_problem_pairs(&b->p);
  double time = b->median_s * flops / b->flops;
  char text[160] = "";
  if (b->flops > 0)
    snprintf(text, sizeof text, "%s G (%s)", format_number(flops / 1e9, 3).s,
             format_percent(flops / b->flops).s);
  table_number(t, RECOMPUTED, flops, text);
  table_number(t, RECOMPUTED_TIME, time, format_seconds(time).s);
}

static void add_row(const struct report_view *v, struct table *t, const struct report_row *f,
                    const struct report_row *b)
{
  const struct report_row *naive_f = find(v, f, ATTN_FWD, false, NULL);
  const struct report_row *naive_b = find(v, f, ATTN_BWD, false, NULL);
  table_row(t);
  table_text(t, IMPL, f->impl);
  table_text(t, PROBLEM, f->problem);
  add_times(v, t, f, b);
  add_bytes(t, f, b, naive_f, naive_b);
  add_recomputed(t, b);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool trains(const struct report_view *v, const struct report_row *f)
{
  const struct report_row *b = f->parsed && f->p.op == ATTN_FWD && report_timed(f)
                                   ? find(v, f, ATTN_BWD, false, f->impl)
                                   : NULL;
  return b && report_timed(b);
}

static void add_panel(const struct report *r, const struct report_view *v, struct table *t,
                      const struct report_panel *panel)
{
  struct attributes a;
  bool headed = false;
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *f = panel->rows[i];
    if (!trains(v, f))
      continue;
    if (!headed) {
      panel_attributes(r, v, panel, &a);
      *a.text[0] = '\0'; /* the operation: here it is both */
      table_panel(t, r, v, &a);
      headed = true;
    }
    add_row(v, t, f, find(v, f, ATTN_BWD, false, f->impl));
  }
}

struct table *table_training(const struct report *r)
{
  struct table *t =
      table_new("training", "Training: forward and backward",
                "One attention layer, forward and backward of the same problem. Recomputed is Q Kᵀ "
                "in backward, its share of backward's FLOPs, and what it takes at backward's rate; "
                "naive's bytes are what it costs to write the matrix out instead.",
                columns, COLUMNS);
  if (t)
    t->section_csv = "case";
  for (int i = 0; t && i < r->nviews; i++)
    for (int k = 0; k < r->views[i].npanels; k++)
      add_panel(r, &r->views[i], t, &r->views[i].panels[k]);
  return t;
}
