/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-attention.c - the implementations on the cpu device, every option, forward and backward.
 *
 * For each problem and implementation, on NaN-filled outputs and workspace: every element is within
 * rounding of an fp64 computation from the same inputs; nothing else is written; the machine counts
 * exactly the bytes that traffic() means to move, which are no fewer than the compulsory ones, and
 * no core uses more than M bytes of SRAM.
 */
#include "tests/unit/cpu-truth.h"

static const struct attn_impl *const impls[] = {&attn_cpu_naive, &attn_cpu_flash,
                                                &attn_cpu_flash_materialised};

/* A base shape and the options to add to it. */
static const char *const shapes[] = {
    "b=2 hq=4 hkv=2 sq=37 sk=53 d=24",
    "b=1 hq=3 hkv=1 sq=61 sk=29 d=16 dv=40 layout=bhsd",
    "b=1 hq=2 hkv=2 sq=1 sk=70 d=7 dv=5",
    "hq=6 hkv=3 seqs=1x33/33+2x0/9+1x17/0+1x5/40+1x40/5 d=12",
};

static const char *const options[] = {
    "",
    "mask=causal",
    "mask=causal-topleft",
    "mask=window:7:3",
    "mask=window:-1:0",
    "mask=window:0:-1",
    "scale=0.7",
    "softcap=2.5",
    "softcap=1.5 mask=causal",
    "alibi=1",
    "alibi=1 mask=causal softcap=3",
    "dropout=0.3@7",
    "dropout=0.15@81985529216486895 mask=causal alibi=1",
    "dropout=0.999999@3",
    "mask=window:9:2 softcap=4 alibi=1 dropout=0.5@99",
};

static void report(const struct miss *m, const char *text)
{
  if (m->count)
    diag("%s: %d elements off; first %s[%lld,%lld,%lld,%lld] is %.9g, should be %.9g", text,
         m->count, m->what, (long long)m->s, (long long)m->i, (long long)m->h, (long long)m->c,
         m->got, m->want);
}

/* One implementation on one problem; whether all is well. */
static bool holds(struct attn_machine *m, const struct attn_impl *impl, struct fixture *f)
{
  char text[ATTN_PROBLEM_TEXT];
  attn_problem_print(&f->p, text, sizeof text);
  struct ran r = run_on(m, impl, f);
  if (r.status) {
    diag("%s: status %d%s%s", text, r.status, r.refused ? ", " : "", r.refused ? r.refused : "");
    return false;
  }
  struct miss miss = f->p.op == ATTN_BWD ? check_backward(f) : check_forward(f);
  report(&miss, text);
  bool intact = true;
  for (int i = B_O; i < BUFFERS; i++)
    intact &= gaps_intact(f, i);
  if (!intact)
    diag("%s: wrote between the rows of a tensor", text);
  bool bytes = (double)r.read == r.model.read_bytes && (double)r.write == r.model.write_bytes;
  bytes &= r.model.read_bytes >= attn_problem_compulsory_read(&f->p) &&
           r.model.write_bytes >= attn_problem_compulsory_write(&f->p);
  if (!bytes)
    diag("%s: moved %llu + %llu bytes, model %.0f + %.0f, compulsory %.0f + %.0f", text,
         (unsigned long long)r.read, (unsigned long long)r.write, r.model.read_bytes,
         r.model.write_bytes, attn_problem_compulsory_read(&f->p),
         attn_problem_compulsory_write(&f->p));
  if (r.peak > m->sram_bytes)
    diag("%s: used %zu bytes of SRAM of %zu", text, r.peak, m->sram_bytes);
  return !miss.count && intact && bytes && r.peak <= m->sram_bytes;
}

/* Gives backward the forward results of naive. */
static void forward_first(struct attn_machine *m, struct fixture *f)
{
  f->p.op = ATTN_FWD;
  run_on(m, &attn_cpu_naive, f);
  f->p.op = ATTN_BWD;
}

static void test_options(struct attn_machine *m, const struct attn_impl *impl, const char *op,
                         const char *dtype)
{
  int good = 0, all = 0;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
      char text[512], err[256] = "";
      struct attn_problem p;
      struct fixture f;
      snprintf(text, sizeof text, "op=%s dtype=%s %s %s", op, dtype, shapes[s], options[o]);
      all++;
      if (attn_problem_parse(text, &p, err, sizeof err)) {
        diag("%s: %s", text, err);
        continue;
      }
      fixture_init(&f, &p, 1000 * s + o + 1, 3, 4);
      if (p.op == ATTN_BWD)
        forward_first(m, &f);
      good += holds(m, impl, &f);
      fixture_free(&f);
    }
  ok(good == all, "%s %s %s: %d of %d problems right, bytes as modelled, M = %zu", impl->name, op,
     dtype, good, all, m->sram_bytes);
}

/* A prefix that is on the cache already: append is forward with a bottom-right causal mask. */
static void test_append(struct attn_machine *m)
{
  struct attn_problem p;
  struct fixture f;
  char err[256];
  attn_problem_parse("op=append dtype=bf16 b=2 hq=4 hkv=2 sq=9 sk=80 d=32 mask=causal", &p, err,
                     sizeof err);
  for (int i = 0; i < 3; i++) {
    fixture_init(&f, &p, 5, 0, 4);
    ok(holds(m, impls[i], &f), "%s appends", impls[i]->name);
    fixture_free(&f);
  }
}

/* What is not there is refused with a reason, before anything runs. */
static void test_refusals(void)
{
  static const struct {
    const char *text;
    size_t sram;
    const char *reason;
  } cases[] = {
      {"op=fwd b=1 hq=1 hkv=1 sq=64 sk=64 d=256", 8192, "SRAM of 8192 bytes"},
      {"op=bwd b=1 hq=1 hkv=1 sq=64 sk=64 d=256", 16384, "SRAM of 16384 bytes"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int i = 0; i < 3; i++) {
      struct attn_problem p;
      char err[256];
      attn_problem_parse(cases[c].text, &p, err, sizeof err);
      struct attn_device dev = {.sram_bytes = cases[c].sram, .memory_bytes = (size_t)1 << 40};
      const char *reason = attn_unsupported(impls[i], &p, &dev);
      ok(reason && strstr(reason, cases[c].reason), "%s refuses %s", impls[i]->name, cases[c].text);
    }
  struct attn_problem p;
  char err[256];
  attn_problem_parse("op=fwd b=1 hq=32 hkv=8 sq=131072 sk=131072 d=128", &p, err, sizeof err);
  struct attn_device dev = {.sram_bytes = 232448, .memory_bytes = (size_t)64 << 30};
  const char *reason = attn_cpu_naive.unsupported(&p, &dev);
  ok(reason && strstr(reason, "64.0 GiB") && strstr(reason, "2048.0 GiB"),
     "naive at 131072 tokens says what a head's matrix takes");
  ok(!attn_cpu_flash.unsupported(&p, &dev), "flash takes 131072 tokens");
  ok(attn_cpu_flash.workspace(&p, &dev) == 0, "flash forward needs no workspace");
}

int main(void)
{
  static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
  struct attn_machine *big = attn_machine_create(0, 2), *small = attn_machine_create(13 * 1024, 3);
  for (int i = 0; i < 3; i++)
    for (int t = 0; t < 3; t++) {
      test_options(t ? big : small, impls[i], "fwd", dtypes[t]);
      test_options(t ? big : small, impls[i], "bwd", dtypes[t]);
    }
  for (int i = 0; i < 3; i++) {
    test_options(small, impls[i], "fwd", "bf16");
    test_options(small, impls[i], "bwd", "bf16");
  }
  test_append(small);
  test_refusals();
  attn_machine_destroy(big);
  attn_machine_destroy(small);
  return done_testing();
}
