/* SPDX-License-Identifier: Apache-2.0
 *
 * table-summary.c - verdicts counted, and every reason for what is not a pass.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reports/format.h"
#include "reports/tables.h"

static void count_cell(struct table *t, int column, int n)
{
  char text[32];
  snprintf(text, sizeof text, "%d", n);
  table_number(t, column, n, text);
}

/* One row: device, implementation (NULL: all), a count for each status. */
static void add_counts(const struct report *r, struct table *t, int device, const char *impl)
{
  int counts[REPORT_STATUSES] = {0}, sum = 0;
  char title[256];
  for (int i = 0; i < r->nrows; i++)
    if ((device < 0 || r->rows[i].device == device) && (!impl || !strcmp(r->rows[i].impl, impl))) {
      counts[r->rows[i].status]++;
      sum++;
    }
  if (!sum)
    return;
  table_row(t);
  if (device >= 0) {
    report_device_title(r, &r->devices[device], title, sizeof title);
    table_text(t, 0, title);
  }
  table_text(t, 1, impl ? impl : "all");
  for (int s = 0; s < REPORT_STATUSES; s++)
    count_cell(t, 2 + s, counts[s]);
  count_cell(t, 2 + REPORT_STATUSES, sum);
}

static bool impl_seen(const struct report *r, int i)
{
  for (int k = 0; k < i; k++)
    if (r->rows[k].device == r->rows[i].device && !strcmp(r->rows[k].impl, r->rows[i].impl))
      return true;
  return false;
}

struct table *table_summary(const struct report *r)
{
  static const struct table_column columns[] = {
      {"Device", "device", 'l'},   {"Implementation", "impl", 'l'},
      {"pass", "pass", 'r'},       {"fail", "fail", 'r'},
      {"invalid", "invalid", 'r'}, {"unsupported", "unsupported", 'r'},
      {"skip", "skip", 'r'},       {"oom", "oom", 'r'},
      {"timeout", "timeout", 'r'}, {"crash", "crash", 'r'},
      {"cases", "cases", 'r'}};
  struct table *t = table_new("summary", "Verdicts", "Cases by implementation and status.", columns,
                              sizeof columns / sizeof *columns);
  for (int d = 0; t && d < r->ndevices; d++)
    for (int i = 0; i < r->nrows; i++)
      if (r->rows[i].device == d && !impl_seen(r, i))
        add_counts(r, t, d, r->rows[i].impl);
  if (t)
    add_counts(r, t, -1, NULL);
  return t;
}

static bool same_reason(const struct report_row *a, const struct report_row *b)
{
  return a->status == b->status && a->device == b->device && !strcmp(a->impl, b->impl) &&
         !strcmp(a->reason, b->reason);
}

static bool reason_seen(const struct report *r, int i)
{
  for (int k = 0; k < i; k++)
    if (same_reason(&r->rows[k], &r->rows[i]))
      return true;
  return false;
}

struct table *table_reasons(const struct report *r)
{
  static const struct table_column columns[] = {{"Status", "status", 'l'},
                                                {"Implementation", "impl", 'l'},
                                                {"Reason", "reason", 'w'},
                                                {"Cases", "cases", 'r'},
                                                {"First of them", "problem", 'w'}};
  struct table *t =
      table_new("reasons", "Not passed, and why", "Every reason for a case that is not a pass.",
                columns, sizeof columns / sizeof *columns);
  for (int s = STATUS_FAIL; t && s < REPORT_STATUSES; s++)
    for (int i = 0; i < r->nrows; i++) {
      const struct report_row *row = &r->rows[i];
      int n = 0;
      if ((int)row->status != s || reason_seen(r, i))
        continue;
      for (int k = i; k < r->nrows; k++)
        n += same_reason(row, &r->rows[k]);
      table_row(t);
      table_text(t, 0, record_status_name(row->status));
      table_text(t, 1, row->impl);
      table_text(t, 2, *row->reason ? row->reason : "no reason given");
      count_cell(t, 3, n);
      table_text(t, 4, row->problem);
    }
  return t;
}
