/* SPDX-License-Identifier: Apache-2.0
 *
 * run-parts.h - between run.c (the list), run-batch.c (workers), run-lanes.c (several at a time),
 * run-merge.c (processes) and run-emit.c (records).
 */
#ifndef HARNESS_RUN_PARTS_H
#define HARNESS_RUN_PARTS_H

#include "harness/run/run.h"
#include "harness/record/store.h"
#include "harness/tune/advice.h"
#include "harness/run/worker.h"

/* Problems that one worker takes: opening a device and loading libraries costs a second or two. */
#define RUN_BATCH 20

/* Exit statuses of a worker. */
enum { RUN_NO_DEVICE = 3, RUN_DEVICE_LOST = 4 };

/* Lives in memory that workers share. */
struct run_batch {
  volatile uint64_t beats;
  struct spent spent;
  int n, at, emitted; /* groups, the one at work, those recorded */
  struct group g[RUN_BATCH];
};

struct run {
  const struct run_options *o;
  struct run_summary *sum;
  struct store store;
  const struct attn_impl *impls[GROUP_CASES];
  int nimpls;
  char run_id[40];
  char (*recorded)[ATTN_PROBLEM_TEXT + 128]; /* "impl variant problem", for --resume */
  int nrecorded;
  struct device_ceilings ceilings;
  struct advice advice;
  int done, of; /* problems */
  bool heading; /* the table's first line is out */
  double started;
};

/* ---- run.c, run-batch.c ---- */
int run_open_device(const struct run *run, struct group *g, struct device *dev);
/* Up to RUN_BATCH items of the list, from the first on. */
int run_batch(struct run *run, struct run_batch *b, const struct problem_list *list, int first,
              char *err, size_t errlen);

/* ---- run-batch.c, in parts ---- */
/* A batch with its workers, one after the other. */
struct run_task {
  struct run *run;
  struct run_batch *b;
  struct group_options options; /* of this process */
  bool emit;                    /* record groups as they finish */
  int status;                   /* of recording */
  char *err;
  size_t errlen;
};
void run_task_begin(struct run_task *t, struct run *run, struct run_batch *b,
                    const struct problem_list *list, int first, int most, char *err, size_t errlen);
/* Whether a worker is wanted, for run_task_body; and what its end means. */
bool run_task_next(struct run_task *t);
int run_task_ended(struct run_task *t, struct worker_result end);
int run_task_body(void *task);
/* Keeps what is opening a device alive, and records what has finished. */
int run_task_tick(void *task);

/* ---- run-lanes.c: verdicts alone: several workers at a time ---- */
/* How many; 1: one after the other. */
int run_lanes(const struct run *run, const struct problem_list *list);
int run_in_lanes(struct run *run, const struct problem_list *list, int lanes, struct spent *spent,
                 char *err, size_t errlen);

/* ---- run-emit.c ---- */
int run_begin(struct run *run, char *err,
              size_t errlen); /* implementations, file, what is recorded */
void run_end(struct run *run);
bool run_is_recorded(const struct run *run, const struct attn_problem *p, const char *impl);
void run_describe(const struct run *run, const struct attn_problem *p, struct group_case *c);
int run_emit(struct run *run, const struct group *g, struct group_case *c, char *err,
             size_t errlen);
void run_progress(const struct run *run, int done);

/* ---- run-merge.c: samples of several processes, the process being the unit of replication ---- */
struct run_merge;
void group_case_reset(struct group_case *c); /* unknown again, description kept */
struct run_merge *run_merge_begin(const struct group *g, int processes);
void run_merge_restart(struct run_merge *m, struct group *g); /* opens what passed so far */
void run_merge_add(struct run_merge *m, const struct group *g);
void run_merge_end(struct run_merge *m, struct group *g); /* the merged records into g */
void run_merge_free(struct run_merge *m);

#endif
