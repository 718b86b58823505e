/* SPDX-License-Identifier: Apache-2.0
 *
 * Problem strings.  Laws: parse(print(p)) == p for every valid p; print(parse(print(p))) is the
 * same text; the order and the separators of keys do not matter; bad input gives one line that
 * names the key and what it wants.  SEED in the environment repeats a run.
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

static double real(void)
{
  return (double)(draw(1u << 30) + 1) / (double)(draw(1u << 20) + 1);
}

static bool equal(const struct attn_problem *a, const struct attn_problem *b)
{
  bool same = a->op == b->op && a->dtype == b->dtype && a->b == b->b && a->hq == b->hq &&
              a->hkv == b->hkv && a->sq == b->sq && a->sk == b->sk && a->d == b->d &&
              a->dv == b->dv && a->mask == b->mask && a->window_left == b->window_left &&
              a->window_right == b->window_right && a->softcap == b->softcap &&
              a->alibi == b->alibi && a->dropout_p == b->dropout_p &&
              a->dropout_seed == b->dropout_seed && a->scale == b->scale && a->page == b->page &&
              a->kv == b->kv && a->prefix == b->prefix && a->layout == b->layout &&
              a->deterministic == b->deterministic && a->nruns == b->nruns;
  for (int i = 0; same && i < a->nruns; i++)
    same = a->runs[i].count == b->runs[i].count && a->runs[i].sq == b->runs[i].sq &&
           a->runs[i].sk == b->runs[i].sk;
  return same;
}

/* ---- random problems ------------------------------------------------------------------------ */

static void random_lengths(struct attn_problem *p)
{
  bool on_cache = p->op == ATTN_DECODE || p->op == ATTN_APPEND;
  p->b = 1 + (int64_t)draw(9);
  p->sq = 1 + (int64_t)draw(5000);
  p->sk = (on_cache ? p->sq : 1) + (int64_t)draw(5000);
  if (draw(3))
    return;
  p->nruns = 1 + (int)draw(ATTN_MAX_RUNS);
  p->b = p->sq = p->sk = 0;
  for (int i = 0; i < p->nruns; i++) {
    struct attn_run *r = &p->runs[i];
    r->count = 1 + (int64_t)draw(40);
    r->sq = i ? (int64_t)draw(300) : 7;
    r->sk = (on_cache ? r->sq : i == 0) + (int64_t)draw(300);
    p->b += r->count;
    p->sq = r->sq > p->sq ? r->sq : p->sq;
    p->sk = r->sk > p->sk ? r->sk : p->sk;
  }
}

static void random_cache(struct attn_problem *p)
{
  int64_t shortest = p->sk;
  for (int i = 0; i < p->nruns; i++)
    shortest = p->runs[i].sk < shortest ? p->runs[i].sk : shortest;
  p->page = p->op != ATTN_BWD && draw(2) ? 1 << draw(8) : 0;
  if (p->op == ATTN_ROPE)
    return;
  p->kv = p->page && draw(2) ? ATTN_KV_E4M3 : ATTN_KV_DTYPE;
  if (p->page && draw(2))
    p->prefix = (int64_t)draw((uint64_t)(shortest / p->page) + 1) * p->page;
}

static void random_options(struct attn_problem *p)
{
  p->mask = (enum attn_mask)draw(4);
  if (p->mask == ATTN_MASK_WINDOW) {
    p->window_left = (int64_t)draw(100) - 1;
    p->window_right = (int64_t)draw(100) - 1;
  }
  p->softcap = draw(2) ? real() : 0;
  p->alibi = draw(2);
  p->dropout_p = draw(2) ? real() / 0x1p31 : 0;
  p->dropout_seed = p->dropout_p > 0 ? draw(1u << 31) * draw(1u << 31) * 4 : 0;
  p->scale = draw(2) ? fmin(real(), p->op == ATTN_BWD ? 1e3 : 1e30) : 0;
  random_cache(p);
  p->layout = p->nruns ? ATTN_PACKED : draw(2) ? ATTN_BHSD : ATTN_BSHD;
  p->deterministic = draw(2);
}

static struct attn_problem random_problem(void)
{
  struct attn_problem p;
  memset(&p, 0, sizeof p);
  p.op = (enum attn_op)draw(4);
  p.dtype = (enum attn_dtype)draw(3);
  p.hkv = 1 + (int64_t)draw(9);
  p.hq = p.hkv * (1 + (int64_t)draw(9));
  p.d = 1 + (int64_t)draw(300);
  p.dv = draw(2) ? p.d : 1 + (int64_t)draw(300);
  random_lengths(&p);
  random_options(&p);
  return p;
}

static void round_trips(void)
{
  int bad = 0;
  for (int i = 0; i < 20000; i++) {
    struct attn_problem p = random_problem(), q;
    char text[ATTN_PROBLEM_TEXT], again[ATTN_PROBLEM_TEXT], err[256] = "";
    attn_problem_print(&p, text, sizeof text);
    if (!attn_problem_parse(text, &q, err, sizeof err) && equal(&p, &q)) {
      attn_problem_print(&q, again, sizeof again);
      if (!strcmp(text, again))
        continue;
    }
    if (!bad++)
      diag("%s: %s", text, err);
  }
  ok(!bad, "20000 random problems survive print and parse");
}

static void longest_text_fits(void)
{
  struct attn_problem p, q;
  char text[ATTN_PROBLEM_TEXT], err[256];
  attn_problem_parse("hq=2000000000 sq=1 op=append dtype=fp16 mask=window:2000000000:2000000000 "
                     "d=200000000 dv=200000001 softcap=1.2345678901234567e-29 alibi=1 "
                     "dropout=1.2345678901234567e-300@18446744073709551615 deterministic=1 "
                     "scale=1.2345678901234567e-29 page=1000000000 kv=e4m3",
                     &p, err, sizeof err);
  p.nruns = ATTN_MAX_RUNS;
  p.prefix = p.page;
  for (int i = 0; i < p.nruns; i++)
    p.runs[i] = (struct attn_run){INT32_MAX, INT32_MAX, INT32_MAX};
  attn_problem_print(&p, text, sizeof text);
  size_t full = strlen(text);
  ok(full + 1 < sizeof text, "the longest text, of %zu characters, fits", full);
  attn_problem_parse(text, &q, err, sizeof err);
  ok(strstr(err, "b=137438953408: want") != NULL, "and is read to its end: %s", err);
  attn_problem_print(&p, text, 20);
  ok(strlen(text) == 19, "a short buffer gets a shortened text");
}

/* ---- canonical forms ------------------------------------------------------------------------ */

static const struct {
  const char *text, *canonical;
} forms[] = {
    {"sq=4k", "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=4096 sk=4096 d=128"},
    {"sk=1k", "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=1024 sk=1024 d=128"},
    {"s=512", "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=512 sk=512 d=128"},
    {"sk=8k op=decode", "op=decode dtype=bf16 b=1 hq=1 hkv=1 sq=1 sk=8192 d=128 mask=causal"},
    {"op=append,sq=256,sk=1M", "op=append dtype=bf16 b=1 hq=1 hkv=1 sq=256 sk=1048576 d=128 "
                               "mask=causal"},
    {"op=append sq=2 sk=3 mask=none", "op=append dtype=bf16 b=1 hq=1 hkv=1 sq=2 sk=3 d=128 "
                                      "mask=none"},
    {"mask=causal d=128 sk=8192,sq=8192 hkv=8 hq=32 b=1 dtype=bf16 op=fwd",
     "op=fwd dtype=bf16 b=1 hq=32 hkv=8 sq=8192 sk=8192 d=128 mask=causal"},
    {"hq=32 hkv=8 seqs=32x1/4k+2k dv=64", "op=fwd dtype=bf16 hq=32 hkv=8 "
                                          "seqs=32x1/4096+1x2048/2048 d=128 dv=64"},
    {"  sq=7\tsk=9 \n layout=bhsd, page=16 , softcap=30.5 scale=0.1 dropout=0.25 alibi=1 "
     "deterministic=1 mask=window:-1:0",
     "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=7 sk=9 d=128 mask=window:-1:0 softcap=30.5 alibi=1 "
     "dropout=0.25@0 scale=0.1 page=16 layout=bhsd deterministic=1"},
    {"op=decode sk=40 prefix=32 kv=e4m3 page=16",
     "op=decode dtype=bf16 b=1 hq=1 hkv=1 sq=1 sk=40 d=128 mask=causal page=16 kv=e4m3 prefix=32"},
    {"op=decode sk=40 page=16 kv=dtype prefix=0",
     "op=decode dtype=bf16 b=1 hq=1 hkv=1 sq=1 sk=40 d=128 mask=causal page=16"},
    {"sq=7 scale=20 softcap=0.1",
     "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=7 sk=7 d=128 softcap=0.1 scale=20"},
    {"sq=7 alibi=0 page=0 softcap=0 dropout=0 deterministic=0 mask=none layout=bshd dv=128",
     "op=fwd dtype=bf16 b=1 hq=1 hkv=1 sq=7 sk=7 d=128"},
};

static void canonical_forms(void)
{
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    struct attn_problem p;
    char text[ATTN_PROBLEM_TEXT] = "", err[256] = "";
    if (attn_problem_parse(forms[i].text, &p, err, sizeof err))
      diag("%s", err);
    else
      attn_problem_print(&p, text, sizeof text);
    is_str(text, forms[i].canonical, forms[i].canonical);
  }
}

/* ---- bad input ------------------------------------------------------------------------------ */

static const struct {
  const char *text, *says; /* part of the error line */
} faults[] = {
    {"", "sq is missing"},
    {"op=append sk=4k", "sq is missing"},
    {"op=decode sq=1", "sk is missing"},
    {"sq=512 hd=64", "unknown key \"hd\": known keys: op dtype b hq hkv"}, /* hq as well as d */
    {"sq=512 zz=64", "unknown key \"zz\": known keys:"},
    {"sq=512 maks=causal", "did you mean mask?"},
    {"sq=512 b\x01\xff=1", "unknown key \"b\\x01\\xff\": known keys:"},
    {"sq=512 determinstic=1", "did you mean deterministic?"},
    {"sq=512 flavour=sweet", "unknown key \"flavour\": known keys:"},
    {"sq=512 =3", "unknown key \"\""},
    {"sq=512 d=0", "d=0: want a whole number from 1"},
    {"sq=512 d=-64", "d=-64: want a whole number from 1"},
    {"sq=512 d=64x", "d=64x: want"},
    {"sq=512 d=", "d=: want"},
    {"sq=512 d=k", "d=k: want"},
    {"sq=512 d=1e3", "d=1e3: want"},
    {"sq=0", "sq=0: want"},
    {"sq=99999999999999999999", "sq=99999999999999999999: want"},
    {"sq=9223372036854775807k", "sq=9223372036854775807k: want"},
    {"sq=4000000000", "sq=4000000000: want a whole number from 1 to 2147483647"},
    {"sq=1M sk=1M b=1M hq=16", "2^60"},
    {"sq=1k b=1M hq=1M d=1M", "2^60"},
    {"sq=512 hq=6 hkv=4", "hq=6 is not a multiple of hkv=4"},
    {"sq=512 hkv=4", "hq=1 is not a multiple of hkv=4"},
    {"sq=512 sq=512", "sq is given twice"},
    {"s=512 sk=4k", "s gives sq and sk"},
    {"s=512 seqs=3", "seqs gives the lengths"},
    {"b=2 seqs=3x4", "seqs gives the lengths"},
    {"sq=512 op=forward", "op=forward: want fwd, bwd, decode, append or rope"},
    {"sq=512 dtype=bfloat16", "dtype=bfloat16: want fp32, bf16 or fp16"},
    {"sq=512 mask=causl", "mask=causl: want none, causal, causal-topleft or window:L:R"},
    {"sq=512 mask=window:5", "mask=window:5: want"},
    {"sq=512 mask=window:5:", "mask=window:5:: want"},
    {"sq=512 mask=window:-2:0", "mask=window:-2:0: want"},
    {"sq=512 mask=window:4000000000:0", "mask=window:4000000000:0: want"},
    {"sq=512 d=64,128", "\"128\" has no '='"},
    {"512", "\"512\" has no '='"},
    {"sq=512 softcap=-1", "softcap=-1: want"},
    {"sq=512 softcap=inf", "softcap=inf: want"},
    {"sq=512 softcap=1e300", "softcap=1e+300: want a number from 1e-30 to 1e+30"},
    {"sq=512 softcap=1e-300", "softcap=1e-300: want a number from 1e-30 to 1e+30"},
    {"sq=512 scale=1e38", "scale=1e+38 with op=fwd: want a number from 1e-30 to 1e+30"},
    {"sq=512 scale=1e-31", "scale=1e-31 with op=fwd: want a number from 1e-30 to 1e+30"},
    {"sq=512 scale=2000 op=bwd", "scale=2000 with op=bwd: want a number from 1e-30 to 1000"},
    {"sq=512 scale=nan", "scale=nan: want a number from 1e-30"},
    {"sq=512 scale=0", "scale=0: want a number from 1e-30"},
    {"sq=512 scale=1,5", "\"5\" has no '='"},
    {"sq=512 dropout=1@3", "dropout=1@3: want P@SEED"},
    {"sq=512 dropout=0@3", "dropout=0: want a probability"},
    {"sq=512 dropout=0.5@", "dropout=0.5@: want"},
    {"sq=512 dropout=0.5@-1", "dropout=0.5@-1: want"},
    {"sq=512 dropout=0.5@18446744073709551616", "dropout=0.5@18446744073709551616: want"},
    {"sq=512 alibi=yes", "alibi=yes: want 0 or 1"},
    {"sq=512 layout=sbhd", "layout=sbhd: want bshd, bhsd or packed"},
    {"sq=512 layout=packed", "layout=packed needs lengths"},
    {"seqs=2x5 layout=bshd", "seqs= batches are packed"},
    {"seqs=2x5 layout=bhsd", "seqs= batches are packed"},
    {"seqs=", "seqs=: want COUNTxSQ/SK"},
    {"seqs=2x5+", "seqs=2x5+: want"},
    {"seqs=0x5", "seqs=0x5: want"},
    {"seqs=2x5/", "seqs=2x5/: want"},
    {"seqs=2x3x4", "seqs=2x3x4: want"},
    {"seqs=2x0/0", "no sequence has queries"},
    {"seqs=0/1+0/2", "no sequence has queries"},
    {"seqs=1/0+2/0", "no sequence has keys"},
    {"seqs=64kx64k", "more than 2147483647 tokens"},
    {"op=append sq=9 sk=8", "op=append has sq=9 queries on sk=8 keys"},
    {"op=decode seqs=3x1/2+1x5/4", "op=decode has sq=5 queries on sk=4 keys"},
    {"op=bwd sq=8 page=16", "page=16 with op=bwd"},
    {"sq=8 page=16 kv=fp8", "kv=fp8: want dtype, or e4m3"},
    {"sq=8 kv=e4m3", "kv=e4m3 without pages: "},
    {"sq=8 dtype=e4m3", "dtype=e4m3: want fp32, bf16 or fp16"},
    {"sq=64 prefix=16", "prefix=16 without pages: "},
    {"sq=64 page=16 prefix=24", "prefix=24 with page=16: "},
    {"sq=64 page=16 prefix=80", "prefix=80 is longer than a sequence of 64 tokens"},
    {"seqs=3x1/64+2x1/31 page=16 prefix=32", "prefix=32 is longer than a sequence of 31 tokens"},
    {"sq=64 page=16 prefix=-16", "prefix=-16: want"},
};

static void bad_input(void)
{
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct attn_problem p;
    char err[512] = "";
    int rc = attn_problem_parse(faults[i].text, &p, err, sizeof err);
    bool pass = rc == ATTN_EINVAL && strstr(err, faults[i].says) && !strchr(err, '\n');
    if (!pass)
      diag("status %d, error \"%s\", want \"%s\"", rc, err, faults[i].says);
    ok(pass, "refused: %s", faults[i].text);
  }
}

static void too_many_runs(void)
{
  struct attn_problem p;
  char text[1024] = "seqs=1x2/3", err[512];
  for (int i = 1; i < ATTN_MAX_RUNS; i++)
    strcat(text, "+1x2/3");
  ok(!attn_problem_parse(text, &p, err, sizeof err) && p.nruns == ATTN_MAX_RUNS && p.b == 64,
     "64 runs are read");
  strcat(text, "+1x2/3");
  ok(attn_problem_parse(text, &p, err, sizeof err) == ATTN_EINVAL, "65 runs are refused");
}

/* Any text at all: never a crash, and an error is never empty nor longer than one line. */
static void random_text(void)
{
  static const char *const bits[] = {"sq",   "=",  "1",   " ",  ",",      "k",     "seqs", "x",
                                     "/",    "+",  "d",   "-1", "window", ":",     "mask", "@",
                                     "drop", "hq", "1e9", ".",  "op=bwd", "sk=7 ", "\t",   "\xff"};
  int bad = 0;
  for (int i = 0; i < 50000; i++) {
    struct attn_problem p;
    char text[256] = "", err[512] = "";
    for (uint64_t n = draw(14); n; n--)
      strcat(text, bits[draw(sizeof bits / sizeof *bits)]);
    int rc = attn_problem_parse(text, &p, err, sizeof err);
    bool fine = rc ? *err && !strchr(err, '\n') : !attn_problem_check(&p, err, sizeof err);
    if (!fine && !bad++)
      diag("\"%s\" gives status %d, \"%s\"", text, rc, err);
  }
  ok(!bad, "50000 random texts are read or refused");
}

int main(void)
{
  const char *seed = getenv("SEED");
  state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
  diag("SEED=%llu", (unsigned long long)state);
  round_trips();
  longest_text_fits();
  canonical_forms();
  bad_input();
  too_many_runs();
  random_text();
  return done_testing();
}
