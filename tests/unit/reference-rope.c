/* SPDX-License-Identifier: Apache-2.0
 *
 * Section 8 of reference/SEMANTICS, sentence by sentence, for the reference and for impl/rope.h,
 * which were written apart; and the numbers of BOUNDS 11.7.
 *
 * Golden values were computed in 50-digit decimal arithmetic (mpmath 1.3), from the formulas of the
 * papers: base^(-2i/rotary) with the base of the NTK rule, and NTK-by-parts with wavelengths 2 pi /
 * f; of Llama 3 with 1 - smooth and smooth as in its code.
 */
#include "config.h"

#include "impl/rope.h"
#include "reference/rope.h"
#include "reference/reference.h"
#include "tests/tap.h"

static struct attn_problem problem(const char *text)
{
  struct attn_problem p = {0};
  char err[256], full[512];
  snprintf(full, sizeof full, "op=rope dtype=fp32 %s", text);
  if (attn_problem_parse(full, &p, err, sizeof err))
    diag("%s: %s", full, err);
  return p;
}

/* ---- golden values --------------------------------------------------------------------------- */

static const struct {
  const char *text;
  int pair[7];
  double frequency[7];
} golden[] = {
    {"s=4",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.865964323360065352, 0.0486967525165863115, 0.017782794100389228, 0.01,
      0.00421696503428582249, 0.000115478198468945818}},
    {"s=4 theta=500000",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.814617233856544704, 0.0134904198902267484, 0.00321144599475259102,
      0.00141421356237309505, 0.000413272549985516486, 2.45514079113160887e-6}},
    {"s=4 rotary=64",
     {0, 1, 10, 12, 16, 22, 31},
     {1.0, 0.749894209332455827, 0.056234132519034908, 0.0316227766016837933, 0.01,
      0.0017782794100389228, 0.000133352143216332403}},
    {"s=4 rope=linear:4",
     {0, 1, 21, 28, 32, 38, 63},
     {0.25, 0.216491080840016338, 0.0121741881291465779, 0.004445698525097307, 0.0025,
      0.00105424125857145562, 0.0000288695496172364545}},
    {"s=4 rope=ntk:4",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.847117185151206813, 0.0306770317785841163, 0.0096032399764210161,
      0.00494528984068036657, 0.00182748029842775641, 0.0000288695496172364545}},
    {"s=4k rope=dyn:4 trained=4k",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.865964323360065352, 0.0486967525165863115, 0.017782794100389228, 0.01,
      0.00421696503428582249, 0.000115478198468945818}},
    {"s=8k rope=dyn:4 trained=4k",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.844122036488549512, 0.02847803363037208, 0.00869654332186950351,
      0.00441537522893888247, 0.00159734617084885089, 0.0000230956396937891636}},
    {"s=16k rope=dyn:4 trained=4k",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.831415964685270887, 0.0207102599093581256, 0.00568740382382523578,
      0.00271761232561254259, 0.000897630623479466502, 8.88293834376506292e-6}},
    {"s=4 rope=yarn:16 trained=4k",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.865964323360065352, 0.0483217292150163062, 0.00680796672843933686,
      0.0022940483273318648, 0.000486613168814361514, 7.21738740430911362e-6}},
    {"s=4 rope=yarn:16 trained=4k ramp=index",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.865964323360065352, 0.0469408599979594012, 0.0126531419560461815,
      0.00567307692307692308, 0.00147999253607146655, 7.21738740430911362e-6}},
    {"s=4 rope=llama3:8 trained=8k theta=500000",
     {0, 1, 21, 28, 32, 38, 63},
     {1.0, 0.814617233856544704, 0.0134904198902267484, 0.00321144599475259102,
      0.00052484616099295467, 0.0000516590687481895608, 3.06892598891451109e-7}},
    {"s=4 rope=llama3:32 trained=8k theta=500000 rotary=64",
     {0, 1, 10, 12, 16, 22, 31},
     {1.0, 0.663601237696088443, 0.0165604400809944455, 0.00729266473721710905,
      0.000429556796559368201, 3.77405429410828245e-6, 9.41830672543490984e-8}},
};

static bool near(double got, double want)
{
  return fabs(got - want) <= 0x1p-47 * fabs(want);
}

static void golden_frequencies(void)
{
  for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
    struct attn_problem p = problem(golden[k].text);
    int bad = 0;
    for (int i = 0; i < 7; i++) {
      double want = golden[k].frequency[i];
      double a = ref_rope_frequency(&p.rope, p.sk, golden[k].pair[i]);
      double b = attn_rope_frequency(&p.rope, p.sk, golden[k].pair[i]);
      if ((!near(a, want) || !near(b, want)) && !bad++)
        diag("pair %d: reference %.17g, impl %.17g, want %.17g", golden[k].pair[i], a, b, want);
    }
    ok(!bad, "[8.4]-[8.13] golden frequencies: %s", golden[k].text);
  }
}

static const struct {
  const char *text;
  int64_t position;
  int pair;
  double cosine, sine;
} turned[] = {
    {"", 1, 0, 0.540302305868139717, 0.841470984807896507},
    {"", 1, 40, 0.999995000004166665, 0.00316227238970824762},
    {"", 4095, 20, -0.587760045208945327, -0.809035307793163342},
    {"", 4095, 63, 0.890258812183082529, 0.455454989357199804},
    {"", 1048575, 0, 0.788042239528927469, -0.615621173058750884},
    {"", 1048575, 20, -0.405755613766190897, -0.913981609167942567},
    {"", 1048575, 40, -0.0657009932061371755, -0.997839355553651791},
    {"", 1048575, 63, -0.135813769454661494, 0.990734384195136359},
    {"rope=yarn:16 trained=4k attention=1", 4095, 40, 0.33890580659310364, 0.940820309228854726},
    {"rope=yarn:16 trained=4k attention=1", 1048575, 40, 0.890637534480555845,
     -0.45471395643238915},
    {"rope=yarn:16 trained=4k attention=1", 1048575, 63, 0.282126217262724822,
     0.959377296757133914},
};

/* One-hot rows give cosine and sine themselves. */
static void golden_turns(void)
{
  for (size_t k = 0; k < sizeof turned / sizeof *turned; k++) {
    char text[128];
    snprintf(text, sizeof text, "sq=1 sk=%d %s", (int)turned[k].position + 1, turned[k].text);
    struct attn_problem p = problem(text);
    double x[128] = {0}, y[128];
    int i = turned[k].pair;
    x[i] = 1;
    ref_rope_row(&p, p.sk, turned[k].position, x, y);
    uint64_t turns = attn_rope_turns(attn_rope_frequency(&p.rope, p.sk, i));
    double angle = attn_rope_angle(turns, turned[k].position);
    bool exact = fabs(y[i] - turned[k].cosine) < 1e-9 && fabs(y[i + 64] - turned[k].sine) < 1e-9;
    bool fixed =
        fabs(cos(angle) - turned[k].cosine) < 1e-9 && fabs(sin(angle) - turned[k].sine) < 1e-9;
    ok(exact && fixed, "[8.5] [8.14] golden cosine and sine: position %d, pair %d %s",
       (int)turned[k].position, i, turned[k].text);
  }
}

static void golden_attention(void)
{
  ok(near(problem("s=4 rope=yarn:4 trained=4k").rope.attention, 1.13862943611198906) &&
         near(problem("s=4 rope=yarn:16 trained=4k").rope.attention, 1.27725887222397812) &&
         near(problem("s=4 rope=yarn:32 trained=4k").rope.attention, 1.34657359027997265),
     "[8.11] A of YaRN is 0.1 ln F + 1");
  ok(problem("s=4 rope=yarn:64 trained=4k attention=1").rope.attention == 1,
     "[8.11] or what attention= says");
  ok(problem("s=4 rope=llama3:8 trained=4k").rope.attention == 1 &&
         problem("s=4 rope=ntk:8").rope.attention == 1,
     "[8.6] [8.13] A is 1 elsewhere");
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void fill(double *x, int64_t n, uint64_t seed)
{
  for (int64_t c = 0; c < n; c++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x[c] = (double)(int64_t)seed * 0x1p-63;
  }
}

static double dot(const double *x, const double *y, int64_t n)
{
  double sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum += x[c] * y[c];
  return sum;
}

#define SCALED 8
static const char *const scaled[SCALED] = {
    "sq=1 sk=9k d=64",
    "sq=1 sk=9k d=64 rope=linear:4",
    "sq=1 sk=9k d=64 rope=ntk:4",
    "sq=1 sk=9k d=64 rope=dyn:4 trained=4k",
    "sq=1 sk=9k d=64 rope=yarn:4 trained=4k",
    "sq=1 sk=9k d=64 rope=yarn:4 trained=4k ramp=index",
    "sq=1 sk=9k d=64 rope=llama3:4 trained=4k",
    "sq=1 sk=9k d=64 rotary=24 pairs=interleaved",
};

static void pairs(void)
{
  struct attn_problem half = problem("s=4 d=8"), mixed = problem("s=4 d=8 pairs=interleaved");
  struct attn_problem part = problem("s=4 d=8 rotary=4");
  double y[8], z[8], w[8], x[8] = {1, 0, 0, 0, 0, 0, 0, 0};
  ref_rope_row(&half, 4, 3, x, y);
  ref_rope_row(&mixed, 4, 3, x, z);
  ref_rope_row(&part, 4, 3, x, w);
  ok(y[4] == sin(3) && y[1] == 0, "[8.3] pairs=half: element 0 turns into element rotary/2");
  ok(z[1] == sin(3) && z[4] == 0, "[8.3] pairs=interleaved: into element 1");
  ok(w[2] == sin(3) && w[4] == 0, "[8.3] the half is that of rotary");
  fill(x, 8, 5);
  ref_rope_row(&part, 4, 3, x, w);
  ok(!memcmp(x + 4, w + 4, 4 * sizeof *x) && memcmp(x, w, sizeof *x),
     "[8.3] elements from rotary on stay");
  ok(attn_rope_first(&mixed.rope, 3) == 6 && attn_rope_second(&mixed.rope, 3) == 7 &&
         attn_rope_first(&half.rope, 3) == 3 && attn_rope_second(&half.rope, 3) == 7,
     "[8.3] impl/rope.h has the same pairs");
}

/* Norms, distances and the origin, which need no golden value. */
static void laws(const char *text)
{
  struct attn_problem p = problem(text);
  double q[64], k[64], a[64], b[64], c[64], e[64], big = p.rope.attention * p.rope.attention;
  fill(q, 64, 1);
  fill(k, 64, 2);
  ref_rope_row(&p, p.sk, 0, q, a);
  bool origin = true, norm = true;
  for (int i = 0; i < 64; i++)
    origin = origin && a[i] == q[i] * (i < p.rope.rotary ? p.rope.attention : 1);
  ref_rope_row(&p, p.sk, 8191, q, a);
  for (int64_t i = 0; i < p.rope.rotary / 2; i++) {
    int64_t u = ref_rope_element(&p.rope, i, false), v = ref_rope_element(&p.rope, i, true);
    norm = norm && fabs(a[u] * a[u] + a[v] * a[v] - big * (q[u] * q[u] + q[v] * q[v])) < 1e-14;
  }
  ok(origin, "position 0 is the identity, times A: %s", text);
  ok(norm, "every pair keeps its length, times A: %s", text);
  ref_rope_row(&p, p.sk, 8000, k, b);
  ref_rope_row(&p, p.sk, 1191, q, c);
  ref_rope_row(&p, p.sk, 1000, k, e);
  ok(fabs(dot(a, b, 64) - dot(c, e, 64)) < 1e-10, "q.k depends on the distance alone: %s", text);
}

/* ---- scalings -------------------------------------------------------------------------------- */

static void factor_one(void)
{
  static const char *const one[] = {"s=4k rope=linear:1",
                                    "s=4k rope=ntk:1",
                                    "s=4k rope=dyn:1 trained=4k",
                                    "s=4k rope=yarn:1 trained=4k",
                                    "s=4k rope=llama3:1 trained=4k",
                                    "s=4k rope=yarn:1 trained=4k ramp=index"};
  struct attn_problem plain = problem("s=4k");
  for (size_t k = 0; k < sizeof one / sizeof *one; k++) {
    struct attn_problem p = problem(one[k]);
    bool same = p.rope.attention == 1;
    for (int i = 0; i < 64; i++)
      same = same && near(ref_rope_frequency(&p.rope, p.sk, i), ref_rope_power(10000, 128, i)) &&
             near(attn_rope_frequency(&p.rope, p.sk, i), attn_rope_frequency(&plain.rope, p.sk, i));
    ok(same, "a factor of 1 is the identity: %s", one[k]);
  }
}

static void untouched(void)
{
  struct attn_problem plain = problem("s=4"), ntk = problem("s=4 rope=ntk:16");
  struct attn_problem yarn = problem("s=4 rope=yarn:16 trained=4k");
  struct attn_problem llama = problem("s=4 rope=llama3:16 trained=4k");
  ok(ref_rope_frequency(&ntk.rope, 4, 0) == 1 && attn_rope_frequency(&ntk.rope, 4, 0) == 1 &&
         near(ref_rope_frequency(&ntk.rope, 4, 63), ref_rope_power(10000, 128, 63) / 16),
     "[8.8] NTK keeps the first pair and divides the last by F");
  ok(ref_rope_frequency(&(struct attn_rope){ATTN_ROPE_NTK, 4, 10000, 0, 2, .attention = 1}, 4, 0) ==
         1,
     "[8.8] rotary=2: the only pair is kept");
  int kept = 0, divided = 0, bad = 0;
  for (int i = 0; i < 64; i++) {
    double f = ref_rope_frequency(&plain.rope, 4, i), turns = 4096 * f / (2 * REF_PI);
    double y = ref_rope_frequency(&yarn.rope, 4, i), l = ref_rope_frequency(&llama.rope, 4, i);
    double z = attn_rope_frequency(&yarn.rope, 4, i);
    kept += turns >= 32;
    divided += turns <= 1;
    bad += turns >= 32 && (y != f || z != attn_rope_frequency(&plain.rope, 4, i));
    bad += turns <= 1 && (!near(y, f / 16) || !near(z, f / 16));
    bad += (turns >= 4 && l != f) || (turns <= 1 && !near(l, f / 16));
    bad += turns > 1 && turns < 32 && !(y < f && y > f / 16);
  }
  ok(!bad && kept > 10 && divided > 10,
     "[8.10] [8.13] of 64 pairs the %d fastest are untouched, the %d slowest divided by F", kept,
     divided);
}

static void dynamic(void)
{
  struct attn_problem p = problem("s=4 rope=dyn:4 trained=4k"),
                      one = problem("s=4 rope=dyn:1 trained=4k");
  bool grows = true;
  for (int64_t sk = 4096; sk < 8192; sk++)
    grows = grows &&
            ref_rope_longer_base(&p.rope, ref_rope_stretch(&p.rope, sk + 1)) >
                ref_rope_longer_base(&p.rope, ref_rope_stretch(&p.rope, sk)) &&
            attn_rope_frequency(&p.rope, sk + 1, 63) < attn_rope_frequency(&p.rope, sk, 63);
  ok(grows, "[8.9] the dynamic base grows with every token beyond trained");
  ok(ref_rope_frequency(&p.rope, 100, 63) == ref_rope_frequency(&p.rope, 4096, 63),
     "[8.9] and is theta up to there");
  ok(ref_rope_stretch(&one.rope, 12288) == 3, "[8.9] F = 1 stretches by sk / trained");
  double q[128], k[128], a[128], b[128], c[128];
  fill(q, 128, 1);
  fill(k, 128, 2);
  ref_rope_row(&p, 9000, 8999, q, a);
  ref_rope_row(&p, 9000, 8000, k, b);
  ref_rope_row(&p, 8001, 8000, k, c);
  ok(fabs(dot(a, b, 128) - dot(a, c, 128)) > 1e-3,
     "[8.9] a key cached at another length has other angles");
}

/* ---- what paths lose ------------------------------------------------------------------------- */

static float to_bf16(float x)
{
  uint32_t u;
  memcpy(&u, &x, 4);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  memcpy(&x, &u, 4);
  return x;
}

enum { FIXED, FP64, FP32, BF16_POSITION, BF16_FREQUENCY, PATHS };

static double angle_by(int path, const struct attn_rope *r, int64_t position, int64_t i)
{
  double f = attn_rope_frequency(r, 0, i);
  switch (path) {
  case FIXED: return attn_rope_angle(attn_rope_turns(f), position);
  case FP64: return (double)position * ref_rope_frequency(r, 0, i);
  case FP32: return (float)position * (float)f;
  case BF16_POSITION: return to_bf16((float)position) * (float)f;
  default: return (float)position * to_bf16((float)f);
  }
}

/* BOUNDS 11.7: the largest error is within the first number, and above the second. */
static void paths(void)
{
  static const struct {
    const char *name;
    double within, above;
  } want[PATHS] = {{"fixed point", 1e-10, 0},
                   {"fp64", 2e-10, 0},
                   {"fp32", 0.07, 0.05},
                   {"positions in bf16", 64, 60},
                   {"frequencies in bf16", 1400, 1000}};
  struct attn_problem p = problem("s=4");
  for (int path = 0; path < PATHS; path++) {
    long double worst = 0, sum = 0, pi = 3.14159265358979323846264338327950288L;
    for (int64_t m = (1 << 20) - 64; m < 1 << 20; m++)
      for (int i = 0; i < 64; i++) {
        long double exact = (long double)m * powl(10000.0L, -(long double)i / 64);
        long double e = (long double)angle_by(path, &p.rope, m, i) - exact;
        if (path == FIXED)
          e -= 2 * pi * roundl(e / (2 * pi));
        worst = fabsl(e) > worst ? fabsl(e) : worst;
        sum += e * e;
      }
    ok((double)worst <= want[path].within && (double)worst >= want[path].above,
       "BOUNDS 11.7: angles near position 2^20 by %s err by %.2g rad at most, %.2g rms",
       want[path].name, (double)worst, (double)sqrtl(sum / 4096));
  }
}

int main(void)
{
  golden_frequencies();
  golden_turns();
  golden_attention();
  pairs();
  for (int i = 0; i < SCALED; i++)
    laws(scaled[i]);
  factor_one();
  untouched();
  dynamic();
  paths();
  return done_testing();
}
