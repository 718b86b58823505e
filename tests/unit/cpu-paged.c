/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-paged.c - caches: paged and contiguous, decode and append, on the cpu device.
 *
 * The laws: on a paged cache an implementation gives the bits that it gives on the contiguous one,
 * whatever the order of the pages; slots past the end and foreign pages, NaN here, change nothing;
 * the last slot of every page counts; an e4m3 cache gives the bits of the fp32 cache that holds its
 * numbers times their scales; the machine's bytes are the model's.  And of the merge: empty
 * parts have no weight, one part stays as it is, and parts of parts make the whole.
 */
#include "impl/cpu/packed.h"
#include "tests/unit/cpu-cache.h"

static const struct attn_impl *const impls[] = {
    &attn_cpu_naive, &attn_cpu_flash, &attn_cpu_flash_materialised, &attn_cpu_split_decode};
#define IMPLS (int)(sizeof impls / sizeof *impls)

static const int64_t page_sizes[] = {1, 7, 8, 16, 32, 64, 128, 256};

/* ---- paged is contiguous ----------------------------------------------------------------------
 */

static bool equals_contiguous(struct attn_machine *m, const struct attn_impl *impl,
                              struct fixture *flat, const struct attn_problem *paged,
                              uint64_t order)
{
  struct fixture f;
  fixture_init(&f, paged, order, 3, 4);
  copy_inputs(flat, &f);
  bool good = holds(m, impl, &f) && same_outputs(&f, flat);
  fixture_free(&f);
  return good;
}

static void test_pages(struct attn_machine *m, const struct attn_impl *impl, const char *text)
{
  struct attn_problem p;
  struct fixture flat;
  int good = 0, all = 0;
  if (!parse(text, &p))
    return;
  fixture_init(&flat, &p, 11, 2, 4);
  if (run_on(m, impl, &flat).refused) {
    fixture_free(&flat);
    return;
  }
  good += holds(m, impl, &flat);
  all++;
  for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++)
    for (uint64_t order = 1; order < 3; order++, all++) {
      struct attn_problem paged = p;
      paged.page = page_sizes[i];
      good += equals_contiguous(m, impl, &flat, &paged, order);
    }
  ok(good == all, "%s %s: %d of %d right, bit for bit, in any order of pages", impl->name, text,
     good, all);
  fixture_free(&flat);
}

static const char *const problems[] = {
    "op=decode dtype=bf16 b=3 hq=8 hkv=2 sk=211 d=24",
    "op=decode dtype=fp16 b=2 hq=4 hkv=4 sk=67 d=16 dv=40 layout=bhsd",
    "op=decode dtype=fp32 b=1 hq=6 hkv=1 sq=7 sk=1200 d=8",
    "op=decode dtype=bf16 b=2 hq=6 hkv=2 sq=16 sk=131 d=12 softcap=3",
    "op=decode dtype=bf16 b=1 hq=4 hkv=2 sq=4 sk=1111 d=8 mask=window:37:0",
    "op=append dtype=bf16 b=2 hq=4 hkv=2 sq=41 sk=90 d=16",
    "op=append dtype=bf16 b=1 hq=4 hkv=1 sq=3 sk=90 d=16 alibi=1 dropout=0.2@7",
    "op=fwd dtype=bf16 b=1 hq=2 hkv=1 sq=30 sk=20 d=16 mask=causal",
    "op=decode dtype=bf16 hq=4 hkv=2 seqs=2x1/33+1x3/700+1x0/9+1x2/1500+1x1/1+1x1/64 d=16",
};

static const char *const e4m3_problems[] = {
    "op=decode dtype=fp32 b=2 hq=6 hkv=3 sk=211 d=24 dv=16",
    "op=decode dtype=bf16 b=2 hq=6 hkv=2 sq=16 sk=131 d=12 softcap=3",
    "op=append dtype=fp32 b=2 hq=4 hkv=4 sq=41 sk=90 d=17 layout=bhsd",
    "op=decode dtype=fp32 hq=4 hkv=2 seqs=2x1/33+1x3/700+1x0/9+1x2/1500+1x1/1+1x1/64 d=16",
    "op=decode dtype=fp16 b=1 hq=4 hkv=2 sq=4 sk=1111 d=8 mask=window:37:0",
};

/* Products of 4 and 16 bits are exact in fp32. */
static void test_e4m3(struct attn_machine *m, const struct attn_impl *impl, const char *text)
{
  struct attn_problem p;
  struct fixture f, wide;
  int good = 0, all = 0;
  if (!parse(text, &p))
    return;
  p.kv = ATTN_KV_E4M3;
  for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++, all++) {
    p.page = page_sizes[i];
    fixture_init(&f, &p, i + 1, 3, 2);
    if (run_on(m, impl, &f).refused) {
      fixture_free(&f);
      return;
    }
    struct attn_problem flat = p;
    flat.page = 0;
    flat.kv = ATTN_KV_DTYPE;
    fixture_init(&wide, &flat, 1, 2, 1);
    copy_inputs(&f, &wide);
    bool same = p.dtype != ATTN_F32 || (!run_on(m, impl, &wide).status && same_outputs(&f, &wide));
    good += holds(m, impl, &f) && same;
    fixture_free(&f);
    fixture_free(&wide);
  }
  ok(good == all, "%s e4m3 %s: %d of %d right, in fp32 bit for bit", impl->name, text, good, all);
}

/* One token less than, as many as, and one more than fill a page. */
static void test_edges(struct attn_machine *m, const struct attn_impl *impl)
{
  int good = 0, all = 0;
  for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++)
    for (int64_t n = -1; n < 2; n++)
      for (int64_t pages = 1; pages < 4; pages += 2) {
        struct attn_problem p;
        struct fixture f;
        char text[128];
        int64_t sk = pages * page_sizes[i] + n;
        if (sk < 1)
          continue;
        snprintf(text, sizeof text, "op=decode dtype=bf16 b=2 hq=4 hkv=2 sk=%lld d=16 page=%lld",
                 (long long)sk, (long long)page_sizes[i]);
        if (!parse(text, &p))
          continue;
        fixture_init(&f, &p, (uint64_t)sk, 1, 4);
        good += holds(m, impl, &f);
        all++;
        fixture_free(&f);
      }
  ok(good == all, "%s: %d of %d lengths at the edges of pages", impl->name, good, all);
}

/* A large value in the last slot of a page must move the output, for each page. */
static void test_last_slots(struct attn_machine *m, const struct attn_impl *impl)
{
  struct attn_problem p;
  struct fixture f;
  int moved = 0, all = 0;
  parse("op=decode dtype=fp32 b=1 hq=1 hkv=1 sk=26 d=8 page=6", &p);
  fixture_init(&f, &p, 3, 0, 1);
  run_on(m, impl, &f);
  double before = value(&f, B_O, 0, 0, 0, 0);
  for (int64_t j = 5; j < p.sk; j += 6, all++) {
    float *v = (float *)f.b[B_V].t.data + element(&f, B_V, 0, j, 0, 0), kept = *v;
    *v = 1e6f;
    run_on(m, impl, &f);
    moved += value(&f, B_O, 0, 0, 0, 0) != before;
    *v = kept;
  }
  ok(moved == all && all == 4, "%s reads the last slot of each of %d full pages", impl->name, all);
  fixture_free(&f);
}

/* ---- the merge --------------------------------------------------------------------------------
 */

#define PARTS 5
#define WIDTH 8

/* One row merged from n parts. */
static float merge_row(int n, float part[][WIDTH], const float *lse, float *o)
{
  float top[8], sum[8] = {0}, row[8 * WIDTH] __attribute__((aligned(32))) = {0};
  for (int i = 0; i < 8; i++)
    top[i] = -INFINITY;
  for (int k = 0; k < n; k++)
    attn_merge_top(top, &lse[k], 1);
  for (int k = 0; k < n; k++)
    attn_merge_add(row, sum, top, part[k], &lse[k], 1, WIDTH, WIDTH);
  attn_merge_end(row, sum, top, 1, WIDTH, WIDTH);
  memcpy(o, row, WIDTH * sizeof *o);
  return top[0];
}

static void test_merge(void)
{
  float part[PARTS][WIDTH], lse[PARTS], o[WIDTH], both[2][WIDTH], halves[2], zero[WIDTH] = {0};
  uint64_t rng = 5;
  for (int k = 0; k < PARTS; k++) {
    lse[k] = 20 * draw_real(&rng);
    for (int c = 0; c < WIDTH; c++)
      part[k][c] = draw_real(&rng);
  }
  float empty[2][WIDTH] = {{0}}, none[2] = {-INFINITY, -INFINITY};
  ok(merge_row(2, empty, none, o) == -INFINITY && !memcmp(o, zero, sizeof o),
     "two empty parts make an empty one");
  float mixed[3][WIDTH], of[3] = {-INFINITY, lse[1], -INFINITY};
  for (int c = 0; c < WIDTH; c++) {
    mixed[0][c] = mixed[2][c] = NAN;
    mixed[1][c] = part[1][c];
  }
  ok(merge_row(3, mixed, of, o) == lse[1] && !memcmp(o, part[1], sizeof o),
     "empty parts, NaN and all, leave the other as it is, bit for bit");
  double top = -INFINITY, sum = 0, err = 0;
  for (int k = 0; k < PARTS; k++)
    top = fmax(top, lse[k]);
  for (int k = 0; k < PARTS; k++)
    sum += exp(lse[k] - top);
  float all = merge_row(PARTS, part, lse, o);
  for (int c = 0; c < WIDTH; c++) {
    double want = 0;
    for (int k = 0; k < PARTS; k++)
      want += exp(lse[k] - top) / sum * part[k][c];
    err = fmax(err, fabs(want - o[c]));
  }
  ok(err < 1e-6 && fabs(all - (top + log(sum))) < 1e-5, "weights are exp(LSE_s - LSE), natural");
  halves[0] = merge_row(2, part, lse, both[0]);
  halves[1] = merge_row(PARTS - 2, part + 2, lse + 2, both[1]);
  float again[WIDTH], joined = merge_row(2, both, halves, again);
  err = fabs(joined - all);
  for (int c = 0; c < WIDTH; c++)
    err = fmax(err, fabs(again[c] - o[c]));
  ok(err < 2e-6, "parts of parts make the whole: %g", err);
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

/* Split decode reads K and V once, flash once a query head. */
static void test_sharing(struct attn_machine *m)
{
  struct attn_problem p;
  struct fixture f;
  parse("op=decode dtype=bf16 b=1 hq=8 hkv=2 sk=2048 d=64 page=16", &p);
  fixture_init(&f, &p, 1, 0, 1);
  struct ran flash = run_on(m, &attn_cpu_flash, &f), split = run_on(m, &attn_cpu_split_decode, &f);
  double least = attn_problem_compulsory_read(&p), table = 4.0 * 2048 / 16;
  ok(least > 2048.0 * 2 * 2 * 64 * 2 + table, "the table is compulsory");
  ok(split.read < 1.06 * least, "split decode reads %.3f of the compulsory bytes",
     (double)split.read / least);
  ok(flash.read > 3.9 * least, "flash reads K and V for each of 4 query heads: %.2f",
     (double)flash.read / least);
  fixture_free(&f);
}

static void test_refusals(void)
{
  struct attn_device dev = {.sram_bytes = 232448, .memory_bytes = (size_t)1 << 40};
  struct attn_problem p;
  parse("op=decode b=1 hq=4 hkv=1 sk=64 d=64 alibi=1", &p);
  const char *reason = attn_cpu_split_decode.unsupported(&p, &dev);
  ok(reason && strstr(reason, "alibi"), "split decode refuses ALiBi");
  parse("op=append b=1 hq=64 hkv=1 sq=64 sk=64 d=128", &p);
  reason = attn_cpu_split_decode.unsupported(&p, &dev);
  ok(reason && strstr(reason, "4096 queries"), "and queries that do not fit");
}

int main(void)
{
  struct attn_machine *m = attn_machine_create(0, 2), *small = attn_machine_create(24 << 10, 2);
  for (int i = 0; i < IMPLS; i++) {
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
      test_pages(k % 2 ? m : small, impls[i], problems[k]);
    for (size_t k = 0; k < sizeof e4m3_problems / sizeof *e4m3_problems; k++)
      test_e4m3(k % 2 ? m : small, impls[i], e4m3_problems[k]);
    test_edges(m, impls[i]);
    test_last_slots(m, impls[i]);
  }
  test_merge();
  test_sharing(m);
  test_refusals();
  attn_machine_destroy(m);
  attn_machine_destroy(small);
  return done_testing();
}
