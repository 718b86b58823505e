/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-single.c - throughput or bandwidth of the problems that have no others to make a curve
 * with: a dot plot, one line a problem.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

#define LINES 40 /* a figure */
#define LINE 22  /* pixels */
#define HEAD 80
#define FOOT 88
#define LABEL 70 /* characters that fit on the left */
#define WORD 36  /* of a word of them */

/* Some problems of a view, and how they are drawn. */
struct dots {
  struct report *report;
  const struct report_view *view;
  const struct figure *figure;
  const struct report_panel **list;
  int n;
  bool *used; /* by implementation */
};

static bool value_of(const struct dots *d, const struct report_row *row, double v[3])
{
  d->figure->plot->value(d->view, row, v);
  return isfinite(v[0]) && v[0] > 0;
}

static bool has_value(const struct dots *d, const struct report_panel *panel)
{
  double v[3];
  for (int i = 0; i < panel->nrows; i++)
    if (d->figure->plot->wants(panel->rows[i]) && value_of(d, panel->rows[i], v))
      return true;
  return false;
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *problem(const struct dots *d, int i)
{
  return d->list[i]->rows[0]->problem;
}

static bool has_word(const char *text, const char *word, size_t n)
{
  size_t len;
  for (const char *at = text; *at; at += len + (at[len] == ' ')) {
    len = strcspn(at, " ");
    if (len == n && !memcmp(at, word, n))
      return true;
  }
  return false;
}

/* The words of a problem that all problems have, or the others. */
static void words_of(const struct dots *d, int line, bool common, char *buf, size_t size)
{
  size_t len, used = 0;
  *buf = 0;
  for (const char *at = problem(d, line); *at; at += len + (at[len] == ' ')) {
    bool all = true;
    len = strcspn(at, " ");
    for (int i = 0; i < d->n; i++)
      all = all && has_word(problem(d, i), at, len);
    if (all == common && used + len + 2 < size)
      used += (size_t)snprintf(buf + used, size - used, "%s%.*s%s", used ? " " : "",
                               (int)(len > WORD ? WORD - 3 : len), at, len > WORD ? "..." : "");
  }
}

static void write_lines(const struct dots *d, struct canvas *c)
{
  fputs("set ytics (", c->gp);
  for (int i = 0; i < d->n; i++) {
    char words[ATTN_PROBLEM_TEXT], text[LABEL + 4];
    words_of(d, i, d->n == 1, words, sizeof words);
    snprintf(text, sizeof text, "%.*s%s", LABEL, *words ? words : "(these words alone)",
             strlen(words) > LABEL ? "..." : "");
    fputs(i ? ", " : "", c->gp);
    canvas_quote(c->gp, text);
    fprintf(c->gp, " %d", i);
  }
  fputs(") font ',11'\n", c->gp);
}

/* ---- dots ------------------------------------------------------------------------------------ */

/* One block an implementation: rate, interval, line. */
static void write_block(const struct dots *d, struct canvas *c, int style)
{
  canvas_block(c, d->report->algorithms[style], "value lo hi line problem");
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->list[i]->nrows; k++) {
      const struct report_row *row = d->list[i]->rows[k];
      double v[3];
      if (row->style != style || !value_of(d, row, v))
        continue;
      for (int j = 0; j < 3; j++)
        canvas_number(c, v[j]);
      fprintf(c->dat, "%d \"%s\"\n", i, row->problem);
    }
}

/* The axis holds all dots and the ceiling, which is drawn. */
static void write_axis(const struct dots *d, struct canvas *c)
{
  struct reference_line line = {NAN, ""};
  double most = 0, v[3];
  char text[128], where[64];
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->list[i]->nrows; k++)
      if (value_of(d, d->list[i]->rows[k], v))
        most = fmax(most, v[0]);
  bool ceiling = d->figure->plot->reference(d->view, d->list[0]->rows[0], &line);
  fprintf(c->gp, "set xrange [0:%.9g]\nset yrange [%d.5:-0.5]\nset xtics auto\n",
          1.05 * (ceiling ? fmax(most, line.y) : most), d->n - 1);
  fprintf(c->gp, "set xlabel '%s' offset 0,0.5\n", d->figure->plot->ylabel);
  if (!ceiling)
    return;
  fprintf(c->gp,
          "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead back lw 1.2 lc rgb "
          "'" CANVAS_GREY "' dt (8,4)\n",
          line.y, line.y);
  snprintf(text, sizeof text, "%s %s", line.label, d->figure->plot->format(line.y).s);
  snprintf(where, sizeof where, "first %.9g, graph 1", line.y);
  canvas_label(c, text, where, "right offset 0,0.5 font ',11' textcolor rgb '" CANVAS_GREY "'");
}

static int draw_list(const struct dots *d, const char *part, char *err, size_t errlen)
{
  struct canvas c;
  struct report *r = d->report;
  char common[ATTN_PROBLEM_TEXT];
  double v[3];
  int bottom = HEAD + LINE * d->n;
  words_of(d, 0, true, common, sizeof common);
  const char *subtitle = d->n > 1 ? common : "";
  if (figure_open(&c, r, d->view, d->figure, part, subtitle, 1000, bottom + FOOT, err, errlen))
    return -1;
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->list[i]->nrows; k++)
      d->used[d->list[i]->rows[k]->style] |= value_of(d, d->list[i]->rows[k], v);
  canvas_area(&c, 520, HEAD, 980, bottom);
  write_axis(d, &c);
  write_lines(d, &c);
  fputs("plot 1/0 notitle", c.gp);
  for (int s = 0; s < r->nalgorithms; s++) {
    if (!d->used[s])
      continue;
    write_block(d, &c, s);
    canvas_dots(&c, ", \\\n", c.blocks - 1, style_at(s)->color, style_at(s)->point, "");
  }
  fputc('\n', c.gp);
  canvas_legend(&c, r, d->used, NULL, 0, bottom + FOOT - LEGEND_ROW - 8);
  return figure_close(&c, r, d->view, d->figure, subtitle, NULL, err, errlen);
}

int draw_single(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                size_t errlen)
{
  const struct report_panel **list = calloc((size_t)v->npanels + 1, sizeof *list);
  bool *used = calloc((size_t)r->nalgorithms + 1, sizeof *used);
  struct dots d = {.report = r, .view = v, .figure = f, .used = used};
  int n = 0, status = list && used ? 0 : -1;
  for (int i = 0; !status && i < v->npanels; i++)
    if (v->panels[i].nlengths == 1 && has_value(&d, &v->panels[i]))
      list[n++] = &v->panels[i];
  for (int at = 0; !status && at < n; at += LINES) {
    char part[16] = "";
    if (at)
      snprintf(part, sizeof part, "%d", at / LINES + 1);
    memset(used, 0, (size_t)r->nalgorithms * sizeof *used);
    d.list = list + at;
    d.n = n - at < LINES ? n - at : LINES;
    status = draw_list(&d, part, err, errlen);
  }
  free(list);
  free(used);
  return status;
}
