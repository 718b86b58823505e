/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h - one problem on everything that is compared: verified, interleaved, counted, verified
 * again.
 *
 * A group runs in one process (harness/run/worker.c forks it); its cases live in memory that the
 * parent shares, so that whatever is finished survives whatever happens next.
 */
#ifndef HARNESS_GROUP_H
#define HARNESS_GROUP_H

#include "harness/base/spent.h"
#include "harness/record/record.h"
#include "harness/run/regime.h"
#include "harness/run/tensors.h"

#define GROUP_CASES 32
#define GROUP_SAMPLES 512 /* per case and process */

struct group_options {
  bool time;                   /* measure speed */
  bool count;                  /* counters and kernel names */
  bool recheck;                /* verify again afterwards, on fresh inputs */
  bool laws;                   /* check laws and probes, observe properties */
  bool graph;                  /* time what is short by CUDA graph, too */
  bool zoo;                    /* every check, whatever failed before */
  bool quick;                  /* an eighth of the rows that a verdict may cost otherwise */
  const struct regime *regime; /* of the inputs; NULL: normal */
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
  char variant[ATTN_VARIANT_NAME]; /* that it must get, or "": what the device wants */
  bool done; /* the record is complete, or the case must not be tried (again) */
  struct record record;
  double samples[GROUP_SAMPLES];
};

struct group {
  struct attn_problem problem;
  int item; /* of the list */
  const struct regime *regime;
  bool laws;
  struct device device; /* as opened by the worker: names and ceilings for the records */
  struct device_ceilings ceilings;
  int n, current; /* case at work; -1: none, the group itself */
  char stage[48]; /* what is being done, for the reason of a crash or timeout */
  bool finished;
  volatile uint64_t *beats; /* grows with progress; the watchdog looks at it */
  volatile double
      busy; /* since when the host is at work that no case is to blame for; 0: it is not */
  struct spent *spent; /* of the run; or NULL */
  struct group_case cases[GROUP_CASES];
};

/* Runs every case that is not done. ATTN_EDEVICE: the device is lost, the current case has its
 * record, and the rest needs a new process. */
int group_run(struct group *g, struct device *dev, const struct group_options *o);

/* ---- between group.c and its parts ----------------------------------------------------------- */

/* A case at work in this process. */
struct live {
  struct group_case *c;
  void *plan;
  struct arena_buffer *workspace;
  struct attn_args args;
  bool ready;    /* prepared and verified */
  uint64_t bits; /* digest of the outputs that its verdict is about; 0: not known */
  int many;      /* the timed run of which many rows are verified */
};

/* What surrounds timed runs (group-check.c). */
struct group_check {
  uint64_t key, drawn;                 /* of the signs; how many were drawn */
  struct arena_buffer *copy[OPERANDS]; /* outputs as a timed run left them; NULL: no room */
  struct device_around around;
};

struct group_work {
  struct group *g;
  struct device *dev;
  const struct group_options *o;
  struct arena *arena;
  struct tensors *tensors;
  struct live live[GROUP_CASES];
  struct group_check check;
  struct group_zoo *zoo;
  struct attn_device info; /* as opened: dev's also wants the variant of the case at work */
  uint64_t fresh_seed;     /* of the inputs after timing; 0: those of o->seed are in place */
};

/* From here on the device wants what the case does; NULL: what it did when it was opened. */
void group_want(struct group_work *w, const struct group_case *c);
/* Says what case current (-1: none) is at, for the watchdog and for the reason of a crash. */
void group_stage(struct group *g, int current, const char *what);
int group_launch(void *live, void *stream);
/* Ends a case with a status and a reason. */
void group_end(struct group_case *c, enum record_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* One run on poisoned outputs and workspace. A device error ends the case and loses the device. */
int group_run_once(struct group_work *w, struct live *l);
/* All checks and the customary rules, for the kill matrix (group-zoo.c). */
int group_zoo(struct group_work *w, struct live *l);
void group_zoo_end(struct group_work *w);
/* The customary rules on op=rope (rules-rope.c); pass has one for each. */
int group_rope_rules(struct group_work *w, bool *pass);
/* Poisons, runs, checks guards and verdict; merges the verdict into the record. */
int group_verify(struct group_work *w, struct live *l);
/* Compares rows of args' outputs with the truth; a case that fails ends, and says when. The
 * record's numbers are those of its first verdict. */
int group_truth(struct group_work *w, struct live *l, const struct attn_args *args, int64_t rows,
                uint64_t seed, const char *when);
/* Rows of a verdict: as asked, or as many as the budget allows; 0: all. */
int64_t group_rows(const struct group_work *w);
/* Around all timed runs, and around one. */
uint64_t group_entropy(void);
int group_check_begin(struct group_work *w);
void group_check_end(struct group_work *w);
int group_check_ahead(struct group_work *w);
int group_check_behind(struct group_work *w, struct live *l);
int group_check_inputs(struct group_work *w);
/* Laws and probes; a broken one ends the case. */
int group_laws(struct group_work *w, struct live *l);
/* One run of an implementation on operands of any problem (group-law.c). */
int group_law_run(const struct attn_impl *impl, struct device *dev, struct law_set *s);
/* The keys or values of a paged cache to where s has them. */
void group_law_gather(const struct tensors *from, enum law_operand op, struct law_set *s);
/* Interleaved samples of every ready case. */
int group_time(struct group_work *w);
/* Counters and kernels of every ready case. */
int group_count(struct group_work *w);
/* Rates, of the ceilings; marks what is beyond a physical limit INVALID. */
void group_judge(struct group *g, struct group_case *c);

#endif
