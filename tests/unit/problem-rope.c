/* SPDX-License-Identifier: Apache-2.0
 *
 * Problem strings of op=rope.  Laws: parse(print(p)) == p for every valid p; a number that a
 * scaling has no use for is refused; FLOPs and compulsory bytes are those of a walk over the new
 * tokens; a kernel that does not name the option in `takes` refuses it without being asked.  SEED
 * in the environment repeats a run.
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
  return 1 + (double)(draw(1u << 30) + 1) / (double)(draw(1u << 20) + 1);
}

/* ---- print and parse ------------------------------------------------------------------------ */

static bool equal(const struct attn_problem *x, const struct attn_problem *y)
{
  const struct attn_rope *a = &x->rope, *b = &y->rope;
  return x->op == y->op && x->sq == y->sq && x->sk == y->sk && x->d == y->d && x->dv == y->dv &&
         x->page == y->page && x->layout == y->layout && x->nruns == y->nruns &&
         x->mask == y->mask && a->scaling == b->scaling && a->factor == b->factor &&
         a->theta == b->theta && a->trained == b->trained && a->rotary == b->rotary &&
         a->interleaved == b->interleaved && a->band_low == b->band_low &&
         a->band_high == b->band_high && a->ramp_by_index == b->ramp_by_index &&
         a->attention == b->attention;
}

static struct attn_rope random_rope(int64_t d)
{
  struct attn_rope r = {.scaling = (enum attn_rope_scaling)draw(6)};
  bool yarn = r.scaling == ATTN_ROPE_YARN, llama3 = r.scaling == ATTN_ROPE_LLAMA3;
  r.factor = r.scaling == ATTN_ROPE_NONE ? 1 : draw(2) ? (double)(1 << draw(6)) : real();
  r.theta = draw(2) ? 10000 : real();
  r.trained = yarn || llama3 || r.scaling == ATTN_ROPE_DYNAMIC ? 1 + (int64_t)draw(1u << 20) : 0;
  r.rotary = draw(2) ? d : 2 + 2 * (int64_t)draw((uint64_t)d / 2);
  r.interleaved = draw(2);
  if (yarn || llama3) {
    r.band_low = draw(2) ? 1 : real();
    r.band_high = draw(2) ? r.band_low * 32 : r.band_low + real();
  }
  r.ramp_by_index = yarn && draw(2);
  r.attention = yarn ? draw(2) ? 0.1 * log(r.factor) + 1 : real() : 1;
  return r;
}

static struct attn_problem random_problem(void)
{
  struct attn_problem p = {.op = ATTN_ROPE, .dtype = (enum attn_dtype)draw(3), .b = 1};
  p.hkv = 1 + (int64_t)draw(4);
  p.hq = p.hkv * (1 + (int64_t)draw(4));
  p.d = 2 + 2 * (int64_t)draw(100);
  p.dv = draw(2) ? p.d : 1 + (int64_t)draw(200);
  p.sq = 1 + (int64_t)draw(40);
  p.sk = p.sq + (int64_t)draw(100);
  p.page = draw(2) ? 1 + (int64_t)draw(20) : 0;
  p.layout = draw(2) ? ATTN_BSHD : ATTN_BHSD;
  p.rope = random_rope(p.d);
  if (draw(2))
    return p;
  p.layout = ATTN_PACKED;
  p.nruns = 2;
  p.runs[0] = (struct attn_run){1 + (int64_t)draw(3), p.sq, p.sk};
  p.runs[1] = (struct attn_run){1, 0, (int64_t)draw((uint64_t)p.sk + 1)};
  p.b = p.runs[0].count + 1;
  return p;
}

static void round_trips(void)
{
  int bad = 0;
  for (int i = 0; i < 20000; i++) {
    struct attn_problem p = random_problem(), q;
    char text[ATTN_PROBLEM_TEXT], again[ATTN_PROBLEM_TEXT] = "", err[256] = "";
    attn_problem_print(&p, text, sizeof text);
    bool fine = !attn_problem_parse(text, &q, err, sizeof err) && equal(&p, &q);
    attn_problem_print(&q, again, sizeof again);
    if ((!fine || strcmp(text, again)) && !bad++)
      diag("%s: %s (%s)", text, err, again);
  }
  ok(!bad, "20000 random problems survive print and parse");
}

/* ---- canonical forms ------------------------------------------------------------------------ */

#define HEAD "op=rope dtype=bf16 b=1 hq=1 hkv=1 sq=4 sk=8 d=64"

static const struct {
  const char *text, *canonical;
} forms[] = {
    {"op=rope sq=4 sk=8 d=64", HEAD},
    {"op=rope sq=4 sk=8 d=64 rope=none theta=10000 rotary=64 pairs=half mask=none", HEAD},
    {"op=rope s=4 d=64", "op=rope dtype=bf16 b=1 hq=1 hkv=1 sq=4 sk=4 d=64"},
    {"rope=linear:4 op=rope sq=4 sk=8 d=64 theta=5e5", HEAD " rope=linear:4 theta=500000"},
    {"pairs=interleaved op=rope sq=4 sk=8 d=64 rotary=32 rope=ntk:1.5",
     HEAD " rope=ntk:1.5 rotary=32 pairs=interleaved"},
    {"op=rope sq=4 sk=8 d=64 rope=dyn:2 trained=4k", HEAD " rope=dyn:2 trained=4096"},
    {"op=rope sq=4 sk=8 d=64 rope=yarn:16 trained=4k band=1:32", HEAD " rope=yarn:16 trained=4096"},
    {"op=rope sq=4 sk=8 d=64 rope=yarn:16 trained=4k attention=1 band=2:32",
     HEAD " rope=yarn:16 trained=4096 band=2:32 attention=1"},
    {"op=rope sq=4 sk=8 d=64 rope=yarn:16 ramp=index trained=4k",
     HEAD " rope=yarn:16 trained=4096 ramp=index"},
    {"op=rope sq=4 sk=8 d=64 rope=llama3:8 trained=8k theta=5e5 band=1:4",
     HEAD " rope=llama3:8 theta=500000 trained=8192"},
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
    is_str(text, forms[i].canonical, forms[i].text);
  }
}

/* ---- bad input ------------------------------------------------------------------------------ */

#define ROPE "op=rope sq=4 sk=8 d=64 "

static const struct {
  const char *text, *says; /* part of the error line */
} faults[] = {
    {"op=rope sk=8", "sq is missing"},
    {"op=rope sq=9 sk=8", "op=rope has sq=9 queries on sk=8 keys"},
    {ROPE "rope=cubic:2", "rope=cubic:2: want none, or linear, ntk, dyn, yarn or llama3"},
    {ROPE "rope=linear", "rope=linear: want"},
    {ROPE "rope=none:2", "rope=none:2: want"},
    {ROPE "rope=ntk:", "rope=ntk:: want"},
    {ROPE "rope=ntk:0.5", "rope=ntk:0.5: want"},
    {ROPE "rope=ntk:inf", "rope=ntk:inf: want"},
    {ROPE "theta=1", "theta=1: want a number above 1"},
    {ROPE "rotary=33", "rotary=33 of d=64: elements rotate in pairs"},
    {ROPE "rotary=66", "rotary=66 of d=64"},
    {"op=rope sq=4 d=33", "rotary=33 of d=33: elements rotate in pairs; give an even rotary"},
    {ROPE "pairs=whole", "pairs=whole: want half or interleaved"},
    {ROPE "rope=dyn:2", "rope=dyn needs trained="},
    {ROPE "rope=yarn:2", "rope=yarn needs trained="},
    {ROPE "rope=linear:2 trained=4k", "rope=linear has no use for trained"},
    {ROPE "band=1:4", "band belongs to rope=yarn and llama3"},
    {ROPE "rope=yarn:2 trained=4k band=4", "band=4: want LOW:HIGH"},
    {ROPE "rope=yarn:2 trained=4k band=4:4", "band=4:4: want LOW:HIGH with 0 < LOW < HIGH"},
    {ROPE "rope=llama3:2 trained=4k attention=1.1",
     "attention=1.1: a number above 0, and rope=yarn"},
    {ROPE "rope=llama3:2 trained=4k ramp=index", "ramp=index belongs to rope=yarn"},
    {ROPE "rope=yarn:2 trained=4k ramp=log", "ramp=log: want turns or index"},
    {ROPE "rope=yarn:2 trained=4k attention=0", "attention=0: want a number above 0"},
    {ROPE "mask=causal", "mask with op=rope: it computes no attention; leave mask out"},
    {ROPE "softcap=5", "softcap with op=rope"},
    {ROPE "alibi=1", "alibi with op=rope"},
    {ROPE "dropout=0.5@1", "dropout with op=rope"},
    {ROPE "scale=2", "scale with op=rope"},
    {"op=fwd sq=4 theta=5", "belong to op=rope: leave them out of op=fwd"},
    {"op=decode sk=4 rope=yarn:4", "belong to op=rope: leave them out of op=decode"},
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

/* ---- counts --------------------------------------------------------------------------------- */

static bool counts_agree(const struct attn_problem *p)
{
  double tokens = 0, entries = 0, size = p->dtype == ATTN_F32 ? 4 : 2;
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk, last = -1;
    attn_problem_seq(p, s, &sq, &sk);
    for (int64_t j = sk - sq; j < sk; j++) {
      tokens++;
      entries += p->page && j / p->page != last;
      last = p->page ? j / p->page : -1;
    }
  }
  double q = tokens * (double)(p->hq * p->d), k = tokens * (double)(p->hkv * p->d);
  double v = tokens * (double)(p->hkv * p->dv);
  double pairs = tokens * (double)((p->hq + p->hkv) * p->rope.rotary / 2);
  return attn_problem_compulsory_read(p) == size * (q + k + v) + 4 * entries &&
         attn_problem_compulsory_write(p) == size * (q + k + v) &&
         attn_problem_flops(p) == 6 * pairs && attn_problem_flops_halved(p) == 6 * pairs &&
         attn_problem_pairs(p) == 0;
}

static void counts(void)
{
  int bad = 0;
  for (int i = 0; i < 5000; i++) {
    struct attn_problem p = random_problem();
    char text[ATTN_PROBLEM_TEXT];
    attn_problem_print(&p, text, sizeof text);
    if (!counts_agree(&p) && !bad++)
      diag("%s", text);
  }
  ok(!bad,
     "FLOPs and compulsory bytes of 5000 random problems are those of a walk over the tokens");
}

/* ---- who takes it --------------------------------------------------------------------------- */

static const char *takes_all(const struct attn_problem *p, const struct attn_device *dev)
{
  (void)p;
  (void)dev;
  return NULL;
}

static void takes(void)
{
  struct attn_problem p, plain;
  struct attn_device cpu = {.kind = ATTN_CPU};
  struct attn_impl old = {.unsupported = takes_all}, current = old;
  char err[256];
  current.takes = ATTN_TAKES_ROPE;
  attn_problem_parse("sq=4", &plain, err, sizeof err);
  attn_problem_parse("op=rope sq=4", &p, err, sizeof err);
  const char *no = attn_unsupported(&old, &p, &cpu);
  ok(no && *no, "refused for a kernel that does not name it: %s", no ? no : "");
  ok(!attn_unsupported(&current, &p, &cpu), "taken by one that does");
  ok(!attn_unsupported(&old, &plain, &cpu), "other problems are the kernel's to refuse");
}

int main(void)
{
  const char *seed = getenv("SEED");
  state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
  diag("SEED=%llu", (unsigned long long)state);
  round_trips();
  canonical_forms();
  bad_input();
  counts();
  takes();
  return done_testing();
}
