/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c - a record's life: unknown, filled in by the group, written as JSON.
 */
#include "config.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "harness/record/build.h"
#include "harness/record/fields.h"
#include "harness/record/record.h"

const char *record_status_name(enum record_status s)
{
  static const char *const names[] = {"pass", "fail", "invalid", "unsupported",
                                      "skip", "oom",  "timeout", "crash"};
  return names[s];
}

static struct device_state no_state(void)
{
  return (struct device_state){.sm_clock_hz = NAN,
                               .memory_clock_hz = NAN,
                               .power_w = NAN,
                               .power_limit_w = NAN,
                               .temperature_c = NAN,
                               .throttle = UINT64_MAX,
                               .ecc = -1,
                               .mig = -1};
}

void record_init(struct record *r)
{
  *r = (struct record){.status = STATUS_CRASH,
                       .distribution = "normal",
                       .err_vs_naive = NAN,
                       .rerun_bitwise = -1,
                       .guards_intact = -1,
                       .inputs_unchanged = -1,
                       .same_bits = -1,
                       .median_s = NAN,
                       .ci_lo_s = NAN,
                       .ci_hi_s = NAN,
                       .min_s = NAN,
                       .graph_s = NAN,
                       .row_s = NAN,
                       .activity_s = NAN,
                       .rest_s = NAN,
                       .sample_mhz = NAN,
                       .tflops = NAN,
                       .gbps = NAN,
                       .of_matmul = NAN,
                       .of_copy = NAN,
                       .counters = counters_unknown(),
                       .compulsory_bytes = NAN,
                       .model_bytes = NAN,
                       .workspace_bytes = NAN,
                       .peak_bytes = NAN,
                       .state = no_state(),
                       .properties = {-1, -1, ""}};
  memset(r->law, LAW_NONE, sizeof r->law);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put(json_t *o, const char *key, json_t *value)
{
  json_object_set_new(o, key, value);
}

static void put_real(json_t *o, const char *key, double x)
{
  put(o, key, field_real(x));
}

static void put_count(json_t *o, const char *key, double x)
{
  put(o, key, field_count(x));
}

static void put_text(json_t *o, const char *key, const char *text)
{
  put(o, key, text && *text ? json_string(text) : json_null());
}

static void put_known(json_t *o, const char *key, int tri)
{
  put(o, key, tri < 0 ? json_null() : json_boolean(tri));
}

static void put_check(json_t *o, const char *key, int tri)
{
  if (tri >= 0)
    put(o, key, json_string(tri ? "pass" : "fail"));
}

/* Observed, not judged. */
static json_t *properties_json(const struct record *r)
{
  const struct law_properties *x = &r->properties;
  json_t *o = json_object();
  put_known(o, "batch_invariant", x->batch_invariant);
  put_known(o, "nan_robust", x->nan_robust);
  put_text(o, "reduction", x->reduction);
  return o;
}

static json_t *rope_json(const struct ref_rope_drift *x)
{
  json_t *o = json_object();
  put_count(o, "position", x->position);
  put_real(o, "angle_max_rad", x->angle_max);
  put_real(o, "angle_rms_rad", x->angle_rms);
  put_real(o, "logit_rel", x->logit_rel);
  return o;
}

/* Laws that apply, or may, and were not tried: why. */
static json_t *left_out_json(const struct record *r)
{
  json_t *o = json_object();
  for (int i = 0; i < law_count(); i++)
    if (r->law[i] == LAW_UNTRIED)
      put_text(o, law_name(i), r->laws_left_out);
  return o;
}

static json_t *verify_json(const struct record *r)
{
  if (!r->verified && r->guards_intact < 0)
    return json_null();
  json_t *o = json_object(), *checks = json_object();
  const struct ref_verdict *v = &r->verdict;
  bool seen = r->verified;
  put_real(o, "bound_ratio", seen ? v->bound_ratio : NAN);
  put_real(o, "lse_bound_ratio", seen ? v->lse_bound_ratio : NAN);
  put_real(o, "max_ulp", seen ? v->max_ulp : NAN);
  put_real(o, "rel_fro", seen ? v->rel_fro : NAN);
  put_real(o, "err_vs_naive", r->err_vs_naive);
  put_known(o, "rerun_bitwise", r->rerun_bitwise);
  put_count(o, "checked_rows", seen ? (double)v->checked_rows : NAN);
  put_count(o, "total_rows", seen ? (double)v->total_rows : NAN);
  put_check(checks, "bound", seen ? v->pass : -1);
  put_check(checks, "guards", r->guards_intact);
  put_check(checks, "inputs", r->inputs_unchanged);
  put_check(checks, "same-bits", r->same_bits);
  for (int i = 0; i < law_count(); i++)
    put_check(checks, law_name(i), r->law[i]);
  put(o, "checks", checks);
  if (r->problem.op == ATTN_ROPE && seen)
    put(o, "rope", rope_json(&v->drift));
  put(o, "left_out", left_out_json(r));
  put(o, "properties", properties_json(r));
  return o;
}

static json_t *time_json(const struct record *r)
{
  if (!r->timed)
    return json_null();
  json_t *o = json_object(), *samples = json_array();
  put_real(o, "median_s", r->median_s);
  put_real(o, "ci_lo_s", r->ci_lo_s);
  put_real(o, "ci_hi_s", r->ci_hi_s);
  put_real(o, "min_s", r->min_s);
  put_real(o, "graph_s", r->graph_s);
  put_real(o, "row_s", r->row_s);
  put_real(o, "activity_s", r->activity_s);
  put_real(o, "rest_s", r->rest_s);
  put(o, "n", json_integer(r->n));
  put(o, "processes", json_integer(r->processes));
  put(o, "cache", json_string(r->cache == CACHE_COLD ? "cold" : "warm"));
  put(o, "mode", json_string(r->mode == MODE_RESTED ? "rested" : "sustained"));
  put_text(o, "method", r->method);
  for (int i = 0; i < r->n; i++)
    json_array_append_new(samples, json_real(r->samples[i]));
  put(o, "samples_s", samples);
  json_t *starts = r->process_start ? json_array() : json_null();
  for (int i = 0; r->process_start && i < r->processes; i++)
    json_array_append_new(starts, json_integer((json_int_t)r->process_start[i]));
  put(o, "process_start", starts);
  return o;
}

static json_t *rate_json(const struct record *r)
{
  if (!r->timed)
    return json_null();
  json_t *o = json_object();
  put_real(o, "tflops", r->tflops);
  put_real(o, "gbps", r->gbps);
  put_real(o, "of_matmul", r->of_matmul);
  put_real(o, "of_copy", r->of_copy);
  return o;
}

static json_t *traffic_json(const struct record *r)
{
  json_t *o = json_object();
  const struct counters *c = &r->counters;
  put_text(o, "source", c->source ? c->source : isnan(r->model_bytes) ? NULL : "model");
  put_text(o, "reason", c->source ? NULL : c->reason);
  put_count(o, "compulsory_bytes", r->compulsory_bytes);
  put_count(o, "model_bytes", r->model_bytes);
  put_count(o, "dram_read_bytes", c->dram_read_bytes);
  put_count(o, "dram_write_bytes", c->dram_write_bytes);
  put_count(o, "residue_bytes", c->residue_bytes);
  put_count(o, "l2_bytes", c->l2_bytes);
  put_count(o, "tensor_flops", c->tensor_flops);
  put_count(o, "sm_cycles", c->sm_cycles);
  return o;
}

static json_t *kernels_json(const struct record *r)
{
  json_t *list = json_array();
  for (int i = 0; i < r->nkernels; i++) {
    const struct kernel_info *k = &r->kernels[i];
    json_t *o = json_object();
    put_text(o, "name", k->name);
    put(o, "calls", json_integer(k->calls));
    put(o, "registers", json_integer(k->registers));
    put(o, "shared_bytes", json_integer(k->shared_bytes));
    put(o, "local_bytes", json_integer(k->local_bytes));
    put_real(o, "seconds", k->seconds);
    json_array_append_new(list, o);
  }
  return list;
}

/* NVML's clock-event reasons by bit. */
static json_t *throttle_json(uint64_t bits)
{
  static const char *const names[] = {"idle",        "applications-clocks", "sw-power-cap",
                                      "hw-slowdown", "sync-boost",          "sw-thermal",
                                      "hw-thermal",  "hw-power-brake",      "display-clocks"};
  if (bits == UINT64_MAX) /* never polled */
    return json_null();
  json_t *list = json_array();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (bits >> i & 1)
      json_array_append_new(list, json_string(names[i]));
  return list;
}

static json_t *device_json(const struct record *r, const struct device *dev)
{
  json_t *o = json_object();
  const struct attn_device *info = &dev->info;
  put(o, "kind", json_string(info->kind == ATTN_CUDA ? "cuda" : "cpu"));
  put_text(o, "name", info->name);
  put_text(o, "uuid_hash", dev->uuid_hash);
  put(o, "sm", info->sm ? json_integer(info->sm) : json_null());
  put(o, "multiprocessors", json_integer(info->multiprocessors));
  put_count(o, "memory_bytes", (double)info->memory_bytes);
  put_count(o, "sram_bytes", (double)info->sram_bytes);
  put_count(o, "l2_bytes", (double)info->l2_bytes);
  put_text(o, "driver", dev->driver);
  put_text(o, "cuda", dev->runtime);
  put_real(o, "sm_clock_hz", r->state.sm_clock_hz);
  put_real(o, "memory_clock_hz", r->state.memory_clock_hz);
  put_real(o, "power_w", r->state.power_w);
  put_real(o, "power_limit_w", r->state.power_limit_w);
  put_real(o, "temperature_c", r->state.temperature_c);
  put(o, "throttle", throttle_json(r->state.throttle));
  put_known(o, "ecc", r->state.ecc);
  put_known(o, "mig", r->state.mig);
  put_real(o, "kernel_mhz", r->sample_mhz > 0 ? r->sample_mhz : NAN);
  put_real(o, "peak_copy_gbps", r->ceilings.copy_gbps > 0 ? r->ceilings.copy_gbps : NAN);
  put_real(o, "peak_read_gbps", r->ceilings.read_gbps > 0 ? r->ceilings.read_gbps : NAN);
  put_real(o, "peak_matmul_tflops",
           r->ceilings.matmul_tflops > 0 ? r->ceilings.matmul_tflops : NAN);
  return o;
}

static json_t *build_json(void)
{
  json_t *o = json_object();
  const struct build_info *b = build_info();
  put_text(o, "version", b->version);
  put_text(o, "commit", b->commit);
  put_text(o, "compiler", b->compiler);
  put_text(o, "nvcc", b->nvcc);
  put_text(o, "flags", b->flags);
  return o;
}

static json_t *variant_json(const struct record *r)
{
  const struct attn_variant *v = &r->variant;
  if (!r->variant_by)
    return json_null();
  json_t *o = json_object();
  put_text(o, "name", v->name);
  put_text(o, "by", r->variant_by);
  put_text(o, "table", r->variant_table);
  put_count(o, "rows", v->rows > 0 ? v->rows : NAN);
  put_count(o, "keys", v->keys > 0 ? v->keys : NAN);
  put_count(o, "stages", v->stages > 0 ? v->stages : NAN);
  put_count(o, "threads", v->threads > 0 ? v->threads : NAN);
  put_count(o, "shared_bytes", v->smem_bytes > 0 ? v->smem_bytes : NAN);
  return o;
}

static void put_heading(json_t *o, const struct record *r)
{
  char when[32], problem[ATTN_PROBLEM_TEXT];
  time_t t = time(NULL);
  struct tm tm;
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
  attn_problem_print(&r->problem, problem, sizeof problem);
  put(o, "schema", json_integer(RECORD_SCHEMA));
  put(o, "time_utc", json_string(when));
  put_text(o, "run_id", r->run_id);
  put_text(o, "suite", r->suite);
  put(o, "problem", json_string(problem));
  put(o, "impl", json_string(r->impl));
  put_text(o, "impl_hash", build_impl_hash(r->impl, r->problem.op));
  put_text(o, "provenance", r->provenance);
  put(o, "variant", variant_json(r));
  put(o, "status", json_string(record_status_name(r->status)));
  put_text(o, "reason", r->reason);
}

json_t *record_to_json(const struct record *r, const struct device *dev, const char *repro)
{
  json_t *o = json_object();
  put_heading(o, r);
  put_count(o, "flops", attn_problem_flops(&r->problem));
  put(o, "inputs",
      json_pack("{s:s,s:I}", "distribution", r->distribution, "seed", (json_int_t)r->seed));
  put(o, "verify", verify_json(r));
  put(o, "time", time_json(r));
  put(o, "rate", rate_json(r));
  put(o, "traffic", traffic_json(r));
  json_t *memory = json_object();
  put_count(memory, "workspace_bytes", r->workspace_bytes);
  put_count(memory, "peak_bytes", r->peak_bytes);
  put(o, "memory", memory);
  put(o, "kernels", kernels_json(r));
  if (r->serve)
    put(o, "serve", json_incref(r->serve));
  put(o, "device", device_json(r, dev));
  put(o, "build", build_json());
  put_text(o, "repro", repro);
  return o;
}
