/* SPDX-License-Identifier: Apache-2.0
 *
 * spent: the parts of wall time add up to the whole, whatever is entered, moved or left; overhead
 * is what was neither kernels nor checks nor required pauses.
 */
#include "config.h"

#include <math.h>

#include "harness/base/clock.h"
#include "harness/base/spent.h"
#include "tests/tap.h"

int main(void)
{
  struct spent t = {.since = 0};
  char line[400];
  ok(isnan(spent_overhead(&t)), "nothing spent: no overhead, not 0");
  ok(spent_enter(NULL, SPENT_CHECKS) == SPENT_CHECKS, "nobody counts: nothing happens");

  double begin = clock_now();
  spent_enter(&t, SPENT_KERNELS);
  clock_pause(0.02);
  ok(spent_enter(&t, SPENT_CHECKS) == SPENT_KERNELS, "entering says what ended");
  clock_pause(0.01);
  spent_enter(&t, SPENT_TIMING);
  clock_pause(0.01);
  spent_enter(&t, SPENT_TIMING);
  spent_move(&t, SPENT_PAUSES, 0.004);
  spent_enter(&t, SPENT_REST);
  double wall = clock_now() - begin;
  ok(fabs(spent_total(&t) - wall) < 2e-3 + 0.01 * wall, "the parts add up: %g of %g s",
     spent_total(&t), wall);
  ok(t.s[SPENT_KERNELS] >= 0.02 && t.s[SPENT_CHECKS] >= 0.01 && t.s[SPENT_PAUSES] == 0.004 &&
         t.s[SPENT_TIMING] >= 0.0059,
     "each got its own");

  t = (struct spent){.s = {[SPENT_KERNELS] = 40,
                           [SPENT_CHECKS] = 30,
                           [SPENT_PAUSES] = 20,
                           [SPENT_COUNTERS] = 7,
                           [SPENT_REST] = 3}};
  ok(fabs(spent_overhead(&t) - 0.1) < 1e-12, "overhead is 10 of 100");
  spent_print(&t, line, sizeof line);
  is_str(line,
         "wall 100.0 s: kernels 40.0 %, checks 30.0 %, pauses 20.0 %; overhead 10.0 % (counters "
         "7.0 %, rest 3.0 %)",
         "the line says so");
  return done_testing();
}
