/* SPDX-License-Identifier: Apache-2.0
 *
 * table-fits.c - how counted traffic grows: exponents of the sequence length N, of the head
 * dimension d, and of the two-level machine's SRAM M, wherever the records vary one of them alone.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/tables.h"

static const struct table_column columns[] = {
    {"Device", "device", 'l'},     {"Implementation", "impl", 'l'}, {"Of", "of", 'l'},
    {"Exponent", "exponent", 'r'}, {"From", "from", 'r'},           {"To", "to", 'r'},
    {"Points", "points", 'r'},     {"M", "sram_bytes", 'r'},        {"Problem", "problem", 'w'}};

struct points {
  double x[FIT_POINTS], y[FIT_POINTS];
  int n;
};

static void add_point(struct points *ps, double x, double y)
{
  for (int i = 0; i < ps->n; i++)
    if (ps->x[i] == x)
      return;
  if (ps->n < FIT_POINTS && isfinite(x) && isfinite(y)) {
    ps->x[ps->n] = x;
    ps->y[ps->n++] = y;
  }
}

static void add_fit(const struct report *r, struct table *t, const struct report_row *row,
                    const char *of, double exponent, const struct points *ps,
                    struct text (*format)(double))
{
  char title[256], count[16];
  double from = INFINITY, to = 0;
  for (int i = 0; i < ps->n; i++) {
    from = fmin(from, ps->x[i]);
    to = fmax(to, ps->x[i]);
  }
  report_device_title(r, &r->devices[row->device], title, sizeof title);
  table_row(t);
  table_text(t, 0, title);
  table_text(t, 1, row->impl);
  table_text(t, 2, of);
  snprintf(count, sizeof count, "%.2f", fabs(exponent) < 0.005 ? 0 : exponent);
  table_number(t, 3, exponent, count);
  table_number(t, 4, from, format(from).s);
  table_number(t, 5, to, format(to).s);
  snprintf(count, sizeof count, "%d", ps->n);
  table_number(t, 6, ps->n, count);
  if (strcmp(of, "M") && !strncmp(row->impl, "cpu/", 4))
    table_number(t, 7, row->sram_bytes, format_binary(row->sram_bytes).s);
  table_text(t, 8, row->problem);
}

static bool counted(const struct report_row *row)
{
  return row->status == STATUS_PASS && row->parsed && isfinite(row->moved_bytes);
}

/* ---- one variable, all else equal -------------------------------------------------------------
 */

enum variable { OF_LENGTH, OF_HEAD_DIM, OF_SRAM, VARIABLES };

static const struct {
  const char *name;
  struct text (*format)(double x);
} variables[] = {{"N", format_tokens}, {"d", format_exact}, {"M", format_binary}};

static double value_of(const struct report_row *row, enum variable variable)
{
  return variable == OF_LENGTH     ? (double)row->p.sk
         : variable == OF_HEAD_DIM ? (double)row->p.d
                                   : row->sram_bytes;
}

/* The row without the variable: rows of one rest differ in nothing else. */
static void rest_of(const struct report_row *row, enum variable variable, char *rest, size_t len)
{
  struct attn_problem p = row->p;
  char text[ATTN_PROBLEM_TEXT];
  if (variable == OF_LENGTH && p.sq == p.sk)
    p.sq = p.sk = 1;
  else if (variable == OF_LENGTH)
    p.sk = 1;
  else if (variable == OF_HEAD_DIM && p.d == p.dv)
    p.d = p.dv = 1;
  attn_problem_print(&p, text, sizeof text);
  bool sram = variable != OF_SRAM && isfinite(row->sram_bytes);
  snprintf(rest, len, "%d|%s|%.0f|%s", row->device, row->impl, sram ? row->sram_bytes : 0, text);
}

/* The points of row i's rest; none if an earlier row has them. *longest: no row of the same
 * implementation, operation and mask is longer. */
static struct points gather(const struct report *r, int i, enum variable variable, bool *longest)
{
  char rest[ATTN_PROBLEM_TEXT + 256], other[sizeof rest];
  struct points ps = {.n = 0};
  const struct report_row *row = &r->rows[i];
  rest_of(row, variable, rest, sizeof rest);
  *longest = true;
  for (int k = 0; k < r->nrows; k++) {
    const struct report_row *o = &r->rows[k];
    if (!counted(o) || o->device != row->device || strcmp(o->impl, row->impl))
      continue;
    if (o->p.op == row->p.op && o->p.mask == row->p.mask && o->p.sk > row->p.sk)
      *longest = false;
    rest_of(o, variable, other, sizeof other);
    if (strcmp(rest, other))
      continue;
    if (k < i)
      return (struct points){.n = 0};
    add_point(&ps, value_of(o, variable), o->moved_bytes);
  }
  return ps;
}

struct table *table_fits(const struct report *r)
{
  struct table *t = table_new("fits", "How traffic grows",
                              "Exponents of counted HBM bytes, all else equal. Of N over the "
                              "longest lengths (from an eighth of the longest on, three at least).",
                              columns, sizeof columns / sizeof *columns);
  for (int variable = 0; t && variable < VARIABLES; variable++)
    for (int i = 0; i < r->nrows; i++) {
      bool longest;
      if (!counted(&r->rows[i]) || r->rows[i].p.nruns)
        continue;
      struct points ps = gather(r, i, (enum variable)variable, &longest);
      double exponent = variable == OF_LENGTH ? fit_exponent(ps.x, ps.y, ps.n)
                        : longest             ? fit_power(ps.x, ps.y, ps.n)
                                              : NAN;
      if (isfinite(exponent))
        add_fit(r, t, &r->rows[i], variables[variable].name, exponent, &ps,
                variables[variable].format);
    }
  return t;
}
