/* SPDX-License-Identifier: Apache-2.0
 *
 * explain-json.c - the explanation as JSON lines. What is not known is null.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/explain/explain.h"
#include "harness/record/fields.h"

static json_t *count(double x)
{
  return isfinite(x) ? json_integer((json_int_t)x) : json_null();
}

static json_t *machine_json(const struct machine_limits *m)
{
  return json_pack("{s:s,s:s,s:s,s:o,s:i,s:o,s:o,s:o,s:o,s:o}", "kind",
                   m->kind == ATTN_CUDA ? "cuda" : "cpu", "name", m->name, "basis", m->basis, "sm",
                   m->sm ? json_integer(m->sm) : json_null(), "multiprocessors", m->multiprocessors,
                   "clock_hz", field_real(m->clock_hz), "matmul_tflops",
                   field_real(m->matmul_tflops), "read_gbps", field_real(m->read_gbps), "copy_gbps",
                   field_real(m->copy_gbps), "exp_per_clock", field_real(m->exp_per_clock));
}

static json_t *bound_json(const struct bound *b)
{
  return json_pack(
      "{s:o,s:o,s:o,s:o,s:s?}", "matrix_units_s", field_real(b->s[LIMIT_MATMUL]), "exponentials_s",
      field_real(b->s[LIMIT_EXP]), "memory_s", field_real(b->s[LIMIT_MEMORY]), "shared_memory_s",
      field_real(b->s[LIMIT_SHARED]), "bound", b->by < 0 ? NULL : explain_limit_name(b->by));
}

static json_t *kernel_json(const struct kernel_info *k, const struct attn_device *d)
{
  struct occupancy o;
  json_t *j =
      json_pack("{s:s,s:i,s:o,s:o,s:i,s:i,s:i}", "name", k->name, "calls", k->calls, "blocks",
                k->blocks > 0 ? count(k->blocks) : json_null(), "threads",
                k->threads ? json_integer(k->threads) : json_null(), "registers", k->registers,
                "shared_bytes", k->shared_bytes, "local_bytes", k->local_bytes);
  if (!explain_occupancy(d->sm, d->multiprocessors, k->blocks, k->threads, k->registers,
                         k->shared_bytes, &o))
    json_object_set_new(j, "occupancy",
                        json_pack("{s:i,s:s,s:f,s:o}", "blocks", o.blocks, "limit",
                                  explain_occupancy_limit_name(o.by), "warps", o.warps, "waves",
                                  field_real(o.waves)));
  else
    json_object_set_new(j, "occupancy", json_null());
  return j;
}

static json_t *run_json(const struct explained *x, const struct record *r, const struct bound *b)
{
  const struct counters *c = &r->counters;
  json_t *kernels = json_array();
  for (int i = 0; i < r->nkernels; i++)
    json_array_append_new(kernels, kernel_json(&r->kernels[i], &x->device));
  bool timed = r->status == STATUS_PASS && r->timed;
  return json_pack(
      "{s:s,s:s,s:s?,s:o,s:o,s:o,s:o,s:i,s:o,s:s?,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "impl",
      r->impl, "status", record_status_name(r->status), "reason", r->reason[0] ? r->reason : NULL,
      "variant", explain_variant_json(&x->problem, r, b), "median_s",
      field_real(timed ? r->median_s : NAN), "ci_lo_s", field_real(timed ? r->ci_lo_s : NAN),
      "ci_hi_s", field_real(timed ? r->ci_hi_s : NAN), "n", timed ? r->n : 0, "of_bound",
      field_real(explain_share(b, b->by, r)), "source", c->source, "read_bytes",
      count(c->dram_read_bytes), "write_bytes", count(c->dram_write_bytes + c->residue_bytes),
      "l2_bytes", count(c->l2_bytes), "tensor_flops", count(c->tensor_flops), "model_bytes",
      count(r->model_bytes), "workspace_bytes", count(r->workspace_bytes), "sram_bytes",
      count((double)x->device.sram_bytes), "sram_peak_bytes", count(c->sram_peak_bytes), "kernels",
      kernels);
}

/* What each implementation would choose. */
static json_t *choices_json(const struct explained *x, const struct machine_limits *m)
{
  json_t *all = json_array();
  for (int i = 0; i < x->chosen; i++) {
    const struct record *r = &x->run[i];
    struct bound b = explain_bound_of(&x->problem, m, &r->variant);
    json_array_append_new(all, json_pack("{s:s,s:o}", "impl", r->impl, "variant",
                                         explain_variant_json(&x->problem, r, &b)));
  }
  return all;
}

static void print_line(const struct explained *x, const struct machine_limits *m,
                       const struct record *r, FILE *out)
{
  char problem[ATTN_PROBLEM_TEXT];
  struct work w = explain_work(&x->problem);
  struct bound b =
      r ? explain_bound_of(&x->problem, m, &r->variant) : explain_bound(&x->problem, m);
  attn_problem_print(&x->problem, problem, sizeof problem);
  json_t *j =
      json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "problem", problem, "flops",
                count(w.flops), "exponentials", count(w.exps), "compulsory_read_bytes",
                count(w.read_bytes), "compulsory_write_bytes", count(w.write_bytes), "machine",
                machine_json(m), "modelled", bound_json(&b), "choices",
                r ? json_null() : choices_json(x, m), "run", r ? run_json(x, r, &b) : json_null());
  char *text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  fprintf(out, "%s\n", text ? text : "null");
  free(text);
  json_decref(j);
}

void explain_print_json(const struct explained *x, const struct machine_limits *given, FILE *out)
{
  struct machine_limits m;
  for (int i = 0; i < x->n; i++) {
    explain_machine(x, &x->run[i], &m);
    print_line(x, &m, &x->run[i], out);
  }
  if (x->n)
    return;
  if (given)
    m = *given;
  else
    explain_machine_of_all(x, &m);
  print_line(x, &m, NULL, out);
}
