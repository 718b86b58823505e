/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h - many results files in order: each cell as a series, and where it changed.
 */
#ifndef HARNESS_HISTORY_H
#define HARNESS_HISTORY_H

#include "harness/gate/compare.h"

struct series {
  const struct cell *key; /* borrowed: its first cell */
  enum quantity quantity;
  double *value;           /* by file; NaN where there is none */
  size_t *file;            /* of the known values, in order */
  size_t n;                /* known values */
  size_t *change, changes; /* indices into the known values */
};

struct history {
  const char *const *files;
  int nfiles;
  struct cells *cells; /* by file */
  struct series *series;
  int n;
};

struct history_options {
  unsigned quantities;                 /* bit set of 1 << quantity */
  double level, magnitude[QUANTITIES]; /* those of stats_changes */
  bool anyway;                         /* whatever the conditions */
};

/* Values of a series with which a change is significant: shuffled, 12 with a change in the middle
 * fall into the same two halves in 2 of 924 cases; 10 in 2 of 252, which is too often. */
#define HISTORY_FEWEST 12

/* -1 and a line in err: a file that holds no records, files that have no case in common, or results
 * of different devices, clocks or inputs. */
int history_read(struct history *h, const char *const *files, int nfiles,
                 const struct history_options *o, char *err, size_t errlen);
void history_free(struct history *h);
/* Median of the values before or after change k, up to the next. */
double history_level(const struct series *s, size_t k, bool after);
/* history-plot.c: folder/history.dat, history.gp and, where gnuplot is found, history.svg: the
 * series that changed. -1 and a line in err; *drawn: whether there is an SVG. */
int history_plot(const struct history *h, const char *folder, bool *drawn, char *err,
                 size_t errlen);

#endif
