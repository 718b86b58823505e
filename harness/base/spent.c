/* SPDX-License-Identifier: Apache-2.0
 *
 * spent.c - the purposes of wall time, summed.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/spent.h"

static const char *const names[SPENT_KINDS] = {
    "rest",     "kernels", "checks",   "pauses", "around timed runs",
    "counters", "inputs",  "ceilings", "start",  "lost"};

enum spent_on spent_enter(struct spent *t, enum spent_on next)
{
  double now = clock_now();
  if (!t)
    return next;
  enum spent_on before = t->now;
  if (t->since > 0)
    t->s[before] += now - t->since;
  t->now = next;
  t->since = now;
  return before;
}

void spent_move(struct spent *t, enum spent_on to, double seconds)
{
  if (!t || !(seconds > 0))
    return;
  t->s[t->now] -= seconds;
  t->s[to] += seconds;
}

double spent_total(const struct spent *t)
{
  double sum = 0;
  for (int i = 0; i < SPENT_KINDS; i++)
    sum += t->s[i];
  return sum;
}

static bool asked_for(int kind)
{
  return kind == SPENT_KERNELS || kind == SPENT_CHECKS || kind == SPENT_PAUSES;
}

double spent_overhead(const struct spent *t)
{
  double sum = 0, total = spent_total(t);
  for (int i = 0; i < SPENT_KINDS; i++)
    sum += asked_for(i) ? 0 : t->s[i];
  return total > 0 ? sum / total : NAN;
}

static void part(char *buf, size_t len, const char *before, int kind, const struct spent *t)
{
  size_t used = strlen(buf);
  snprintf(buf + used, len - used, "%s%s %.1f %%", before, names[kind],
           100 * t->s[kind] / spent_total(t));
}

void spent_print(const struct spent *t, char *buf, size_t len)
{
  const char *before = " (";
  snprintf(buf, len, "wall %.1f s: ", spent_total(t));
  part(buf, len, "", SPENT_KERNELS, t);
  part(buf, len, ", ", SPENT_CHECKS, t);
  part(buf, len, ", ", SPENT_PAUSES, t);
  size_t used = strlen(buf);
  snprintf(buf + used, len - used, "; overhead %.1f %%", 100 * spent_overhead(t));
  for (int i = SPENT_TIMING; i <= SPENT_KINDS; i++) {
    int kind = i == SPENT_KINDS ? SPENT_REST : i;
    if (t->s[kind] < 0.0005 * spent_total(t))
      continue;
    part(buf, len, before, kind, t);
    before = ", ";
  }
  used = strlen(buf);
  snprintf(buf + used, len - used, "%s", *before == ',' ? ")" : "");
}
