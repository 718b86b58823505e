/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-lengths.c - figures over the sequence length: panels in a grid, at most six a figure and
 * one operation a figure, the legend below them.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/format.h"
#include "reports/length-panel.h"

#define PANELS 6
#define HEAD 66
#define CELL 306
#define TITLE 30
#define FOOT 60  /* below a panel's axis */
#define AXIS 216 /* height of a panel's axis */

static bool drawable(const struct length_plot *plot, const struct report_view *v,
                     const struct report_panel *panel)
{
  double value[3];
  if (panel->nlengths < 2 || !plot->wants(panel->rows[0]))
    return false;
  for (int i = 0; i < panel->nrows; i++) {
    plot->value(v, panel->rows[i], value);
    if (isfinite(value[0]))
      return true;
  }
  return false;
}

/* Small numbers in the smaller unit, for the whole figure. */
static double choose_scale(const struct length_figure *lf)
{
  double most = 0, value[3];
  for (int i = 0; i < lf->n; i++)
    for (int k = 0; k < lf->panels[i]->nrows; k++) {
      lf->plot->value(lf->view, lf->panels[i]->rows[k], value);
      if (value[0] > most)
        most = value[0];
    }
  return lf->plot->ylabel_small && most < 1 ? 1000 : 1;
}

static void mark_used(const struct length_figure *lf, bool *used)
{
  for (int s = 0; s < lf->report->nalgorithms; s++)
    used[s] = length_drawn(lf, s);
}

/* ---- the numbers shown ----------------------------------------------------------------------- */

static struct table *new_values(const struct length_figure *lf, const bool *used)
{
  const struct report *r = lf->report;
  struct table_column *columns = calloc((size_t)r->nalgorithms + 2, sizeof *columns);
  int n = 0;
  if (!columns)
    return NULL;
  columns[n++] = (struct table_column){strdup("Tokens"), "tokens", 'r'};
  if (lf->plot->baseline)
    columns[n++] = (struct table_column){strdup(lf->plot->baseline_name), "baseline", 'r'};
  for (int s = 0; s < r->nalgorithms; s++)
    if (used[s])
      columns[n++] = (struct table_column){strdup(r->algorithms[s]), r->algorithms[s], 'r'};
  struct table *t = table_new("values", "", "", columns, n);
  if (t)
    t->own_columns = columns;
  return t;
}

static void add_value(const struct length_figure *lf, struct table *t, int column,
                      const struct report_panel *panel, int64_t length, int style)
{
  double value[3];
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i];
    if (row->p.sk != length || row->style != style)
      continue;
    lf->plot->value(lf->view, row, value);
    const char *word = report_refusal(row);
    if (isfinite(value[0]))
      table_number(t, column, value[0], lf->plot->format(value[0] * lf->scale).s);
    else if (word)
      table_text(t, column, word);
  }
}

static void add_lengths(const struct length_figure *lf, struct table *t, const bool *used,
                        const struct report_panel *panel)
{
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i];
    int column = 0;
    if (i && row->p.sk == panel->rows[i - 1]->p.sk)
      continue;
    table_row(t);
    table_number(t, column++, (double)row->p.sk, format_tokens((double)row->p.sk).s);
    if (lf->plot->baseline) {
      double base = lf->plot->baseline(row);
      table_number(t, column++, base, lf->plot->format(base).s);
    }
    for (int s = 0; s < lf->report->nalgorithms; s++)
      if (used[s])
        add_value(lf, t, column++, panel, row->p.sk, s);
  }
}

static struct table *values_of(const struct length_figure *lf, const bool *used)
{
  struct table *t = new_values(lf, used);
  for (int i = 0; t && i < lf->n; i++) {
    char own[256];
    attributes_own(lf->attributes, lf->n, i, own, sizeof own);
    if (*own)
      table_section(t, own);
    add_lengths(lf, t, used, lf->panels[i]);
  }
  return t;
}

/* ---- one figure ------------------------------------------------------------------------------ */

static int legend_lines(const struct length_figure *lf, struct legend_line more[3],
                        struct reference_line *line)
{
  const struct length_plot *plot = lf->plot;
  int n = 0;
  if (plot->baseline)
    more[n++] = (struct legend_line){plot->baseline_name, "(3,3)", 1.5, -1};
  if (plot->thin)
    more[n++] = (struct legend_line){plot->thin_name, "1", 0.8, 6};
  if (plot->reference && plot->reference(lf->view, lf->panels[0]->rows[0], line))
    more[n++] = (struct legend_line){line->label, "(8,4)", 1.2, -1};
  return n;
}

/* Panels from top on, below each other's titles. */
static void draw_panels(struct length_figure *lf, struct canvas *c, struct length_area *areas,
                        int columns, double top)
{
  double width = (double)c->width / columns;
  for (int i = 0; i < lf->n; i++) {
    areas[i].left = width * (i % columns) + 92;
    areas[i].right = width * (i % columns + 1) - 20;
    areas[i].top = top + CELL * (i / columns);
    areas[i].bottom = areas[i].top + AXIS;
    areas[i].first_column = i % columns == 0;
    areas[i].last_row = i + columns >= lf->n;
    length_panel(lf, c, lf->panels[i], &areas[i]);
  }
}

/* Height of the heading: a single panel often has no title of its own. */
static double titles(const struct length_figure *lf, struct length_area *areas)
{
  char own[256];
  bool any = false;
  for (int i = 0; i < lf->n; i++) {
    attributes_own(lf->attributes, lf->n, i, own, sizeof own);
    length_title(lf, lf->panels[i], own, areas[i].title, sizeof areas[i].title);
    any = any || *areas[i].title;
  }
  return HEAD + (any ? TITLE : 0);
}

static int draw_figure(struct length_figure *lf, const struct figure *f, const char *part,
                       char *err, size_t errlen)
{
  struct canvas c;
  struct legend_line more[3];
  struct reference_line line;
  struct length_area areas[PANELS];
  char subtitle[512];
  int columns = lf->n > 1 ? 2 : 1, rows = (lf->n + columns - 1) / columns;
  bool *used = calloc((size_t)lf->report->nalgorithms + 1, sizeof *used);
  if (!used)
    return -1;
  mark_used(lf, used);
  int extra = legend_lines(lf, more, &line), width = columns == 1 ? 680 : 1000;
  int strip = lf->plot->key_inside ? 0 : canvas_legend_height(lf->report, used, more, extra, width);
  double top = titles(lf, areas);
  int height = (int)top + CELL * (rows - 1) + AXIS + FOOT + strip;
  attributes_common(lf->attributes, lf->n, subtitle, sizeof subtitle);
  lf->scale = choose_scale(lf);
  int status = figure_open(&c, lf->report, lf->view, f, part, subtitle, width, height, err, errlen);
  if (!status) {
    draw_panels(lf, &c, areas, columns, top);
    if (strip)
      canvas_legend(&c, lf->report, used, more, extra, height - strip);
    status = figure_close(&c, lf->report, lf->view, f, subtitle, values_of(lf, used), err, errlen);
  }
  free(used);
  return status;
}

/* Panels from *at on that make one figure: same operation. */
static void take_panels(struct length_figure *lf, const struct report_panel **list, int n, int *at)
{
  enum attn_op op = list[*at]->rows[0]->p.op;
  lf->n = 0;
  while (*at < n && lf->n < PANELS && list[*at]->rows[0]->p.op == op) {
    lf->panels[lf->n] = list[*at];
    panel_attributes(lf->report, lf->view, list[*at], &lf->attributes[lf->n]);
    lf->n++;
    ++*at;
  }
}

int draw_lengths(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                 size_t errlen)
{
  const struct report_panel **list = calloc((size_t)v->npanels + 1, sizeof *list);
  struct length_figure *lf = calloc(1, sizeof *lf);
  struct attributes *attributes = calloc(PANELS, sizeof *attributes);
  const struct report_panel *panels[PANELS];
  int n = 0, status = list && lf && attributes ? 0 : -1;
  for (int op = ATTN_FWD; !status && op <= ATTN_ROPE; op++)
    for (int i = 0; i < v->npanels; i++)
      if ((int)v->panels[i].rows[0]->p.op == op && drawable(f->plot, v, &v->panels[i]))
        list[n++] = &v->panels[i];
  for (int at = 0, page = 1, last = -1; !status && at < n;) {
    char part[32];
    int op = (int)list[at]->rows[0]->p.op;
    page = op == last ? page + 1 : 1;
    last = op;
    *lf = (struct length_figure){
        .report = r, .view = v, .plot = f->plot, .panels = panels, .attributes = attributes};
    take_panels(lf, list, n, &at);
    snprintf(part, sizeof part, page > 1 ? "%s-%d" : "%s", attn_op_name((enum attn_op)op), page);
    status = draw_figure(lf, f, part, err, errlen);
  }
  free(list);
  free(lf);
  free(attributes);
  return status;
}
