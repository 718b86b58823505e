/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-error.c - error over bound: one strip an implementation and output, one mark a problem.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

#define STRIP 30 /* pixels */
#define HEAD 66
#define FOOT 60

enum output { OUTPUT_O, OUTPUT_LSE, OUTPUT_GRADIENTS, OUTPUTS };
static const char *const output_names[] = {"O", "LSE", "dQ dK dV"};

struct strip {
  int style;
  enum output output;
  int n, not_finite; /* finite ratios, and verdicts without one */
  double worst;
};

static double ratio_of(const struct report_row *row, enum output output)
{
  bool backward = row->p.op == ATTN_BWD;
  if (output == OUTPUT_LSE)
    return row->lse_bound_ratio;
  return backward == (output == OUTPUT_GRADIENTS) ? row->bound_ratio : NAN;
}

/* Verified, and wrong in a way that has no ratio: NaN or infinity came out. */
static bool is_not_finite(const struct report_row *row, enum output output)
{
  bool backward = row->p.op == ATTN_BWD;
  return output != OUTPUT_LSE && backward == (output == OUTPUT_GRADIENTS) &&
         row->status == STATUS_FAIL && isnan(row->bound_ratio);
}

static struct strip strip_of(const struct report *r, const struct report_view *v, int style,
                             enum output output)
{
  struct strip s = {.style = style, .output = output};
  for (int i = 0; i < r->nrows; i++) {
    const struct report_row *row = &r->rows[i];
    if (row->device != v->device || row->style != style || !row->parsed)
      continue;
    double ratio = ratio_of(row, output);
    s.n += isfinite(ratio);
    s.not_finite += is_not_finite(row, output);
    s.worst = isfinite(ratio) ? fmax(s.worst, ratio) : s.worst;
  }
  return s;
}

static int strips_of(const struct report *r, const struct report_view *v, struct strip *strips)
{
  int n = 0;
  for (int s = 0; s < r->nalgorithms; s++)
    for (int o = 0; o < OUTPUTS; o++) {
      struct strip strip = strip_of(r, v, s, (enum output)o);
      if (strip.n || strip.not_finite)
        strips[n++] = strip;
    }
  return n;
}

static void extent(const struct report *r, const struct report_view *v, double *lo, double *hi)
{
  *lo = 0.1;
  *hi = 1;
  for (int i = 0; i < r->nrows; i++)
    for (int o = 0; o < OUTPUTS; o++) {
      double ratio = ratio_of(&r->rows[i], (enum output)o);
      if (r->rows[i].device != v->device || !(ratio > 0))
        continue;
      *lo = fmin(*lo, ratio);
      *hi = fmax(*hi, ratio);
    }
  *lo = pow(10, floor(log10(*lo)));
  *hi *= 4;
}

/* Marks side by side: a mark's height in its strip follows from its problem's number. An error of
 * 0 has no logarithm and stands at the left edge. */
static void write_block(struct canvas *c, const struct report *r, const struct report_view *v,
                        const struct strip *s, int place, double lo)
{
  char comment[256];
  int k = 0;
  snprintf(comment, sizeof comment, "%s %s", r->algorithms[s->style], output_names[s->output]);
  canvas_block(c, comment, "ratio height problem");
  for (int i = 0; i < r->nrows; i++) {
    const struct report_row *row = &r->rows[i];
    double ratio = ratio_of(row, s->output);
    if (row->device != v->device || row->style != s->style || !row->parsed || !isfinite(ratio))
      continue;
    canvas_number(c, ratio > 0 ? ratio : lo);
    canvas_number(c, place + 0.3 * (fmod(k++ * 0.618034, 1) * 2 - 1));
    fprintf(c->dat, "\"%s\"\n", row->problem);
  }
}

static void write_strip_words(struct canvas *c, const struct report *r, const struct strip *s,
                              int place)
{
  char text[160], where[64];
  snprintf(text, sizeof text, "%s  %s", r->algorithms[s->style], output_names[s->output]);
  snprintf(where, sizeof where, "graph 0, first %d", place);
  canvas_label(c, text, where, "right offset -1,0");
  text[0] = '\0';
  if (s->n)
    snprintf(text, sizeof text, "%s", format_number(s->worst, 2).s);
  if (s->not_finite)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d not finite", s->n ? ", " : "",
             s->not_finite);
  snprintf(where, sizeof where, "graph 1, first %d", place);
  canvas_label(c, text, where,
               s->worst > 1 || s->not_finite ? "left offset 1,0 textcolor rgb '#D55E00'"
                                             : "left offset 1,0");
}

static void write_frame(struct canvas *c, int n, double lo, double hi)
{
  fprintf(c->gp,
          "set border 1\nset logscale x\nset xrange [%.9g:%.9g]\nset yrange [%d.5:-0.5]\n"
          "unset ytics\nset xlabel 'error / bound' offset 0,0.5\n"
          "set arrow from first 1, graph 0 to first 1, graph 1 nohead back lw 1.4 lc rgb "
          "'" CANVAS_GREY "' dt (8,4)\n",
          lo, hi, n - 1);
  canvas_tics(c, 'x', TICS_RATIO, lo, hi);
  canvas_label(c, "bound", "first 1, graph 1",
               "center offset 0,0.6 textcolor rgb '" CANVAS_GREY "'");
  canvas_label(c, "worst", "graph 1, graph 1", "left offset 1,0.6 textcolor rgb '" CANVAS_GREY "'");
}

/* Pixels of the longest name left of the strips. */
static double names_width(const struct report *r, const struct strip *strips, int n)
{
  size_t longest = 0;
  for (int i = 0; i < n; i++) {
    size_t len = strlen(r->algorithms[strips[i].style]) + strlen(output_names[strips[i].output]);
    longest = len > longest ? len : longest;
  }
  return 40 + 7 * (double)longest;
}

int draw_error(struct report *r, const struct report_view *v, const struct figure *f, char *err,
               size_t errlen)
{
  struct canvas c;
  struct strip *strips = calloc((size_t)r->nalgorithms * OUTPUTS + 1, sizeof *strips);
  int n = strips ? strips_of(r, v, strips) : 0, status = strips ? 0 : -1;
  double lo, hi;
  extent(r, v, &lo, &hi);
  if (n)
    status = figure_open(&c, r, v, f, "", "one mark a problem", 860, HEAD + STRIP * n + FOOT, err,
                         errlen);
  if (n && !status) {
    double left = fmax(names_width(r, strips, n), 120);
    canvas_area(&c, left, HEAD, 720, HEAD + STRIP * n);
    write_frame(&c, n, lo, hi);
    for (int i = 0; i < n; i++) {
      write_strip_words(&c, r, &strips[i], i);
      write_block(&c, r, v, &strips[i], i, lo);
    }
    fputs("plot 1/0 notitle", c.gp);
    for (int i = 0; i < n; i++)
      fprintf(c.gp,
              ", \\\n '%s.dat' index %d using 1:2 with points pt %d ps 0.7 lw 1.2 lc rgb '%s' "
              "notitle",
              c.stem, i, style_at(strips[i].style)->open, style_at(strips[i].style)->color);
    fputc('\n', c.gp);
    status = figure_close(&c, r, v, f, "", NULL, err, errlen);
  }
  free(strips);
  return status;
}
