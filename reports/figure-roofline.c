/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-roofline.c - FLOP/s over arithmetic intensity by counted bytes, under the ceilings that
 * the same run measured: bandwidth of a copy, rate of a matrix product.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

struct roofline {
  double xlo, xhi, ylo, yhi;
  double scale; /* of the rates: small ones are GFLOP/s */
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
  struct roofline e = {INFINITY, 0, INFINITY, 0, 1, 0};
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
  if (v->copy_gbps > 0) /* some of the slope, for the eye */
    e.xlo = fmin(e.xlo, v->matmul_tflops / v->copy_gbps * 200);
  e.scale = e.yhi < 1 ? 1000 : 1;
  e.xlo /= 1.5;
  e.xhi *= 1.5;
  e.ylo *= e.scale / 1.5;
  e.yhi *= e.scale * 1.5;
  return e;
}

static void write_line(struct canvas *c, double x0, double y0, double x1, double y1)
{
  fprintf(c->gp,
          "set arrow from first %.9g, first %.9g to first %.9g, first %.9g nohead back lw 1.4 lc "
          "rgb '" CANVAS_GREY "' dt (8,4)\n",
          x0, y0, x1, y1);
}

static void write_ceilings(struct canvas *c, const struct report_view *v, const struct roofline *e)
{
  double slope = e->scale * v->copy_gbps / 1000, flat = e->scale * v->matmul_tflops;
  double ridge = flat / slope, start = fmax(e->xlo, e->ylo / slope);
  if (isfinite(slope))
    write_line(c, start, start * slope, isfinite(ridge) ? ridge : e->yhi / slope,
               isfinite(flat) ? flat : e->yhi);
  if (isfinite(flat))
    write_line(c, isfinite(ridge) ? ridge : e->xlo, flat, e->xhi, flat);
}

static void describe(const struct report_view *v, char *buf, size_t len)
{
  buf[0] = '\0';
  if (isfinite(v->copy_gbps))
    snprintf(buf, len, "measured ceilings: copy %s GB/s", format_number(v->copy_gbps, 3).s);
  size_t n = strlen(buf);
  if (isfinite(v->matmul_tflops))
    snprintf(buf + n, len - n, "%smatrix product %s TFLOP/s",
             n ? ", " : "measured ceiling: ", format_number(v->matmul_tflops, 3).s);
}

/* Forward and backward of one implementation are two blocks: filled and open marks. */
static bool write_block(struct canvas *c, const struct report *r, const struct report_view *v,
                        int style, bool backward)
{
  char comment[256];
  bool any = false;
  snprintf(comment, sizeof comment, "%s%s", r->algorithms[style], backward ? " backward" : "");
  for (int i = 0; i < v->nrows; i++) {
    const struct report_row *row = v->rows[i];
    if (!on_it(row) || row->style != style || (row->p.op == ATTN_BWD) != backward)
      continue;
    if (!any)
      canvas_block(c, comment, "flop_per_byte tflops problem");
    any = true;
    canvas_number(c, intensity(row));
    canvas_number(c, row->tflops);
    fprintf(c->dat, "\"%s\"\n", row->problem);
  }
  return any;
}

static void write_points(struct canvas *c, const struct report *r, const struct report_view *v,
                         double scale)
{
  fputs("plot 1/0 notitle", c->gp);
  for (int s = 0; s < r->nalgorithms; s++)
    for (int backward = 0; backward < 2; backward++) {
      const struct style *style = style_at(s);
      char name[128];
      if (!write_block(c, r, v, s, backward))
        continue;
      snprintf(name, sizeof name, "%s%s", r->algorithms[s], backward ? ", backward" : "");
      fprintf(
          c->gp,
          ", \\\n '%s.dat' index %d using 1:($2*%g) with points lw 1.4 lc rgb '%s' pt %d ps 0.9 "
          "title ",
          c->stem, c->blocks - 1, scale, style->color, backward ? style->open : style->point);
      canvas_quote(c->gp, name);
    }
  fputc('\n', c->gp);
}

static int key_width(const struct report *r)
{
  size_t longest = 0;
  for (int s = 0; s < r->nalgorithms; s++)
    longest = strlen(r->algorithms[s]) > longest ? strlen(r->algorithms[s]) : longest;
  return 150 + 7 * (int)longest;
}

int draw_roofline(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                  size_t errlen)
{
  struct canvas c;
  struct roofline e = extent(v);
  char subtitle[160];
  if (!e.points)
    return 0;
  describe(v, subtitle, sizeof subtitle);
  int width = 640 + key_width(r);
  if (figure_open(&c, r, v, f, "", subtitle, width, 500, err, errlen))
    return -1;
  canvas_area(&c, 92, 66, 640, 440);
  fprintf(c.gp, "set logscale xy\nset xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", e.xlo, e.xhi,
          e.ylo, e.yhi);
  canvas_tics(&c, 'x', TICS_RATIO, e.xlo, e.xhi);
  canvas_tics(&c, 'y', TICS_RATIO, e.ylo, e.yhi);
  canvas_ylabel(&c, e.scale > 1 ? "GFLOP/s" : "TFLOP/s", 92, 66, 440);
  fputs("set xlabel 'FLOP per counted HBM byte' offset 0,0.5\n"
        "",
        c.gp);
  fprintf(c.gp, "set key at screen %.4f, graph 1 left top Left reverse samplen 1 spacing 1.2\n",
          660.0 / width);
  write_ceilings(&c, v, &e);
  write_points(&c, r, v, e.scale);
  return figure_close(&c, r, v, f, "", NULL, err, errlen);
}
