/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-roofline.c - FLOP/s over arithmetic intensity by counted bytes, under the ceilings that
 * the same run measured: bandwidth of a copy, rate of a matrix product.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "reports/figure.h"
#include "reports/format.h"

struct roofline {
  double xlo, xhi, ylo, yhi;
  int points;
};

static double intensity(const struct report_row *row)
{
  return row->flops / row->moved_bytes;
}

static bool on_it(const struct report_row *row)
{
  return report_timed(row) && isfinite(intensity(row)) && row->tflops > 0;
}

static struct roofline extent(const struct report_view *v)
{
  struct roofline e = {INFINITY, 0, INFINITY, 0, 0};
  for (int i = 0; i < v->nrows; i++) {
    const struct report_row *row = v->rows[i];
    if (!on_it(row))
      continue;
    e.points++;
    e.xlo = fmin(e.xlo, intensity(row));
    e.xhi = fmax(e.xhi, intensity(row));
    e.ylo = fmin(e.ylo, row->tflops);
    e.yhi = fmax(e.yhi, row->tflops);
  }
  if (isfinite(v->matmul_tflops)) {
    e.yhi = fmax(e.yhi, v->matmul_tflops);
    if (v->copy_gbps > 0)
      e.xhi = fmax(e.xhi, 2000 * v->matmul_tflops / v->copy_gbps);
  }
  e.xlo = pow(10, floor(log10(e.xlo / 1.3)));
  e.xhi = pow(10, ceil(log10(e.xhi * 1.3)));
  e.ylo = pow(10, floor(log10(e.ylo / 1.3)));
  e.yhi *= 2;
  return e;
}

static void write_ceilings(struct canvas *c, const struct report_view *v, const struct roofline *e)
{
  char text[96], where[96];
  double slope = v->copy_gbps / 1000, flat = v->matmul_tflops;
  if (isfinite(slope)) {
    double start = fmax(e->xlo, e->ylo / slope), end = isfinite(flat) ? flat / slope : e->xhi;
    double middle = fmax(sqrt(start * fmin(end, e->xhi)), e->xlo * 1.2);
    fprintf(c->gp,
            "set arrow from first %.9g, first %.9g to first %.9g, first %.9g nohead back lw 1.4 "
            "lc rgb '" CANVAS_GREY "' dt (8,4)\n",
            start, start * slope, end, end * slope);
    snprintf(text, sizeof text, "copy %s GB/s", format_number(v->copy_gbps, 3).s);
    snprintf(where, sizeof where, "first %.9g, first %.9g", middle, middle * slope);
    canvas_label(c, text, where, "right offset -1,0.5 textcolor rgb '" CANVAS_GREY "'");
  }
  if (isfinite(flat)) {
    double start = isfinite(slope) ? flat / slope : e->xlo;
    fprintf(c->gp,
            "set arrow from first %.9g, first %.9g to graph 1, first %.9g nohead back lw 1.4 lc "
            "rgb '" CANVAS_GREY "' dt (8,4)\n",
            start, flat, flat);
    snprintf(text, sizeof text, "matrix product %s TFLOP/s", format_number(flat, 3).s);
    snprintf(where, sizeof where, "graph 0.99, first %.9g", flat);
    canvas_label(c, text, where, "right offset 0,0.6 textcolor rgb '" CANVAS_GREY "'");
  }
}

/* Forward and backward of one implementation are two blocks: filled and open marks. */
static bool write_block(struct canvas *c, const struct report *r, const struct report_view *v,
                        int style, bool backward)
{
  char comment[256];
  bool any = false;
  snprintf(comment, sizeof comment, "%s%s\n# flop_per_byte tflops problem", r->algorithms[style],
           backward ? " backward" : "");
  for (int i = 0; i < v->nrows; i++) {
    const struct report_row *row = v->rows[i];
    if (!on_it(row) || row->style != style || (row->p.op == ATTN_BWD) != backward)
      continue;
    if (!any)
      canvas_block(c, comment);
    any = true;
    canvas_number(c, intensity(row));
    canvas_number(c, row->tflops);
    fprintf(c->dat, "\"%s\"\n", row->problem);
  }
  return any;
}

static void write_points(struct canvas *c, const struct report *r, const struct report_view *v)
{
  fputs("plot 1/0 notitle", c->gp);
  for (int s = 0; s < r->nalgorithms; s++)
    for (int backward = 0; backward < 2; backward++) {
      const struct style *style = style_at(s);
      char name[128];
      if (!write_block(c, r, v, s, backward))
        continue;
      snprintf(name, sizeof name, "%s%s", r->algorithms[s], backward ? ", backward" : "");
      fprintf(c->gp,
              ", \\\n '%s.dat' index %d using 1:2 with points lw 1.4 lc rgb '%s' pt %d ps 0.9 "
              "title ",
              c->stem, c->blocks - 1, style->color, backward ? style->open : style->point);
      canvas_quote(c->gp, name);
    }
  fputc('\n', c->gp);
}

int draw_roofline(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                  size_t errlen)
{
  struct canvas c;
  struct roofline e = extent(v);
  const char *subtitle = "open marks: backward";
  if (!e.points)
    return 0;
  if (figure_open(&c, r, v, f, "", subtitle, 860, 500, err, errlen))
    return -1;
  canvas_area(&c, 82, 66, 640, 440);
  fprintf(c.gp, "set logscale xy\nset xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", e.xlo, e.xhi,
          e.ylo, e.yhi);
  canvas_tics(&c, 'x', TICS_DECADES, e.xlo, e.xhi);
  canvas_tics(&c, 'y', TICS_DECADES, e.ylo, e.yhi);
  fputs("set xlabel 'FLOP per counted HBM byte' offset 0,0.5\nset ylabel 'TFLOP/s' offset 1.5,0\n"
        "set key at screen 0.77, graph 1 left top Left reverse samplen 1 spacing 1.2\n",
        c.gp);
  write_ceilings(&c, v, &e);
  write_points(&c, r, v);
  return figure_close(&c, r, v, f, "", NULL, err, errlen);
}
