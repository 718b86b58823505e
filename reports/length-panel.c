/* SPDX-License-Identifier: Apache-2.0
 *
 * length-panel.c - one panel over the sequence length: ranges, axes, curves with error bars.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/format.h"
#include "reports/length-panel.h"

#define KEY_SAMPLE 72 /* pixels of a key inside, beside its text */
#define KEY_CHARACTER 6.6
#define TIC_WIDTH 30 /* pixels from one length's label to the next */

/* ---- ranges ---------------------------------------------------------------------------------- */

static void include(struct length_ranges *g, double y)
{
  if (isfinite(y)) {
    g->ylo = fmin(g->ylo, y);
    g->yhi = fmax(g->yhi, y);
  }
}

static void include_row(const struct length_figure *lf, struct length_ranges *g,
                        const struct report_panel *panel, const struct report_row *row)
{
  const struct length_plot *plot = lf->plot;
  double v[3];
  struct reference_line line;
  length_value(lf, row, v);
  for (int i = 0; i < 3; i++)
    include(g, v[i]);
  if (plot->thin)
    include(g, plot->thin(row));
  if (plot->baseline)
    include(g, plot->baseline(row));
  if (length_refused(lf, row) && length_tally(lf, panel, row->style).values)
    include(g, length_refused_at(lf, row));
  if (plot->reference && plot->reference(lf->view, row, &line))
    include(g, line.y * lf->scale);
}

/* Highest point left of x of all curves, which rise; between two lengths on the line that joins
 * them. */
static double highest_left_of(const struct length_figure *lf, const struct report_panel *panel,
                              double x)
{
  double highest = 0, v[3];
  for (int s = 0; s < lf->report->nalgorithms; s++) {
    double x0 = NAN, y0 = NAN;
    for (int i = 0; i < panel->nrows; i++) {
      const struct report_row *row = panel->rows[i];
      double x1 = (double)row->p.sk;
      length_value(lf, row, v);
      if (row->style != s || !isfinite(v[0]))
        continue;
      if (x1 <= x)
        highest = fmax(highest, v[0]);
      else if (x0 < x)
        highest = fmax(highest, y0 * pow(v[0] / y0, log(x / x0) / log(x1 / x0)));
      x0 = x1;
      y0 = v[0];
    }
  }
  return highest;
}

/* Makes room for lanes and for the key, in pixels of the axis' height. */
static void make_room(const struct length_figure *lf, struct length_ranges *g, double height)
{
  const struct length_plot *plot = lf->plot;
  double above = plot->reference ? 22 : 8, below = 6;
  *(plot->lanes_above ? &above : &below) += g->lanes * LENGTH_LANE;
  if (plot->axis == AXIS_LINEAR) {
    below = g->lanes && !plot->lanes_above ? below : 0;
    double unit = g->yhi / (height - above - below);
    g->bottom = -below * unit;
    g->top = g->yhi + above * unit;
    return;
  }
  double lo = log(g->ylo), hi = log(g->yhi * 1.0001);
  double unit = fmax(hi - lo, log(2)) / (height - above - below);
  if (plot->key_inside) {
    double key = (g->curves + 1) * LENGTH_LANE + 20;
    unit = fmax(unit, (log(g->left_hi) - lo) / (height - key - below));
  }
  g->bottom = exp(lo - below * unit);
  g->top = exp(lo + (height - below) * unit);
}

static struct length_ranges ranges_of(const struct length_figure *lf,
                                      const struct report_panel *panel,
                                      const struct length_area *area)
{
  struct length_ranges g = {.ylo = INFINITY};
  size_t longest = 0;
  g.xlo = (double)panel->rows[0]->p.sk;
  g.xhi = (double)panel->rows[panel->nrows - 1]->p.sk;
  for (int i = 0; i < panel->nrows; i++)
    include_row(lf, &g, panel, panel->rows[i]);
  for (int s = 0; s < lf->report->nalgorithms; s++) {
    bool drawn = length_tally(lf, panel, s).values > 0;
    g.curves += drawn;
    g.lanes += length_lane(lf, panel, s);
    if (drawn && strlen(lf->report->algorithms[s]) > longest)
      longest = strlen(lf->report->algorithms[s]);
  }
  double key = KEY_SAMPLE + KEY_CHARACTER * (double)(longest + strlen("  ~ N^0.00"));
  double part = fmin(key / (area->right - area->left), 1);
  g.left_hi = highest_left_of(lf, panel, g.xlo / 1.15 * pow(1.15 * 1.15 * g.xhi / g.xlo, part));
  make_room(lf, &g, area->bottom - area->top);
  return g;
}

static double nice_step(double range)
{
  double power = pow(10, floor(log10(range / 5))), x = range / 5 / power;
  return power * (x < 1.5 ? 1 : x < 3.5 ? 2 : x < 7.5 ? 5 : 10);
}

/* A tic at every length, from the longest down, where there is room for its label. */
static void write_length_tics(struct canvas *c, const struct report_panel *panel,
                              const struct length_ranges *g, double width)
{
  double scale = width / (log(g->xhi / g->xlo) + 2 * log(1.15)), last = INFINITY;
  const char *comma = "";
  fputs("set xtics (", c->gp);
  for (int i = panel->nrows - 1; i >= 0; i--) {
    double x = (double)panel->rows[i]->p.sk, at = log(x) * scale;
    if (last - at < TIC_WIDTH)
      continue;
    fprintf(c->gp, "%s'%s' %.0f", comma, format_tokens(x).s, x);
    comma = ", ";
    last = at;
  }
  fputs(")\n", c->gp);
}

static void write_axes(const struct length_figure *lf, struct canvas *c,
                       const struct report_panel *panel, const struct length_ranges *g,
                       const struct length_area *area)
{
  static const enum tics kinds[] = {
      [AXIS_BYTES] = TICS_BYTES, [AXIS_BINARY] = TICS_BINARY, [AXIS_RATIO] = TICS_RATIO};
  const struct length_plot *plot = lf->plot;
  char ylabel[160];
  fprintf(c->gp, "set logscale x 2\nset xrange [%.9g:%.9g]\n", g->xlo / 1.15, g->xhi * 1.15);
  write_length_tics(c, panel, g, area->right - area->left);
  fprintf(c->gp, "set yrange [%.9g:%.9g]\n", g->bottom, g->top);
  if (plot->axis == AXIS_LINEAR) {
    fprintf(c->gp, "set ytics 0,%.9g\n", nice_step(g->yhi));
    if (g->bottom < 0)
      fputs("set arrow from graph 0, first 0 to graph 1, first 0 nohead back lw 0.5 lc rgb "
            "'#333333'\n",
            c->gp);
  } else {
    fputs("set logscale y\n", c->gp);
    canvas_tics(c, 'y', kinds[plot->axis], fmax(g->bottom, g->ylo / 1.1),
                fmin(g->top, g->yhi * 1.3));
  }
  if (area->last_row)
    fputs("set xlabel 'sequence length (tokens)' offset 0,0.5\n", c->gp);
  if (area->first_column) {
    snprintf(ylabel, sizeof ylabel, "%s%s%s", lf->scale > 1 ? plot->ylabel_small : plot->ylabel,
             plot->over_base ? " " : "", plot->over_base ? lf->view->base : "");
    canvas_ylabel(c, ylabel, area->left, area->top, area->bottom);
  }
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* Data block of one implementation: length, value, interval, thin line's value. */
static int write_block(const struct length_figure *lf, struct canvas *c,
                       const struct report_panel *panel, const struct length_area *area, int style)
{
  char comment[800];
  snprintf(comment, sizeof comment, "%s%s%s", lf->report->algorithms[style],
           area->title[0] ? " · " : "", area->title);
  int block = canvas_block(c, comment, "tokens value lo hi thin problem");
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i];
    double v[3];
    if (row->style != style)
      continue;
    length_value(lf, row, v);
    canvas_number(c, (double)row->p.sk);
    for (int k = 0; k < 3; k++)
      canvas_number(c, v[k]);
    canvas_number(c, lf->plot->thin ? lf->plot->thin(row) : NAN);
    fprintf(c->dat, "\"%s\"\n", row->problem);
  }
  return block;
}

static int write_baseline_block(const struct length_figure *lf, struct canvas *c,
                                const struct report_panel *panel)
{
  int block = canvas_block(c, lf->plot->baseline_name, "tokens value");
  for (int i = 0; i < panel->nrows; i++)
    if (i == 0 || panel->rows[i]->p.sk != panel->rows[i - 1]->p.sk) {
      canvas_number(c, (double)panel->rows[i]->p.sk);
      canvas_number(c, lf->plot->baseline(panel->rows[i]));
      fputc('\n', c->dat);
    }
  return block;
}

static double panel_exponent(const struct length_figure *lf, const struct report_panel *panel,
                             int style)
{
  double x[FIT_POINTS], y[FIT_POINTS], v[3];
  int n = 0;
  for (int i = 0; i < panel->nrows && n < FIT_POINTS; i++)
    if (panel->rows[i]->style == style) {
      length_value(lf, panel->rows[i], v);
      x[n] = (double)panel->rows[i]->p.sk;
      y[n++] = v[0];
    }
  return fit_exponent(x, y, n);
}

/* "flash  N^1.98" where a power is worth fitting, for a key inside. */
static void write_key_title(const struct length_figure *lf, struct canvas *c,
                            const struct report_panel *panel, int style)
{
  char text[160];
  double exponent = panel_exponent(lf, panel, style);
  if (isfinite(exponent))
    snprintf(text, sizeof text, "%s  ∝ N^%.2f", lf->report->algorithms[style], exponent);
  else
    snprintf(text, sizeof text, "%s", lf->report->algorithms[style]);
  fputs(" title ", c->gp);
  canvas_quote(c->gp, text);
}

static bool has_interval(const struct length_figure *lf, const struct report_panel *panel,
                         int style)
{
  double v[3];
  for (int i = 0; i < panel->nrows; i++) {
    length_value(lf, panel->rows[i], v);
    if (panel->rows[i]->style == style && isfinite(v[1]) && isfinite(v[2]))
      return true;
  }
  return false;
}

static void write_curve(const struct length_figure *lf, struct canvas *c,
                        const struct report_panel *panel, const struct length_area *area, int style)
{
  const struct style *s = style_at(style);
  int block = write_block(lf, c, panel, area, style);
  if (lf->plot->thin)
    fprintf(c->gp,
            ", \\\n '%s.dat' index %d using 1:5 with linespoints lw 0.8 lc rgb '%s' pt %d ps 0.6 "
            "notitle",
            c->stem, block, s->color, s->open);
  if (has_interval(lf, panel, style))
    fprintf(c->gp,
            ", \\\n '%s.dat' index %d using 1:($3>0?$2:NaN):3:4 with yerrorbars lw 1 lc rgb '%s' "
            "pt 0 notitle",
            c->stem, block, s->color);
  fprintf(c->gp, ", \\\n '%s.dat' index %d using 1:2 ", c->stem, block);
  canvas_style(c->gp, style);
  if (lf->plot->key_inside)
    write_key_title(lf, c, panel, style);
  else
    fputs(" notitle", c->gp);
}

void length_panel(const struct length_figure *lf, struct canvas *c,
                  const struct report_panel *panel, const struct length_area *area)
{
  struct length_ranges g = ranges_of(lf, panel, area);
  canvas_area(c, area->left, area->top, area->right, area->bottom);
  write_axes(lf, c, panel, &g, area);
  length_words(lf, c, panel, &g, area);
  if (lf->plot->key_inside)
    fputs("set key top left Left reverse samplen 3 spacing 1.05 font ',12'\n", c->gp);
  fputs("plot 1/0 notitle", c->gp);
  if (lf->plot->baseline) {
    int block = write_baseline_block(lf, c, panel);
    fprintf(c->gp,
            ", \\\n '%s.dat' index %d using 1:2 with lines lw 1.5 lc rgb '" CANVAS_GREY
            "' dt (3,3)",
            c->stem, block);
    fputs(lf->plot->key_inside ? " title " : " notitle", c->gp);
    if (lf->plot->key_inside)
      canvas_quote(c->gp, lf->plot->baseline_name);
  }
  for (int k = 0; k < lf->report->nalgorithms; k++)
    if (length_tally(lf, panel, k).values)
      write_curve(lf, c, panel, area, k);
  fputc('\n', c->gp);
}
