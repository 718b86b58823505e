/* SPDX-License-Identifier: Apache-2.0
 *
 * table-matrix.c - the kill matrix in numbers: the scores of checks and rules, and every fault.
 */
#include "config.h"

#include <string.h>

#include "reports/matrix.h"
#include "reports/tables.h"

static void count(struct table *t, int column, int n)
{
  char text[32];
  snprintf(text, sizeof text, "%d", n);
  table_number(t, column, n, text);
}

static void score(const struct report *r, struct table *t, bool cuda, const char *name, int from,
                  int to)
{
  struct matrix_score s = matrix_score(r, cuda, from, to);
  table_row(t);
  table_text(t, 0, cuda ? "GPU" : "cpu");
  table_text(t, 1, name);
  count(t, 2, s.killed);
  count(t, 3, s.faults);
  count(t, 4, s.cells);
  count(t, 5, s.all_cells);
  count(t, 6, s.false_alarms);
  count(t, 7, s.correct_cases);
}

static void scores(const struct report *r, struct table *t, bool cuda)
{
  if (!matrix_score(r, cuda, 0, 1).faults)
    return;
  for (int g = 0; g < MATRIX_TWICE; g++)
    score(r, t, cuda, matrix_groups[g].title, g, g + 1);
  score(r, t, cuda, "attnbench, all of it", 0, MATRIX_TWICE);
  for (int g = MATRIX_TWICE; g < MATRIX_GROUPS; g++)
    score(r, t, cuda, matrix_groups[g].title, g, g + 1);
}

struct table *table_scores(const struct report *r)
{
  static const struct table_column columns[] = {{"Device", "device", 'l'},
                                                {"Check", "check", 'l'},
                                                {"faults seen", "killed", 'r'},
                                                {"of", "faults", 'r'},
                                                {"faults x inputs", "cells", 'r'},
                                                {"of", "all_cells", 'r'},
                                                {"false alarms", "false_alarms", 'r'},
                                                {"correct cases", "correct_cases", 'r'}};
  struct table *t = table_new(
      "scores", "Planted faults: who sees them",
      "Faults planted in correct sources; kinds of inputs on which they are seen; verdicts "
      "against correct builds. A customary rule counts where it passes the correct build.",
      columns, sizeof columns / sizeof *columns);
  for (int cuda = 0; t && cuda < 2; cuda++)
    scores(r, t, cuda);
  return t;
}

struct table *table_matrix(const struct report *r)
{
  static const struct table_column columns[] = {{"Planted fault", "mutant", 'l'},
                                                {"Kind", "kind", 'w'},
                                                {"bound", "bound", 'r'},
                                                {"LSE", "lse", 'r'},
                                                {"run", "run", 'r'},
                                                {"laws", "laws", 'r'},
                                                {"2x", "2x", 'r'},
                                                {"allclose", "allclose", 'r'},
                                                {"NMSE", "nmse", 'r'},
                                                {"Laws that see it", "law_names", 'w'}};
  struct table *t = table_new("matrix", "Every planted fault",
                              "Number of kinds of inputs on which each check sees it; laws are "
                              "checked on one kind. Correct builds are the last rows.",
                              columns, sizeof columns / sizeof *columns);
  for (int i = 0; t && i < r->nmutants; i++) {
    const struct report_mutant *m = &r->mutants[i];
    char laws[1024];
    table_row(t);
    table_text(t, 0, m->name);
    table_text(t, 1, m->clean ? "correct" : m->kind);
    for (int g = 0; g < MATRIX_GROUPS; g++)
      count(t, 2 + g, __builtin_popcount(m->killed[g]));
    matrix_laws(m, laws, sizeof laws);
    table_text(t, 2 + MATRIX_GROUPS, laws);
  }
  return t;
}
