/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - the host's monotonic clock, and a pause.
 */
#ifndef HARNESS_CLOCK_H
#define HARNESS_CLOCK_H

#include <time.h>

static inline double clock_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void clock_pause(double seconds)
{
  if (!(seconds > 0))
    return;
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&t, &t))
    ;
}

#endif
