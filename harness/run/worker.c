/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c - fork, watch, reap.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/run/worker.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
  (void)sig;
  interrupted = 1;
}

void worker_catch_interrupts(void)
{
  struct sigaction a = {.sa_handler = on_interrupt};
  sigaction(SIGINT, &a, NULL);
  sigaction(SIGTERM, &a, NULL);
}

int worker_interrupted(void)
{
  return interrupted;
}

void *worker_shared(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void worker_unshare(void *p, size_t bytes)
{
  if (p)
    munmap(p, bytes);
}

/* ---- one child ------------------------------------------------------------------------------- */

int worker_start(struct worker *w, int (*body)(void *ctx), void *ctx,
                 const volatile uint64_t *beats)
{
  fflush(NULL);
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    signal(SIGINT, SIG_IGN); /* the parent decides */
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = getppid() == parent ? body(ctx) : 1;
    fflush(NULL);
    _exit(status);
  }
  *w = (struct worker){pid, *beats, clock_now()};
  return pid < 0 ? errno : 0;
}

struct worker_result worker_stop(struct worker *w, enum worker_end why)
{
  int status;
  kill(w->pid, SIGKILL);
  while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
    ;
  return (struct worker_result){why, SIGKILL};
}

bool worker_ended(struct worker *w, const volatile uint64_t *beats, double timeout_s,
                  struct worker_result *end)
{
  int status;
  pid_t got = waitpid(w->pid, &status, WNOHANG);
  if (got == w->pid && WIFSIGNALED(status)) {
    *end = (struct worker_result){WORKER_SIGNAL, WTERMSIG(status)};
    return true;
  }
  if (got == w->pid) {
    int code = WEXITSTATUS(status);
    *end = (struct worker_result){code ? WORKER_FAILED : WORKER_DONE, code};
    return true;
  }
  if (*beats != w->seen) {
    w->seen = *beats;
    w->since = clock_now();
  } else if (clock_now() - w->since > timeout_s) {
    *end = worker_stop(w, WORKER_TIMEOUT);
    return true;
  }
  return false;
}

/* ---- one child, waited for ------------------------------------------------------------------- */

struct worker_result worker_run(int (*body)(void *ctx), int (*tick)(void *ctx), void *ctx,
                                const volatile uint64_t *beats, double timeout_s)
{
  struct worker w;
  struct worker_result end = {WORKER_FAILED, worker_start(&w, body, ctx, beats)};
  long pause_ns = WORKER_LEAST_NS;
  if (end.detail)
    return end;
  while (!worker_ended(&w, beats, timeout_s, &end)) {
    if (interrupted || (tick && tick(ctx)))
      return worker_stop(&w, WORKER_STOPPED);
    worker_nap(&pause_ns);
  }
  if (tick && tick(ctx))
    end.end = WORKER_STOPPED;
  return end;
}

void worker_nap(long *pause_ns)
{
  nanosleep(&(struct timespec){0, *pause_ns}, NULL);
  *pause_ns = *pause_ns < 10000000 ? *pause_ns * 3 / 2 : *pause_ns;
}
