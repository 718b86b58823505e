/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - seconds on the monotonic clock.
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

#endif
