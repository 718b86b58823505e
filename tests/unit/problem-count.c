/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of a problem against brute force.  Laws: the visible range is the mask's definition
 * evaluated key by key; pairs, FLOPs and compulsory bytes are sums over exactly those ranges.
 * SEED in the environment repeats a run.
 */
#include "config.h"

#include <math.h>
#include <time.h>

#include "impl/attn.h"
#include "tests/tap.h"

static uint64_t state;

static uint64_t draw(uint64_t n)
{
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % n;
}

/* The written definition of every mask. */
static bool sees(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i, int64_t j)
{
  int64_t diagonal = i + sk - sq;
  switch (p->mask) {
  case ATTN_MASK_CAUSAL: return j <= diagonal;
  case ATTN_MASK_CAUSAL_TOPLEFT: return j <= i;
  case ATTN_MASK_WINDOW:
    return (p->window_left < 0 || j >= diagonal - p->window_left) &&
           (p->window_right < 0 || j <= diagonal + p->window_right);
  default: return true;
  }
}

struct counts {
  double pairs, queries, keys; /* pairs, queries that see a key, keys that some query sees */
  double entries;              /* pages of these keys */
  bool prefix[64];             /* keys of the prefix that some query of any sequence sees */
  bool ranges;                 /* attn_problem_visible agreed everywhere */
};

static void add_keys(const struct attn_problem *p, const bool *seen, int64_t n, struct counts *c)
{
  int64_t last = -1;
  for (int64_t j = 0; j < n; j++) {
    c->keys += seen[j];
    if (!seen[j] || !p->page || j / p->page == last)
      continue;
    last = j / p->page;
    c->entries++;
  }
}

static void count_sequence(const struct attn_problem *p, int64_t sq, int64_t sk, struct counts *c)
{
  bool *seen = calloc((size_t)sk + 1, 1);
  for (int64_t i = 0; i < sq; i++) {
    int64_t lo, hi, n = 0;
    attn_problem_visible(p, sq, sk, i, &lo, &hi);
    for (int64_t j = 0; j < sk; j++) {
      bool s = sees(p, sq, sk, i, j);
      c->ranges &= s == (lo <= j && j < hi);
      n += s;
      seen[j] |= s;
    }
    c->ranges &= n == (hi > lo ? hi - lo : 0);
    c->pairs += (double)n;
    c->queries += n > 0;
  }
  for (int64_t j = 0; j < p->prefix; j++) {
    c->prefix[j] |= seen[j];
    seen[j] = false;
  }
  add_keys(p, seen, sk, c);
  free(seen);
}

static struct counts brute_force(const struct attn_problem *p)
{
  struct counts c = {.ranges = true};
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk;
    attn_problem_seq(p, s, &sq, &sk);
    count_sequence(p, sq, sk, &c);
  }
  add_keys(p, c.prefix, p->prefix, &c);
  return c;
}

static bool counts_agree(const struct attn_problem *p)
{
  struct counts c = brute_force(p);
  double size = p->dtype == ATTN_F32 ? 4 : 2, hq = (double)p->hq, hkv = (double)p->hkv;
  double d = (double)p->d, dv = (double)p->dv;
  double rows_q = (double)attn_problem_total_q(p), rows_k = (double)attn_problem_total_k(p);
  bool bwd = p->op == ATTN_BWD;
  double flops = (bwd ? 2.5 : 1) * 2 * (d + dv) * c.pairs * hq;
  double read = size * c.queries * hq * d + (p->kv ? 1 : size) * c.keys * hkv * (d + dv);
  double write = size * rows_q * hq * dv + 4 * rows_q * hq;
  read += 4 * c.entries + (p->kv && c.keys > 0 ? 8 * hkv : 0);
  if (bwd) {
    read += c.queries * hq * (2 * dv * size + 4);
    write = size * (rows_q * hq * d + rows_k * hkv * (d + dv));
  }
  return c.ranges && attn_problem_pairs(p) == c.pairs && attn_problem_flops(p) == flops &&
         attn_problem_compulsory_read(p) == read && attn_problem_compulsory_write(p) == write;
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Pages, e4m3 or not, and a prefix of the shortest of the lengths. */
static void random_cache(char *text, size_t len, int64_t shortest)
{
  int page = 1 + (int)draw(9);
  int64_t prefix = (int64_t)draw((uint64_t)(shortest / page) + 1) * page;
  snprintf(text, len, " page=%d kv=%s prefix=%lld", page, draw(2) ? "e4m3" : "dtype",
           (long long)prefix);
}

/* A random problem as text: short sequences, every mask, windows of all kinds. */
static void random_text(char *text, size_t len)
{
  static const char *const masks[] = {"none", "causal", "causal-topleft"};
  static const char *const ops[] = {"fwd", "bwd"}, *const types[] = {"fp32", "bf16", "fp16"};
  int hkv = 1 + (int)draw(3), n;
  n = snprintf(text, len, "op=%s dtype=%s hkv=%d hq=%d d=%d dv=%d", ops[draw(2)], types[draw(3)],
               hkv, hkv * (1 + (int)draw(3)), 1 + (int)draw(9), 1 + (int)draw(9));
  if (draw(4))
    n += snprintf(text + n, len - (size_t)n, " mask=window:%d:%d", (int)draw(30) - 1,
                  (int)draw(30) - 1);
  else
    n += snprintf(text + n, len - (size_t)n, " mask=%s", masks[draw(3)]);
  int one = 1 + (int)draw(40), two = (int)draw(20), three = (int)draw(40);
  bool ragged = draw(2);
  if (ragged)
    n += snprintf(text + n, len - (size_t)n, " seqs=%dx%d/%d+2x%d/%d+1x1/%d", 1 + (int)draw(3),
                  (int)draw(40), one, (int)draw(20), two, 1 + three);
  else
    n += snprintf(text + n, len - (size_t)n, " b=%d sq=%d sk=%d", 1 + (int)draw(3),
                  1 + (int)draw(40), one);
  if (!strncmp(text, "op=fwd", 6) && draw(2))
    random_cache(text + n, len - (size_t)n, ragged ? least(one, least(two, 1 + three)) : one);
}

static void random_problems(void)
{
  int bad = 0;
  for (int i = 0; i < 20000; i++) {
    struct attn_problem p;
    char text[256], err[256] = "";
    random_text(text, sizeof text);
    bool fine = !attn_problem_parse(text, &p, err, sizeof err) && counts_agree(&p);
    if (!fine && !bad++)
      diag("%s %s", text, err);
  }
  ok(!bad, "20000 random problems: ranges, pairs, FLOPs and bytes are those of brute force");
}

/* Values that can be worked out by hand. */
static const struct {
  const char *text;
  double pairs, flops_halved, read, write;
} known[] = {
    {"sq=4 hq=2 d=8", 16, 4 * 8 * 16 * 2, 2 * (2 * 4 * 8 + 2 * 2 * 4 * 8), 4 * 2 * (8 * 2 + 4)},
    {"sq=4 d=8 mask=causal", 10, 4 * 8 * 8, 192, 80},
    {"sq=2 sk=5 d=1 mask=causal", 4 + 5, 4 * 8, 2 * (2 + 10), 2 * 6},
    {"sq=5 sk=2 d=1 mask=causal", 1 + 2, 4 * 5, 2 * (2 + 4), 5 * 6},
    {"sq=2 sk=5 d=1 mask=causal-topleft", 1 + 2, 4 * 2, 2 * (2 + 4), 2 * 6},
    {"sq=5 sk=2 d=1 mask=causal-topleft", 1 + 2 * 4, 4 * 8, 2 * (5 + 4), 5 * 6},
    {"op=decode sk=9 d=1", 9, 4 * 8.5, 2 * (1 + 18), 6},
    {"sq=9 sk=1 d=1 mask=window:0:0", 1, 4, 2 * 3, 9 * 6},
    {"op=decode b=3 sk=10 d=1 page=4 prefix=8", 30, 4 * 28.5, 2 * (3 + 2 * (8 + 6)) + 4 * 5, 18},
    {"op=decode sk=9 d=1 hkv=1 hq=2 page=4 kv=e4m3", 9, 8 * 8.5, 2 * 2 + 18 + 8 + 4 * 3, 12},
    {"op=decode d=1 page=1 prefix=6 mask=window:2:0 seqs=1x1/6+2x1/9+1x1/8", 12, 48,
     2 * (4 + 2 * (3 + 2 * 3 + 2)) + 4 * 11, 24},
};

static void known_values(void)
{
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    struct attn_problem p;
    char err[256];
    if (attn_problem_parse(known[i].text, &p, err, sizeof err))
      diag("%s", err);
    double got[] = {attn_problem_pairs(&p), attn_problem_flops_halved(&p),
                    attn_problem_compulsory_read(&p), attn_problem_compulsory_write(&p)};
    double want[] = {known[i].pairs, known[i].flops_halved, known[i].read, known[i].write};
    for (int k = 0; k < 4; k++)
      if (got[k] != want[k])
        diag("value %d: got %g, want %g", k, got[k], want[k]);
    ok(!memcmp(got, want, sizeof got), "by hand: %s", known[i].text);
  }
}

static void large_problems(void)
{
  struct attn_problem p;
  char err[256];
  attn_problem_parse("hq=1 sq=2147483647 sk=536870912 d=1", &p, err, sizeof err);
  ok(attn_problem_pairs(&p) == 2147483647.0 * 536870912.0, "no overflow at 2^31 x 2^29 pairs");
  attn_problem_parse("sq=1M d=128 mask=causal", &p, err, sizeof err);
  ok(attn_problem_pairs(&p) == 0x1p19 * (0x1p20 + 1), "n(n+1)/2 pairs at a million tokens");
  ok(attn_problem_flops_halved(&p) == 4 * 128 * 0x1p39, "n*n/2 by the halving convention");
}

static void small_functions(void)
{
  struct attn_problem p;
  char err[256];
  int64_t sq, sk;
  attn_problem_parse("seqs=2x3/5+1x7/4 d=64", &p, err, sizeof err);
  ok(attn_problem_total_q(&p) == 13 && attn_problem_total_k(&p) == 14, "rows of a ragged batch");
  attn_problem_seq(&p, 1, &sq, &sk);
  ok(sq == 3 && sk == 5, "the last sequence of a run");
  attn_problem_seq(&p, 2, &sq, &sk);
  ok(sq == 7 && sk == 4, "the first sequence of the next run");
  ok(attn_problem_scale(&p) == 0.125, "the default scale is 1/sqrt(d)");
  attn_problem_parse("sq=1 scale=0.3", &p, err, sizeof err);
  ok(attn_problem_scale(&p) == 0.3, "a given scale holds");
  ok(attn_dtype_size(ATTN_F32) == 4 && attn_dtype_size(ATTN_BF16) == 2 &&
         attn_dtype_size(ATTN_F16) == 2 && attn_dtype_size(ATTN_E4M3) == 1,
     "sizes of the types");
}

int main(void)
{
  const char *seed = getenv("SEED");
  state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
  diag("SEED=%llu", (unsigned long long)state);
  random_problems();
  known_values();
  large_problems();
  small_functions();
  return done_testing();
}
