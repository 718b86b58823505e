/* SPDX-License-Identifier: Apache-2.0
 *
 * show.c - records as lines on the terminal.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "harness/run/run.h"

const char *show_seconds(char *buf, size_t n, double s)
{
  if (!(s > 0))
    snprintf(buf, n, "-");
  else if (s < 1e-3)
    snprintf(buf, n, "%.2f us", s * 1e6);
  else if (s < 1)
    snprintf(buf, n, "%.3f ms", s * 1e3);
  else
    snprintf(buf, n, "%.3f s", s);
  return buf;
}

const char *show_number(char *buf, size_t n, const char *format, double x)
{
  if (isfinite(x))
    snprintf(buf, n, format, x);
  else
    snprintf(buf, n, "-");
  return buf;
}

const char *show_spread(char *buf, size_t n, const struct record *r)
{
  double half = 50 * (r->ci_hi_s - r->ci_lo_s) / r->median_s;
  if (half < 0.005)
    snprintf(buf, n, "<0.01%%");
  else if (half > 100)
    snprintf(buf, n, ">100%%");
  else
    show_number(buf, n, "%.2f%%", half);
  return buf;
}

void show_heading(bool timed)
{
  if (timed)
    printf("%-11s %-22s %10s %7s %9s %8s %6s  %s\n", "status", "implementation", "time", "+-",
           "TFLOP/s", "bytes/c", "bound", "problem");
  else
    printf("%-11s %-22s %6s %6s %8s  %s\n", "status", "implementation", "bound", "lse", "rel.err",
           "problem");
}

void show_record(const struct record *r, bool timed)
{
  char problem[ATTN_PROBLEM_TEXT], a[32], b[32], c[32], d[32], e[32];
  double moved =
      r->counters.dram_read_bytes + r->counters.dram_write_bytes + r->counters.residue_bytes;
  const struct ref_verdict *v = &r->verdict;
  double ratio = r->verified ? v->bound_ratio : NAN;
  attn_problem_print(&r->problem, problem, sizeof problem);
  printf("%-11s %-22s ", record_status_name(r->status), r->impl);
  if (timed)
    printf("%10s %7s %9s %8s %6s  %s\n", show_seconds(a, sizeof a, r->median_s),
           show_spread(b, sizeof b, r), show_number(c, sizeof c, "%.4g", r->tflops),
           show_number(d, sizeof d, "%.3g", moved / r->compulsory_bytes),
           show_number(e, sizeof e, "%.3f", ratio), problem);
  else
    printf("%6s %6s %8s  %s\n", show_number(a, sizeof a, "%.3f", ratio),
           show_number(b, sizeof b, "%.3f", r->verified ? v->lse_bound_ratio : NAN),
           show_number(c, sizeof c, "%.1e", r->verified ? v->rel_fro : NAN), problem);
  if (r->reason[0])
    printf("            %s\n", r->reason);
  if (isfinite(r->graph_s))
    printf("            in a row: %s by events, %s by CUDA graph, %s by CUPTI's activity\n",
           show_seconds(a, sizeof a, r->row_s), show_seconds(b, sizeof b, r->graph_s),
           show_seconds(c, sizeof c, r->activity_s));
  fflush(stdout);
}
