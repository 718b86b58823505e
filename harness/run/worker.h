/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h - work that may crash, hang or be killed, in a child process that shares memory.
 */
#ifndef HARNESS_WORKER_H
#define HARNESS_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum worker_end {
  WORKER_DONE,
  WORKER_FAILED,
  WORKER_SIGNAL,
  WORKER_TIMEOUT,
  WORKER_STOPPED, /* by an interrupt, or by tick */
};

struct worker_result {
  enum worker_end end;
  int detail; /* exit status, or signal number */
};

/* Zeroed memory that children share; NULL when there is none. */
void *worker_shared(size_t bytes);
void worker_unshare(void *p, size_t bytes);

/* Forks and runs body(ctx) there. Calls tick(ctx) here every few milliseconds and once after the
 * child has ended (NULL: nothing to do). The child is killed when *beats has not changed for
 * timeout_s, when this process dies, and on SIGINT or SIGTERM here or a non-zero tick
 * (WORKER_STOPPED). The caller must not have touched CUDA. */
struct worker_result worker_run(int (*body)(void *ctx), int (*tick)(void *ctx), void *ctx,
                                const volatile uint64_t *beats, double timeout_s);

/* The same in parts, for several children at a time. */
struct worker {
  pid_t pid;
  uint64_t seen; /* beats, and since when */
  double since;
};
/* 0, or errno: there is no child. */
int worker_start(struct worker *w, int (*body)(void *ctx), void *ctx,
                 const volatile uint64_t *beats);
/* Whether it has ended, or was killed for want of progress. */
bool worker_ended(struct worker *w, const volatile uint64_t *beats, double timeout_s,
                  struct worker_result *end);
struct worker_result worker_stop(struct worker *w, enum worker_end why);
/* Sleeps, a little longer from call to call, up to 10 ms. */
#define WORKER_LEAST_NS 200000
void worker_nap(long *pause_ns);

/* Installs handlers that make worker_run return WORKER_STOPPED; says whether one came. */
void worker_catch_interrupts(void);
int worker_interrupted(void);

#endif
