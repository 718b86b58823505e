/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h - one problem on everything that is compared: verified, interleaved, counted, verified
 * again.
 *
 * A group runs in one process (harness/worker.c forks it); its cases live in memory that the
 * parent shares, so that whatever is finished survives whatever happens next.
 */
#ifndef HARNESS_GROUP_H
#define HARNESS_GROUP_H

#include "harness/record.h"

#define GROUP_CASES 32
#define GROUP_SAMPLES 512 /* per case and process */

struct group_options {
  bool time;    /* measure speed */
  bool count;   /* counters and kernel names */
  bool recheck; /* verify again afterwards, on fresh inputs */
  struct device_timing timing;
  int samples_min, samples_max;
  double ci_width;  /* stop when the interval is narrower than this part of the median */
  double seconds;   /* stop sampling one problem after this long */
  uint64_t seed;    /* of the inputs */
  int64_t rows_max; /* checked rows a case; 0: by budget */
};

/* One implementation on the group's problem. The record's samples point into the slot itself. */
struct group_case {
  const struct attn_impl *impl;
  bool done; /* the record is complete, or the case must not be tried (again) */
  struct record record;
  double samples[GROUP_SAMPLES];
};

struct group {
  struct attn_problem problem;
  struct device device; /* as opened by the worker: names and ceilings for the records */
  struct device_ceilings ceilings;
  int n, current; /* case at work; -1: none, the group itself */
  char stage[48]; /* what is being done, for the reason of a crash or timeout */
  bool finished;
  volatile uint64_t *beats; /* grows with progress; the watchdog looks at it */
  struct group_case cases[GROUP_CASES];
};

/* Runs every case that is not done. ATTN_EDEVICE: the device is lost, the current case has its
 * record, and the rest needs a new process. */
int group_run(struct group *g, struct device *dev, const struct group_options *o);

/* ---- between group.c, group-verify.c and group-time.c ---------------------------------------- */

struct tensors;

/* A case at work in this process. */
struct live {
  struct group_case *c;
  void *plan;
  struct arena_buffer *workspace;
  struct attn_args args;
  bool ready; /* prepared and verified */
};

struct group_work {
  struct group *g;
  struct device *dev;
  const struct group_options *o;
  struct arena *arena;
  struct tensors *tensors;
  struct live live[GROUP_CASES];
};

/* Says what case current (-1: none) is at, for the watchdog and for the reason of a crash. */
void group_stage(struct group *g, int current, const char *what);
int group_launch(void *live, void *stream);
/* Ends a case with a status and a reason. */
void group_end(struct group_case *c, enum record_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Poisons, runs, checks guards and verdict; merges the verdict into the record. */
int group_verify(struct group_work *w, struct live *l);
/* Interleaved samples of every ready case. */
int group_time(struct group_work *w);
/* Counters and kernels of every ready case. */
int group_count(struct group_work *w);
/* Rates, of the ceilings; marks what is beyond a physical limit INVALID. */
void group_judge(struct group *g, struct group_case *c);

#endif
