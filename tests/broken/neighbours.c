/* SPDX-License-Identifier: Apache-2.0
 *
 * neighbours.c - implementations for the zoo of tests/cli/zoo.sh, which take four problems.  -DHOG
 * hangs on the first of them, with a lock on the file that $NEIGHBOURS names; -DSHY waits on the
 * third for a while whether somebody has that lock, and if so hangs, too, and leaves a byte in the
 * file. Else both are right. Without either the result is wrong.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/cheats/honest.h"

#define WAIT_MS 1500

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->d == 8 && p->op == ATTN_FWD ? honest_unsupported(p, dev) : "only op=fwd d=8";
}

static inline void hang(void)
{
  while (pause())
    ;
}

static void act(const struct attn_problem *p, const struct attn_args *a, int file)
{
#if defined HOG
  if (p->sk != 5)
    return;
  flock(file, LOCK_EX);
  hang();
#elif defined SHY
  if (p->sk != 7)
    return;
  for (int i = 0; i < WAIT_MS / 10; i++) {
    if (flock(file, LOCK_EX | LOCK_NB)) {
      if (write(file, "x", 1) == 1)
        hang();
    }
    flock(file, LOCK_UN);
    usleep(10000);
  }
#else
  honest_put(p, a, 0, 0, 0, 0, 7);
#endif
}

static int run(void *plan, const struct attn_args *a, void *stream)
{
  const struct attn_problem *p = plan;
  int file = open(getenv("NEIGHBOURS"), O_RDWR | O_APPEND);
  honest(p, a);
  act(p, a, file);
  close(file);
  return ATTN_OK;
}

static const struct attn_impl impl = {.abi = ATTN_ABI,
                                      .name = NAME,
                                      .device = ATTN_CPU,
                                      .summary = "a neighbour",
                                      .provenance = "made for the tests",
                                      .unsupported = unsupported,
                                      .run = run};
static const struct attn_impl *const impls[] = {&impl};

const struct attn_plugin attn_plugin = {ATTN_ABI, 1, impls};
