/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h - the kill matrix of verify --mutants: which check sees which planted fault on which
 * inputs, beside the customary rules on the same runs.
 */
#ifndef REPORTS_MATRIX_H
#define REPORTS_MATRIX_H

#include "reports/model.h"

/* Checks that are shown together. Those before MATRIX_TWICE are attnbench's. */
enum {
  MATRIX_BOUND,
  MATRIX_LSE,
  MATRIX_ENDS,
  MATRIX_LAWS,
  MATRIX_TWICE,
  MATRIX_CLOSE,
  MATRIX_NMSE
};

/* A planted fault, or a correct build of the same sources. */
struct report_mutant {
  json_t *json; /* owned */
  const char *name, *kind, *check, *equivalent;
  bool clean, cuda; /* cuda: of a GPU's kernels */
  int cases;
  uint32_t killed[MATRIX_GROUPS]; /* inputs (report.regimes) */
  int alarms[MATRIX_GROUPS];      /* cases */
};

struct matrix_group {
  const char *name, *title; /* as in a table, and in words */
};
extern const struct matrix_group matrix_groups[MATRIX_GROUPS];

/* The lines of a kill matrix in path; a later line of the same name stands for the earlier one. */
int matrix_load(struct report *r, const char *path, int *lines, char *err, size_t errlen);
void matrix_free(struct report *r);
/* Those that the customary rules see least come first; correct builds last. */
void matrix_sort(struct report *r);
/* "one-hot, tied-winners": the laws that see it. */
void matrix_laws(const struct report_mutant *m, char *buf, size_t len);
/* Faults of a device's matrix, and faults x inputs, that any of the groups from .. to - 1 sees;
 * cases of correct builds that they accuse. No faults: there is no matrix of the device. */
struct matrix_score {
  int killed, faults, cells, all_cells, false_alarms, correct_cases;
};
struct matrix_score matrix_score(const struct report *r, bool cuda, int from, int to);

int draw_matrix(struct report *r, char *err, size_t errlen);

#endif
