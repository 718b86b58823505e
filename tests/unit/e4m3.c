/* SPDX-License-Identifier: Apache-2.0
 *
 * e4m3.c - SEMANTICS 1.12 and 1.14: all 256 codes against the written formula, on the host and by
 * every instruction set of the cpu device; and rounding against brute force: the nearest number,
 * ties to the even code, 448 beyond the range, NaN for NaN.
 */
#include "config.h"

#include "impl/convert.h"
#include "impl/cpu/block.h"
#include "tests/tap.h"

/* [1.12], in other words than convert.h: NaN for the code of NaN. */
static double meaning(int code)
{
  int e = code / 8 % 16, m = code % 8;
  double mag = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
  if (e == 15 && m == 7)
    return NAN;
  return code >= 128 ? -mag : mag;
}

static bool same(float got, double want)
{
  return isnan(want) ? isnan(got) : got == (float)want && !signbit(got) == !signbit(want);
}

static const struct {
  int code;
  double value;
} golden[] = {{0x00, 0},    {0x01, 0x1p-9},  {0x07, 0.013671875}, {0x08, 0x1p-6},
              {0x30, 0.5},  {0x38, 1},       {0x39, 1.125},       {0x3f, 1.875},
              {0x40, 2},    {0x77, 240},     {0x78, 256},         {0x7e, 448},
              {0x80, -0.0}, {0x81, -0x1p-9}, {0xb8, -1},          {0xc5, -3.25},
              {0xfe, -448}, {0x6b, 88},      {0x0f, 0.029296875}, {0x10, 0.03125}};

static void test_codes(void)
{
  int bad = 0, other = 0, back = 0;
  for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
    bad += !same(attn_from_e4m3((uint8_t)golden[i].code), golden[i].value);
  ok(bad == 0, "1.12 codes and numbers worked out by hand");
  for (int code = 0; code < 256; code++) {
    other += !same(attn_from_e4m3((uint8_t)code), meaning(code));
    back += attn_to_e4m3(attn_from_e4m3((uint8_t)code)) != code;
  }
  ok(other == 0, "1.12 all 256 codes are the formula's");
  ok(back == 0, "1.14 and come back as they were, NaN and the zero's sign included");
}

/* The code nearest to x, the even one of two as near. */
static int nearest(double x)
{
  int best = 0;
  double away = INFINITY, mag = fabs(x);
  for (int code = 0; code < 0x7f; code++) {
    double d = fabs(meaning(code) - mag);
    if (d < away || (d == away && code % 2 == 0)) {
      best = code;
      away = d;
    }
  }
  return signbit(x) ? best | 0x80 : best;
}

static int wrong(float x)
{
  return attn_to_e4m3(x) != nearest(x);
}

static void test_rounding(void)
{
  int ties = 0, random = 0;
  uint32_t state = 1;
  for (int code = 0; code < 0x7e; code++) {
    float tie = (float)((meaning(code) + meaning(code + 1)) / 2);
    for (int sign = -1; sign <= 1; sign += 2)
      ties += wrong((float)sign * tie) + wrong((float)sign * nextafterf(tie, INFINITY)) +
              wrong((float)sign * nextafterf(tie, 0));
  }
  ok(ties == 0, "1.14 ties go to the even code, their neighbours to the nearer one");
  for (int i = 0; i < 200000; i++) {
    state = state * 1664525u + 1013904223u;
    float x = ldexpf((float)(state >> 8) * 0x1p-24f + 0.5f, (int)(state >> 3 & 31) - 18);
    random += wrong(state & 1 ? -x : x);
  }
  ok(random == 0, "1.14 so do 200000 numbers between 2^-19 and 2^13");
  static const float beyond[] = {448, 449, 463.9f, 464, 480, 1e10f, 3.4e38f, INFINITY};
  int bad = 0;
  for (int i = 0; i < 8; i++)
    bad += attn_to_e4m3(beyond[i]) != 0x7e || attn_to_e4m3(-beyond[i]) != 0xfe;
  ok(bad == 0, "1.14 beyond 448 it is 448, with its sign");
  ok(attn_to_e4m3(NAN) == 0x7f && attn_to_e4m3(-NAN) == 0xff, "1.14 NaN stays NaN");
  ok(attn_to_e4m3(0x1p-149f) == 0 && attn_to_e4m3(-0x1p-10f) == 0x80, "and dust is a zero");
}

static void test_tiles(void)
{
  uint8_t codes[256], back[256];
  float wide[256];
  for (int i = 0; i < 256; i++)
    codes[i] = (uint8_t)i;
  for (const struct attn_block *const *b = attn_block_all(); *b; b++) {
    int bad = 0;
    (*b)->widen(ATTN_E4M3, codes, wide, 256);
    for (int i = 0; i < 256; i++)
      bad += !same(wide[i], meaning(i));
    (*b)->narrow(ATTN_E4M3, wide, back, 256);
    ok(bad == 0 && !memcmp(codes, back, sizeof back), "%s: tiles of all codes, there and back",
       (*b)->name);
  }
}

int main(void)
{
  test_codes();
  test_rounding();
  test_tiles();
  return done_testing();
}
