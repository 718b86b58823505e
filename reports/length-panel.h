/* SPDX-License-Identifier: Apache-2.0
 *
 * length-panel.h - one panel of a figure over the sequence length.
 */
#ifndef REPORTS_LENGTH_PANEL_H
#define REPORTS_LENGTH_PANEL_H

#include "reports/figure.h"

struct length_figure {
  struct report *report;
  const struct report_view *view;
  const struct length_plot *plot;
  const struct report_panel **panels;
  struct attributes *attributes;
  int n;
  double scale; /* of the values */
};

/* Where the panel's axes are, and what stands around them. */
struct length_area {
  double left, top, right, bottom;
  bool first_column, last_row;
  char title[640];
};

#define LENGTH_LANE 17.0 /* pixels a lane, and a row of a key inside */

struct length_ranges {
  double xlo, xhi, ylo, yhi; /* of all that is drawn */
  double left_hi;            /* highest in the part where a key may be */
  int lanes, curves;
  double bottom, top; /* of the axis */
};

/* What an implementation did in a panel. */
struct tally {
  int values, refusals;
};
struct tally length_tally(const struct length_figure *lf, const struct report_panel *panel,
                          int style);
/* Value and interval as drawn; NaN: none. */
void length_value(const struct length_figure *lf, const struct report_row *row, double v[3]);
/* Has the implementation a value in any panel of the figure? */
bool length_drawn(const struct length_figure *lf, int style);
bool length_refused(const struct length_figure *lf, const struct report_row *row);
/* How high a refused row would be; NaN: not known. */
double length_refused_at(const struct length_figure *lf, const struct report_row *row);
/* Refused somewhere where that is not known, though not everywhere. */
bool length_lane(const struct length_figure *lf, const struct report_panel *panel, int style);

/* The panel's title: what is its own, and who was refused at all of its lengths. */
void length_title(const struct length_figure *lf, const struct report_panel *panel, const char *own,
                  char *buf, size_t len);
void length_words(const struct length_figure *lf, struct canvas *c,
                  const struct report_panel *panel, const struct length_ranges *g,
                  const struct length_area *area);
void length_panel(const struct length_figure *lf, struct canvas *c,
                  const struct report_panel *panel, const struct length_area *area);

#endif
