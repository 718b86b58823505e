/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - records in; a page, figures and tables out.
 *
 *   OUT/index.html            everything on one page that opens anywhere
 *   OUT/figures/NAME.{svg,pdf,dat,gp}   each figure, its data, and the script that draws it
 *   OUT/tables/NAME.{md,tex,csv}        each table
 *
 * A report reads results files only: no device is opened and nothing is measured.
 */
#ifndef REPORTS_REPORT_H
#define REPORTS_REPORT_H

#include <stddef.h>

struct report_summary {
  int records;    /* read */
  int mutants;    /* lines of a kill matrix (verify --mutants --out) read */
  int bad_lines;  /* torn or foreign, skipped */
  int newer;      /* written by a later schema, skipped */
  int superseded; /* a later record of the same case stands for them */
  int figures;    /* drawn */
  char note[256]; /* what is missing from the report and why, or "" */
};

/* Writes the report of nfiles results files into outdir, which is created. -1 and one line in err
 * when a file cannot be read, holds no record, or the output cannot be written. *sum is filled on
 * success. gnuplot is taken from $GNUPLOT, then from the PATH; without it there are tables only. */
int report_write(const char *const *files, int nfiles, const char *outdir,
                 struct report_summary *sum, char *err, size_t errlen);

#endif
