/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.h - records that nobody measured, for tests of reports and of the schema.
 *
 * Everything in them is made up by formula, and says so: the device is "Synthetic GPU", the commit
 * is "synthetic".  They cover both devices, forward and backward, and every status.
 */
#ifndef TESTS_RECORDS_SYNTHETIC_H
#define TESTS_RECORDS_SYNTHETIC_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "impl/attn.h"

struct synthetic_impl {
  const char *name;
  double tflops;    /* at infinite length */
  double half;      /* length at which half of that is reached */
  double bound;     /* error over bound */
  double per_pair;  /* bytes of HBM traffic a pair of query and key, beyond compulsory */
  double workspace; /* bytes a pair and head */
};

static const struct synthetic_impl synthetic_gpu[] = {
    {"cuda/naive", 120, 700, 0.21, 10, 2},
    {"cuda/flash-sm80", 345, 900, 0.034, 0, 0},
    {"peer/cudnn", 690, 800, 0.041, 0, 0},
};
static const struct synthetic_impl synthetic_cpu[] = {
    {"cpu/naive", 0.11, 200, 0.019, 24, 8},
    {"cpu/flash", 0.16, 120, 0.012, 0, 0},
};

static unsigned synthetic_seed;

/* Uniform in [-1, 1), the same every time. */
static double synthetic_noise(void)
{
  synthetic_seed = synthetic_seed * 1664525u + 1013904223u;
  return (double)(synthetic_seed >> 8) / (1 << 23) - 1;
}

static double synthetic_elements(const struct attn_problem *p)
{
  double q = (double)(p->b * p->sq * p->hq) * (double)p->d;
  double k = (double)(p->b * p->sk * p->hkv) * (double)p->d;
  return p->op == ATTN_BWD ? 4 * q + 4 * k : 2 * q + 2 * k;
}

static double synthetic_flops(const struct attn_problem *p)
{
  double pairs = (double)p->sq * (double)p->sk;
  if (p->mask != ATTN_MASK_NONE)
    pairs = ((double)p->sq + 1) * (double)p->sq / 2;
  return 4 * (double)p->d * pairs * (double)(p->b * p->hq) * (p->op == ATTN_BWD ? 2.5 : 1);
}

static double synthetic_bytes(const struct attn_problem *p)
{
  return synthetic_elements(p) * (p->dtype == ATTN_F32 ? 4 : 2);
}

/* Flash on a machine with an SRAM of sram bytes reads K and V once a tile of sram/16d queries. */
static double synthetic_moved(const struct synthetic_impl *impl, const struct attn_problem *p,
                              double sram)
{
  double pairs = (double)p->sq * (double)p->sk * (double)(p->b * p->hq);
  double reread = impl->per_pair > 0 ? impl->per_pair * pairs
                  : sram > 0         ? pairs * (double)p->d * 8 / (sram / (16 * (double)p->d))
                                     : 0.02 * synthetic_bytes(p);
  return synthetic_bytes(p) + reread * (p->op == ATTN_BWD ? 2 : 1);
}

static json_t *synthetic_real(double x)
{
  return isfinite(x) ? json_real(x) : json_null();
}

static json_t *synthetic_time(double median)
{
  json_t *samples = json_array();
  double lo = median;
  for (int i = 0; i < 15; i++) {
    double s = i == 7 ? median : median * (1 + 0.01 * synthetic_noise());
    lo = s < lo ? s : lo;
    json_array_append_new(samples, json_real(s));
  }
  return json_pack("{s:f,s:f,s:f,s:f,s:i,s:i,s:s,s:s,s:s,s:o}", "median_s", median, "ci_lo_s",
                   median * 0.985, "ci_hi_s", median * 1.02, "min_s", lo, "n", 15, "processes", 1,
                   "cache", "cold", "mode", "rested", "method", "hidden-events", "samples_s",
                   samples);
}

static json_t *synthetic_device(bool gpu, double sram)
{
  json_t *d = json_object();
  json_object_set_new(d, "kind", json_string(gpu ? "cuda" : "cpu"));
  json_object_set_new(d, "name", json_string(gpu ? "Synthetic GPU" : "Synthetic Processor"));
  json_object_set_new(d, "uuid_hash", gpu ? json_string("0123456789abcdef") : json_null());
  json_object_set_new(d, "sm", gpu ? json_integer(90) : json_null());
  json_object_set_new(d, "memory_bytes", json_real(gpu ? 140e9 : 16e9));
  json_object_set_new(d, "sram_bytes", json_real(gpu ? 232448 : sram));
  json_object_set_new(d, "driver", gpu ? json_string("580.1") : json_null());
  json_object_set_new(d, "cuda", gpu ? json_string("13.0") : json_null());
  json_object_set_new(d, "sm_clock_hz", gpu ? json_real(1.98e9) : json_null());
  json_object_set_new(d, "power_w", gpu ? json_real(500 + 100 * synthetic_noise()) : json_null());
  json_object_set_new(d, "temperature_c", gpu ? json_real(50) : json_null());
  json_object_set_new(d, "throttle", gpu ? json_pack("[s]", "sw-power-cap") : json_null());
  json_object_set_new(d, "ecc", gpu ? json_true() : json_null());
  json_object_set_new(d, "kernel_mhz",
                      gpu ? json_real(1500 + 90 * synthetic_noise()) : json_null());
  json_object_set_new(d, "peak_copy_gbps", json_real(gpu ? 4100 : 21));
  json_object_set_new(d, "peak_matmul_tflops", json_real(gpu ? 790 : 0.19));
  return d;
}

/* A record without results. */
static json_t *synthetic_blank(const char *impl, const struct attn_problem *p, const char *status,
                               const char *reason, double sram)
{
  char problem[ATTN_PROBLEM_TEXT];
  bool gpu = strncmp(impl, "cpu/", 4) != 0;
  attn_problem_print(p, problem, sizeof problem);
  json_t *j = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:n,s:s,s:s,s:s?,s:f}", "schema", 1, "time_utc",
                        "2026-01-02T03:04:05Z", "run_id", "synthetic-1", "suite", "synthetic",
                        "problem", problem, "impl", impl, "impl_hash", "provenance", "made up",
                        "status", status, "reason", reason, "flops", synthetic_flops(p));
  json_object_set_new(j, "verify", json_null());
  json_object_set_new(j, "time", json_null());
  json_object_set_new(j, "rate", json_null());
  json_object_set_new(j, "traffic",
                      json_pack("{s:n,s:f,s:n,s:n,s:n,s:n,s:n}", "source", "compulsory_bytes",
                                synthetic_bytes(p), "model_bytes", "dram_read_bytes",
                                "dram_write_bytes", "residue_bytes", "l2_bytes"));
  json_object_set_new(j, "memory", json_pack("{s:n,s:n}", "workspace_bytes", "peak_bytes"));
  json_object_set_new(j, "kernels", json_array());
  json_object_set_new(j, "device", synthetic_device(gpu, sram));
  json_object_set_new(j, "build",
                      json_pack("{s:s,s:s,s:s,s:n,s:s}", "version", "0.1.0", "commit", "synthetic",
                                "compiler", "none", "nvcc", "flags", ""));
  json_object_set_new(j, "repro", json_null());
  return j;
}

static double synthetic_workspace(const struct synthetic_impl *impl, const struct attn_problem *p)
{
  return impl->workspace * (double)p->sq * (double)p->sk * (double)(p->b * p->hq);
}

static void synthetic_verify(json_t *j, const struct synthetic_impl *impl,
                             const struct attn_problem *p, double ratio)
{
  double lse = p->op == ATTN_BWD ? NAN : impl->bound * 0.3 * (1 + 0.5 * synthetic_noise());
  json_object_set_new(j, "verify",
                      json_pack("{s:o,s:o,s:f,s:f,s:f,s:b,s:{s:s,s:s}}", "bound_ratio",
                                synthetic_real(ratio), "lse_bound_ratio", synthetic_real(lse),
                                "max_ulp", 0.9, "rel_fro", 2e-3, "err_vs_naive", 0.8,
                                "rerun_bitwise", 1, "checks", "guards", "pass", "inputs", "pass"));
}

/* A record of a pass. */
static json_t *synthetic_pass(const struct synthetic_impl *impl, const struct attn_problem *p,
                              double sram)
{
  json_t *j = synthetic_blank(impl->name, p, "pass", NULL, sram);
  double causal = p->mask == ATTN_MASK_NONE ? 1 : 0.9, op = p->op == ATTN_BWD ? 0.85 : 1;
  double tflops = impl->tflops * causal * op * (double)p->sk / ((double)p->sk + impl->half) *
                  (1 + 0.02 * synthetic_noise());
  double median = synthetic_flops(p) / tflops / 1e12, bytes = synthetic_bytes(p);
  double moved = synthetic_moved(impl, p, sram), written = moved - 0.75 * moved;
  bool gpu = strncmp(impl->name, "cpu/", 4) != 0;
  synthetic_verify(j, impl, p, impl->bound * (1 + 0.6 * synthetic_noise()));
  json_object_set_new(j, "time", synthetic_time(median));
  json_object_set_new(j, "rate",
                      json_pack("{s:f,s:f,s:f,s:f}", "tflops", tflops, "gbps", bytes / median / 1e9,
                                "of_matmul", tflops / (gpu ? 790 : 0.19), "of_copy",
                                bytes / median / 1e9 / (gpu ? 4100 : 21)));
  json_object_set_new(j, "traffic",
                      json_pack("{s:s,s:f,s:f,s:f,s:f,s:o,s:n}", "source",
                                gpu ? "cupti" : "io-model", "compulsory_bytes", bytes,
                                "model_bytes", moved, "dram_read_bytes", 0.75 * moved,
                                "dram_write_bytes", gpu ? 0.6 * written : written, "residue_bytes",
                                gpu ? json_real(0.4 * written) : json_null(), "l2_bytes"));
  double workspace = synthetic_workspace(impl, p);
  json_object_set_new(
      j, "memory",
      json_pack("{s:f,s:f}", "workspace_bytes", workspace, "peak_bytes", bytes + workspace));
  return j;
}

typedef int (*synthetic_emit)(json_t *record, void *ctx);

struct synthetic_state {
  synthetic_emit emit;
  void *ctx;
  double sram;
};

static int synthetic_put(const struct synthetic_state *s, json_t *j)
{
  int status = s->emit(j, s->ctx);
  json_decref(j);
  return status;
}

/* What does not pass: naive does not fit at 128k, cuDNN refuses d=96, and one of each kind. */
static json_t *synthetic_other(const struct synthetic_impl *impl, const struct attn_problem *p)
{
  bool naive = strstr(impl->name, "naive") != NULL, flash = strstr(impl->name, "flash") != NULL;
  char reason[160];
  if (naive && p->sk >= 131072) {
    snprintf(reason, sizeof reason, "one head's %lld x %lld matrix takes %.0f GiB",
             (long long)p->sq, (long long)p->sk, 2.0 * (double)p->sq * (double)p->sk / (1 << 30));
    json_t *j = synthetic_blank(impl->name, p, "oom", reason, 232448);
    json_object_set_new(
        j, "memory",
        json_pack("{s:f,s:n}", "workspace_bytes", synthetic_workspace(impl, p), "peak_bytes"));
    return j;
  }
  if (p->d == 96 && !naive)
    return synthetic_blank(impl->name, p, "unsupported", "head dim 96 needs padding to 128", 0);
  if (flash && p->op == ATTN_BWD && p->sk >= 8192)
    return synthetic_blank(impl->name, p, p->sk == 8192 ? "timeout" : "crash",
                           p->sk == 8192 ? "no answer in 60 s" : "killed by signal 11", 232448);
  if (!naive && !flash && p->op == ATTN_BWD && p->sk == 512) {
    json_t *j = synthetic_blank(impl->name, p, "fail", "dq[0,3,1,7]: got 1, want 2", 232448);
    synthetic_verify(j, impl, p, 7.5);
    return j;
  }
  if (!naive && !flash && p->op == ATTN_BWD && p->sk == 1024) {
    json_t *j = synthetic_blank(impl->name, p, "fail", "dk[0,0,0,0] is not finite", 232448);
    synthetic_verify(j, impl, p, NAN);
    return j;
  }
  if (naive && p->op == ATTN_BWD && p->sk == 512)
    return synthetic_blank(impl->name, p, "invalid", "moved fewer bytes than compulsory", 232448);
  return NULL;
}

static int synthetic_gpu_problem(const struct attn_problem *p, void *ctx)
{
  const struct synthetic_state *s = ctx;
  int status = 0;
  for (size_t i = 0; i < sizeof synthetic_gpu / sizeof *synthetic_gpu && !status; i++) {
    json_t *j = synthetic_other(&synthetic_gpu[i], p);
    status = synthetic_put(s, j ? j : synthetic_pass(&synthetic_gpu[i], p, 0));
  }
  return status;
}

static int synthetic_cpu_problem(const struct attn_problem *p, void *ctx)
{
  const struct synthetic_state *s = ctx;
  int status = 0;
  for (size_t i = 0; i < sizeof synthetic_cpu / sizeof *synthetic_cpu && !status; i++) {
    json_t *j = synthetic_pass(&synthetic_cpu[i], p, s->sram);
    json_object_set_new(json_object_get(j, "time"), "method", json_string("host-clock"));
    status = synthetic_put(s, j);
  }
  return status;
}

/* Calls emit for every record; the same ones each time. */
static int synthetic_records(synthetic_emit emit, void *ctx)
{
  static const char *const gpu[] = {
      "op=fwd dtype=bf16 b=1 hq=32 hkv=8 s=512..16k d=128 mask=causal,none",
      "op=fwd dtype=bf16 b=1 hq=32 hkv=8 s=128k d=128 mask=causal",
      "op=bwd dtype=bf16 b=1 hq=32 hkv=8 s=512..16k d=128 mask=causal",
      "op=fwd dtype=fp16 b=2 hq=16 hkv=16 s=1k d=96",
      "op=fwd dtype=bf16 hq=8 hkv=8 d=64 mask=causal seqs=3x17/17+1x131/257"};
  static const char *const cpu = "op=fwd dtype=fp32 b=1 hq=4 hkv=2 s=256..4k d=64,128 mask=none";
  struct synthetic_state s = {emit, ctx, 0};
  char err[256];
  int status = 0;
  synthetic_seed = 1;
  for (size_t i = 0; i < sizeof gpu / sizeof *gpu && !status; i++)
    status = attn_problem_sweep(gpu[i], NULL, synthetic_gpu_problem, &s, err, sizeof err);
  for (s.sram = 232448; s.sram > 60000 && !status; s.sram /= 2)
    status = attn_problem_sweep(cpu, NULL, synthetic_cpu_problem, &s, err, sizeof err);
  return status;
}

#endif
