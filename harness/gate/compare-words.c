/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-words.c - a comparison in words.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "harness/gate/compare.h"
#include "reports/format.h"

const char *quantity_name(enum quantity q)
{
  static const char *const names[] = {"time", "bytes", "workspace", "error"};
  return names[q];
}

const char *verdict_word(enum quantity q, enum verdict v)
{
  static const char *const better[] = {"faster", "fewer", "smaller", "smaller"};
  static const char *const worse[] = {"slower", "more", "larger", "larger"};
  static const char *const others[] = {"-", "same", NULL, NULL, "ambiguous"};
  return v == VERDICT_BETTER ? better[q] : v == VERDICT_WORSE ? worse[q] : others[v];
}

static struct text value_text(enum quantity q, double x)
{
  return q == QUANTITY_TIME    ? format_seconds(x)
         : q == QUANTITY_ERROR ? format_number(x, 3)
                               : format_bytes(x);
}

/* "+2.04": per cent, with enough digits for a change of a thousandth. */
static struct text change_text(double ratio)
{
  struct text t;
  double by = 100 * (ratio - 1);
  snprintf(t.s, sizeof t.s, "%+.*f", fabs(by) < 10 ? 2 : fabs(by) < 100 ? 1 : 0, by);
  return t;
}

void finding_text(enum quantity q, const struct finding *f, char *buf, size_t len)
{
  char more[160] = "", sees[48] = "";
  if (isfinite(f->lo))
    snprintf(more, sizeof more, ", %s to %s", change_text(f->lo).s, change_text(f->hi).s);
  if (isfinite(f->mde))
    snprintf(sees, sizeof sees, "; sees %.2g %%", 100 * f->mde);
  snprintf(buf, len, "%s -> %s (%s %%%s%s)", value_text(q, f->base).s, value_text(q, f->now).s,
           isfinite(f->ratio) ? change_text(f->ratio).s : "new", more, sees);
}

static void status_text(const struct cell *c, char *buf, size_t len)
{
  snprintf(buf, len, "%s%s%s%s", record_status_name(c->status), c->reason[0] ? " (" : "", c->reason,
           c->reason[0] ? ")" : "");
}

void pairing_text(const struct compared *c, char *buf, size_t len)
{
  char was[320] = "", is[320] = "";
  if (c->base)
    status_text(c->base, was, sizeof was);
  if (c->now)
    status_text(c->now, is, sizeof is);
  switch (c->state) {
  case PAIR_NEW: snprintf(buf, len, "new: %s", is); break;
  case PAIR_MISSING: snprintf(buf, len, "missing: was %s", was); break;
  case PAIR_CHANGED: snprintf(buf, len, "verdict changed: %s -> %s", was, is); break;
  default: snprintf(buf, len, "%s", "");
  }
}

/* "time: 58 same, 1 slower" for the verdicts that there are. */
static void count_verdicts(const struct comparison *c, enum quantity q, FILE *out)
{
  const char *separator = ": ";
  int any = c->lopsided[q];
  for (int v = VERDICT_SAME; v < VERDICTS; v++)
    any += c->verdicts[q][v];
  if (!any)
    return;
  fprintf(out, "%s", quantity_name(q));
  for (int v = VERDICT_SAME; v < VERDICTS; v++) {
    if (!c->verdicts[q][v])
      continue;
    fprintf(out, "%s%d %s", separator, c->verdicts[q][v], verdict_word(q, v));
    separator = ", ";
  }
  if (c->lopsided[q])
    fprintf(out, "%s%d not compared: not on both sides, or by other counters", separator,
            c->lopsided[q]);
  fprintf(out, "\n");
}

static void count_pairs(const struct comparison *c, FILE *out)
{
  static const char *const words[] = {"compared", "with a changed verdict", "new", "missing"};
  const char *separator = "cells: ";
  for (int s = 0; s < PAIRINGS; s++) {
    if (!c->states[s] && s != PAIR_BOTH)
      continue;
    fprintf(out, "%s%d %s", separator, c->states[s], words[s]);
    separator = ", ";
  }
  fprintf(out, "%s", c->failing ? "" : "\n");
  if (c->failing)
    fprintf(out, "; %d newly failing\n", c->failing);
}

void compare_summary(const struct comparison *c, FILE *out)
{
  count_pairs(c, out);
  for (int q = 0; q < QUANTITIES; q++)
    count_verdicts(c, q, out);
  if (c->warning[0])
    fprintf(out, "compared all the same: %s\n", c->warning);
  if (c->by_sample)
    fprintf(out,
            "one process a side: the unit is the sample, so that without a noise floor a "
            "change of time is ambiguous at most; use --processes %zu\n",
            c->enough);
  else if (c->judged && c->processes < c->enough)
    fprintf(out,
            "%zu processes a side: a lone change among %d cells cannot be significant; use "
            "--processes %zu\n",
            c->processes, c->judged, c->enough);
}
