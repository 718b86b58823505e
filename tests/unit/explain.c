/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: the model's arithmetic against numbers worked out by hand, laws of it, occupancy against
 * known launches, and the machine files: complete, and the H200's equal to the committed records.
 */
#include "config.h"

#include <math.h>

#include "harness/explain/explain.h"
#include "harness/explain/machine-file.h"
#include "harness/gate/stats.h"
#include "harness/record/store.h"
#include "harness/run/catalog.h"
#include "tests/tap.h"

static bool near(double a, double b)
{
  return fabs(a - b) <= 1e-12 * fabs(b);
}

static double number(json_t *o, const char *key)
{
  return json_number_value(json_object_get(o, key));
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

/* ---- tiles ----------------------------------------------------------------------------------- */

static void tiles(void)
{
  struct machine_limits m = round_machine();
  struct attn_variant v = {
      .name = "x", .rows = 128, .keys = 64, .step_smem_bytes = 1000, .tile_smem_bytes = 100};
  struct attn_problem p = problem("b=2 hq=16 hkv=4 s=1k d=128");
  struct tiling t = explain_tiling(&p, &v);
  ok(t.tiles == 2 * 16 * 8 && t.steps == t.tiles * 16, "without a mask: all pairs of tiles");
  ok(t.shared_bytes == t.steps * 1000 + t.tiles * 100, "bytes of steps and of tiles that stay");
  struct bound b = explain_bound_of(&p, &m, &v);
  ok(near(b.s[LIMIT_SHARED], t.shared_bytes / (128 * 1e9 * 100)) && b.by == LIMIT_MATMUL,
     "128 bytes a clock and multiprocessor");
  ok(isnan(explain_bound(&p, &m).s[LIMIT_SHARED]), "which the problem alone does not say");
  v.step_smem_bytes = 1e7;
  ok(explain_bound_of(&p, &m, &v).by == LIMIT_SHARED, "enough of them are the bound");
  p = problem("b=2 hq=16 hkv=4 s=1k d=128 mask=causal");
  t = explain_tiling(&p, &v);
  ok(t.steps == 2 * 16 * (2 + 4 + 6 + 8 + 10 + 12 + 14 + 16), "causal: tiles that see a key");
  p = problem("b=1 hq=1 sq=130 sk=200 d=128 mask=window:70:0");
  t = explain_tiling(&p, &v); /* rows 0..127 see 0..197, 128..129 see 128..199 */
  ok(t.tiles == 2 && t.steps == 4 + 2, "a window: from its first key on");
  p = problem("op=bwd b=2 hq=16 hkv=4 s=1k d=128 mask=causal");
  t = explain_tiling(&p, &v);
  ok(t.tiles == 2 * 4 * 16 && t.steps == 2 * 16 * 72, "backward: keys stay, of each K/V head");
  p = problem("hq=2 d=128 seqs=3x128/64+1x1/65");
  ok(explain_tiling(&p, &v).steps == 2 * (3 + 2), "ragged: run by run");
  v.packed = true;
  ok(isnan(explain_tiling(&p, &v).shared_bytes), "packed heads: not known");
  v = (struct attn_variant){.rows = 128, .keys = 64};
  ok(isnan(explain_tiling(&p, &v).shared_bytes), "bytes that are not known are not 0");
  ok(explain_sram(90) == 232448 && explain_sram(80) == 166912 && explain_sram(1) == 0,
     "shared memory of a block");
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

/* ---- what is printed of a GPU's runs ----------------------------------------------------------
 */

/* One kernel of 1056 blocks of 384 threads with 168 registers: one block a multiprocessor. */
static void pretend(struct explained *x)
{
  struct record *r = &x->run[0];
  x->problem = problem("b=2 hq=16 sq=8k d=128");
  x->device = (struct attn_device){.kind = ATTN_CUDA, .name = "pretended", .sm = 90};
  x->device.multiprocessors = 132;
  x->ceilings = (struct device_ceilings){4000, 4500, 800};
  x->n = 2;
  record_init(r);
  r->status = STATUS_PASS;
  snprintf(r->impl, sizeof r->impl, "cuda/pretended");
  r->timed = true;
  r->median_s = 2e-3;
  r->n = 1;
  r->sample_mhz = 1500;
  r->compulsory_bytes = 269484032;
  r->counters.source = "cupti";
  r->counters.dram_read_bytes = r->counters.dram_write_bytes = 269484032;
  r->counters.residue_bytes = 0;
  r->counters.tensor_flops = 2 * attn_problem_flops(&x->problem);
  r->kernels[0] = (struct kernel_info){.name = "flash", .calls = 1, .registers = 168};
  r->kernels[0].threads = 384;
  r->kernels[0].blocks = 1056;
  r->nkernels = 1;
  x->run[1] = *r;
  x->run[1].status = STATUS_FAIL;
  snprintf(x->run[1].reason, sizeof x->run[1].reason, "o is 1, want 2");
}

static void printed(void)
{
  static const char *const lines[] = {
      "132 multiprocessors at 1500 MHz\n",
      "modelled  matrix units    1.374 ms  the bound\n",
      "exponentials   677.87 us\n",
      "reached   68.7 % of the bound (matrix units 68.7 %, exponentials 33.9 %, memory 3.0 %)\n",
      "1056 blocks of 384 threads, 168 registers",
      "1 block a multiprocessor (limit: registers), 18.8 % of its warps, 8.00 waves\n",
      "(cupti): - of its model, 2.000 of compulsory\n",
      ": 2.000 of the problem's\n",
  };
  static struct explained x;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  pretend(&x);
  explain_print(&x, NULL, out);
  fclose(out);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ok(strstr(text, lines[i]) != NULL, "says %.*s", (int)strcspn(lines[i], "\n"), lines[i]);
  const char *wrong = strstr(text, "o is 1, want 2");
  ok(wrong && !strstr(wrong, "reached"), "what failed has a reason and no speed");
  free(text);
  out = open_memstream(&text, &size);
  explain_print_json(&x, NULL, out);
  fclose(out);
  json_t *j = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL), *run = json_object_get(j, "run");
  json_t *k = json_object_get(json_array_get(json_object_get(run, "kernels"), 0), "occupancy");
  double share = number(json_object_get(j, "modelled"), "matrix_units_s") / 2e-3;
  ok(fabs(number(run, "of_bound") / share - 1) < 1e-8, "JSON: the same share");
  ok(number(k, "waves") == 8 && number(k, "blocks") == 1, "and the same waves");
  json_decref(j);
  free(text);
}

/* ---- machine files --------------------------------------------------------------------------- */

struct peaks {
  double matmul[4096], read[4096], copy[4096], clock[4096];
  size_t n;
  int multiprocessors, sm;
};

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
  tiles();
  occupancy();
  printed();
  recorded();
  ok(!catalog_files("machines", ".machine", each, &n) && n >= 3, "%d machines", n);
  ok(machine_read("no-such", &m, err, sizeof err) && strstr(err, "list --machines"),
     "one that is not there: %s", err);
  ok(machine_read("../models/llama3-8b", &m, err, sizeof err), "a name is no path");
  return done_testing();
}
