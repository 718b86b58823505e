/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: a child that crashes, hangs or fails is told apart, and what it wrote before survives.
 */
#include "config.h"

#include <signal.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/run/worker.h"
#include "tests/tap.h"

struct shared {
  uint64_t beats;
  int value;
};

static int fine(void *ctx)
{
  ((struct shared *)ctx)->value = 1;
  return 0;
}

static int failing(void *ctx)
{
  ((struct shared *)ctx)->value = 2;
  return 5;
}

static int crashing(void *ctx)
{
  ((struct shared *)ctx)->value = 3;
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  return 0;
}

static int hanging(void *ctx)
{
  ((struct shared *)ctx)->value = 4;
  while (pause())
    ;
  return 0;
}

/* Works longer than the timeout, but says so. */
static int slow_but_alive(void *ctx)
{
  struct shared *s = ctx;
  for (int i = 0; i < 8; i++) {
    usleep(100000);
    s->beats++;
  }
  return 0;
}

static int stop_at_once(void *ctx)
{
  return ((struct shared *)ctx)->value == 4;
}

int main(void)
{
  struct shared *s = worker_shared(sizeof *s);
  struct worker_result r = worker_run(fine, NULL, s, &s->beats, 10);
  ok(r.end == WORKER_DONE && s->value == 1, "a child that ends well");
  r = worker_run(failing, NULL, s, &s->beats, 10);
  ok(r.end == WORKER_FAILED && r.detail == 5 && s->value == 2, "a child that fails");
  r = worker_run(crashing, NULL, s, &s->beats, 10);
  ok(r.end == WORKER_SIGNAL && r.detail == SIGSEGV && s->value == 3, "a child that crashes");
  double start = clock_now();
  r = worker_run(hanging, NULL, s, &s->beats, 0.5);
  double took = clock_now() - start;
  ok(r.end == WORKER_TIMEOUT && s->value == 4, "a child that hangs");
  ok(took >= 0.5 && took < 5, "is killed after its timeout: %.2f s", took);
  r = worker_run(slow_but_alive, NULL, s, &s->beats, 0.5);
  ok(r.end == WORKER_DONE, "progress resets the timeout");
  r = worker_run(hanging, stop_at_once, s, &s->beats, 10);
  ok(r.end == WORKER_STOPPED, "a tick that says so stops the child");
  worker_unshare(s, sizeof *s);
  return done_testing();
}
