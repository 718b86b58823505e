/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-single.c - throughput of the problems that have no others to make a curve with: a dot
 * plot, one line a problem.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

#define LINES 40 /* a figure */
#define LINE 22  /* pixels */
#define HEAD 66
#define FOOT 88

static bool has_speed(const struct report_panel *panel)
{
  for (int i = 0; i < panel->nrows; i++)
    if (panel->rows[i]->p.op != ATTN_ROPE && report_timed(panel->rows[i]) &&
        panel->rows[i]->tflops > 0)
      return true;
  return false;
}

/* One block an implementation: rate, interval, line. */
static void write_block(struct canvas *c, const struct report *r,
                        const struct report_panel *const *list, int n, int style)
{
  canvas_block(c, r->algorithms[style], "tflops lo hi line problem");
  for (int i = 0; i < n; i++)
    for (int k = 0; k < list[i]->nrows; k++) {
      const struct report_row *row = list[i]->rows[k];
      if (row->style != style || !report_timed(row))
        continue;
      canvas_number(c, row->tflops);
      canvas_number(c, row->tflops * row->median_s / row->ci_hi_s);
      canvas_number(c, row->tflops * row->median_s / row->ci_lo_s);
      fprintf(c->dat, "%d \"%s\"\n", i, row->problem);
    }
}

static void write_lines(struct canvas *c, const struct report_panel *const *list, int n)
{
  fputs("set ytics (", c->gp);
  for (int i = 0; i < n; i++) {
    char text[96];
    snprintf(text, sizeof text, "%.90s", list[i]->rows[0]->problem);
    fputs(i ? ", " : "", c->gp);
    canvas_quote(c->gp, text);
    fprintf(c->gp, " %d", i);
  }
  fputs(") font ',11'\n", c->gp);
}

static int draw_list(struct report *r, const struct report_view *v, const struct figure *f,
                     const struct report_panel *const *list, int n, const char *part, bool *used,
                     char *err, size_t errlen)
{
  struct canvas c;
  int bottom = HEAD + LINE * n;
  if (figure_open(&c, r, v, f, part, "", 1000, bottom + FOOT, err, errlen))
    return -1;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < list[i]->nrows; k++)
      used[list[i]->rows[k]->style] |= report_timed(list[i]->rows[k]);
  canvas_area(&c, 520, HEAD, 980, bottom);
  fprintf(c.gp,
          "set xrange [0:*]\nset yrange [%d.5:-0.5]\nset xtics auto\nset xlabel 'TFLOP/s' offset "
          "0,0.5\n",
          n - 1);
  write_lines(&c, list, n);
  fputs("plot 1/0 notitle", c.gp);
  for (int s = 0; s < r->nalgorithms; s++) {
    if (!used[s])
      continue;
    write_block(&c, r, list, n, s);
    fprintf(c.gp,
            ", \\\n '%s.dat' index %d using 1:4:2:3 with xerrorbars lw 1.2 lc rgb '%s' pt %d ps "
            "0.9 notitle",
            c.stem, c.blocks - 1, style_at(s)->color, style_at(s)->point);
  }
  fputc('\n', c.gp);
  canvas_legend(&c, r, used, NULL, 0, bottom + FOOT - LEGEND_ROW - 8);
  return figure_close(&c, r, v, f, "", NULL, err, errlen);
}

int draw_single(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                size_t errlen)
{
  const struct report_panel **list = calloc((size_t)v->npanels + 1, sizeof *list);
  bool *used = calloc((size_t)r->nalgorithms + 1, sizeof *used);
  int n = 0, status = list && used ? 0 : -1;
  for (int i = 0; !status && i < v->npanels; i++)
    if (v->panels[i].nlengths == 1 && has_speed(&v->panels[i]))
      list[n++] = &v->panels[i];
  for (int at = 0; !status && at < n; at += LINES) {
    char part[16] = "";
    if (at)
      snprintf(part, sizeof part, "%d", at / LINES + 1);
    memset(used, 0, (size_t)r->nalgorithms * sizeof *used);
    status =
        draw_list(r, v, f, list + at, n - at < LINES ? n - at : LINES, part, used, err, errlen);
  }
  free(list);
  free(used);
  return status;
}
