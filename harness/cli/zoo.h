/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo.h - the checker checked: planted faults, and which check sees each of them.
 */
#ifndef HARNESS_ZOO_H
#define HARNESS_ZOO_H

#include <stdio.h>

#include "harness/run/rules.h"
#include "harness/run/run.h"

#define ZOO_ROWS 256
#define ZOO_REGIMES 16

/* What can kill: how the run ended, the verdict, the laws, and for comparison the rules. */
enum { ZOO_ENDS, ZOO_GUARDS, ZOO_INPUTS, ZOO_BOUND, ZOO_LSE, ZOO_LAWS };
#define ZOO_RULES (ZOO_LAWS + LAWS_MAX)
#define ZOO_CHECKS (ZOO_RULES + RULES)

/* A planted fault, or a correct build of the same sources ("clean"). */
struct zoo_row {
  const struct attn_impl *impl;
  char name[64], kind[128], killer[32], equivalent[160], base[32];
  char suite[160]; /* that it is run on besides those of all, or "" */
  bool clean, reached;
  int cases, losses;           /* losses: workers that hung or died in it */
  int left, hung;              /* cases to come; how often it hung beside others */
  uint16_t killed[ZOO_CHECKS]; /* regimes in which check failed */
  int alarms[ZOO_CHECKS];      /* cases */
  char example[320];           /* problem and reason of the first death */
};

struct zoo {
  struct zoo_row row[ZOO_ROWS];
  int n;
  unsigned regimes; /* that they were run in, as bits */
};

/* What the customary rules say of the clean builds in one group of cases. */
struct zoo_clean {
  int item; /* of the group, and one; 0: none */
  struct record_rules rules[ZOO_ROWS];
};

/* Loads DIR/NAME.so with its DIR/NAME.mutant. -1 and a line in err. */
int zoo_load(struct zoo *z, const char *dir, char *err, size_t errlen);
/* The device's suites: zoo (all regimes) and zoo-laws, on a GPU zoo-cuda (some) and zoo-cuda-laws;
 * and those that mutants name. out (NULL: none) gets each row when it is finished. */
int zoo_run(struct zoo *z, const struct run_options *o, const char *out, char *err, size_t errlen);
/* A record of a row's implementation into the row; in the order of the cases of a group. */
void zoo_mark(const struct zoo *z, struct zoo_row *row, struct zoo_clean *c, const struct record *r,
              const struct group *g);
/* Leaves out the mutants that have cases to come, and says how many there are, and how many there
 * were. */
int zoo_keep_finished(struct zoo *z, int *of);
/* The matrix, the scores, and what is wrong with either; true if nothing is. */
bool zoo_print(const struct zoo *z);
void zoo_write_row(const struct zoo *z, const struct zoo_row *r, FILE *f);
/* One line of JSON a row. */
int zoo_write(const struct zoo *z, const char *file, char *err, size_t errlen);

/* "bound", "law one-hot" ... */
const char *zoo_check_name(int check);
/* Did any check of attnbench kill it? */
bool zoo_dead(const struct zoo_row *r);
/* A fault that shows or not, as the threads run. */
bool zoo_race(const struct zoo_row *r);

#endif
