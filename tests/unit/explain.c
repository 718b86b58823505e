/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: the model's arithmetic against numbers worked out by hand, laws of it, occupancy against
 * known launches, and the machine files: complete, and the H200's equal to the committed records.
 */
#include "config.h"

#include <math.h>

#include "harness/explain/machine-file.h"
#include "harness/gate/stats.h"
#include "harness/record/store.h"
#include "harness/run/catalog.h"
#include "tests/tap.h"

static bool near(double a, double b)
{
  return fabs(a - b) <= 1e-12 * fabs(b);
}

static struct attn_problem problem(const char *text)
{
  struct attn_problem p;
  char err[512];
  if (attn_problem_parse(text, &p, err, sizeof err))
    diag("%s", err);
  return p;
}

/* 100 multiprocessors at 1 GHz: 4096 FLOP and 16 exponentials a clock each, 1000 GB/s. */
static struct machine_limits round_machine(void)
{
  return (struct machine_limits){.kind = ATTN_CUDA,
                                 .sm = 90,
                                 .multiprocessors = 100,
                                 .clock_hz = 1e9,
                                 .matmul_tflops = 409.6,
                                 .read_gbps = 1000,
                                 .copy_gbps = 900,
                                 .exp_per_clock = 16};
}

static void by_hand(void)
{
  struct machine_limits m = round_machine();
  struct attn_problem p = problem("b=2 hq=16 sq=1k d=128");
  struct work w = explain_work(&p);
  struct bound b = explain_bound(&p, &m);
  double pairs = 2.0 * 16 * 1024 * 1024, q = 2.0 * 16 * 1024 * 128 * 2;
  ok(w.flops == 4 * 128 * pairs && w.exps == pairs, "forward: 4 d FLOP and one exponential a pair");
  ok(w.read_bytes == 3 * q && w.write_bytes == q + 2.0 * 16 * 1024 * 4,
     "reads q, k, v; writes o and lse");
  ok(near(b.s[LIMIT_MATMUL], 4 * 128 * pairs / 409.6e12) && near(b.s[LIMIT_EXP], pairs / 1.6e12) &&
         near(b.s[LIMIT_MEMORY], (w.read_bytes + w.write_bytes) / 1e12),
     "each by its rate, memory by the faster of read and copy");
  ok(b.by == LIMIT_MATMUL, "matrix units bound it");
  p = problem("b=2 hq=16 sq=1k d=64");
  b = explain_bound(&p, &m);
  ok(near(b.s[LIMIT_MATMUL], b.s[LIMIT_EXP]), "head dim 64: products and exponentials balance");
  p = problem("b=2 hq=16 sq=1k d=64 softcap=30");
  b = explain_bound(&p, &m);
  ok(near(b.s[LIMIT_EXP], 2 * b.s[LIMIT_MATMUL]) && b.by == LIMIT_EXP,
     "a tangent more a pair: exponentials bound it");
  p = problem("op=bwd b=2 hq=16 sq=1k d=64");
  ok(explain_work(&p).flops == 2.5 * 4 * 64 * pairs && explain_work(&p).exps == pairs,
     "backward: five products and one exponential a pair");
  p = problem("op=decode hq=8 sk=8k d=128");
  ok(explain_bound(&p, &m).by == LIMIT_MEMORY, "memory bounds a decode of one head a query head");
}

static void unknown(void)
{
  struct machine_limits m = round_machine();
  struct attn_problem p = problem("dtype=fp32 hq=8 sq=4k d=64");
  struct bound b = explain_bound(&p, &m);
  ok(isnan(b.s[LIMIT_MATMUL]) && b.s[LIMIT_EXP] > 0 && b.by == -1,
     "the ceiling of 16-bit products says nothing of fp32, so the bound is not known");
  m.kind = ATTN_CPU;
  m.exp_per_clock = m.clock_hz = NAN;
  b = explain_bound(&p, &m);
  ok(b.s[LIMIT_MATMUL] > 0 && isnan(b.s[LIMIT_EXP]) && b.by == LIMIT_MATMUL,
     "no unit for exponentials: not known, not 0");
  m.matmul_tflops = m.read_gbps = m.copy_gbps = NAN;
  ok(explain_bound(&p, &m).by == -1, "nothing known: no bound");
  ok(isnan(explain_exp_per_clock(0)) && explain_exp_per_clock(90) == 16, "16 a clock from 8.0 on");
}

static void occupancy(void)
{
  static const struct {
    int sm, threads, registers, shared, blocks;
    enum occupancy_limit by;
    double warps;
  } known[] = {
      {80, 256, 32, 0, 8, BY_THREADS, 1},
      {86, 1024, 32, 0, 1, BY_THREADS, 32.0 / 48},
      {90, 32, 16, 0, 32, BY_BLOCKS, 0.5},
      {90, 128, 255, 0, 2, BY_REGISTERS, 0.125},
      {90, 384, 168, 213188, 1, BY_REGISTERS, 0.1875},
      {90, 128, 64, 65536, 3, BY_SHARED, 0.1875},
      {80, 128, 64, 163 << 10, 1, BY_SHARED, 0.0625},
      {80, 128, 64, 164 << 10, 0, BY_SHARED, 0},
  };
  struct occupancy o;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    int status = explain_occupancy(known[i].sm, 132, 1000, known[i].threads, known[i].registers,
                                   known[i].shared, &o);
    ok(!status && o.blocks == known[i].blocks && o.by == known[i].by &&
           near(o.warps + 1, known[i].warps + 1),
       "%d: %d threads, %d registers, %d bytes: %d blocks by %s", known[i].sm, known[i].threads,
       known[i].registers, known[i].shared, o.blocks, explain_occupancy_limit_name(o.by));
  }
  ok(!explain_occupancy(90, 132, 1056, 256, 32, 0, &o) && o.waves == 1,
     "1056 blocks by 8 are a wave");
  ok(explain_occupancy(75, 72, 1, 256, 32, 0, &o) == -1, "a capability that is not known");
  ok(explain_occupancy(90, 132, 0, 0, 32, 0, &o) == -1, "launches that differ are no launch");
}

/* ---- machine files --------------------------------------------------------------------------- */

struct peaks {
  double matmul[4096], read[4096], copy[4096], clock[4096];
  size_t n;
  int multiprocessors, sm;
};

static double number(json_t *o, const char *key)
{
  return json_number_value(json_object_get(o, key));
}

static int look(json_t *record, int line, void *ctx)
{
  struct peaks *p = ctx;
  json_t *d = json_object_get(record, "device");
  if (!json_is_number(json_object_get(d, "peak_matmul_tflops")) || p->n == 4096)
    return 0;
  p->matmul[p->n] = number(d, "peak_matmul_tflops");
  p->read[p->n] = number(d, "peak_read_gbps");
  p->copy[p->n] = number(d, "peak_copy_gbps");
  p->clock[p->n++] = number(d, "sm_clock_hz");
  p->multiprocessors = (int)number(d, "multiprocessors");
  p->sm = (int)number(d, "sm");
  return 0;
}

static bool rounded(double shipped, const double *x, size_t n)
{
  double m = stats_median(x, n);
  if (fabs(shipped / m - 1) < 1e-5)
    return true;
  diag("%.9g is shipped, the records say %.9g", shipped, m);
  return false;
}

static void recorded(void)
{
  static struct peaks p;
  const char *srcdir = getenv("srcdir");
  char path[512], err[512];
  struct machine_limits m;
  int bad;
  snprintf(path, sizeof path, "%s/profiles/baselines/h200.jsonl", srcdir ? srcdir : ".");
  if (!ok(!store_read(path, look, &p, &bad, err, sizeof err) && p.n > 0 &&
              !machine_read("h200", &m, err, sizeof err),
          "records of an H200, and its machine file"))
    return;
  ok(rounded(m.matmul_tflops, p.matmul, p.n), "products: the median of %zu records", p.n);
  ok(rounded(m.read_gbps, p.read, p.n) && rounded(m.copy_gbps, p.copy, p.n), "bytes: likewise");
  ok(rounded(m.clock_hz, p.clock, p.n) && m.multiprocessors == p.multiprocessors && m.sm == p.sm,
     "clock and multiprocessors: likewise");
}

static void each(const char *name, void *ctx)
{
  struct machine_limits m;
  char err[512] = "";
  bool read = !machine_read(name, &m, err, sizeof err);
  ok(read && m.exp_per_clock == explain_exp_per_clock(m.sm), "machine %s %s", name, err);
  ++*(int *)ctx;
}

int main(void)
{
  int n = 0;
  struct machine_limits m;
  char err[512];
  by_hand();
  unknown();
  occupancy();
  recorded();
  ok(!catalog_files("machines", ".machine", each, &n) && n >= 3, "%d machines", n);
  ok(machine_read("no-such", &m, err, sizeof err) && strstr(err, "list --machines"),
     "one that is not there: %s", err);
  ok(machine_read("../models/llama3-8b", &m, err, sizeof err), "a name is no path");
  return done_testing();
}
