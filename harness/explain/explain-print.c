/* SPDX-License-Identifier: Apache-2.0
 *
 * explain-print.c - the explanation as text.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "harness/explain/explain.h"
#include "harness/explain/text.h"

static void print_problem(FILE *out, const struct attn_problem *p)
{
  char text[ATTN_PROBLEM_TEXT];
  struct work w = explain_work(p);
  double bytes = w.read_bytes + w.write_bytes;
  attn_problem_print(p, text, sizeof text);
  fprintf(out, "problem   %s\n", text);
  fprintf(out, "work      %s in products, %s%s\n", amount(w.flops, "FLOP").s,
          amount(w.exps, " exponentials").s, p->softcap > 0 ? " and tangents" : "");
  fprintf(out, "          %s compulsory: %s read, %s written; %s FLOP a byte\n",
          amount(bytes, "B").s, amount(w.read_bytes, "B").s, amount(w.write_bytes, "B").s,
          number("%.4g", bytes > 0 ? w.flops / bytes : NAN).s);
}

static void print_machine(FILE *out, const struct machine_limits *m)
{
  bool gpu = m->kind == ATTN_CUDA;
  fprintf(out, "machine   %s, %d %s", m->name, m->multiprocessors,
          gpu ? "multiprocessors" : "cores");
  if (m->clock_hz > 0)
    fprintf(out, " at %.0f MHz", m->clock_hz / 1e6);
  fprintf(out, "\n          products %s TFLOP/s, read %s GB/s, copy %s GB/s: %s\n",
          number("%.4g", m->matmul_tflops).s, number("%.4g", m->read_gbps).s,
          number("%.4g", m->copy_gbps).s, m->basis);
  if (m->exp_per_clock > 0)
    fprintf(out, "          %g exponentials a clock and multiprocessor\n", m->exp_per_clock);
}

static void print_bound(FILE *out, const struct attn_problem *p, const struct bound *b,
                        const struct machine_limits *m)
{
  const char *heading = "modelled  ";
  for (int l = 0; l < LIMIT_SHARED; l++, heading = "          ") {
    const char *why = "";
    if (l == LIMIT_EXP && m->kind == ATTN_CPU)
      why = "  a core has no unit of its own";
    if (l == LIMIT_MATMUL && m->kind == ATTN_CUDA && p->dtype == ATTN_F32)
      why = "  the ceiling is that of 16-bit operands";
    fprintf(out, "%s%-13s %10s%s\n", heading, explain_limit_name(l), duration(b->s[l]).s,
            l == b->by ? "  the bound" : why);
  }
}

static void print_shares(FILE *out, const struct bound *b, const struct record *r)
{
  const char *separator = "";
  if (b->by >= 0)
    fprintf(out, "  reached   %.1f %% of the bound (", 100 * explain_share(b, b->by, r));
  else
    fprintf(out, "  reached   no known bound (");
  for (int l = 0; l < LIMITS; l++) {
    if (!(b->s[l] > 0))
      continue;
    fprintf(out, "%s%s %.1f %%", separator, explain_limit_name(l), 100 * explain_share(b, l, r));
    separator = ", ";
  }
  fprintf(out, "%s)\n", *separator ? "" : "none");
}

static void print_kernel(FILE *out, const struct kernel_info *k, const struct attn_device *d)
{
  struct occupancy o;
  fprintf(out, "  kernel    %s\n", k->name);
  fprintf(out, "            %d call%s", k->calls, k->calls == 1 ? "" : "s");
  if (k->blocks > 0 && k->threads > 0)
    fprintf(out, ", %.0f blocks of %d threads", k->blocks, k->threads);
  fprintf(out, ", %d registers, %d bytes of shared and %d of local memory\n", k->registers,
          k->shared_bytes, k->local_bytes);
  if (explain_occupancy(d->sm, d->multiprocessors, k->blocks, k->threads, k->registers,
                        k->shared_bytes, &o))
    return;
  fprintf(out,
          "            %d block%s a multiprocessor (limit: %s), %.1f %% of its warps, %s waves\n",
          o.blocks, o.blocks == 1 ? "" : "s", explain_occupancy_limit_name(o.by), 100 * o.warps,
          number("%.2f", o.waves).s);
}

static void print_bytes(FILE *out, const struct record *r)
{
  const struct counters *c = &r->counters;
  double written = c->dram_write_bytes + c->residue_bytes, moved = c->dram_read_bytes + written;
  if (!c->source) {
    fprintf(out, "  bytes     not counted%s%s\n", c->reason[0] ? ": " : "", c->reason);
    return;
  }
  fprintf(out, "  bytes     %s read, %s written (%s): %s of its model, %s of compulsory\n",
          amount(c->dram_read_bytes, "B").s, amount(written, "B").s, c->source,
          number("%.3f", moved / r->model_bytes).s, number("%.3f", moved / r->compulsory_bytes).s);
  if (isfinite(c->l2_bytes))
    fprintf(out, "            %s between L2 and multiprocessors\n", amount(c->l2_bytes, "B").s);
}

static void print_run(FILE *out, const struct explained *x, const struct record *r)
{
  struct machine_limits m;
  char spread[32];
  explain_machine(x, r, &m);
  struct bound b = explain_bound_of(&x->problem, &m, &r->variant);
  fprintf(out, "\n%-22s %s", r->impl, record_status_name(r->status));
  if (r->status == STATUS_PASS)
    fprintf(out, "  %s +- %s, %d sample%s", duration(r->median_s).s,
            show_spread(spread, sizeof spread, r), r->n, r->n == 1 ? "" : "s");
  fprintf(out, "\n");
  if (r->reason[0])
    fprintf(out, "  %s\n", r->reason);
  if (r->status != STATUS_PASS)
    return;
  if (isfinite(r->graph_s))
    fprintf(out, "  graph     %s among many in a CUDA graph\n", duration(r->graph_s).s);
  print_shares(out, &b, r);
  explain_print_variant(&x->problem, r, &b, out);
  if (m.clock_hz > 0)
    fprintf(out, "  clock     %.0f MHz inside of the run\n", m.clock_hz / 1e6);
  if (m.kind == ATTN_CUDA && !r->nkernels)
    fprintf(out, "  kernels   not traced\n");
  for (int i = 0; i < r->nkernels; i++)
    print_kernel(out, &r->kernels[i], &x->device);
  if (isfinite(r->counters.sram_peak_bytes))
    fprintf(out, "  SRAM      %s of %s at most, on each of %d cores\n",
            amount(r->counters.sram_peak_bytes, "B").s, amount((double)x->device.sram_bytes, "B").s,
            x->device.multiprocessors);
  print_bytes(out, r);
  if (isfinite(r->counters.tensor_flops))
    fprintf(out, "  executed  %s on matrix units: %s of the problem's\n",
            amount(r->counters.tensor_flops, "FLOP").s,
            number("%.3f", r->counters.tensor_flops / explain_work(&x->problem).flops).s);
  fprintf(out, "  scratch   %s\n", amount(r->workspace_bytes, "B").s);
}

void explain_print(const struct explained *x, const struct machine_limits *given, FILE *out)
{
  struct machine_limits m;
  if (given)
    m = *given;
  else
    explain_machine_of_all(x, &m);
  struct bound b = explain_bound(&x->problem, &m);
  print_problem(out, &x->problem);
  print_machine(out, &m);
  print_bound(out, &x->problem, &b, &m);
  for (int i = 0; i < x->n; i++)
    print_run(out, x, &x->run[i]);
  if (!x->n)
    fprintf(out, "\nnothing was run\n");
  for (int i = 0; i < x->chosen; i++) {
    b = explain_bound_of(&x->problem, &m, &x->run[i].variant);
    fprintf(out, "\n%s\n", x->run[i].impl);
    explain_print_variant(&x->problem, &x->run[i], &b, out);
  }
}
