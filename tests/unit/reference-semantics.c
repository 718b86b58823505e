/* SPDX-License-Identifier: Apache-2.0
 *
 * Each sentence of reference/SEMANTICS on forward, named by its number: the reference's rows
 * against what the sentence says, computed here in the plainest way.
 */
#include "config.h"

#include "reference/internal.h"
#include "tests/unit/reference-emulate.h"

/* A problem of one head whose queries are 0 and whose V names the key: O[j] = weight of key j. */
static void census_open(struct fixture *f, const struct attn_problem *p)
{
  fixture_open(f, p, IID, 1);
  for (int64_t s = 0; s < f->nseq; s++) {
    for (int64_t h = 0; h < p->hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++)
        for (int64_t c = 0; c < p->d; c++)
          put(f, &f->a.q, at_q(f, &f->a.q, s, h, i) + c, 0);
    for (int64_t h = 0; h < p->hkv; h++)
      for (int64_t j = 0; j < f->sk[s]; j++)
        for (int64_t c = 0; c < p->dv; c++)
          put(f, &f->a.v, at_k(f, &f->a.v, s, h, j) + c, c == j);
  }
}

static const struct attn_problem census = {
    .op = ATTN_FWD, .dtype = ATTN_F32, .b = 1, .hq = 1, .hkv = 1, .d = 3, .dv = 16};

typedef bool (*rule)(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right);

/* Does every row of every sq x sk up to 9 x 9 see exactly the keys of the rule, with equal weights,
 * and is its lse ln n? */
static bool sees_exactly(enum attn_mask mask, int64_t left, int64_t right, rule r)
{
  bool right_sets = true;
  for (int64_t sq = 1; sq <= 9; sq++)
    for (int64_t sk = 1; sk <= 9; sk++) {
      struct attn_problem p = census;
      struct fixture f;
      p.sq = sq;
      p.sk = sk;
      p.mask = mask;
      p.window_left = left;
      p.window_right = right;
      census_open(&f, &p);
      for (int64_t i = 0; i < sq; i++) {
        double o[16], lse, n = 0;
        ref_row_host(&p, &f.a, 0, 0, i, o, &lse);
        for (int64_t j = 0; j < sk; j++)
          n += r(sq, sk, i, j, left, right);
        for (int64_t j = 0; j < sk; j++) {
          double want = r(sq, sk, i, j, left, right) ? 1 / n : 0;
          right_sets = right_sets && fabs(o[j] - want) < 1e-15;
        }
        right_sets = right_sets && (n > 0 ? fabs(lse - log(n)) < 1e-15 : lse == -INFINITY);
      }
      fixture_close(&f);
    }
  return right_sets;
}

static bool all(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right)
{
  return true;
}

static bool bottom_right(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right)
{
  return j <= i + sk - sq;
}

static bool top_left(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right)
{
  return j <= i;
}

static bool window(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right)
{
  int64_t diagonal = i + sk - sq;
  return (left == -1 || diagonal - left <= j) && (right == -1 || j <= diagonal + right);
}

static bool diagonal(int64_t sq, int64_t sk, int64_t i, int64_t j, int64_t left, int64_t right)
{
  return j - sk == i - sq;
}

static void masks(void)
{
  ok(sees_exactly(ATTN_MASK_NONE, 0, 0, all), "2.1 no mask");
  ok(sees_exactly(ATTN_MASK_CAUSAL, 0, 0, bottom_right), "2.2 causal is bottom-right aligned");
  ok(sees_exactly(ATTN_MASK_CAUSAL_TOPLEFT, 0, 0, top_left), "2.3 causal-topleft");
  ok(sees_exactly(ATTN_MASK_WINDOW, 2, 1, window), "2.4 window:2:1, both ends included");
  ok(sees_exactly(ATTN_MASK_WINDOW, 0, 3, window), "2.4 window:0:3");
  ok(sees_exactly(ATTN_MASK_WINDOW, 3, -1, window), "2.5 window:3:-1");
  ok(sees_exactly(ATTN_MASK_WINDOW, -1, 1, window), "2.5 window:-1:1");
  ok(sees_exactly(ATTN_MASK_WINDOW, -1, 0, bottom_right), "2.5 window:-1:0 is causal");
  ok(sees_exactly(ATTN_MASK_WINDOW, 0, 0, diagonal), "2.6 window:0:0 is the diagonal");
}

/* 2.7: the shortcut that finds empty rows agrees with the predicate. */
static void empty_rows(void)
{
  bool agrees = true;
  for (int mask = 0; mask < 4; mask++)
    for (int64_t sq = 1; sq < 8; sq++)
      for (int64_t sk = 0; sk < 8; sk++)
        for (int64_t w = 0; w < 9; w++)
          for (int64_t i = 0; i < sq; i++) {
            struct ref_shape p = {
                .mask = (enum attn_mask)mask, .left = w % 3 - 1, .right = w / 3 - 1};
            bool any = false;
            for (int64_t j = 0; j < sk; j++)
              any = any || ref_visible(&p, sq, sk, i, j);
            agrees = agrees && any == !ref_row_empty(&p, sq, sk, i);
          }
  ok(agrees, "2.7 a row is empty exactly if no key is visible");
}

/* The largest difference of all rows from a double loop over keys with the test's own mask, scores
 * (in double) and dropout. */
static double brute_difference(struct fixture *f, const double *slope)
{
  struct emulation none = {{0}, 64, false, NO_FAULT};
  double worst = 0, scale = f->p.scale != 0 ? f->p.scale : 1 / sqrt((double)f->p.d);
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++) {
        double o[64], want[64] = {0}, lse, sum = 0;
        int64_t kv = h * f->p.hkv / f->p.hq;
        ref_row_host(&f->p, &f->a, s, h, i, o, &lse);
        for (int64_t j = 0; j < f->sk[s]; j++) {
          double x = 0;
          if (!emu_sees(f, &none, s, i, j))
            continue;
          for (int64_t c = 0; c < f->p.d; c++)
            x += get(f, &f->a.q, at_q(f, &f->a.q, s, h, i) + c) *
                 get(f, &f->a.k, at_k(f, &f->a.k, s, kv, j) + c);
          x *= scale;
          if (f->p.softcap > 0)
            x = f->p.softcap * tanh(x / f->p.softcap);
          if (slope)
            x -= slope[h] * fabs((double)(j - (f->sk[s] - f->sq[s]) - i));
          sum += exp(x);
          for (int64_t c = 0; c < f->p.dv; c++)
            want[c] +=
                exp(x) * emu_kept(f, s, h, i, j) * get(f, &f->a.v, at_k(f, &f->a.v, s, kv, j) + c);
        }
        if (sum == 0) {
          worst = lse == -INFINITY ? worst : INFINITY;
          sum = 1;
        } else {
          worst = fmax(worst, fabs(lse - log(sum)));
        }
        for (int64_t c = 0; c < f->p.dv; c++)
          worst = fmax(worst, fabs(o[c] - want[c] / sum));
      }
  return worst;
}

static const struct attn_problem small = {.op = ATTN_FWD,
                                          .dtype = ATTN_F32,
                                          .b = 2,
                                          .hq = 6,
                                          .hkv = 2,
                                          .sq = 5,
                                          .sk = 7,
                                          .d = 11,
                                          .dv = 13,
                                          .mask = ATTN_MASK_CAUSAL};

static void against_brute_force(struct attn_problem p, const double *slope, const char *sentence)
{
  struct fixture f;
  fixture_open(&f, &p, IID, 3);
  double worst = brute_difference(&f, slope);
  ok(worst < 4e-7 * (p.dropout_p > 0) + 1e-13, "%s (off by %.1e)", sentence, worst);
  fixture_close(&f);
}

static void shapes(void)
{
  struct attn_problem p = small;
  against_brute_force(p, NULL,
                      "1.2-1.5, 3.1, 3.4, 6.1, 6.2 GQA, d and dv differ, sizes all distinct");
  p.layout = ATTN_BHSD;
  against_brute_force(p, NULL, "1.5 bhsd strides");
  p.layout = ATTN_PACKED;
  against_brute_force(p, NULL, "1.6 packed, uniform");
  p = small;
  p.op = ATTN_DECODE;
  p.sq = 1;
  against_brute_force(p, NULL, "1.8 decode is the same function");
  p = small;
  p.scale = 0.3;
  against_brute_force(p, NULL, "3.1 a given scale");
  p = small;
  p.layout = ATTN_PACKED;
  p.nruns = 4;
  p.b = 6;
  p.runs[0] = (struct attn_run){2, 3, 5};
  p.runs[1] = (struct attn_run){1, 0, 4};
  p.runs[2] = (struct attn_run){1, 6, 0};
  p.runs[3] = (struct attn_run){2, 5, 2};
  p.sq = 6;
  p.sk = 5;
  against_brute_force(p, NULL, "1.1, 1.6, 1.9 ragged, zero lengths, sq > sk");
}

/* 1.3 with heads that are far apart: K of head g is g + 1 times a common vector. */
static void head_map(void)
{
  struct attn_problem p = census;
  struct fixture f;
  bool right = true;
  p.hq = 12;
  p.hkv = 4;
  p.sq = p.sk = 1;
  p.dv = 1;
  fixture_open(&f, &p, IID, 1);
  for (int64_t h = 0; h < 4; h++)
    put(&f, &f.a.v, at_k(&f, &f.a.v, 0, h, 0), (double)h);
  for (int64_t h = 0; h < 12; h++) {
    double o, lse;
    ref_row_host(&p, &f.a, 0, h, 0, &o, &lse);
    right = right && o == (double)(h / 3);
  }
  ok(right, "1.3 query head h reads kv head h / (hq / hkv)");
  fixture_close(&f);
}

/* 1.7, 6.3-6.5: ref_forward_host writes every row where it belongs. */
static bool stored_right(struct fixture *f)
{
  bool right = true;
  for (int64_t s = 0; s < f->nseq; s++)
    for (int64_t h = 0; h < f->p.hq; h++)
      for (int64_t i = 0; i < f->sq[s]; i++) {
        double o[64], lse;
        ref_row_host(&f->p, &f->a, s, h, i, o, &lse);
        right = right && f->a.lse[at_lse(f, s, h, i)] == (float)lse;
        for (int64_t c = 0; c < f->p.dv; c++) {
          double got = get(f, &f->a.o, at_q(f, &f->a.o, s, h, i) + c);
          double half = f->p.dtype == ATTN_F32 ? 0x1p-24 : 0x1p-8;
          right = right && fabs(got - o[c]) <= half * fabs(o[c]);
        }
      }
  return right;
}

static void stores(void)
{
  struct attn_problem p = small;
  struct fixture f;
  double o[13], lse;
  p.sq = 9;
  fixture_open(&f, &p, IID, 4);
  ref_forward_host(&p, &f.a);
  ok(stored_right(&f), "1.7, 6.4, 6.5 O and lse of every row, dense");
  ref_row_host(&p, &f.a, 1, 3, 1, o, &lse);
  ok(lse == -INFINITY && o[0] == 0 && o[12] == 0, "6.3 a row that sees no key: O = 0, lse = -inf");
  ok(get(&f, &f.a.o, at_q(&f, &f.a.o, 1, 3, 1)) == 0 && f.a.lse[at_lse(&f, 1, 3, 1)] == -INFINITY,
     "6.3 and so they are stored");
  fixture_close(&f);
  p.dtype = ATTN_BF16;
  p.layout = ATTN_PACKED;
  p.nruns = 2;
  p.b = 3;
  p.runs[0] = (struct attn_run){2, 9, 4};
  p.runs[1] = (struct attn_run){1, 2, 7};
  fixture_open(&f, &p, IID, 4);
  ref_forward_host(&p, &f.a);
  ok(stored_right(&f), "1.7, 6.4, 6.5 O and lse of every row, ragged, bf16");
  fixture_close(&f);
}

/* 6.4 one rounding, not two: 1 + 2^-8 + 2^-30 is nearest to 1 + 2^-7 in bf16, but rounds to 1 by
 * way of float. */
static void rounds_once(void)
{
  uint16_t bf;
  ref_store(ATTN_BF16, &bf, 0, 1 + 0x1p-8 + 0x1p-30);
  ok(attn_from_bf16(bf) == 1 + 0x1p-7f, "6.4 rounding to storage is one rounding");
  ref_store(ATTN_BF16, &bf, 0, -(1 + 0x1p-8 - 0x1p-30));
  ok(attn_from_bf16(bf) == -1, "6.4 and of negative numbers");
}

static void scores(void)
{
  struct attn_problem p = small;
  p.softcap = 0.7;
  against_brute_force(p, NULL, "3.2 softcap after the scale");
  double eight[8], six[6];
  for (int h = 0; h < 8; h++)
    eight[h] = pow(0.5, h + 1);
  for (int h = 0; h < 4; h++)
    six[h] = pow(0.25, h + 1);
  six[4] = 0.5; /* of 8 heads: the first and the third */
  six[5] = 0.125;
  p.softcap = 0;
  p.alibi = true;
  against_brute_force(p, six, "4.1, 4.3, 4.4 ALiBi of 6 heads");
  p.hq = 8;
  against_brute_force(p, eight, "4.2 ALiBi of 8 heads: 1/2, 1/4, ...");
  p.softcap = 0.7;
  against_brute_force(p, eight, "3.3 softcap, then ALiBi, then mask");
  p.mask = ATTN_MASK_NONE;
  against_brute_force(p, eight, "4.1 ALiBi falls on both sides of the diagonal");
}

/* 3.3: a masked key is without effect, whatever it holds. */
static void masked_is_gone(void)
{
  struct attn_problem p = small;
  struct fixture f;
  double o[13], lse, o2[13], lse2;
  bool same = true;
  p.softcap = 1;
  fixture_open(&f, &p, IID, 9);
  ref_row_host(&p, &f.a, 0, 0, 0, o, &lse);
  for (int64_t j = 3; j < 7; j++)
    for (int64_t c = 0; c < 11; c++) {
      put(&f, &f.a.k, at_k(&f, &f.a.k, 0, 0, j) + c, 1e30);
      put(&f, &f.a.v, at_k(&f, &f.a.v, 0, 0, j) + c, 1e30);
    }
  ref_row_host(&p, &f.a, 0, 0, 0, o2, &lse2);
  for (int c = 0; c < 13; c++)
    same = same && o[c] == o2[c];
  ok(same && lse == lse2, "3.3 masked keys have no weight, softcap or not");
  fixture_close(&f);
}

/* 5.2: published known answers of the generator (Random123's kat_vectors, 7 and 10 rounds). */
static void philox(void)
{
  static const struct {
    int rounds;
    uint32_t c0, c1, key, x0, x1;
  } known[] = {{7, 0, 0, 0, 0x257a3673, 0xcd26be2a},
               {7, ~0u, ~0u, ~0u, 0xab302c4d, 0x3dc9d239},
               {7, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0xbedbbe6b, 0xe4c770b3},
               {10, 0, 0, 0, 0xff1dae59, 0x6cd10df2},
               {10, ~0u, ~0u, ~0u, 0x2c3f628b, 0xab4fd7ad},
               {10, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0xdd7ce038, 0xf62a4c12}};
  bool right = true;
  for (int k = 0; k < 6; k++) {
    uint32_t a = known[k].c0, b = known[k].c1;
    ref_philox2x32(known[k].rounds, known[k].key, &a, &b);
    right = right && a == known[k].x0 && b == known[k].x1;
  }
  ok(right, "5.2 Philox-2x32 gives the published answers");
}

/* 5.3-5.5 by hand: one word, its four slices and the positions that they decide. */
static void dropout_by_hand(void)
{
  struct ref_shape p = {.hq = 5, .drop_threshold = 30000, .drop_seed = 0xabcdef0123456789u};
  bool right = true;
  for (int64_t i = 0; i < 40; i++)
    for (int64_t j = 0; j < 40; j++) {
      uint32_t x = (uint32_t)(i / 16 * 8 + i % 8) ^ 0xabcdef01u, y = (uint32_t)(j / 16 * 8 + j % 8);
      uint16_t slice[4];
      ref_philox2x32(7, 0x23456789u + (2 * 5 + 3) * 0x9E3779B9u, &x, &y);
      slice[0] = (uint16_t)x;
      slice[1] = (uint16_t)(x >> 16);
      slice[2] = (uint16_t)y;
      slice[3] = (uint16_t)(y >> 16);
      bool kept = slice[2 * (i / 8 % 2) + j / 8 % 2] >= 30000;
      right = right && ref_dropout(&p, 2, 3, i, j) == (kept ? 65536.0 / 35536 : 0);
    }
  ok(right, "5.3-5.5 key, counter, slice, threshold, factor");
}

static void dropout(void)
{
  struct attn_problem p = small;
  struct fixture f;
  int64_t kept = 0, differ[3] = {0}, n = 512;
  philox();
  dropout_by_hand();
  p.dropout_p = 0.3;
  p.dropout_seed = 0x1234567890abcdefu;
  p.sk = 40;
  p.sq = 37;
  against_brute_force(p, NULL, "5.1, 5.5, 6.1 dropout after normalisation");
  p.layout = ATTN_PACKED;
  p.nruns = 2;
  p.b = 3;
  p.runs[0] = (struct attn_run){1, 20, 40};
  p.runs[1] = (struct attn_run){2, 37, 33};
  against_brute_force(p, NULL, "5.7 positions count inside the sequence");

  struct ref_shape s = {.hq = 4, .drop_threshold = 19661, .drop_seed = 7}, t = s;
  t.drop_seed = 8;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      bool k = ref_dropout(&s, 0, 0, i, j) > 0;
      kept += k;
      differ[0] += k != (ref_dropout(&s, 0, 1, i, j) > 0);
      differ[1] += k != (ref_dropout(&s, 1, 0, i, j) > 0);
      differ[2] += k != (ref_dropout(&t, 0, 0, i, j) > 0);
    }
  double m = (double)(n * n), q = 19661 / 65536.0, d = 2 * q * (1 - q);
  double z = ((double)kept - m * (1 - q)) / sqrt(m * q * (1 - q));
  bool apart = true;
  for (int k = 0; k < 3; k++)
    apart = apart && fabs((double)differ[k] - m * d) < 5 * sqrt(m * d * (1 - d));
  ok(fabs(z) < 4.5, "5.5 kept weights: %.2f standard deviations from 1 - p", z);
  ok(apart, "5.3 heads, sequences and seeds drop independently");

  p = small;
  p.dropout_p = 1;
  fixture_open(&f, &p, IID, 2);
  double o[13], lse, lse2;
  ref_row_host(&p, &f.a, 0, 0, 4, o, &lse);
  p.dropout_p = 0;
  double undropped[13];
  ref_row_host(&p, &f.a, 0, 0, 4, undropped, &lse2);
  ok(o[0] == 0 && o[12] == 0 && lse == lse2, "5.6 p = 1: O = 0, lse undropped");
  fixture_close(&f);
}

/* What the reference does not define is refused. */
static void refused(void)
{
  struct attn_problem p = small;
  struct fixture f;
  double o[13], lse;
  fixture_open(&f, &p, IID, 1);
  p.hkv = 4;
  ok(ref_row_host(&p, &f.a, 0, 0, 0, o, &lse) == ATTN_EINVAL, "1.2 hkv must divide hq");
  fixture_close(&f);
}

int main(void)
{
  shapes();
  head_map();
  masks();
  empty_rows();
  scores();
  masked_is_gone();
  stores();
  rounds_once();
  dropout();
  refused();
  return done_testing();
}
