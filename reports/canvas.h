/* SPDX-License-Identifier: Apache-2.0
 *
 * canvas.h - one figure on its way to gnuplot: a script, a data file, and the plots they make.
 *
 * Lengths are pixels of 1/96 inch from the top left corner.  The script draws the figure twice, as
 * SVG and as PDF, and can be run again by hand in its folder: gnuplot NAME.gp
 */
#ifndef REPORTS_CANVAS_H
#define REPORTS_CANVAS_H

#include "reports/model.h"

struct canvas {
  FILE *gp, *dat;
  char stem[96];
  int width, height;
  int blocks, areas; /* so far */
};

struct style {
  const char *color; /* Okabe and Ito's palette */
  int point, open;   /* gnuplot's point types, filled and open */
  const char *dash;
};
const struct style *style_at(int i);

#define CANVAS_GREY "#666666"

/* Opens OUT/figures/stem.gp and .dat and writes the heading. */
int canvas_open(struct canvas *c, const struct report *r, const char *stem, const char *title,
                const char *subtitle, int width, int height);
/* The next plot's axes fill this rectangle; labels, arrows, tics and ranges start afresh. */
void canvas_area(struct canvas *c, double left, double top, double right, double bottom);
/* A label: where is any gnuplot position, options what follows it. */
void canvas_label(struct canvas *c, const char *text, const char *where, const char *options);
/* The name of the vertical axis of an area, upright left of it. */
void canvas_ylabel(struct canvas *c, const char *text, double left, double top, double bottom);
/* A quoted string. */
void canvas_quote(FILE *out, const char *text);
/* Starts a data block, says what it is and what its columns are; returns its index. */
int canvas_block(struct canvas *c, const char *comment, const char *columns);
/* A number of a data block; NaN where unknown. */
void canvas_number(struct canvas *c, double x);
/* The legend of the algorithms used (flags by style index) and of n grey lines more, from top to
 * the bottom of the canvas; and the height that it takes. */
struct legend_line {
  const char *name, *dash;
  double width;
  int point; /* -1: none */
};
/* The same for lines that are no algorithms. */
struct legend_entry {
  const char *name, *color, *dash;
  double width;
  int point;
};
void canvas_entries(struct canvas *c, const struct legend_entry *list, int n, double top);
#define LEGEND_ROW 24
void canvas_legend(struct canvas *c, const struct report *r, const bool *used,
                   const struct legend_line *more, int n, double top);
int canvas_legend_height(const struct report *r, const bool *used, const struct legend_line *more,
                         int n, int width);
/* "with linespoints ..." of an algorithm. */
void canvas_style(FILE *out, int style);
/* Draws a block of "value lo hi line" as dots, with error bars where there are intervals, behind
 * "plot" or a comma; name is for the key, or "". */
void canvas_dots(struct canvas *c, const char *before, int block, const char *color, int point,
                 const char *name);
/* Ends the script, runs gnuplot, and notes in *f what came out. -1 and a line in err if the files
 * cannot be written; a plot that fails is a note in the summary. */
int canvas_close(struct canvas *c, struct report *r, struct report_figure *f, char *err,
                 size_t errlen);

/* The program that $GNUPLOT or the PATH names, in buf; NULL if there is none. */
const char *gnuplot_find(char *buf, size_t len);
/* Runs it on script in folder; the first line it complains with goes into said. */
int gnuplot_run(const char *gnuplot, const char *folder, const char *script, char *said,
                size_t len);

/* Labelled tics of a logarithmic axis from lo to hi, as fine as it takes to have four. */
enum tics { TICS_BYTES, TICS_BINARY, TICS_RATIO, TICS_TOKENS };
void canvas_tics(struct canvas *c, char axis, enum tics kind, double lo, double hi);

#endif
