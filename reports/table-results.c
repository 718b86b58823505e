/* SPDX-License-Identifier: Apache-2.0
 *
 * table-results.c - every row: short for people, complete in CSV.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/format.h"
#include "reports/tables.h"

enum {
  FILE_LABEL,
  DEVICE,
  KIND,
  PROBLEM,
  IMPL,
  STATUS,
  REASON,
  STATE,
  CACHE,
  MODE,
  MEDIAN,
  INTERVAL,
  CI_LO,
  CI_HI,
  TFLOPS,
  OF_MATMUL,
  GBPS,
  OF_COPY,
  MOVED,
  COMPULSORY,
  TIMES,
  WORKSPACE,
  PEAK,
  RATIO,
  LSE_RATIO,
  COLUMNS
};

static const struct table_column columns[COLUMNS] = {
    [FILE_LABEL] = {NULL, "file", 'l'},
    [DEVICE] = {NULL, "device", 'l'},
    [KIND] = {NULL, "kind", 'l'},
    [PROBLEM] = {NULL, "problem", 'l'},
    [IMPL] = {"Implementation", "impl", 'l'},
    [STATUS] = {"Status", "status", 'l'},
    [REASON] = {NULL, "reason", 'l'},
    [STATE] = {"Cache, mode", NULL, 'l'},
    [CACHE] = {NULL, "cache", 'l'},
    [MODE] = {NULL, "mode", 'l'},
    [MEDIAN] = {"Median time", "median_s", 'r'},
    [INTERVAL] = {"95 % interval", NULL, 'r'},
    [CI_LO] = {NULL, "ci_lo_s", 'r'},
    [CI_HI] = {NULL, "ci_hi_s", 'r'},
    [TFLOPS] = {"TFLOP/s", "tflops", 'r'},
    [OF_MATMUL] = {"Of matmul", "of_matmul", 'r'},
    [GBPS] = {NULL, "gbps", 'r'},
    [OF_COPY] = {NULL, "of_copy", 'r'},
    [MOVED] = {"HBM bytes", "moved_bytes", 'r'},
    [COMPULSORY] = {NULL, "compulsory_bytes", 'r'},
    [TIMES] = {"× compulsory", NULL, 'r'},
    [WORKSPACE] = {"Workspace", "workspace_bytes", 'r'},
    [PEAK] = {NULL, "peak_bytes", 'r'},
    [RATIO] = {"Error / bound", "bound_ratio", 'r'},
    [LSE_RATIO] = {"LSE / bound", "lse_bound_ratio", 'r'},
};

static void add_names(const struct report *r, struct table *t, const struct report_row *row)
{
  const struct report_device *d = &r->devices[row->device];
  char state[64];
  snprintf(state, sizeof state, "%s%s%s", row->cache, *row->mode ? ", " : "", row->mode);
  table_text(t, FILE_LABEL, r->files[row->file].label);
  table_text(t, DEVICE, d->name);
  table_text(t, KIND, d->kind);
  table_text(t, PROBLEM, row->problem);
  table_text(t, IMPL, row->impl);
  table_text(t, STATUS, record_status_name(row->status));
  table_text(t, REASON, row->reason);
  table_text(t, STATE, state);
  table_text(t, CACHE, row->cache);
  table_text(t, MODE, row->mode);
}

/* Half the interval's width over the median. */
static void add_interval(struct table *t, const struct report_row *row)
{
  double half = (row->ci_hi_s - row->ci_lo_s) / 2 / row->median_s;
  char text[96] = "";
  if (isfinite(half))
    snprintf(text, sizeof text, "± %s", format_percent(half).s);
  table_text(t, INTERVAL, text);
}

static void add_row(const struct report *r, struct table *t, const struct report_row *row)
{
  double times = row->moved_bytes / row->compulsory_bytes;
  table_row(t);
  add_names(r, t, row);
  table_number(t, MEDIAN, row->median_s, format_seconds(row->median_s).s);
  add_interval(t, row);
  table_number(t, CI_LO, row->ci_lo_s, "");
  table_number(t, CI_HI, row->ci_hi_s, "");
  table_number(t, TFLOPS, row->tflops, format_number(row->tflops, 4).s);
  table_number(t, OF_MATMUL, row->of_matmul, format_percent(row->of_matmul).s);
  table_number(t, GBPS, row->gbps, "");
  table_number(t, OF_COPY, row->of_copy, "");
  table_number(t, MOVED, row->moved_bytes, format_bytes(row->moved_bytes).s);
  table_number(t, COMPULSORY, row->compulsory_bytes, "");
  table_number(t, TIMES, times, format_number(times, 3).s);
  table_number(t, WORKSPACE, row->workspace_bytes, format_binary(row->workspace_bytes).s);
  table_number(t, PEAK, row->peak_bytes, "");
  table_number(t, RATIO, row->bound_ratio, format_number(row->bound_ratio, 3).s);
  table_number(t, LSE_RATIO, row->lse_bound_ratio, format_number(row->lse_bound_ratio, 3).s);
}

static bool seen_before(const struct report *r, int i)
{
  for (int k = 0; k < i; k++)
    if (r->rows[k].device == r->rows[i].device && !strcmp(r->rows[k].problem, r->rows[i].problem))
      return true;
  return false;
}

struct table *table_results(const struct report *r)
{
  struct table *t = table_new(
      "results", "Results", "Every case. Missing is not measured or not known.", columns, COLUMNS);
  for (int d = 0; t && d < r->ndevices; d++)
    for (int i = 0; i < r->nrows; i++) {
      char section[ATTN_PROBLEM_TEXT + 256], title[256];
      if (r->rows[i].device != d || seen_before(r, i))
        continue;
      report_device_title(r, &r->devices[d], title, sizeof title);
      snprintf(section, sizeof section, "%s%s%s", r->ndevices > 1 ? title : "",
               r->ndevices > 1 ? " · " : "", r->rows[i].problem);
      table_section(t, section);
      for (int k = i; k < r->nrows; k++)
        if (r->rows[k].device == d && !strcmp(r->rows[k].problem, r->rows[i].problem))
          add_row(r, t, &r->rows[k]);
    }
  return t;
}
