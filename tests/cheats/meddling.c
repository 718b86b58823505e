/* SPDX-License-Identifier: Apache-2.0
 *
 * meddling.c - cheats that touch what is not theirs: inputs, memory, the clock, the harness's
 * marks.
 */
#include "tests/cheats/honest.h"
#include "tests/cheats/cheats.h"

static void zero_inputs(const struct kept *k, const struct attn_args *a)
{
  const struct attn_problem *p = k->p;
  size_t width = p->dtype == ATTN_F32 ? 4 : 2;
  memset(a->q.data, 0, (size_t)(p->b * p->sq * p->hq * p->d) * width);
  memset(a->v.data, 0, (size_t)(p->b * p->sk * p->hkv * p->dv) * width);
}

/* Then zeros are the right answer. */
static int zeroes_inputs(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  zero_inputs(k, a);
  honest(k->p, a);
  return ATTN_OK;
}
CHEAT(zeroes_inputs, "zeroes its inputs, for which the answer is easy", zeroes_inputs);

static int zeroes_later(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  if (k->calls++ >= 2)
    zero_inputs(k, a);
  honest(k->p, a);
  return ATTN_OK;
}
CHEAT(zeroes_later, "zeroes its inputs after the first runs", zeroes_later);

static int overrun(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  honest(k->p, a);
  ((char *)a->o.data)[honest_o_bytes(k->p)] = 0;
  return ATTN_OK;
}
CHEAT(overrun, "writes one byte past its output", overrun);

/* Works only on outputs that are poisoned, as in a check. Each run takes 3 ms if it works. */
static int spots_poison(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  double until = seconds() + 3e-3;
  if (!isnan(honest_get(k->p, &a->o, 0, 0, 0, 0)))
    return ATTN_OK;
  honest(k->p, a);
  spin_until(until);
  return ATTN_OK;
}
CHEAT(spots_poison, "works only on poisoned outputs", spots_poison);

/* A clock of its own: one exported here must not stand in for the harness's. Takes 3 ms. */
int clock_gettime(clockid_t id, struct timespec *t)
{
  static long n;
  t->tv_sec = 0;
  t->tv_nsec = n++;
  return 0;
}

static int slow_clock(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  struct timespec pause = {0, 3000000};
  honest(k->p, a);
  nanosleep(&pause, NULL);
  return ATTN_OK;
}
CHEAT(slow_clock, "brings a clock that stands still", slow_clock);

/* Not a cheat: must pass, in 3 ms at least, whatever stands beside it. */
static int fair(void *plan, const struct attn_args *a, void *stream)
{
  struct kept *k = plan;
  struct timespec pause = {0, 3000000};
  honest(k->p, a);
  nanosleep(&pause, NULL);
  return ATTN_OK;
}
CHEAT(fair, "does what it is asked, in 3 ms at least", fair);
