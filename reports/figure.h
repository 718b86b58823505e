/* SPDX-License-Identifier: Apache-2.0
 *
 * figure.h - the figures of a report: a table, one row a figure (figure.c).
 */
#ifndef REPORTS_FIGURE_H
#define REPORTS_FIGURE_H

#include "reports/canvas.h"
#include "reports/model.h"

struct figure {
  const char *name, *title;
  const char *caption;            /* one sentence: what it shows */
  bool per_device;                /* once a device, whatever cache state and mode */
  const struct length_plot *plot; /* for draw_lengths and draw_single */
  /* Draws it for a view as often as its panels need; nothing where the view has no data for it. */
  int (*draw)(struct report *r, const struct report_view *v, const struct figure *f, char *err,
              size_t errlen);
};

int report_figures(struct report *r, char *err, size_t errlen);

int draw_lengths(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                 size_t errlen);
int draw_single(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                size_t errlen);
int draw_roofline(struct report *r, const struct report_view *v, const struct figure *f, char *err,
                  size_t errlen);
int draw_drift(struct report *r, const struct report_view *v, const struct figure *f, char *err,
               size_t errlen);
int draw_error(struct report *r, const struct report_view *v, const struct figure *f, char *err,
               size_t errlen);

/* Opens the canvas of figure f: NAME[-DEVICE][-PART] and "title, view". */
int figure_open(struct canvas *c, const struct report *r, const struct report_view *v,
                const struct figure *f, const char *part, const char *subtitle, int width,
                int height, char *err, size_t errlen);
/* Closes a canvas and appends it to the report's figures, values included (NULL: none). */
int figure_end(struct canvas *c, struct report *r, const char *title, const char *caption,
               struct table *values, char *err, size_t errlen);
/* The same for figure f, with the title that figure_open gave it. */
int figure_close(struct canvas *c, struct report *r, const struct report_view *v,
                 const struct figure *f, const char *subtitle, struct table *values, char *err,
                 size_t errlen);

/* ---- figures by sequence length ---------------------------------------------------------------
 */

enum axis { AXIS_LINEAR, AXIS_BYTES, AXIS_BINARY, AXIS_RATIO };

struct reference_line {
  double y;
  char label[64];
};

/* What is drawn over the sequence length, one panel a set of problems, one line an
 * implementation. */
struct length_plot {
  const char *ylabel;
  const char *ylabel_small; /* where all is below 1: values times 1000; or NULL */
  enum axis axis;
  bool over_base;   /* ylabel ends in the view's base */
  bool key_inside;  /* growing curves: the legend is in the empty corner, with fitted exponents */
  bool fits_only;   /* of the refusals only those for lack of memory */
  bool lanes_above; /* refusals are marked above the curves, not below */
  bool (*wants)(const struct report_row *row);
  /* v: value, and its interval's ends or NaN */
  void (*value)(const struct report_view *v, const struct report_row *row, double value[3]);
  double (*thin)(const struct report_row *row);     /* a second, thin line, or NULL */
  double (*baseline)(const struct report_row *row); /* of the problem, the same for all, or NULL */
  double (*refused)(const struct report_row *row);  /* where a refused row would be, or NULL */
  const char *thin_name, *baseline_name;
  bool (*reference)(const struct report_view *v, const struct report_row *row,
                    struct reference_line *line); /* or NULL */
  struct text (*format)(double x);
};

#define FIT_POINTS 64
/* Slope of log y over log x; NaN where it is not defined. */
double fit_power(const double *x, const double *y, int n);
/* The same over the longest lengths: from an eighth of the longest on, and three at least. NaN if
 * there are fewer. */
double fit_exponent(const double *x, const double *y, int n);

/* ---- attributes of a panel --------------------------------------------------------------------
 */

#define ATTRIBUTES 9
struct attributes {
  char text[ATTRIBUTES][96];
};
void panel_attributes(const struct report *r, const struct report_view *v,
                      const struct report_panel *panel, struct attributes *a);
/* Those that all n panels share, joined; and those of panel i that they do not share. */
void attributes_common(const struct attributes *a, int n, char *buf, size_t len);
void attributes_own(const struct attributes *a, int n, int i, char *buf, size_t len);

#endif
