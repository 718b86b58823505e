/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict: a correct emulated kernel is never accused, in any regime, type and declared
 * numerics; its error is within a factor of the bound (printed); and planted faults die.
 */
#include "config.h"

#include "reference/compare.h"
#include "tests/unit/reference-emulate.h"

static const struct attn_problem base = {.op = ATTN_FWD,
                                         .dtype = ATTN_BF16,
                                         .b = 1,
                                         .hq = 2,
                                         .hkv = 1,
                                         .sq = 24,
                                         .sk = 200,
                                         .d = 64,
                                         .dv = 64,
                                         .mask = ATTN_MASK_CAUSAL};

static const char *const dtype_name[] = {"fp32", "bf16", "fp16"};

/* What a correct kernel of this type declares. */
static struct attn_numerics declared(enum attn_dtype t)
{
  struct attn_numerics num = {.prob = t == ATTN_F32 ? ATTN_ROUND_F32 : ATTN_ROUND_STORAGE};
  return num;
}

static struct ref_verdict run(struct attn_problem p, enum regime regime, struct emulation e,
                              const struct ref_plan *plan)
{
  struct ref_verdict v;
  struct fixture f;
  fixture_open(&f, &p, regime, 17);
  if (p.op == ATTN_BWD) {
    ref_forward_host(&p, &f.a);
    emulate_backward(&f, &e);
  } else {
    emulate_forward(&f, &e);
  }
  if (ref_verify_host(&p, &e.num, &f.a, plan, &v) != ATTN_OK)
    v.pass = false;
  fixture_close(&f);
  return v;
}

static void complain(const struct ref_verdict *v)
{
  const struct ref_worst *w = &v->worst;
  diag("%s[%d %d %d %d] = %g, want %g +- %g", w->tensor ? w->tensor : "?", (int)w->seq, (int)w->row,
       (int)w->head, (int)w->col, w->got, w->want, w->bound);
}

/* ---- no correct kernel is accused, and the bound is not slack ---------------------------------
 */

static void forward_regimes(void)
{
  static const int64_t lengths[] = {24, 200, 2000};
  double most = 0, least = 1, lse_most = 0;
  bool pass = true;
  for (int t = 0; t < 3; t++)
    for (int r = 0; r < REGIMES; r++)
      for (int n = 0; n < 3; n++) {
        struct attn_problem p = base;
        p.dtype = (enum attn_dtype)t;
        p.sk = lengths[n];
        struct ref_verdict v = run(
            p, (enum regime)r, (struct emulation){declared(p.dtype), 64, r & 1, NO_FAULT}, NULL);
        pass = pass && v.pass;
        most = fmax(most, v.bound_ratio);
        least = fmin(least, v.bound_ratio);
        lse_most = fmax(lse_most, v.lse_bound_ratio);
        diag("forward %s %-10s N=%4d: O err/bound %.3f, LSE %.3f, %.2f ulp", dtype_name[t],
             regime_name[r], (int)lengths[n], v.bound_ratio, v.lse_bound_ratio, v.max_ulp);
      }
  ok(pass, "no correct forward kernel is accused (worst %.3f, LSE %.3f)", most, lse_most);
  ok(least > 0.01 && lse_most > 0.01, "the bound is within 100 x of the error (least %.3f)", least);
}

static void backward_regimes(void)
{
  static const int64_t lengths[] = {24, 200};
  double most = 0, least = 1;
  bool pass = true;
  for (int t = 0; t < 3; t++)
    for (int r = 0; r < REGIMES; r++)
      for (int n = 0; n < 2; n++) {
        struct attn_problem p = base;
        p.op = ATTN_BWD;
        p.dtype = (enum attn_dtype)t;
        p.sq = p.sk = lengths[n];
        struct ref_verdict v = run(
            p, (enum regime)r, (struct emulation){declared(p.dtype), 64, false, NO_FAULT}, NULL);
        pass = pass && v.pass;
        most = fmax(most, v.bound_ratio);
        least = fmin(least, v.bound_ratio);
        diag("backward %s %-10s N=%4d: err/bound %.3f (%s), %.2f ulp", dtype_name[t],
             regime_name[r], (int)lengths[n], v.bound_ratio, v.worst.tensor, v.max_ulp);
      }
  ok(pass, "no correct backward kernel is accused (worst %.3f)", most);
  ok(least > 0.01, "the bound is within 100 x of the error (least %.3f)", least);
}

static void never_accused(struct attn_problem p, enum regime regime, struct attn_numerics num,
                          const char *name)
{
  struct emulation e = {num, 64, false, NO_FAULT};
  struct ref_verdict v = run(p, regime, e, NULL), b;
  if (!v.pass)
    complain(&v);
  p.op = ATTN_BWD;
  p.sk = p.sk > 200 ? 200 : p.sk;
  b = run(p, regime, e, NULL);
  if (!b.pass)
    complain(&b);
  ok(v.pass && b.pass, "not accused: %s (O %.3f, LSE %.3f, gradients %.3f)", name, v.bound_ratio,
     v.lse_bound_ratio, b.bound_ratio);
}

static void options(void)
{
  struct attn_numerics num = declared(ATTN_BF16);
  struct attn_problem p = base;
  p.hq = 4;
  p.hkv = 2;
  p.mask = ATTN_MASK_WINDOW;
  p.window_left = 30;
  p.window_right = 3;
  never_accused(p, IID, num, "window");
  p.softcap = 2;
  never_accused(p, LARGE_SCORES, num, "softcap");
  p.alibi = true;
  never_accused(p, IID, num, "ALiBi");
  p.dropout_p = 0.3;
  p.dropout_seed = 5;
  never_accused(p, IID, num, "dropout");
  p = base;
  p.sq = 90;
  p.sk = 40;
  p.dropout_p = 0.3;
  p.dtype = ATTN_F16;
  never_accused(p, V_MEAN_8, num, "sq > sk, dropout, fp16");
  p = base;
  p.layout = ATTN_PACKED;
  p.nruns = 3;
  p.runs[0] = (struct attn_run){2, 7, 33};
  p.runs[1] = (struct attn_run){1, 5, 0};
  p.runs[2] = (struct attn_run){1, 20, 65};
  p.b = 4;
  never_accused(p, IID, num, "ragged");
}

static void numerics(void)
{
  struct attn_numerics num = declared(ATTN_BF16);
  struct attn_problem p = base;
  num.accum_truncates = true;
  never_accused(p, IID, num, "truncating adders");
  p.sk = 2000;
  never_accused(p, V_MEAN_8, num, "truncating adders, V mean 8, N=2000");
  p.dtype = ATTN_F16;
  never_accused(p, V_MEAN_8, num, "truncating adders, V mean 8, fp16");
  p = base;
  num = declared(ATTN_BF16);
  num.sum_of_rounded = true;
  never_accused(p, V_MEAN_8, num, "denominator of rounded P");
  num = declared(ATTN_BF16);
  num.score = ATTN_ROUND_STORAGE;
  never_accused(p, IID, num, "scores in bf16");
  never_accused(p, LARGE_SCORES, num, "scores in bf16, x6");
  p.dtype = ATTN_F16;
  never_accused(p, LARGE_SCORES, num, "scores in fp16, x6");
  num = declared(ATTN_BF16);
  num.normalize_first = true;
  p.sk = 2000;
  never_accused(p, IID, num, "P normalised, then rounded, fp16, N=2000");
}

/* Scores so close that P rounds alike over whole rows, or takes few values: where the roundings of
 * the probabilistic bound are not independent. */
static void coherent_roundings(void)
{
  static const double gains[] = {0, 0.003, 0.02, 0.1, 0.3};
  for (int k = 0; k < 7; k++) {
    struct attn_problem p = base;
    struct emulation e = {declared(ATTN_BF16), 64, false, NO_FAULT};
    struct ref_verdict v;
    struct fixture f;
    p.sq = 4;
    p.sk = 4000;
    p.hq = 1;
    p.dv = 16;
    fixture_open(&f, &p, V_MEAN_8, 23);
    for (int64_t i = 0; i < 4 * 64; i++)
      put(&f, &f.a.q, i, get(&f, &f.a.q, i) * (k < 5 ? gains[k] : 1));
    for (int64_t j = 0; j < 4000 && k >= 5; j++) /* two keys, or eight, over and over */
      for (int64_t c = 0; c < 64; c++)
        put(&f, &f.a.k, j * 64 + c, get(&f, &f.a.k, j % (k == 5 ? 2 : 8) * 64 + c));
    emulate_forward(&f, &e);
    ref_verify_host(&p, &e.num, &f.a, NULL, &v);
    if (!v.pass)
      complain(&v);
    ok(v.pass, "not accused: V mean 8, N=4000, %s %g (%.3f)", k < 5 ? "scores x" : "distinct keys",
       k < 5    ? gains[k]
       : k == 5 ? 2
                : 8.0,
       v.bound_ratio);
    fixture_close(&f);
  }
}

/* ---- faults die ------------------------------------------------------------------------------ */

/* In how many of 18 cells (type, regime, length) is the fault found? */
static int kills(enum fault fault, enum attn_op op)
{
  int found = 0;
  for (int t = 0; t < 3; t++)
    for (int r = 0; r < REGIMES; r++)
      for (int n = 0; n < 2; n++) {
        struct attn_problem p = base;
        p.op = op;
        p.dtype = (enum attn_dtype)t;
        p.mask = fault == DROP_LAST_KEY ? ATTN_MASK_NONE : ATTN_MASK_CAUSAL;
        p.hq = 4;
        p.hkv = 2;
        p.sq = op == ATTN_BWD ? 40 : 20;
        p.sk = n ? (op == ATTN_BWD ? 100 : 300) : 41;
        p.d = p.dv = 32;
        found +=
            !run(p, (enum regime)r, (struct emulation){declared(p.dtype), 64, false, fault}, NULL)
                 .pass;
      }
  return found;
}

static void faults(void)
{
  static const enum fault forward[] = {DROP_LAST_KEY, CAUSAL_OFF_BY_ONE, SCALE_1_PERCENT,
                                       WRONG_KV_HEAD, LSE_BASE_2,        NOT_NORMALISED,
                                       WRITES_NAN,    WRITES_ZERO,       NO_RESCALE};
  static const enum fault backward[] = {DROP_LAST_KEY, CAUSAL_OFF_BY_ONE, SCALE_1_PERCENT,
                                        WRONG_KV_HEAD, HEADS_NOT_SUMMED,  NO_D,
                                        NO_SCALE_DK};
  for (size_t k = 0; k < sizeof forward / sizeof *forward; k++) {
    int n = kills(forward[k], ATTN_FWD);
    int most = forward[k] == NO_RESCALE ? 9 : 18; /* nothing to rescale in a single tile */
    ok(n == most, "forward, %s: killed in %d of %d cells", fault_name[forward[k]], n, most);
  }
  for (size_t k = 0; k < sizeof backward / sizeof *backward; k++) {
    int n = kills(backward[k], ATTN_BWD);
    ok(n == 18, "backward, %s: killed in %d of 18 cells", fault_name[backward[k]], n);
  }
}

/* Accumulators in 16 bit: wrong only where the storage type is 16 bit and there are many keys. */
static void narrow_accumulators(void)
{
  struct attn_problem p = base;
  p.sk = 2000;
  struct emulation e = {declared(ATTN_BF16), 64, false, SUM_16_BIT};
  ok(!run(p, IID, e, NULL).pass, "forward, 16-bit sum: killed");
  e.fault = O_16_BIT;
  ok(!run(p, IID, e, NULL).pass, "forward, 16-bit accumulator of O: killed");
  ok(!run(p, V_MEAN_8, e, NULL).pass, "forward, 16-bit accumulator of O, V mean 8: killed");
  p.dtype = ATTN_F16;
  ok(!run(p, V_MEAN_8, e, NULL).pass, "forward, fp16 accumulator of O, V mean 8: killed");
}

/* ---- the verdict itself ---------------------------------------------------------------------- */

static struct ref_verdict verdict_of(struct fixture *f, const struct ref_plan *plan)
{
  struct ref_verdict v;
  struct attn_numerics num = declared(f->p.dtype);
  if (ref_verify_host(&f->p, &num, &f->a, plan, &v) != ATTN_OK)
    v.pass = false;
  return v;
}

static void rules(void)
{
  struct attn_problem p = base;
  struct fixture f;
  struct ref_verdict v;
  int64_t at;
  p.sq = 30;
  p.sk = 26; /* rows 0 to 3 see nothing */
  fixture_open(&f, &p, IID, 2);
  v = verdict_of(&f, NULL);
  ok(!v.pass && isinf(v.bound_ratio) && isnan(v.worst.got), "outputs never written (NaN) fail");
  ref_forward_host(&p, &f.a);
  v = verdict_of(&f, NULL);
  ok(v.pass && v.checked_rows == 60 && v.total_rows == 60 && v.rel_fro < 0x1p-8 &&
         v.max_ulp <= 0.51,
     "the truth, rounded, passes (ratio %.3f, %.2f ulp)", v.bound_ratio, v.max_ulp);
  ok(v.lse_bound_ratio > 0 && v.lse_bound_ratio < 0.1, "its LSE too (%.4f)", v.lse_bound_ratio);

  at = at_q(&f, &f.a.o, 0, 1, 20) + 5;
  double was = get(&f, &f.a.o, at), step = ref_ulp(ATTN_BF16, was);
  put(&f, &f.a.o, at, was + 40 * step);
  v = verdict_of(&f, NULL);
  ok(!v.pass && !strcmp(v.worst.tensor, "o") && v.worst.head == 1 && v.worst.row == 20 &&
         v.worst.col == 5 && v.worst.got == get(&f, &f.a.o, at) && fabs(v.worst.want - was) <= step,
     "the worst element is named (ratio %.2f)", v.bound_ratio);
  put(&f, &f.a.o, at, INFINITY);
  v = verdict_of(&f, NULL);
  ok(!v.pass && isinf(v.bound_ratio) && v.worst.col == 5, "infinity fails");
  put(&f, &f.a.o, at, was);

  put(&f, &f.a.o, at_q(&f, &f.a.o, 0, 0, 3), 0x1p-130);
  v = verdict_of(&f, NULL);
  ok(!v.pass && v.worst.row == 3, "6.3 an empty row must be exactly 0");
  put(&f, &f.a.o, at_q(&f, &f.a.o, 0, 0, 3), -0.0);
  f.a.lse[at_lse(&f, 0, 1, 2)] = -1e30f;
  v = verdict_of(&f, NULL);
  ok(!v.pass && !strcmp(v.worst.tensor, "lse") && v.worst.row == 2 && v.worst.head == 1,
     "6.3 and its LSE -inf, not merely small");
  f.a.lse[at_lse(&f, 0, 1, 2)] = -INFINITY;
  ok(verdict_of(&f, NULL).pass, "-0 is 0");
  f.a.lse[at_lse(&f, 0, 0, 9)] = -INFINITY;
  ok(!verdict_of(&f, NULL).pass, "-inf where a key is seen fails");
  fixture_close(&f);
}

static void gradient_rules(void)
{
  struct attn_problem p = base;
  struct fixture f;
  struct emulation e = {declared(ATTN_BF16), 64, false, NO_FAULT};
  p.op = ATTN_BWD;
  p.sq = 30;
  p.sk = 26;
  fixture_open(&f, &p, IID, 2);
  ref_forward_host(&p, &f.a);
  ok(!verdict_of(&f, NULL).pass, "gradients never written fail");
  emulate_backward(&f, &e);
  struct ref_verdict v = verdict_of(&f, NULL);
  ok(v.pass && isnan(v.lse_bound_ratio) && v.checked_rows == 60 + 26 && v.total_rows == 86,
     "right gradients pass; there is no LSE to judge");
  put(&f, &f.a.dq, at_q(&f, &f.a.dq, 0, 1, 2), 0x1p-120);
  ok(!verdict_of(&f, NULL).pass, "7.6 dQ of an empty row must be exactly 0");
  put(&f, &f.a.dq, at_q(&f, &f.a.dq, 0, 1, 2), 0);
  for (int64_t c = 0; c < 64; c++)
    put(&f, &f.a.o, at_q(&f, &f.a.o, 0, 1, 20) + c, 5);
  emulate_backward(&f, &e);
  ok(!verdict_of(&f, NULL).pass, "7.7 a wrong O, given, does not loosen the bound");
  fixture_close(&f);
}

/* Does the verdict on sampled rows look at (seq, head, row)? */
static bool looks_at(struct fixture *f, const struct ref_plan *plan, int64_t s, int64_t h,
                     int64_t i)
{
  int64_t at = at_q(f, &f->a.o, s, h, i);
  double was = get(f, &f->a.o, at);
  put(f, &f->a.o, at, was + 100);
  bool fails = !verdict_of(f, plan).pass;
  put(f, &f->a.o, at, was);
  return fails;
}

/* Sampled rows: within the number asked for, ends of sequences included, and any non-finite value
 * in a row that was not sampled is found. */
static void sampling(void)
{
  struct attn_problem p = base;
  struct ref_plan plan = {40, 3};
  struct fixture f;
  int64_t row = 10;
  p.b = 3;
  p.sq = p.sk = 150;
  p.d = p.dv = 16;
  fixture_open(&f, &p, IID, 2);
  ref_forward_host(&p, &f.a);
  struct ref_verdict v = verdict_of(&f, &plan);
  ok(v.pass && v.checked_rows <= 40 && v.checked_rows > 30 && v.total_rows == 900, "%d of 900 rows",
     (int)v.checked_rows);
  bool ends = true;
  for (int64_t s = 0; s < 3; s++)
    ends = ends && (looks_at(&f, &plan, s, 0, 0) || looks_at(&f, &plan, s, 1, 0)) &&
           (looks_at(&f, &plan, s, 0, 149) || looks_at(&f, &plan, s, 1, 149));
  ok(ends, "the first and the last row of each sequence are among them");
  while (looks_at(&f, &plan, 1, 1, row))
    row++;
  put(&f, &f.a.o, at_q(&f, &f.a.o, 1, 1, row) + 15, NAN);
  v = verdict_of(&f, &plan);
  ok(!v.pass && v.worst.row == row && v.worst.seq == 1 && v.worst.head == 1 && v.worst.col == 15,
     "NaN in a row that was not sampled fails and is named");
  put(&f, &f.a.o, at_q(&f, &f.a.o, 1, 1, row) + 15, 0);
  f.a.lse[at_lse(&f, 1, 1, row)] = INFINITY;
  v = verdict_of(&f, &plan);
  ok(!v.pass && !strcmp(v.worst.tensor, "lse"), "so does an infinite LSE");
  fixture_close(&f);
}

/* A fault in one row in sixty-four, or in the last, is found by sampling. */
static void sampled_faults(void)
{
  struct attn_problem p = base;
  struct ref_plan plan = {24, 8};
  p.sq = p.sk = 260;
  p.d = p.dv = 16;
  p.hq = 2;
  struct emulation e = {declared(ATTN_BF16), 64, false, DROP_LAST_KEY};
  ok(!run(p, IID, e, &plan).pass, "a fault of the last row alone is found among 24 of 520 rows");
  p.op = ATTN_BWD;
  e.fault = HEADS_NOT_SUMMED;
  struct ref_verdict v = run(p, IID, e, &plan);
  ok(!v.pass && v.checked_rows <= 48, "gradients, %d of 780 rows and columns", (int)v.checked_rows);
}

/* A single key: O = V to the bit however large the score; the bound leaves nothing but the rounding
 * of O. */
static void single_key(void)
{
  struct attn_problem p = base;
  struct fixture f;
  p.sq = p.sk = 1;
  fixture_open(&f, &p, IID, 6);
  for (int64_t c = 0; c < 128; c++) {
    put(&f, &f.a.q, c, 133120);
    if (c < 64)
      put(&f, &f.a.k, c, 133120);
  }
  ref_forward_host(&p, &f.a);
  ok(verdict_of(&f, NULL).pass, "one key, score 1.4e11: O = V passes");
  put(&f, &f.a.o, 3, get(&f, &f.a.v, 3) * 1.02);
  ok(!verdict_of(&f, NULL).pass, "and 2 %% off fails");
  fixture_close(&f);
}

int main(void)
{
  forward_regimes();
  backward_regimes();
  options();
  numerics();
  coherent_roundings();
  faults();
  narrow_accumulators();
  rules();
  gradient_rules();
  sampling();
  sampled_faults();
  single_key();
  return done_testing();
}
