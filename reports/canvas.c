/* SPDX-License-Identifier: Apache-2.0
 *
 * canvas.c - the frame of every figure.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "reports/canvas.h"
#include "reports/format.h"

/* Distinct in colour, to the colour-blind, and in black and white (mark and dash). */
static const struct style styles[] = {
    {"#0072B2", 7, 6, "1"},       {"#D55E00", 5, 4, "(12,3)"},
    {"#009E73", 9, 8, "(4,3)"},   {"#CC79A7", 13, 12, "(12,3,2,3)"},
    {"#E69F00", 11, 10, "(2,2)"}, {"#56B4E9", 15, 14, "(8,3,2,3,2,3)"},
    {"#000000", 3, 3, "(16,4)"},  {"#999999", 2, 2, "(6,6)"},
};

const struct style *style_at(int i)
{
  return &styles[i % (int)(sizeof styles / sizeof *styles)];
}

void canvas_quote(FILE *out, const char *text)
{
  fputc('\'', out);
  for (; *text; text++)
    if (*text == '\'')
      fputs("''", out);
    else
      fputc(*text == '\n' ? ' ' : *text, out);
  fputc('\'', out);
}

/* In black on white at 1/96 inch a pixel; cairo's sizes are points, and its marks run small. */
static void write_heading(struct canvas *c, const char *title, const char *subtitle)
{
  fprintf(
      c->gp,
      "# Draws %s.svg and %s.pdf from %s.dat: gnuplot %s.gp\n"
      "set encoding utf8\n"
      "do for [format in \"svg pdf\"] {\nreset\n"
      "if (format eq \"svg\") {\n"
      "  set terminal svg noenhanced size %d,%d fixed font \"Arial,13\" dashlength 0.8 "
      "background rgb \"white\"\n"
      "} else {\n"
      "  set terminal pdfcairo noenhanced size %.4fin,%.4fin font \"Arial,13\" fontscale 0.5625 "
      "linewidth 1.5 pointscale 1.0 dashlength 0.9 background rgb \"white\"\n"
      "}\n"
      "set output \"%s.\".format\n"
      "set multiplot\n",
      c->stem, c->stem, c->stem, c->stem, c->width, c->height, c->width / 96.0, c->height / 96.0,
      c->stem);
  char where[64];
  snprintf(where, sizeof where, "screen %.5f, %.5f", 16.0 / c->width, 1 - 24.0 / c->height);
  canvas_label(c, title, where, "left font 'Arial,16'");
  snprintf(where, sizeof where, "screen %.5f, %.5f", 16.0 / c->width, 1 - 46.0 / c->height);
  canvas_label(c, subtitle, where, "left textcolor rgb '" CANVAS_GREY "'");
}

void canvas_ylabel(struct canvas *c, const char *text, double left, double top, double bottom)
{
  char where[64];
  snprintf(where, sizeof where, "screen %.5f, %.5f", (left - 74) / c->width,
           1 - (top + bottom) / 2 / c->height);
  canvas_label(c, text, where, "center rotate by 90");
}

int canvas_open(struct canvas *c, const struct report *r, const char *stem, const char *title,
                const char *subtitle, int width, int height)
{
  char path[4096];
  *c = (struct canvas){.width = width, .height = height};
  snprintf(c->stem, sizeof c->stem, "%s", stem);
  snprintf(path, sizeof path, "%s/figures/%s.gp", r->outdir, stem);
  c->gp = fopen(path, "w");
  snprintf(path, sizeof path, "%s/figures/%s.dat", r->outdir, stem);
  c->dat = c->gp ? fopen(path, "w") : NULL;
  if (!c->dat) {
    if (c->gp)
      fclose(c->gp);
    return -1;
  }
  fprintf(c->dat, "# %s. %s\n", title, subtitle);
  write_heading(c, title, subtitle);
  return 0;
}

void canvas_label(struct canvas *c, const char *text, const char *where, const char *options)
{
  if (!*text)
    return;
  fputs("set label ", c->gp);
  canvas_quote(c->gp, text);
  fprintf(c->gp, " at %s %s\n", where, options);
}

void canvas_area(struct canvas *c, double left, double top, double right, double bottom)
{
  if (c->areas++) /* the heading's labels are drawn with the first plot */
    fputs("unset label\n", c->gp);
  fprintf(c->gp,
          "unset arrow\nunset key\nunset logscale\n"
          "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
          "set tmargin at screen %.5f\nset bmargin at screen %.5f\n"
          "set border 3 lw 1 lc rgb '#333333'\n"
          "set tics nomirror out scale 0.5\n"
          "set grid xtics ytics lt 1 lw 0.5 lc rgb '#E4E4E4'\n"
          "set xlabel ''\nset ylabel ''\n",
          left / c->width, right / c->width, 1 - top / c->height, 1 - bottom / c->height);
}

int canvas_block(struct canvas *c, const char *comment, const char *columns)
{
  fprintf(c->dat, "%s# ", c->blocks ? "\n\n" : "");
  for (; *comment; comment++)
    fputc(*comment == '\n' ? ' ' : *comment, c->dat);
  fprintf(c->dat, "\n# %s\n", columns);
  return c->blocks++;
}

void canvas_number(struct canvas *c, double x)
{
  fprintf(c->dat, "%s ", isfinite(x) ? format_exact(x).s : "NaN");
}

void canvas_style(FILE *out, int style)
{
  const struct style *s = style_at(style);
  fprintf(out, "with linespoints lw 1.6 lc rgb '%s' dt %s pt %d ps 0.8", s->color, s->dash,
          s->point);
}

/* gnuplot draws the cap of an end that is NaN at the axis: rows without an interval are points. */
void canvas_dots(struct canvas *c, const char *before, int block, const char *color, int point,
                 const char *name)
{
  fprintf(c->gp,
          "%s '%s.dat' index %d using ($2>0?$1:NaN):4:2:3 with xerrorbars lw 1.2 lc rgb '%s' pt %d "
          "ps 1 title '%s', \\\n '' index %d using 1:4 with points lc rgb '%s' pt %d ps 1 notitle",
          before, c->stem, block, color, point, name, block, color, point);
}

/* ---- legend --------------------------------------------------------------------------------- */

#define SAMPLE 38     /* pixels of line before each name */
#define CHARACTER 6.8 /* pixels of a character, on average */
#define LEGEND_LEFT 20
#define LEGEND_GAP 22

/* Places entries from left to right, in rows. */
struct pen {
  double x, y;
};

static double entry_width(const char *name)
{
  return SAMPLE + 8 + CHARACTER * (double)strlen(name) + LEGEND_GAP;
}

static void place(const struct canvas *c, struct pen *pen, const char *name)
{
  if (pen->x > LEGEND_LEFT && pen->x + entry_width(name) - LEGEND_GAP > c->width - 10) {
    pen->x = LEGEND_LEFT;
    pen->y += LEGEND_ROW;
  }
}

static void write_entry(struct canvas *c, struct pen *pen, const char *name, const char *color,
                        double width, const char *dash, int point, double size)
{
  char where[80];
  place(c, pen, name);
  double y = 1 - pen->y / c->height, x = pen->x / c->width, sample = (double)SAMPLE / c->width;
  fprintf(c->gp,
          "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lw %g lc rgb '%s' dt %s\n", x,
          y, x + sample, y, width, color, dash);
  if (point >= 0)
    fprintf(c->gp, "set label '' at screen %.5f,%.5f point pt %d ps %g lc rgb '%s'\n",
            x + sample / 2, y, point, size, color);
  snprintf(where, sizeof where, "screen %.5f, %.5f", x + sample + 8.0 / c->width, y);
  canvas_label(c, name, where, "left");
  pen->x += entry_width(name);
}

int canvas_legend_height(const struct report *r, const bool *used, const struct legend_line *more,
                         int n, int width)
{
  struct canvas c = {.width = width};
  struct pen pen = {LEGEND_LEFT, 0};
  for (int s = 0; s < r->nalgorithms + n; s++) {
    const char *name = s < r->nalgorithms ? r->algorithms[s] : more[s - r->nalgorithms].name;
    if (s < r->nalgorithms && !used[s])
      continue;
    place(&c, &pen, name);
    pen.x += entry_width(name);
  }
  return (int)pen.y + LEGEND_ROW + 8;
}

void canvas_legend(struct canvas *c, const struct report *r, const bool *used,
                   const struct legend_line *more, int n, double top)
{
  struct pen pen = {LEGEND_LEFT, top + LEGEND_ROW / 2};
  canvas_area(c, 0, top, c->width, c->height);
  fputs("unset border\nunset tics\nunset grid\nset xrange [0:1]\nset yrange [0:1]\n", c->gp);
  for (int s = 0; s < r->nalgorithms; s++)
    if (used[s])
      write_entry(c, &pen, r->algorithms[s], style_at(s)->color, 1.6, style_at(s)->dash,
                  style_at(s)->point, 0.8);
  for (int i = 0; i < n; i++)
    write_entry(c, &pen, more[i].name, CANVAS_GREY, more[i].width, more[i].dash, more[i].point,
                0.6);
  fputs("plot 1/0 notitle\n", c->gp);
}

void canvas_entries(struct canvas *c, const struct legend_entry *list, int n, double top)
{
  struct pen pen = {LEGEND_LEFT, top + LEGEND_ROW / 2};
  canvas_area(c, 0, top, c->width, c->height);
  fputs("unset border\nunset tics\nunset grid\nset xrange [0:1]\nset yrange [0:1]\n", c->gp);
  for (int i = 0; i < n; i++)
    write_entry(c, &pen, list[i].name, list[i].color, list[i].width, list[i].dash, list[i].point,
                0.8);
  fputs("plot 1/0 notitle\n", c->gp);
}

/* ---- tics ----------------------------------------------------------------------------------- */

/* Ways to divide an axis, from coarse to fine: values are step * base^k. */
struct division {
  double base, steps[14];
  int nsteps;
};

static const struct division decades[] = {
    {10, {1}, 1}, {10, {1, 3}, 2}, {10, {1, 2, 5}, 3}, {10, {1, 1.5, 2, 3, 4, 5, 7}, 7}};
static const struct division powers_of_two[] = {{16, {1}, 1}, {4, {1}, 1}, {2, {1}, 1}};
static const struct division ratios[] = {
    {10, {1}, 1},
    {10, {1, 2, 5}, 3},
    {10, {1, 1.5, 2, 3, 5, 7}, 6},
    {10, {1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9}, 14}};

#define DIVISIONS(list) list, sizeof list / sizeof *list
static const struct {
  const struct division *list;
  size_t n;
  struct text (*format)(double x);
} tic_kinds[] = {
    [TICS_BYTES] = {DIVISIONS(decades), format_round_bytes},
    [TICS_BINARY] = {DIVISIONS(powers_of_two), format_binary},
    [TICS_RATIO] = {DIVISIONS(ratios), format_round},
    [TICS_TOKENS] = {DIVISIONS(powers_of_two), format_tokens},
};

/* Writes the tics from lo to hi, every so many powers; only counts them if out is NULL. */
static int write_tics(FILE *out, const struct division *d, int every, double lo, double hi,
                      struct text (*format)(double x))
{
  int n = 0, k = (int)floor(log(lo) / log(d->base));
  for (k -= ((k % every) + every) % every; pow(d->base, k) <= hi * 1.0001; k += every)
    for (int i = 0; i < d->nsteps; i++) {
      double x = d->steps[i] * pow(d->base, k);
      if (x < lo * 0.9999 || x > hi * 1.0001)
        continue;
      if (out)
        fprintf(out, "%s'%s' %.9g", n ? ", " : "", format(x).s, x);
      n++;
    }
  return n;
}

void canvas_tics(struct canvas *c, char axis, enum tics kind, double lo, double hi)
{
  const struct division *d = tic_kinds[kind].list, *last = d + tic_kinds[kind].n - 1;
  int every = 1;
  while (d < last && write_tics(NULL, d, 1, lo, hi, NULL) < 4)
    d++;
  while (write_tics(NULL, d, every, lo, hi, NULL) > 11)
    every++;
  fprintf(c->gp, "set %ctics (", axis);
  write_tics(c->gp, d, every, lo, hi, tic_kinds[kind].format);
  fputs(")\n", c->gp);
}

/* ---- drawing -------------------------------------------------------------------------------- */

static bool made(const struct report *r, const char *stem, const char *extension)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/figures/%s.%s", r->outdir, stem, extension);
  return access(path, R_OK) == 0;
}

static void forget(const struct report *r, const char *stem)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/figures/%s.svg", r->outdir, stem);
  remove(path);
  snprintf(path, sizeof path, "%s/figures/%s.pdf", r->outdir, stem);
  remove(path);
}

int canvas_close(struct canvas *c, struct report *r, struct report_figure *f, char *err,
                 size_t errlen)
{
  char folder[4096], script[128], said[160] = "";
  fputs("unset multiplot\nunset output\n}\n", c->gp);
  bool failed = ferror(c->gp) || ferror(c->dat);
  failed = fclose(c->gp) || failed;
  failed = fclose(c->dat) || failed;
  snprintf(folder, sizeof folder, "%s/figures", r->outdir);
  if (failed) {
    snprintf(err, errlen, "%s/%s.gp: cannot write: %s", folder, c->stem, strerror(errno));
    return -1;
  }
  snprintf(f->stem, sizeof f->stem, "%s", c->stem);
  snprintf(script, sizeof script, "%s.gp", c->stem);
  forget(r, c->stem); /* an older drawing must not stand for one that fails */
  if (gnuplot_run(r->gnuplot, folder, script, said, sizeof said))
    snprintf(r->summary.note, sizeof r->summary.note, "gnuplot failed on figures/%.60s: %.120s",
             script, said);
  f->svg = made(r, c->stem, "svg");
  f->pdf = made(r, c->stem, "pdf");
  r->summary.figures += f->svg;
  return 0;
}
