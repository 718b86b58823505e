/* SPDX-License-Identifier: Apache-2.0
 *
 * broken.c - a plugin whose implementations crash, hang, leak, exit and ask for too much, each at a
 * moment of its own. Runs count from the first verdict: two there (the second for the same bits),
 * the timed ones after them.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/cheats/honest.h"

#define NAMED(id, label, words, at_prepare, at_run, bytes)                   \
  static const struct attn_impl id = {.abi = ATTN_ABI,                       \
                                      .name = label,                         \
                                      .device = ATTN_CPU,                    \
                                      .summary = words,                      \
                                      .provenance = "broken, for the tests", \
                                      .unsupported = honest_unsupported,     \
                                      .workspace = bytes,                    \
                                      .prepare = at_prepare,                 \
                                      .run = at_run,                         \
                                      .finish = kept_finish}
#define BROKEN(id, ...) NAMED(id, "broken/" #id, __VA_ARGS__)

static int run_fair(void *plan, const struct attn_args *a, void *stream)
{
  honest(((struct kept *)plan)->p, a);
  return ATTN_OK;
}

/* The fourth run is a timed one. */
static bool fourth(void *plan)
{
  return ++((struct kept *)plan)->calls == 4;
}

static void hang(void)
{
  while (pause())
    ;
}

static int run_segv(void *plan, const struct attn_args *a, void *stream)
{
  raise(SIGSEGV);
  return ATTN_OK;
}

static int run_segv_later(void *plan, const struct attn_args *a, void *stream)
{
  if (fourth(plan))
    raise(SIGSEGV);
  return run_fair(plan, a, stream);
}

static int run_hang(void *plan, const struct attn_args *a, void *stream)
{
  hang();
  return ATTN_OK;
}

static int run_hang_later(void *plan, const struct attn_args *a, void *stream)
{
  if (fourth(plan))
    hang();
  return run_fair(plan, a, stream);
}

static int run_exit(void *plan, const struct attn_args *a, void *stream)
{
  _exit(0);
}

static int run_abort(void *plan, const struct attn_args *a, void *stream)
{
  abort();
}

static int run_error(void *plan, const struct attn_args *a, void *stream)
{
  return ATTN_EDEVICE;
}

static int prepare_hang(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  hang();
  return ATTN_OK;
}

static int prepare_crash(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  abort();
}

static int prepare_nomem(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  return ATTN_ENOMEM;
}

/* Keeps what it takes: 64 KiB a run. */
static int run_leak(void *plan, const struct attn_args *a, void *stream)
{
  char *lost = malloc(65536);
  if (lost)
    memset(lost, 1, 65536);
  return lost ? run_fair(plan, a, stream) : ATTN_ENOMEM;
}

static size_t nothing(const struct attn_problem *p, const struct attn_device *dev)
{
  return 0;
}

static size_t huge(const struct attn_problem *p, const struct attn_device *dev)
{
  return (size_t)1 << 50;
}

static size_t half(const struct attn_problem *p, const struct attn_device *dev)
{
  return (size_t)1 << 29;
}

/* Long enough for something to happen meanwhile. */
static int run_slow(void *plan, const struct attn_args *a, void *stream)
{
  struct timespec t = {0, 100000000};
  nanosleep(&t, NULL);
  return run_fair(plan, a, stream);
}

BROKEN(segv, "crashes", kept_prepare, run_segv, nothing);
BROKEN(segv_later, "crashes in a timed run", kept_prepare, run_segv_later, nothing);
BROKEN(hangs, "hangs", kept_prepare, run_hang, nothing);
BROKEN(hangs_later, "hangs in a timed run", kept_prepare, run_hang_later, nothing);
BROKEN(exits, "exits with 0", kept_prepare, run_exit, nothing);
BROKEN(aborts, "aborts", kept_prepare, run_abort, nothing);
BROKEN(errs, "returns an error", kept_prepare, run_error, nothing);
BROKEN(prepare_hangs, "hangs in prepare", prepare_hang, run_fair, nothing);
BROKEN(prepare_aborts, "aborts in prepare", prepare_crash, run_fair, nothing);
BROKEN(prepare_oom, "runs out of memory in prepare", prepare_nomem, run_fair, nothing);
BROKEN(asks_too_much, "wants a pebibyte of workspace", kept_prepare, run_fair, huge);
BROKEN(leaks, "leaks", kept_prepare, run_leak, nothing);
BROKEN(fair, "works", kept_prepare, run_fair, nothing);
BROKEN(slow, "works, in 0.1 s", kept_prepare, run_slow, nothing);

/* Both are right, and say whose bits they have: one truly. */
#define TWIN(id, of)                                                             \
  static const struct attn_impl id = {.abi = ATTN_ABI,                           \
                                      .name = "twin/" #id,                       \
                                      .device = ATTN_CPU,                        \
                                      .summary = "says that it has bits of " of, \
                                      .provenance = "made for the tests",        \
                                      .unsupported = honest_unsupported,         \
                                      .prepare = kept_prepare,                   \
                                      .run = run_fair,                           \
                                      .finish = kept_finish,                     \
                                      .twin = of}
TWIN(of_fair, "broken/fair");
TWIN(of_naive, "cpu/naive");

/* Where there is room for one of them, the second finds none. */
NAMED(first, "room/first", "wants half a GiB", kept_prepare, run_fair, half);
NAMED(second, "room/second", "wants half a GiB", kept_prepare, run_fair, half);

static const struct attn_impl *const impls[] = {
    &segv, &segv_later,    &hangs,          &hangs_later, &exits,         &aborts,
    &errs, &prepare_hangs, &prepare_aborts, &prepare_oom, &asks_too_much, &leaks,
    &fair, &slow,          &of_fair,        &of_naive,    &first,         &second};

const struct attn_plugin attn_plugin = {ATTN_ABI, sizeof impls / sizeof *impls, impls};
