/* SPDX-License-Identifier: Apache-2.0
 *
 * table-throughput.c - the table for a paper: one row a length, one column an implementation.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/tables.h"

/* Rotation is a matter of bytes: the figure of bandwidth has it. */
static bool has_rate(const struct report_row *row)
{
  return report_timed(row) && row->p.op != ATTN_ROPE;
}

static bool *timed_algorithms(const struct report *r)
{
  bool *used = calloc((size_t)r->nalgorithms + 1, sizeof *used);
  for (int i = 0; used && i < r->nrows; i++)
    used[r->rows[i].style] |= has_rate(&r->rows[i]);
  return used;
}

static struct table *new_table(const struct report *r, const bool *used)
{
  struct table_column *columns = calloc((size_t)r->nalgorithms + 1, sizeof *columns);
  int n = 0;
  if (!columns)
    return NULL;
  columns[n++] = (struct table_column){strdup("Tokens"), "tokens", 'r'};
  for (int s = 0; s < r->nalgorithms; s++)
    if (used[s])
      columns[n++] = (struct table_column){strdup(r->algorithms[s]), r->algorithms[s], 'r'};
  struct table *t = table_new("throughput", "Throughput, TFLOP/s",
                              "Throughput in TFLOP/s: FLOPs of the problem (unmasked pairs only) "
                              "over the median time.",
                              columns, n);
  if (!t)
    return NULL;
  t->own_columns = columns;
  t->section_csv = "case";
  return t;
}

static void add_cell(struct table *t, int column, const struct report_panel *panel, int64_t length,
                     int style)
{
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i];
    if (row->p.sk != length || row->style != style)
      continue;
    if (report_timed(row))
      table_number(t, column, row->tflops, format_number(row->tflops, 3).s);
    else if (report_refusal(row))
      table_text(t, column, report_refusal(row));
  }
}

static bool is_timed(const struct report_panel *panel)
{
  for (int i = 0; i < panel->nrows; i++)
    if (has_rate(panel->rows[i]))
      return true;
  return false;
}

static void add_panel(const struct report *r, const struct report_view *v, struct table *t,
                      const bool *used, const struct report_panel *panel)
{
  char section[1024], view[256], words[512];
  struct attributes a;
  panel_attributes(r, v, panel, &a);
  attributes_common(&a, 1, words, sizeof words);
  report_view_title(r, v, view, sizeof view);
  snprintf(section, sizeof section, "%s · %s", view, words);
  table_section(t, section);
  for (int i = 0; i < panel->nrows; i++) {
    int64_t length = panel->rows[i]->p.sk;
    int column = 1;
    if (i && panel->rows[i - 1]->p.sk == length)
      continue;
    table_row(t);
    table_number(t, 0, (double)length, format_tokens((double)length).s);
    for (int s = 0; s < r->nalgorithms; s++)
      if (used[s])
        add_cell(t, column++, panel, length, s);
  }
}

struct table *table_throughput(const struct report *r)
{
  bool *used = timed_algorithms(r);
  struct table *t = used ? new_table(r, used) : NULL;
  for (int i = 0; t && i < r->nviews; i++)
    for (int k = 0; k < r->views[i].npanels; k++)
      if (is_timed(&r->views[i].panels[k]))
        add_panel(r, &r->views[i], t, used, &r->views[i].panels[k]);
  free(used);
  return t;
}
