/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-traffic.c - the I/O complexity of attention, measured by the machine's counters and fitted.
 *
 * Over a grid of N, head dim d and SRAM M, least squares in log space give the exponents of N, d
 * and M.  Theory: naive moves Theta(N^2) whatever M, once M is large; flash moves Theta(N^2 d^2 /
 * M) beyond the operands that are read once.  Exponents must agree within 0.1; tiles of whole rows
 * and what else lies in SRAM cost that much.  N^2 is seqlen_q times seqlen_k: tall problems show
 * the exponents where a tile is small beside the problem, at little work.  Backward takes far more
 * work for that, so its exponents are those of traffic(), which must equal the counters at smaller
 * sizes.
 */
#include "tests/unit/cpu-fixture.h"

#define TOLERANCE 0.1
#define POINTS 3
#define UNKNOWNS 4

/* One grid: seqlen_q = N * tall, seqlen_k = N / tall. */
struct grid {
  const char *op;
  int batch; /* 16: flash backward need not split the keys to find tasks */
  int64_t n[POINTS], tall, d[POINTS];
  size_t sram[POINTS];
  bool modelled; /* by traffic(), not run */
};

/* What is fitted, of all bytes read and written. */
typedef double quantity(const struct attn_problem *p, double read, double write);

static double beyond_compulsory(const struct attn_problem *p, double read, double write)
{
  return read + write - attn_problem_compulsory_read(p) - attn_problem_compulsory_write(p);
}

/* K and V, again and again: reads without Q. */
static double reloads(const struct attn_problem *p, double read, double write)
{
  return read - (double)(p->hq * p->sq * p->d) * (double)attn_dtype_size(p->dtype);
}

static double run_and_count(const struct attn_impl *impl, struct attn_machine *m,
                            const struct attn_problem *p, quantity *q)
{
  struct fixture f;
  fixture_init(&f, p, 1, 0, 1);
  struct ran r = run_on(m, impl, &f);
  fixture_free(&f);
  return r.status ? NAN : q(p, (double)r.read, (double)r.write);
}

static double measure(const struct attn_impl *impl, struct attn_machine *m, const struct grid *g,
                      int64_t n, int64_t d, quantity *q)
{
  char text[256], err[256];
  struct attn_problem p;
  snprintf(text, sizeof text, "op=%s dtype=bf16 b=%d hq=1 hkv=1 sq=%d sk=%d d=%d", g->op, g->batch,
           (int)(n * g->tall), (int)(n / g->tall), (int)d);
  if (attn_problem_parse(text, &p, err, sizeof err))
    return NAN;
  if (!g->modelled)
    return run_and_count(impl, m, &p, q);
  struct attn_device dev = device_of(m);
  struct attn_traffic t;
  impl->traffic(&p, &dev, &t);
  return q(&p, t.read_bytes, t.write_bytes);
}

/* Solves the normal equations by elimination; x[0] is the constant. */
static void solve(double a[UNKNOWNS][UNKNOWNS + 1], double x[UNKNOWNS])
{
  for (int c = 0; c < UNKNOWNS; c++)
    for (int r = 0; r < UNKNOWNS; r++) {
      double factor = r == c ? 0 : a[r][c] / a[c][c];
      for (int k = c; k <= UNKNOWNS && r != c; k++)
        a[r][k] -= factor * a[c][k];
    }
  for (int c = 0; c < UNKNOWNS; c++)
    x[c] = a[c][UNKNOWNS] / a[c][c];
}

static void add_point(double a[UNKNOWNS][UNKNOWNS + 1], int64_t n, int64_t d, size_t sram,
                      double bytes)
{
  double row[UNKNOWNS + 1] = {1, log2((double)n), log2((double)d), log2((double)sram), log2(bytes)};
  for (int r = 0; r < UNKNOWNS; r++)
    for (int c = 0; c <= UNKNOWNS; c++)
      a[r][c] += row[r] * row[c];
}

/* Fits, and compares with the exponents of N, d and M that theory has. */
static void test_exponents(const struct attn_impl *impl, const struct grid *g, quantity *q,
                           const double theory[3])
{
  double a[UNKNOWNS][UNKNOWNS + 1] = {{0}}, x[UNKNOWNS];
  bool near = true;
  for (int s = 0; s < POINTS; s++) {
    struct attn_machine *m = attn_machine_create(g->sram[s], g->modelled ? 1 : 2);
    for (int n = 0; n < POINTS; n++)
      for (int d = 0; d < POINTS; d++)
        add_point(a, g->n[n], g->d[d], g->sram[s], measure(impl, m, g, g->n[n], g->d[d], q));
    attn_machine_destroy(m);
  }
  solve(a, x);
  for (int i = 0; i < 3; i++)
    near &= fabs(x[i + 1] - theory[i]) <= TOLERANCE;
  ok(near, "%s %s %s N^%.3f d^%.3f M^%.3f: theory %g, %g, %g", impl->name, g->op,
     g->modelled ? "means to move" : "moves", x[1], x[2], x[3], theory[0], theory[1], theory[2]);
}

/* The model that stands for the counters in backward. */
static void test_model(const struct attn_impl *impl)
{
  struct attn_machine *m = attn_machine_create(96 * 1024, 2);
  char err[256];
  struct attn_problem p;
  struct fixture f;
  attn_problem_parse("op=bwd dtype=bf16 b=1 hq=2 hkv=1 sq=700 sk=900 d=64", &p, err, sizeof err);
  fixture_init(&f, &p, 1, 0, 1);
  struct ran r = run_on(m, impl, &f);
  ok(!r.status && (double)r.read == r.model.read_bytes && (double)r.write == r.model.write_bytes,
     "%s bwd moves what it means to move: %llu bytes", impl->name,
     (unsigned long long)(r.read + r.write));
  fixture_free(&f);
  attn_machine_destroy(m);
}

#define K(n) ((size_t)(n) << 10)

int main(void)
{
  const double square[3] = {2, 0, 0}, flash[3] = {2, 2, -1};
  const struct grid
      naive_forward = {"fwd", 1, {512, 1024, 2048}, 1, {64, 96, 128}, {K(4096), K(8192), K(16384)},
                       false},
      flash_forward = {"fwd", 1, {512, 1024, 2048}, 8, {64, 128, 256}, {K(160), K(320), K(640)},
                       false},
      naive_backward =
          {"bwd", 16, {8192, 16384, 32768}, 1, {64, 128, 256}, {K(65536), K(131072), K(262144)},
           true},
      flash_backward = {
          "bwd", 16, {32768, 65536, 131072}, 1, {64, 128, 256}, {K(400), K(800), K(1600)}, true};
  test_exponents(&attn_cpu_naive, &naive_forward, beyond_compulsory, square);
  test_exponents(&attn_cpu_flash, &flash_forward, reloads, flash);
  test_exponents(&attn_cpu_naive, &naive_backward, beyond_compulsory, square);
  test_exponents(&attn_cpu_flash, &flash_backward, beyond_compulsory, flash);
  test_model(&attn_cpu_naive);
  test_model(&attn_cpu_flash);
  return done_testing();
}
