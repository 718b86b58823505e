/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths.c - what is plotted over the sequence length: pure functions of a row.
 */
#include "config.h"

#include <math.h>

#include "reports/format.h"
#include "reports/lengths.h"

/* Bytes are what counts. */
static bool is_of_bytes(const struct report_row *row)
{
  return row->p.op == ATTN_DECODE || row->p.op == ATTN_ROPE;
}

static bool is_of_flops(const struct report_row *row)
{
  return !is_of_bytes(row);
}

static bool is_attention(const struct report_row *row)
{
  return row->p.op != ATTN_ROPE;
}

static bool is_any(const struct report_row *row)
{
  return true;
}

/* rate at the median, and at the ends of the time's interval */
static void rate(const struct report_row *row, double at_median, double v[3])
{
  v[0] = v[1] = v[2] = NAN;
  if (!report_timed(row))
    return;
  v[0] = at_median;
  v[1] = at_median * row->median_s / row->ci_hi_s;
  v[2] = at_median * row->median_s / row->ci_lo_s;
}

/* ---- throughput and bandwidth --------------------------------------------------------------- */

static void throughput(const struct report_view *view, const struct report_row *row, double v[3])
{
  rate(row, row->tflops, v);
}

/* The measured product is of bf16 on a GPU and of fp32 on the host: no ceiling for fp32 there. */
static bool matmul_ceiling(const struct report_view *view, const struct report_row *row,
                           struct reference_line *line)
{
  bool gpu = row->p.dtype == ATTN_F32 && view->cuda;
  line->y = view->matmul_tflops;
  snprintf(line->label, sizeof line->label, "measured matrix product");
  return !gpu && isfinite(line->y);
}

static struct text three_digits(double x)
{
  return format_number(x, 3);
}

const struct length_plot plot_throughput = {.ylabel = "TFLOP/s",
                                            .ylabel_small = "GFLOP/s",
                                            .axis = AXIS_LINEAR,
                                            .wants = is_of_flops,
                                            .value = throughput,
                                            .reference = matmul_ceiling,
                                            .format = three_digits};

static void bandwidth(const struct report_view *view, const struct report_row *row, double v[3])
{
  rate(row, row->gbps, v);
}

/* Decoding reads; rotation writes what it has read. */
static bool memory_ceiling(const struct report_view *view, const struct report_row *row,
                           struct reference_line *line)
{
  bool reads = row->p.op == ATTN_DECODE;
  line->y = reads ? view->read_gbps : view->copy_gbps;
  snprintf(line->label, sizeof line->label, reads ? "measured read" : "measured copy");
  return isfinite(line->y);
}

const struct length_plot plot_bandwidth = {.ylabel = "GB/s",
                                           .axis = AXIS_LINEAR,
                                           .wants = is_of_bytes,
                                           .value = bandwidth,
                                           .reference = memory_ceiling,
                                           .format = three_digits};

/* ---- relative speed ------------------------------------------------------------------------- */

/* The widest ratio that both intervals allow. */
static void relative(const struct report_view *view, const struct report_row *row, double v[3])
{
  const struct report_row *base = report_timed(row) ? report_base(view, row) : NULL;
  v[0] = v[1] = v[2] = NAN;
  if (!base || base == row)
    return;
  v[0] = base->median_s / row->median_s;
  v[1] = base->ci_lo_s / row->ci_hi_s;
  v[2] = base->ci_hi_s / row->ci_lo_s;
}

static bool base_line(const struct report_view *view, const struct report_row *row,
                      struct reference_line *line)
{
  line->y = 1;
  snprintf(line->label, sizeof line->label, "%.60s", view->base ? view->base : "");
  return view->base != NULL;
}

const struct length_plot plot_relative = {.ylabel = "speed relative to",
                                          .over_base = true,
                                          .axis = AXIS_RATIO,
                                          .wants = is_any,
                                          .value = relative,
                                          .reference = base_line,
                                          .format = three_digits};

/* ---- traffic -------------------------------------------------------------------------------- */

static double alone(double x, double v[3])
{
  v[1] = v[2] = NAN;
  return v[0] = x;
}

static void traffic(const struct report_view *view, const struct report_row *row, double v[3])
{
  alone(row->status == STATUS_PASS ? row->moved_bytes : NAN, v);
}

static double compulsory(const struct report_row *row)
{
  return row->compulsory_bytes;
}

const struct length_plot plot_traffic = {.ylabel = "HBM bytes read and written",
                                         .axis = AXIS_BYTES,
                                         .key_inside = true,
                                         .wants = is_any,
                                         .value = traffic,
                                         .baseline = compulsory,
                                         .baseline_name = "compulsory",
                                         .format = format_bytes};

static void amplification(const struct report_view *view, const struct report_row *row, double v[3])
{
  alone(row->status == STATUS_PASS ? row->moved_bytes / row->compulsory_bytes : NAN, v);
}

static bool one_line(const struct report_view *view, const struct report_row *row,
                     struct reference_line *line)
{
  line->y = 1;
  snprintf(line->label, sizeof line->label, "compulsory");
  return true;
}

const struct length_plot plot_amplification = {.ylabel = "times compulsory bytes",
                                               .axis = AXIS_RATIO,
                                               .wants = is_any,
                                               .value = amplification,
                                               .reference = one_line,
                                               .format = three_digits};

/* ---- memory --------------------------------------------------------------------------------- */

static void peak(const struct report_view *view, const struct report_row *row, double v[3])
{
  alone(row->status == STATUS_PASS ? row->peak_bytes : NAN, v);
}

static double workspace(const struct report_row *row)
{
  return row->status == STATUS_PASS && row->workspace_bytes > 0 ? row->workspace_bytes : NAN;
}

static double wanted(const struct report_row *row)
{
  return row->peak_bytes > row->workspace_bytes ? row->peak_bytes
         : row->workspace_bytes > 0             ? row->workspace_bytes
                                                : NAN;
}

static bool device_memory(const struct report_view *view, const struct report_row *row,
                          struct reference_line *line)
{
  line->y = view->memory_bytes;
  snprintf(line->label, sizeof line->label, "device memory");
  return view->cuda && isfinite(line->y);
}

const struct length_plot plot_memory = {.ylabel = "device memory",
                                        .axis = AXIS_BINARY,
                                        .fits_only = true,
                                        .lanes_above = true,
                                        .wants = is_attention,
                                        .value = peak,
                                        .thin = workspace,
                                        .thin_name = "workspace alone",
                                        .refused = wanted,
                                        .reference = device_memory,
                                        .format = format_binary};
