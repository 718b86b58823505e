/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h - what a report knows: files, rows, devices, views and panels.
 *
 * A row is a record.  A device is what a file's rows ran on.  A view is one device in one cache
 * state and mode; figures are drawn one view at a time.  A panel is a set of problems that differ
 * only in their length (and in the batch that goes with it), so it is what one plot can show.
 * Unknown numbers are NaN, unknown names are "".
 */
#ifndef REPORTS_MODEL_H
#define REPORTS_MODEL_H

#include <jansson.h>
#include <stdio.h>

#include "harness/record/record.h"
#include "reports/report.h"
#include "reports/table.h"

#define REPORT_STATUSES (STATUS_CRASH + 1)
#define REPORT_REGIMES 32
#define MATRIX_GROUPS 7

struct report_file {
  const char *path;
  char label[80]; /* tells the files of one report apart */
  int records, mutants, bad, newer;
};

struct report_row {
  json_t *json; /* owned */
  int file, line, device;
  const char *problem, *impl, *reason, *run_id, *suite, *time_utc, *cache, *mode;
  enum record_status status;
  int style;   /* of the algorithm: index into report.algorithms */
  bool parsed; /* p is the problem */
  struct attn_problem p;
  double flops, median_s, ci_lo_s, ci_hi_s, tflops, gbps, of_matmul, of_copy;
  double bound_ratio, lse_bound_ratio;
  double position, angle_rms, angle_max, logit_rel; /* op=rope */
  double compulsory_bytes, moved_bytes; /* moved: read, written, and written but still in L2 */
  double workspace_bytes, peak_bytes, sram_bytes;
};

struct report_device {
  int file;
  const char *kind, *name;
  json_t *json; /* the device object of its first record, borrowed */
};

struct report_panel {
  char key[ATTN_PROBLEM_TEXT + 128];
  const struct report_row **rows; /* borrowed */
  int nrows, nlengths;
};

struct report_view {
  int device;
  const char *cache, *mode;
  bool first; /* of its device */
  bool cuda;
  double copy_gbps, read_gbps, matmul_tflops; /* medians of the measured ceilings */
  double memory_bytes;                        /* of the device */
  const char *base; /* implementation that speeds are relative to, or NULL */
  struct report_panel *panels;
  int npanels;
  const struct report_row **rows; /* borrowed */
  int nrows;
};

struct report_figure {
  char stem[96], title[1024], caption[512];
  bool svg, pdf;
  struct table *values; /* the numbers shown, or NULL */
};

struct report {
  struct report_file *files;
  int nfiles;
  struct report_row *rows; /* nrows that count, then the superseded ones */
  int nrows, nloaded;
  struct report_device *devices;
  int ndevices;
  const char **algorithms; /* distinct, in order of appearance, peers last; borrowed */
  int nalgorithms;
  struct report_view *views;
  int nviews;
  struct report_figure *figures;
  int nfigures;
  struct report_serving *serving; /* serving.h: no rows, they have no problem to be compared in */
  int nserving;
  struct report_mutant *mutants; /* the kill matrix (matrix.h) */
  int nmutants;
  char regimes[REPORT_REGIMES][32]; /* kinds of inputs in it */
  int nregimes;
  uint32_t zoo_regimes[2]; /* bits of those of the cpu's matrix, and of the GPU's */
  struct report_summary summary;
  const char *outdir;
  const char *gnuplot; /* NULL: there is none */
};

/* load.c: reads the files into rows and devices; a later record of the same case wins. */
int report_load(struct report *r, const char *const *files, int nfiles, char *err, size_t errlen);
void report_free(struct report *r);

/* view.c: sorts the rows into views and panels. */
int report_views(struct report *r);
/* Has it as many queries as neither its keys nor a step of decoding says? */
bool report_own_queries(const struct attn_problem *p);
bool report_timed(const struct report_row *row); /* passed, and has a time */
const char *report_algorithm(const char *impl);  /* the name without cpu/ or cuda/ */
bool report_too_large(const struct report_row *row);
const char *report_refusal(const struct report_row *row); /* "does not fit"; NULL if it passed */
/* The row that row's speed is relative to: same run, problem, cache and mode; NULL if none. */
const struct report_row *report_base(const struct report_view *v, const struct report_row *row);

/* "file: device, cold cache, rested": as much of it as tells views apart. */
void report_view_title(const struct report *r, const struct report_view *v, char *buf, size_t len);
void report_device_title(const struct report *r, const struct report_device *d, char *buf,
                         size_t len);

/* Appends to a malloc'd array of *n elements; NULL when memory is exhausted. */
void *report_grow(void *array, int *n, size_t size);

/* page.c */
int report_page(const struct report *r, char *err, size_t errlen);

#endif
