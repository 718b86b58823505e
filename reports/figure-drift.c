/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-drift.c - op=rope: how far angles and logits are off, over the position; a column for each
 * factor of extension, a line for each scaling and type, a figure for each implementation.
 *
 * Drawn from records that have such numbers, of the batch shape that has the most of them.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

#define COLUMNS 4
#define SCALINGS (ATTN_ROPE_LLAMA3 + 1)
#define TYPES 3 /* enum attn_dtype */
#define WIDE 250
#define HIGH 190
#define LEFT 96
#define GAP 34
#define HEAD 96
#define FOOT 96

enum row { ROW_ANGLE, ROW_LOGIT, ROWS };
static const char *const row_names[ROWS] = {"angle error, rms [rad]", "logit error, relative"};

struct drift {
  const struct report *r;
  const struct report_row **rows; /* of one implementation, by position */
  int n;
  double factor[COLUMNS];
  int columns;
  double from, to; /* positions */
};

static double value_of(const struct report_row *row, enum row which)
{
  double x = which == ROW_ANGLE ? row->angle_rms : row->logit_rel;
  return x > 0 ? x : NAN; /* no error at all has no logarithm */
}

/* ---- which rows ------------------------------------------------------------------------------ */

static bool has_drift(const struct report_row *row)
{
  return row->parsed && row->p.op == ATTN_ROPE && !row->p.nruns && row->position > 0;
}

/* The problem without what a figure is about. */
static void shape_of(const struct report_row *row, char *text, size_t len)
{
  struct attn_problem p = row->p;
  p.dtype = ATTN_BF16;
  p.sk = p.sq;
  p.rope.scaling = ATTN_ROPE_NONE;
  p.rope.factor = p.rope.attention = 1;
  p.rope.band_low = p.rope.band_high = 0;
  p.rope.trained = 0;
  p.rope.ramp_by_index = false;
  attn_problem_print(&p, text, len);
}

static bool same_shape(const struct report_row *a, const struct report_row *b)
{
  char x[ATTN_PROBLEM_TEXT], y[ATTN_PROBLEM_TEXT];
  shape_of(a, x, sizeof x);
  shape_of(b, y, sizeof y);
  return !strcmp(x, y);
}

static int by_position(const void *a, const void *b)
{
  const struct report_row *x = *(const struct report_row *const *)a;
  const struct report_row *y = *(const struct report_row *const *)b;
  return x->position < y->position ? -1 : x->position > y->position;
}

/* Keeps the rows of the commonest shape. */
static void keep_one_shape(struct drift *d)
{
  int best = 0, most = 0, kept = 0;
  for (int i = 0; i < d->n; i++) {
    int count = 0;
    for (int k = 0; k < d->n; k++)
      count += same_shape(d->rows[i], d->rows[k]);
    if (count > most) {
      most = count;
      best = i;
    }
  }
  const struct report_row *like = d->n ? d->rows[best] : NULL;
  for (int i = 0; i < d->n; i++)
    if (same_shape(d->rows[i], like))
      d->rows[kept++] = d->rows[i];
  d->n = kept;
}

static void add_column(struct drift *d, double factor)
{
  int at = d->columns;
  for (int i = 0; i < d->columns; i++)
    if (d->factor[i] == factor)
      return;
  if (at == COLUMNS)
    return;
  for (; at > 0 && d->factor[at - 1] > factor; at--)
    d->factor[at] = d->factor[at - 1];
  d->factor[at] = factor;
  d->columns++;
}

/* The rows of one implementation, and the columns that they make. */
static void collect(struct drift *d, const struct report_view *v, int style)
{
  d->n = d->columns = 0;
  for (int i = 0; i < d->r->nrows; i++) {
    const struct report_row *row = &d->r->rows[i];
    if (row->device == v->device && row->style == style && has_drift(row))
      d->rows[d->n++] = row;
  }
  keep_one_shape(d);
  qsort(d->rows, (size_t)d->n, sizeof *d->rows, by_position);
  for (int i = 0; i < d->n; i++)
    if (d->rows[i]->p.rope.scaling != ATTN_ROPE_NONE)
      add_column(d, d->rows[i]->p.rope.factor);
  if (d->n && !d->columns)
    add_column(d, 1);
  d->from = d->n ? d->rows[0]->position : NAN;
  d->to = d->n ? d->rows[d->n - 1]->position : NAN;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Unscaled lines stand in every column. */
static bool belongs(const struct report_row *row, double factor, int scaling, int type)
{
  bool plain = row->p.rope.scaling == ATTN_ROPE_NONE;
  return (int)row->p.rope.scaling == scaling && (int)row->p.dtype == type &&
         (plain || row->p.rope.factor == factor);
}

static int style_of(int scaling)
{
  return scaling == ATTN_ROPE_NONE ? 6 : scaling - 1;
}

static bool write_line(struct canvas *c, const struct drift *d, double factor, int scaling,
                       int type)
{
  char comment[96];
  int n = 0;
  for (int i = 0; i < d->n; i++)
    n += belongs(d->rows[i], factor, scaling, type);
  if (!n)
    return false;
  snprintf(comment, sizeof comment, "%s, factor %g, %s",
           attn_rope_name((enum attn_rope_scaling)scaling), factor,
           attn_dtype_name((enum attn_dtype)type));
  canvas_block(c, comment, "position angle_rms logit_rel angle_max");
  for (int i = 0; i < d->n; i++) {
    const struct report_row *row = d->rows[i];
    if (!belongs(row, factor, scaling, type))
      continue;
    canvas_number(c, row->position);
    canvas_number(c, value_of(row, ROW_ANGLE));
    canvas_number(c, value_of(row, ROW_LOGIT));
    canvas_number(c, row->angle_max);
    fputc('\n', c->dat);
  }
  return true;
}

static void extent(const struct drift *d, enum row which, double *lo, double *hi)
{
  *lo = INFINITY;
  *hi = 0;
  for (int i = 0; i < d->n; i++) {
    *lo = fmin(*lo, value_of(d->rows[i], which));
    *hi = fmax(*hi, value_of(d->rows[i], which));
  }
  *lo = isfinite(*lo) ? pow(10, floor(log10(*lo))) : 0.1;
  *hi = *hi > *lo ? pow(10, ceil(log10(*hi))) : 10 * *lo;
}

/* Where the trained length ends, and the extended one. */
static void write_uprights(struct canvas *c, const struct drift *d, double factor)
{
  double trained = 0;
  for (int i = 0; i < d->n; i++)
    if (d->rows[i]->p.rope.factor == factor && d->rows[i]->p.rope.trained)
      trained = (double)d->rows[i]->p.rope.trained;
  for (int k = 0; k < 2 && trained > 0; k++, trained *= factor)
    if (trained <= d->to * 1.05)
      fprintf(c->gp,
              "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead back lw 1.2 lc rgb "
              "'" CANVAS_GREY "' dt (3,4)\n",
              trained, trained);
}

static void write_frame(struct canvas *c, const struct drift *d, int column, enum row which)
{
  double left = LEFT + column * (WIDE + GAP), top = HEAD + which * (HIGH + GAP), lo, hi;
  char title[48];
  canvas_area(c, left, top, left + WIDE, top + HIGH);
  extent(d, which, &lo, &hi);
  fprintf(c->gp, "set logscale xy\nset xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", d->from / 1.1,
          fmax(d->to, 2 * d->from) * 1.1, lo, hi);
  fprintf(c->gp, "set ytics auto\nset format y '%s'\n", column ? "" : "%.0e");
  canvas_tics(c, 'x', TICS_TOKENS, d->from / 1.1, fmax(d->to, 2 * d->from) * 1.1);
  if (column == 0)
    canvas_ylabel(c, row_names[which], LEFT, top, top + HIGH);
  snprintf(title, sizeof title, "factor %g", d->factor[column]);
  if (which == ROW_ANGLE)
    canvas_label(c, title, "graph 0.5, graph 1", "center offset 0,0.7");
  else
    fputs("set xlabel 'position' offset 0,0.4\n", c->gp);
  write_uprights(c, d, d->factor[column]);
}

/* fp32 is solid and filled, 16-bit types are dotted and open. */
static void write_panel(struct canvas *c, const struct drift *d, int column, enum row which,
                        const int *block)
{
  write_frame(c, d, column, which);
  fputs("plot 1/0 notitle", c->gp);
  for (int k = 0; k < SCALINGS * TYPES; k++) {
    const struct style *s = style_at(style_of(k / TYPES));
    bool wide = k % TYPES == ATTN_F32;
    if (block[k] < 0)
      continue;
    fprintf(c->gp,
            ", \\\n '%s.dat' index %d using 1:%d with linespoints lw %s dt %s pt %d ps 0.7 lc rgb "
            "'%s' notitle",
            c->stem, block[k], which == ROW_ANGLE ? 2 : 3, wide ? "1.6" : "1.2",
            wide ? "1" : "(2,3)", wide ? s->point : s->open, s->color);
  }
  fputs("\nset format y\n", c->gp);
}

static void write_legend(struct canvas *c, const bool *used, double top)
{
  struct legend_entry list[SCALINGS];
  int n = 0;
  for (int k = 0; k < SCALINGS; k++) {
    const struct style *s = style_at(style_of(k));
    if (used[k])
      list[n++] = (struct legend_entry){attn_rope_name((enum attn_rope_scaling)k), s->color, "1",
                                        1.6, s->point};
  }
  canvas_entries(c, list, n, top);
}

static int draw_one(struct report *r, const struct report_view *v, const struct figure *f,
                    struct drift *d, int style, char *err, size_t errlen)
{
  struct canvas c;
  bool used[SCALINGS] = {false};
  char subtitle[256];
  int bottom = HEAD + ROWS * HIGH + GAP;
  snprintf(
      subtitle, sizeof subtitle,
      "%.80s · fp32 solid, 16-bit types dotted · uprights: the trained length and the extended "
      "one",
      r->algorithms[style]);
  int width = LEFT + d->columns * (WIDE + GAP);
  if (figure_open(&c, r, v, f, r->algorithms[style], subtitle, width < 640 ? 640 : width,
                  bottom + FOOT, err, errlen))
    return -1;
  for (int column = 0; column < d->columns; column++) {
    int block[SCALINGS * TYPES];
    for (int k = 0; k < SCALINGS * TYPES; k++) {
      bool there = write_line(&c, d, d->factor[column], k / TYPES, k % TYPES);
      block[k] = there ? c.blocks - 1 : -1;
      used[k / TYPES] |= there;
    }
    for (int which = 0; which < ROWS; which++)
      write_panel(&c, d, column, (enum row)which, block);
  }
  write_legend(&c, used, bottom + FOOT - LEGEND_ROW - 8);
  return figure_close(&c, r, v, f, r->algorithms[style], NULL, err, errlen);
}

int draw_drift(struct report *r, const struct report_view *v, const struct figure *f, char *err,
               size_t errlen)
{
  struct drift d = {.r = r, .rows = calloc((size_t)r->nrows + 1, sizeof *d.rows)};
  int status = d.rows ? 0 : -1;
  for (int style = 0; style < r->nalgorithms && !status; style++) {
    collect(&d, v, style);
    if (d.n > 1)
      status = draw_one(r, v, f, &d, style, err, errlen);
  }
  free(d.rows);
  return status;
}
