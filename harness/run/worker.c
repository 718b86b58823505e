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

static struct worker_result reap(pid_t pid, enum worker_end why)
{
  int status;
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return (struct worker_result){why, SIGKILL};
}

/* Polls the child, with pauses that grow from 0.2 to 10 ms. */
static struct worker_result watch(pid_t pid, int (*tick)(void *ctx), void *ctx,
                                  const volatile uint64_t *beats, double timeout_s)
{
  uint64_t seen = *beats;
  double since = clock_now();
  long pause_ns = 200000;
  for (;;) {
    int status;
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid && WIFSIGNALED(status))
      return (struct worker_result){WORKER_SIGNAL, WTERMSIG(status)};
    if (got == pid) {
      int code = WEXITSTATUS(status);
      return (struct worker_result){code ? WORKER_FAILED : WORKER_DONE, code};
    }
    if (interrupted || (tick && tick(ctx)))
      return reap(pid, WORKER_STOPPED);
    if (*beats != seen) {
      seen = *beats;
      since = clock_now();
    } else if (clock_now() - since > timeout_s) {
      return reap(pid, WORKER_TIMEOUT);
    }
    nanosleep(&(struct timespec){0, pause_ns}, NULL);
    pause_ns = pause_ns < 10000000 ? pause_ns * 3 / 2 : pause_ns;
  }
}

struct worker_result worker_run(int (*body)(void *ctx), int (*tick)(void *ctx), void *ctx,
                                const volatile uint64_t *beats, double timeout_s)
{
  fflush(NULL);
  pid_t parent = getpid(), pid = fork();
  if (pid < 0)
    return (struct worker_result){WORKER_FAILED, errno};
  if (pid == 0) {
    signal(SIGINT, SIG_IGN); /* the parent decides */
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = getppid() == parent ? body(ctx) : 1;
    fflush(NULL);
    _exit(status);
  }
  struct worker_result end = watch(pid, tick, ctx, beats, timeout_s);
  if (end.end != WORKER_STOPPED && tick && tick(ctx))
    end.end = WORKER_STOPPED;
  return end;
}
