/* SPDX-License-Identifier: Apache-2.0
 *
 * table-throughput.c - tables for a paper, one for each operation: one row a length, one column an
 * implementation that was timed.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/tables.h"

/* What one table shows: operations bound by arithmetic or by bytes. Rotation has a figure. */
struct kind {
  const char *name, *title, *caption;
  enum attn_op op;
  bool bytes;
};

#define FLOPS "FLOPs of the problem (unmasked pairs only) over the median time."
#define BYTES "bytes that the problem has to read and write over the median time."
static const struct kind kinds[] = {
    {"throughput-fwd", "Throughput forward, TFLOP/s",
     "Throughput of the forward pass in TFLOP/s: " FLOPS, ATTN_FWD, false},
    {"throughput-bwd", "Throughput backward, TFLOP/s",
     "Throughput of the backward pass in TFLOP/s: " FLOPS, ATTN_BWD, false},
    {"throughput-append", "Throughput of prefill on a cache, TFLOP/s",
     "Throughput of prefill on a cache in TFLOP/s: " FLOPS, ATTN_APPEND, false},
    {"bandwidth-decode", "Bandwidth of decode, GB/s", "Bandwidth of decode in GB/s: " BYTES,
     ATTN_DECODE, true},
};

static bool has_rate(const struct kind *k, const struct report_row *row)
{
  return report_timed(row) && row->p.op == k->op;
}

static bool *timed_algorithms(const struct kind *k, const struct report *r)
{
  bool *used = calloc((size_t)r->nalgorithms + 1, sizeof *used);
  for (int i = 0; used && i < r->nrows; i++)
    used[r->rows[i].style] |= has_rate(k, &r->rows[i]);
  return used;
}

static void add_cell(const struct kind *k, struct table *t, int column,
                     const struct report_panel *panel, int64_t length, int style)
{
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i];
    if (row->p.sk != length || row->style != style)
      continue;
    double rate = k->bytes ? row->gbps : row->tflops;
    if (report_timed(row))
      table_number(t, column, rate, format_number(rate, k->bytes ? 4 : 3).s);
    else if (report_refusal(row))
      table_text(t, column, report_refusal(row));
  }
}

static bool is_timed(const struct kind *k, const struct report_panel *panel)
{
  for (int i = 0; i < panel->nrows; i++)
    if (has_rate(k, panel->rows[i]))
      return true;
  return false;
}

static void add_panel(const struct kind *k, const struct report *r, const struct report_view *v,
                      struct table *t, const bool *used, const struct report_panel *panel)
{
  struct attributes a;
  panel_attributes(r, v, panel, &a);
  table_panel(t, r, v, &a);
  for (int i = 0; i < panel->nrows; i++) {
    int64_t length = panel->rows[i]->p.sk;
    int column = 1;
    if (i && panel->rows[i - 1]->p.sk == length)
      continue;
    table_row(t);
    table_number(t, 0, (double)length, format_tokens((double)length).s);
    for (int s = 0; s < r->nalgorithms; s++)
      if (used[s])
        add_cell(k, t, column++, panel, length, s);
  }
}

static struct table *of_kind(const struct kind *k, const struct report *r)
{
  bool *used = timed_algorithms(k, r);
  struct table *t = used ? table_by_length(r, used, NULL, k->name, k->title, k->caption) : NULL;
  for (int i = 0; t && i < r->nviews; i++)
    for (int p = 0; p < r->views[i].npanels; p++)
      if (is_timed(k, &r->views[i].panels[p]))
        add_panel(k, r, &r->views[i], t, used, &r->views[i].panels[p]);
  free(used);
  return t;
}

struct table *table_throughput_fwd(const struct report *r)
{
  return of_kind(&kinds[0], r);
}

struct table *table_throughput_bwd(const struct report *r)
{
  return of_kind(&kinds[1], r);
}

struct table *table_throughput_append(const struct report *r)
{
  return of_kind(&kinds[2], r);
}

struct table *table_bandwidth_decode(const struct report *r)
{
  return of_kind(&kinds[3], r);
}
