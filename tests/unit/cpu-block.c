/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-block.c - the arithmetic on tiles, on every instruction set that this processor has: the
 * errors that it states, exact cases, products of every small size, and dropout's generator.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "impl/cpu/block.h"
#include "impl/dropout.h"
#include "tests/tap.h"

#define LD 48
#define TILE (64 * LD)

static float tile_a[TILE] __attribute__((aligned(32)));
static float tile_b[TILE] __attribute__((aligned(32)));
static float tile_c[TILE] __attribute__((aligned(32)));

static double ulps(float got, double want)
{
  float near = (float)want;
  double ulp = fabs((double)nextafterf(near, INFINITY) - near);
  return fabs(got - want) / fmax(ulp, 0x1p-149);
}

/* ---- elementary functions -------------------------------------------------------------------- */

/* e^x over [-104, 88], subnormal results included. */
static void test_exponential(const struct attn_block *b)
{
  const float zero[8] __attribute__((aligned(32))) = {0};
  double worst = 0;
  for (double x = -104; x < 88.5;) {
    float in[512];
    for (int i = 0; i < 512; i++, x += 1e-4)
      in[i] = tile_a[i] = (float)x;
    b->exponential(tile_a, 8, 8, 64, zero);
    for (int i = 0; i < 512; i++)
      worst = fmax(worst, ulps(tile_a[i], exp((double)in[i])));
  }
  ok(worst <= 2, "%s: e^x within 2 ulp, measured %.3f", b->name, worst);
  const float in[8] = {0, -INFINITY, -1e30f, NAN, -0.0f, 100, INFINITY, -106};
  memcpy(tile_a, in, sizeof in);
  b->exponential(tile_a, 8, 8, 1, zero);
  ok(tile_a[0] == 1 && tile_a[1] == 0 && tile_a[2] == 0 && isnan(tile_a[3]) && tile_a[4] == 1 &&
         isinf(tile_a[5]) && isinf(tile_a[6]) && tile_a[7] == 0,
     "%s: e^0 = 1, e^-inf = 0, NaN stays, overflow is inf", b->name);
}

static void test_tanh(const struct attn_block *b)
{
  const struct attn_score how = {.scale = 1, .softcap = 1};
  double worst = 0;
  for (double x = 1e-6; x < 30;) {
    float in[512];
    for (int i = 0; i < 512; i++, x *= 1.00005)
      in[i] = tile_a[i] = (float)(i & 1 ? -x : x);
    b->score(tile_a, 8, 8, 64, &how, NULL);
    for (int i = 0; i < 512; i++)
      worst = fmax(worst, ulps(tile_a[i], tanh((double)in[i])));
  }
  ok(worst <= 3, "%s: tanh within 3 ulp, measured %.3f", b->name, worst);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Small integers: every sum is exact in fp32, so any order gives the same bits. */
static void integers(float *x, int seed)
{
  for (int i = 0; i < TILE; i++)
    x[i] = (float)((i * 7919 + seed) % 17 - 8);
}

static int64_t wrong_product(const struct attn_block *b, int64_t m, int64_t n, int64_t k,
                             struct attn_operand a, const float *keep, bool each_row)
{
  int64_t wrong = 0;
  float before[TILE];
  integers(tile_c, 5);
  memcpy(before, tile_c, sizeof before);
  b->product(m, n, k, a, tile_b, LD, tile_c, LD, keep, each_row);
  for (int64_t i = 0; i < m; i++)
    for (int64_t c = 0; c < n; c++) {
      float want = keep ? keep[each_row ? i : 0] * before[i * LD + c] : 0;
      for (int64_t x = 0; x < k; x++)
        want += a.data[i * a.row + x * a.col] * tile_b[x * LD + c];
      wrong += tile_c[i * LD + c] != want;
    }
  return wrong;
}

static void test_product(const struct attn_block *b)
{
  int64_t wrong = 0;
  float keep[64];
  integers(tile_a, 1);
  integers(tile_b, 2);
  for (int i = 0; i < 64; i++)
    keep[i] = (float)(i % 5);
  for (int64_t m = 1; m <= 13; m++)
    for (int64_t n = 1; n <= 48; n++)
      for (int64_t k = 0; k <= 9; k += 3) {
        wrong += wrong_product(b, m, n, k, (struct attn_operand){tile_a, LD, 1}, NULL, false);
        wrong += wrong_product(b, m, n, k, (struct attn_operand){tile_a, 1, LD}, keep, true);
        wrong += wrong_product(b, m, n, k, (struct attn_operand){tile_a, 1, LD}, keep + 1, false);
      }
  ok(wrong == 0, "%s: products of all sizes up to 13 x 48 are exact where arithmetic is", b->name);
}

static void test_transpose(const struct attn_block *b)
{
  int64_t wrong = 0;
  for (int64_t rows = 1; rows <= 40; rows++)
    for (int64_t cols = 1; cols <= 9; cols += 4) {
      integers(tile_a, 3);
      memset(tile_b, 0xff, sizeof tile_b);
      b->transpose(tile_a, 16, rows, cols, tile_b, LD);
      for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < LD; r++) {
          float got = tile_b[c * LD + r];
          bool inside = r < rows, pad = r < (rows + 7) / 8 * 8;
          wrong += inside ? got != tile_a[r * 16 + c] : pad ? got != 0 : !isnan(got);
        }
    }
  ok(wrong == 0, "%s: transposes, and zeroes the lanes up to a multiple of 8", b->name);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Two steps of the online softmax on four keys each: a lane that sees nothing, one that sees only
 * in the first step, only in the second, and one whose maximum grows. */
static void test_online(const struct attn_block *b)
{
  const float inf = INFINITY, none[4] = {-inf, -inf, -inf, -inf};
  float m[8] __attribute__((aligned(32))), l[8] __attribute__((aligned(32)));
  float alpha[8] __attribute__((aligned(32))), first[8], second[8];
  for (int i = 0; i < 8; i++) {
    m[i] = -inf;
    l[i] = 0;
  }
  for (int step = 0; step < 2; step++) {
    for (int j = 0; j < 4; j++)
      for (int i = 0; i < 8; i++) {
        bool seen = i == 3 || (i == 1 && step == 0) || (i == 2 && step == 1);
        tile_a[j * 8 + i] = seen ? (float)(j + step * 4) : none[j];
      }
    b->online(tile_a, 8, 8, 4, m, l, alpha);
    memcpy(step ? second : first, alpha, sizeof alpha);
  }
  double tail = exp(-1) + exp(-2) + exp(-3), sum = 1 + tail;
  ok(m[0] == -inf && l[0] == 0 && !isnan(second[0]), "%s: a row that sees nothing has l = 0",
     b->name);
  ok(m[1] == 3 && fabs(l[1] - sum) < 1e-6 && second[1] == 1,
     "%s: a step that adds nothing keeps all", b->name);
  ok(m[2] == 7 && fabs(l[2] - sum) < 1e-6 && first[2] == second[2] && second[2] == 0,
     "%s: what came before anything was seen is rescaled to 0", b->name);
  ok(m[3] == 7 && fabs(l[3] - sum * (1 + exp(-4))) < 1e-6 && fabs(second[3] - exp(-4)) < 1e-8,
     "%s: a growing maximum rescales by e^-4", b->name);
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Known answers of Random123's philox2x32-7. */
static void test_philox(void)
{
  static const uint32_t known[3][5] = {
      {0, 0, 0, 0x257a3673, 0xcd26be2a},
      {0xffffffff, 0xffffffff, 0xffffffff, 0xab302c4d, 0x3dc9d239},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0xbedbbe6b, 0xe4c770b3},
  };
  for (int i = 0; i < 3; i++) {
    uint32_t x0 = known[i][0], x1 = known[i][1];
    attn_philox(known[i][2], &x0, &x1);
    ok(x0 == known[i][3] && x1 == known[i][4], "philox2x32-7 known answer %d", i);
  }
  ok(attn_dropout_threshold(0) == 0 && attn_dropout_threshold(0.5) == 32768 &&
         attn_dropout_threshold(1) == 65536 && attn_dropout_scale(65536) == 0 &&
         attn_dropout_scale(32768) == 2,
     "threshold is round(65536 p); kept weights are scaled by 65536 / (65536 - threshold)");
}

/* Each element's fate is its slice's, wherever the tile lies and however large it is. */
static void test_dropout(const struct attn_block *b)
{
  const uint64_t seed = 0x0123456789abcdef;
  const struct attn_keep at = {
      attn_dropout_key(seed, 3, 5, 2), (uint32_t)(seed >> 32), 20000, 2, 0, 0};
  int64_t wrong = 0, kept = 0, all = 0;
  for (int64_t i0 = 0; i0 < 48; i0 += 8)
    for (int64_t j0 = 0; j0 < 40; j0++) {
      struct attn_keep keep = at;
      keep.i0 = i0;
      keep.j0 = j0;
      for (int i = 0; i < TILE; i++)
        tile_a[i] = 1;
      b->dropout(tile_a, LD, 24, 29, &keep);
      for (int64_t j = 0; j < 64; j++)
        for (int64_t i = 0; i < LD; i++) {
          bool inside = i < 24 && j < 29;
          bool keeps = attn_dropout_slice(seed, at.key, i0 + i, j0 + j) >= 20000;
          wrong += tile_a[j * LD + i] != (inside ? (keeps ? 2 : 0) : 1);
          kept += inside && keeps;
          all += inside;
        }
    }
  ok(wrong == 0, "%s: drops what the definition drops", b->name);
  diag("kept %.4f of the weights, expected %.4f", (double)kept / (double)all, 1 - 20000 / 65536.0);
}

/* Over 2^20 elements the count that is kept is binomial: within 5 standard deviations. */
static void test_fraction(void)
{
  const uint32_t threshold = attn_dropout_threshold(0.1);
  double p = 1 - threshold / 65536.0, n = 1 << 20, kept = 0;
  for (int64_t i = 0; i < 1024; i++)
    for (int64_t j = 0; j < 1024; j++)
      kept += attn_dropout_slice(42, attn_dropout_key(42, 0, 1, 0), i, j) >= threshold;
  double z = (kept - n * p) / sqrt(n * p * (1 - p));
  ok(fabs(z) < 5, "dropout keeps 1 - p of 2^20 weights: z = %.2f", z);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Huge values where P is 0 must not make NaN. */
static void test_gradient(const struct attn_block *b)
{
  const float delta[8] __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1};
  for (int i = 0; i < 8; i++) {
    tile_a[i] = i & 1 ? 0 : 0.5f;
    tile_b[i] = i & 1 ? INFINITY : 3;
    tile_c[i] = 0.25f;
  }
  b->gradient(tile_a, tile_b, tile_c, 8, 8, 1, delta);
  ok(tile_b[0] == 0.25f && tile_b[1] == 0, "%s: dS = P (dP - D) slope, and 0 where P is 0",
     b->name);
}

int main(void)
{
  test_philox();
  test_fraction();
  for (const struct attn_block *const *b = attn_block_all(); *b; b++) {
    test_exponential(*b);
    test_tanh(*b);
    test_product(*b);
    test_transpose(*b);
    test_online(*b);
    test_dropout(*b);
    test_gradient(*b);
  }
  return done_testing();
}
