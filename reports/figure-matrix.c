/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-matrix.c - the kill matrix as a picture: a row a fault, a bar where a check sees it.
 *
 * Black is seen by attnbench, dark grey by a customary rule, and every column of a group is a kind
 * of inputs. Neighbouring columns that see it are one bar.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "reports/canvas.h"
#include "reports/matrix.h"

#define LEFT 232 /* pixels of names */
#define ROW 12
#define CELL 9
#define GAP 10
#define HEAD 112
#define FOOT 18

/* Columns of a group: laws are checked on one kind of inputs. */
static int columns_of(const struct report *r, int group)
{
  return group == MATRIX_LAWS ? 3 : r->nregimes;
}

static int left_of(const struct report *r, int group)
{
  int x = 0;
  for (int g = 0; g < group; g++)
    x += columns_of(r, g) * CELL + GAP + (g + 1 == MATRIX_TWICE ? 2 * GAP : 0);
  return x;
}

static void bar(struct canvas *c, double from, double to, int row)
{
  canvas_number(c, (from + to) / 2);
  canvas_number(c, row);
  canvas_number(c, (to - from) / 2);
  fputs("0.41\n", c->dat);
}

static void write_row(struct canvas *c, const struct report *r, int row, int group)
{
  uint32_t seen = r->mutants[row].killed[group];
  int n = columns_of(r, group), x = left_of(r, group);
  if (group == MATRIX_LAWS)
    seen = seen ? 7 : 0;
  for (int i = 0; i < n; i++) {
    int from = i;
    while (i < n && seen >> i & 1)
      i++;
    if (i > from)
      bar(c, x + from * CELL, x + i * CELL, row);
  }
}

/* Blocks: frames of the groups, then attnbench's bars, then the rules'. */
static void write_blocks(struct canvas *c, const struct report *r)
{
  canvas_block(c, "rows in which nothing is seen", "x y half-width half-height");
  for (int g = 0; g < MATRIX_GROUPS; g++)
    for (int i = 0; i < r->nmutants; i++)
      bar(c, left_of(r, g), left_of(r, g) + columns_of(r, g) * CELL, i);
  canvas_block(c, "seen by attnbench", "x y half-width half-height");
  for (int g = 0; g < MATRIX_TWICE; g++)
    for (int i = 0; i < r->nmutants; i++)
      write_row(c, r, i, g);
  canvas_block(c, "seen by customary rules", "x y half-width half-height");
  for (int g = MATRIX_TWICE; g < MATRIX_GROUPS; g++)
    for (int i = 0; i < r->nmutants; i++)
      write_row(c, r, i, g);
}

static void write_words(struct canvas *c, const struct report *r)
{
  char where[64], text[160];
  for (int i = 0; i < r->nmutants; i++) {
    snprintf(where, sizeof where, "graph 0, first %d", i);
    snprintf(text, sizeof text, "%s", r->mutants[i].name);
    canvas_label(c, text, where, "right offset -0.8,0 font 'Arial,9'");
  }
  snprintf(where, sizeof where, "first %.1f, graph 1", left_of(r, MATRIX_TWICE) / 2.0 - GAP);
  canvas_label(c, "attnbench", where, "center offset 0,3.1");
  snprintf(where, sizeof where, "first %.1f, graph 1",
           (left_of(r, MATRIX_TWICE) + left_of(r, MATRIX_GROUPS) - GAP) / 2.0);
  canvas_label(c, "customary rules", where, "center offset 0,3.1");
  for (int g = 0; g < MATRIX_GROUPS; g++) {
    double middle = left_of(r, g) + columns_of(r, g) * CELL / 2.0;
    int killed = matrix_score(r, false, g, g + 1).killed + matrix_score(r, true, g, g + 1).killed;
    snprintf(where, sizeof where, "first %.1f, graph 1", middle);
    canvas_label(c, matrix_groups[g].name, where, "center offset 0,1.7");
    snprintf(text, sizeof text, "%d", killed);
    canvas_label(c, text, where,
                 "center offset 0,0.6 font 'Arial,11' textcolor rgb '" CANVAS_GREY "'");
  }
}

static int note_figure(struct report *r, struct canvas *c, const char *title, char *err,
                       size_t errlen)
{
  struct report_figure *list = report_grow(r->figures, &r->nfigures, sizeof *list);
  if (!list) {
    snprintf(err, errlen, "report: out of memory");
    return -1;
  }
  r->figures = list;
  struct report_figure *out = &list[r->nfigures - 1];
  snprintf(out->title, sizeof out->title, "%s", title);
  snprintf(
      out->caption, sizeof out->caption,
      "A row is a planted fault, a column of a group a kind of inputs (%d of them; laws on one), "
      "a dark bar where the check sees the fault. Left black: attnbench. Right grey: customary "
      "rules, where they pass the correct build. The number above is that of the faults seen "
      "at all, of %d. The last rows are correct builds.",
      r->nregimes, matrix_score(r, false, 0, 1).faults + matrix_score(r, true, 0, 1).faults);
  return canvas_close(c, r, out, err, errlen);
}

int draw_matrix(struct report *r, char *err, size_t errlen)
{
  static const char title[] = "Planted faults and the checks that see them";
  struct canvas c;
  int inner = left_of(r, MATRIX_GROUPS) - GAP, height = HEAD + ROW * r->nmutants + FOOT;
  if (!r->nmutants)
    return 0;
  if (canvas_open(&c, r, "matrix", title, "those that customary rules see least come first",
                  LEFT + inner + 24, height)) {
    snprintf(err, errlen, "%s/figures/matrix.gp: cannot write: %s", r->outdir, strerror(errno));
    return -1;
  }
  canvas_area(&c, LEFT, HEAD, LEFT + inner, height - FOOT);
  write_blocks(&c, r);
  fprintf(c.gp,
          "unset border\nunset tics\nunset grid\nset xrange [0:%d]\nset yrange [%d.5:-0.5]\n"
          "set style fill solid 1 noborder\n",
          inner, r->nmutants - 1);
  write_words(&c, r);
  fputs("plot", c.gp);
  static const char *const colors[] = {"#ECECEC", "#000000", "#777777"};
  for (int i = 0; i < 3; i++)
    fprintf(c.gp, "%s 'matrix.dat' index %d using 1:2:3:4 with boxxyerror lc rgb '%s' notitle",
            i ? ", \\\n" : "", i, colors[i]);
  fputc('\n', c.gp);
  return note_figure(r, &c, title, err, errlen);
}
