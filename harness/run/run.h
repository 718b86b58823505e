/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - a list of problems on everything selected: workers, merged processes, records, progress.
 */
#ifndef HARNESS_RUN_H
#define HARNESS_RUN_H

#include "harness/run/catalog.h"
#include "harness/run/group.h"

/* What one item of a list is run as, where items differ. */
struct run_item {
  const struct regime *regime; /* of the inputs; NULL: normal */
  bool laws;
  const struct attn_impl *impls[GROUP_CASES];
  int nimpls;
};

/* Bytes of the command that repeats a record, without --impl and problem. */
#define RUN_REPRO 4096

struct run_options {
  const struct device_ops *device;
  struct device_options device_options;
  struct group_options group;
  const char *impls;   /* patterns, or NULL */
  const char *variant; /* that every implementation must choose, or NULL */
  const char *choices; /* a table of choices, "none", or NULL: the device's */
  /* Every variant of an implementation that has several for the problem is a case of its own, on
   * such a device; NULL: implementations are. */
  const struct attn_device *every_variant;
  const char *suite; /* for the records; NULL: problems from the command line */
  const char *out;   /* results file, or NULL: none */
  const char *repro; /* command and options that repeat a record, without --impl and problem */
  /* Fills in *it, which is empty, for item i of the list, shortly before it is run; instead of
   * impls, and of the group's regime and laws. Or NULL: all alike. Its problem may be there several
   * times. */
  void (*item)(int i, struct run_item *it, void *ctx);
  int lanes;     /* verdicts side by side: at most so many; 0: as many as are of use */
  int processes; /* worker processes a problem */
  struct device_ceilings *ceilings; /* measured once and kept here; or NULL */
  double timeout_s;                 /* without progress, then killed */
  int losses; /* workers that an implementation may cost a batch; 0: any number */
  /* Sees every record, in the order of the list, and the group that it is of; or NULL. */
  void (*each)(const struct record *r, const struct group *g, void *ctx);
  void *ctx;
  bool resume, quiet, progress; /* progress: a status line with ETA on stderr */
};

struct run_summary {
  int count[STATUS_CRASH + 1]; /* records by status */
  int resumed;                 /* skipped, already recorded */
  struct spent spent;          /* the wall time */
  bool interrupted;
};

/* Whether a problem is so large that it may need the whole device. Verdicts with one among them are
 * not side by side. */
bool run_takes_all(const struct attn_problem *p);

/* ATTN_OK when everything has its record (whatever the verdicts); otherwise a line in err. */
int run_problems(const struct problem_list *list, const struct run_options *o,
                 struct run_summary *sum, char *err, size_t errlen);

/* A time, a number, half of the interval in per cent of the median; "-" where there is none. */
const char *show_seconds(char *buf, size_t n, double s);
const char *show_number(char *buf, size_t n, const char *format, double x);
const char *show_spread(char *buf, size_t n, const struct record *r);
/* One line for one record, and the heading above the first. */
void show_heading(bool timed);
void show_record(const struct record *r, bool timed);

#endif
