/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-cascade.c - a prefix that all sequences share.
 *
 * The laws: a shared prefix gives what the same keys give in pages of each sequence's own, bit for
 * bit where the kernel does not look, else within fp32's rounding of the same truth; wherever the
 * prefix ends, up to where the pages part, the result is the same; without a prefix it is
 * cpu/split-decode's, bit for bit; the sequences in reverse give the results in reverse, bit for
 * bit; a sequence may end with the prefix.  The bytes are the model's, and the saving is what the
 * compulsory bytes promise.
 */
#include "tests/unit/cpu-cache.h"

static const struct attn_impl *const impls[] = {&attn_cpu_naive, &attn_cpu_flash,
                                                &attn_cpu_split_decode, &attn_cpu_cascade};
#define IMPLS (int)(sizeof impls / sizeof *impls)

/* The prefix is what of 96, 33 or 512 tokens is whole pages. */
static const struct {
  const char *text;
  int64_t prefix;
} problems[] = {
    {"op=decode dtype=bf16 b=3 hq=8 hkv=2 sk=211 d=24", 96},
    {"op=decode dtype=fp32 b=5 hq=6 hkv=3 sq=7 sk=1300 d=8 dv=16", 512},
    {"op=decode dtype=fp16 b=2 hq=4 hkv=4 sk=67 d=16 dv=40 layout=bhsd", 33},
    {"op=decode dtype=bf16 b=2 hq=6 hkv=2 sq=16 sk=131 d=12 softcap=3 mask=none", 96},
    {"op=append dtype=bf16 b=2 hq=4 hkv=2 sq=41 sk=130 d=16", 96},
    {"op=append dtype=fp32 b=3 hq=2 hkv=1 sq=40 sk=45 d=8", 33},
    {"op=decode dtype=bf16 b=4 hq=4 hkv=2 sq=4 sk=600 d=8 mask=window:137:0", 512},
    {"op=decode dtype=bf16 hq=4 hkv=2 seqs=2x1/128+1x3/173+1x0/531+1x2/1800+1x16/219+3x1/96 d=16",
     96},
    {"op=decode dtype=fp32 hq=4 hkv=1 seqs=1x1/3999+1x1/1217+1x1/601+1x2/2048+1x1/512 d=8", 512},
    {"op=decode dtype=bf16 b=9 hq=4 hkv=2 sq=2 sk=96 d=16", 96},
};
#define PROBLEMS (sizeof problems / sizeof *problems)

static const int64_t page_sizes[] = {1, 7, 8, 16, 32, 64, 128, 256};
#define PAGES (sizeof page_sizes / sizeof *page_sizes)

static bool open_shared(struct fixture *f, const char *text, int64_t prefix, int64_t page,
                        bool e4m3)
{
  struct attn_problem p;
  char err[256];
  if (!parse(text, &p))
    return false;
  p.page = page;
  p.prefix = prefix / page * page;
  p.kv = e4m3 ? ATTN_KV_E4M3 : ATTN_KV_DTYPE;
  if (attn_problem_check(&p, err, sizeof err))
    return false;
  fixture_init(f, &p, (uint64_t)(page + prefix), 2, 3);
  return true;
}

/* As far apart as two roundings of one truth may be. */
static bool near_outputs(const struct fixture *a, const struct fixture *b)
{
  double step = a->p.dtype == ATTN_BF16 ? 0x1p-7 : a->p.dtype == ATTN_F16 ? 0x1p-10 : 0x1p-18;
  FOR_ELEMENTS(a, B_O, s, r, h, c)
  {
    double x = value(a, B_O, s, r, h, c), y = value(b, B_O, s, r, h, c);
    if (!(fabs(x - y) <= step * fabs(x) + 1e-4))
      return false;
  }
  for (int64_t i = 0; i < a->lse_count; i++)
    if (a->args.lse[i] != b->args.lse[i] && !(fabsf(a->args.lse[i] - b->args.lse[i]) <= 1e-4f))
      return false;
  return true;
}

/* ---- shared is unshared -----------------------------------------------------------------------
 */

static bool equals_unshared(struct attn_machine *m, const struct attn_impl *impl,
                            const struct fixture *shared)
{
  struct fixture f;
  struct attn_problem p = shared->p;
  p.prefix = 0;
  fixture_init(&f, &p, 77, 1, 1);
  if (p.kv)
    for (int64_t h = 0; h < p.hkv; h++) {
      f.k_scale[h] = shared->k_scale[h];
      f.v_scale[h] = shared->v_scale[h];
    }
  copy_inputs(shared, &f);
  bool good = holds(m, impl, &f);
  good = good && (impl == &attn_cpu_cascade ? near_outputs(shared, &f) : same_outputs(shared, &f));
  fixture_free(&f);
  return good;
}

static void test_unshared(struct attn_machine *m, const struct attn_impl *impl, size_t k)
{
  int good = 0, all = 0;
  for (size_t i = k % 2; i < PAGES; i += 2) {
    struct fixture f;
    if (!open_shared(&f, problems[k].text, problems[k].prefix, page_sizes[i], i / 2 % 2))
      continue;
    good += holds(m, impl, &f) && equals_unshared(m, impl, &f);
    all++;
    fixture_free(&f);
  }
  ok(good == all && all > 2, "%s %s prefix=%lld: %d of %d right, and as with pages of their own",
     impl->name, problems[k].text, (long long)problems[k].prefix, good, all);
}

/* ---- where the prefix ends --------------------------------------------------------------------
 */

static void test_any_end(struct attn_machine *m, size_t k)
{
  struct fixture f, kept;
  int good = 0, all = 0;
  if (!open_shared(&f, problems[k].text, problems[k].prefix, 8, false))
    return;
  struct attn_problem p = f.p;
  fixture_init(&kept, &p, 1, 0, 1);
  for (int64_t prefix = p.prefix; prefix >= 0; prefix -= prefix > 64 ? 64 : 8, all++) {
    f.p.prefix = prefix;
    good += holds(m, &attn_cpu_cascade, &f);
    if (prefix == p.prefix) {
      memcpy(kept.args.lse, f.args.lse, (size_t)f.lse_count * sizeof(float));
      FOR_ELEMENTS(&f, B_O, s, r, h, c)
      set_value(&kept, B_O, s, r, h, c, value(&f, B_O, s, r, h, c));
    }
    good -= !near_outputs(&kept, &f);
  }
  ok(good == all && all > 3, "%s: the same for %d of %d ends of the prefix", problems[k].text, good,
     all);
  fixture_free(&f);
  fixture_free(&kept);
}

/* The table and pages are those of a shared prefix; the problem does not say so. */
static void test_no_prefix(struct attn_machine *m, size_t k)
{
  struct fixture f, other;
  if (!open_shared(&f, problems[k].text, problems[k].prefix, 8, k % 2))
    return;
  f.p.prefix = 0;
  fixture_init(&other, &f.p, 1, 2, 1);
  run_on(m, &attn_cpu_split_decode, &f);
  memcpy(other.args.lse, f.args.lse, (size_t)f.lse_count * sizeof(float));
  FOR_ELEMENTS(&f, B_O, s, r, h, c)
  set_value(&other, B_O, s, r, h, c, value(&f, B_O, s, r, h, c));
  bool good = holds(m, &attn_cpu_cascade, &f);
  ok(good && same_outputs(&f, &other), "%s: without a prefix the bits of split-decode",
     problems[k].text);
  fixture_free(&f);
  fixture_free(&other);
}

/* ---- order of the sequences -------------------------------------------------------------------
 */

static struct attn_problem reversed(const struct attn_problem *p)
{
  struct attn_problem r = *p;
  for (int i = 0; i < p->nruns; i++)
    r.runs[i] = p->runs[p->nruns - 1 - i];
  return r;
}

static void test_order(struct attn_machine *m, size_t k)
{
  struct fixture f, back;
  bool same = true;
  if (!open_shared(&f, problems[k].text, problems[k].prefix, 16, false))
    return;
  struct attn_problem p = reversed(&f.p);
  fixture_init(&back, &p, 5, 1, 1);
  for (int which = B_Q; which <= B_V; which++)
    FOR_ELEMENTS(&f, which, s, r, h, c)
  set_value(&back, which, p.b - 1 - s, r, h, c, value(&f, which, s, r, h, c));
  same &= holds(m, &attn_cpu_cascade, &f) && holds(m, &attn_cpu_cascade, &back);
  FOR_ELEMENTS(&f, B_O, s, r, h, c)
  same &= value(&f, B_O, s, r, h, c) == value(&back, B_O, p.b - 1 - s, r, h, c) &&
          *lse_at(&f, s, h, r) == *lse_at(&back, p.b - 1 - s, h, r);
  ok(same, "%s: in reverse, bit for bit", problems[k].text);
  fixture_free(&f);
  fixture_free(&back);
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

static void test_saving(struct attn_machine *m, const char *text, double least)
{
  struct attn_problem p;
  struct fixture f;
  parse(text, &p);
  fixture_init(&f, &p, 1, 0, 1);
  struct ran each = run_on(m, &attn_cpu_split_decode, &f), once = run_on(m, &attn_cpu_cascade, &f);
  struct attn_problem unshared = p;
  unshared.prefix = 0;
  double promised = attn_problem_compulsory_read(&unshared) / attn_problem_compulsory_read(&p);
  double saved = (double)each.read / (double)once.read;
  ok(saved <= 1.02 * promised && saved >= least * promised,
     "%s: the unshared reads %.2f times as much, %.2f by the compulsory bytes", text, saved,
     promised);
  fixture_free(&f);
}

static void test_refusals(void)
{
  struct attn_device dev = {.sram_bytes = 232448, .memory_bytes = (size_t)1 << 40};
  struct attn_problem p;
  parse("op=decode b=4 hq=4 hkv=1 sk=64 d=64", &p);
  const char *reason = attn_cpu_cascade.unsupported(&p, &dev);
  ok(reason && strstr(reason, "no pages"), "a contiguous cache shares nothing");
  parse("op=append b=2 hq=64 hkv=1 sq=64 sk=64 d=128 page=16 prefix=32", &p);
  reason = attn_cpu_cascade.unsupported(&p, &dev);
  ok(reason && strstr(reason, "4096 queries"), "queries that do not fit are refused");
}

int main(void)
{
  struct attn_machine *m = attn_machine_create(0, 2), *small = attn_machine_create(24 << 10, 2);
  for (size_t k = 0; k < PROBLEMS; k++) {
    for (int i = 0; i < IMPLS; i++)
      test_unshared(k % 2 ? m : small, impls[i], k);
    test_any_end(small, k);
    test_no_prefix(m, k);
    test_order(k % 2 ? small : m, k);
  }
  test_saving(m, "op=decode b=16 hq=8 hkv=2 sk=4160 d=64 page=16 prefix=4096", 0.9);
  test_saving(m, "op=decode b=4 hq=8 hkv=2 sq=4 sk=4352 d=64 page=64 prefix=2048", 0.95);
  test_saving(m,
              "op=decode hq=8 hkv=2 d=64 page=16 kv=e4m3 prefix=2048 "
              "seqs=1x1/2049+1x1/2100+1x1/2307+1x1/2801+1x1/4095+2x1/2048",
              0.85);
  test_refusals();
  attn_machine_destroy(m);
  attn_machine_destroy(small);
  return done_testing();
}
