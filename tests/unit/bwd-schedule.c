/* SPDX-License-Identifier: Apache-2.0
 *
 * bwd-schedule: the order in which the Hopper backward's blocks compute key blocks.  Laws, on
 * random problems: units of work are every part of every key block of every head once, the parts of
 * a block one after another; each shared block has a number of its own, each part but the last of
 * it a place for its sums; accumulators are zeroed once and in time; the end as simulated is not
 * before the work done by all processors, and not after that of a schedule that shares nothing.
 * SEED in the environment repeats a run.
 */
#include "config.h"

#include "harness/base/rng.h"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-schedule.h"
#include "tests/tap.h"

static uint64_t state = 1;

static int64_t below(int64_t n)
{
  state = rng_at(state, 7);
  return (int64_t)(state % (uint64_t)n);
}

/* ---- what a kernel makes of it --------------------------------------------------------------- */

struct unit {
  int64_t place, head, n;
  int part, parts;
  int64_t shared, sums;
};

/* As bwd90_find(). */
static struct unit place_of(const struct bwd90_schedule *s, int64_t heads, int64_t blocks,
                            int64_t place)
{
  int64_t first = place / (s->section * blocks) * s->section;
  first = first < s->last ? first : s->last;
  int64_t here = first < s->last ? s->section : heads - first, r = place - first * blocks;
  return (struct unit){.place = place, .head = first + r % here, .n = r / here};
}

/* As bwd90_unit(). */
static struct unit unit_of(const struct bwd90_schedule *s, int64_t heads, int64_t blocks,
                           int64_t id)
{
  int i = s->stretches - 1;
  while (s->stretch[i].unit > id)
    i--;
  const struct bwd90_stretch *x = &s->stretch[i];
  int64_t n = (id - x->unit) / x->parts;
  struct unit u = place_of(s, heads, blocks, x->block + n);
  u.part = (int)(id - x->unit - n * x->parts);
  u.parts = x->parts;
  u.shared = x->shared + n;
  u.sums = x->sums + n * (x->parts - 1);
  return u;
}

/* ---- laws ------------------------------------------------------------------------------------ */

/* Is every key block computed once, and are those that are shared apart? */
static bool covers(const struct bwd90_jobs *j, const struct bwd90_schedule *s)
{
  int64_t heads = j->p->b * j->p->hkv, shared = 0, sums = 0, done = 0;
  char *seen = calloc((size_t)(heads * j->blocks + 1), 1);
  struct unit last = {.parts = 1};
  bool good = true;
  for (int64_t id = 0; id < s->units && good; id++) {
    struct unit u = unit_of(s, heads, j->blocks, id);
    good = u.head >= 0 && u.head < heads && u.n >= 0 && u.n < j->blocks && u.parts >= 1 &&
           u.parts <= BWD90_PARTS;
    if (u.part > 0)
      good &= u.head == last.head && u.n == last.n && u.part == last.part + 1;
    else
      good &= last.part == last.parts - 1 && !seen[u.head * j->blocks + u.n]++;
    if (u.parts > 1)
      good &= u.shared == shared && u.sums == sums;
    if (u.part == u.parts - 1) {
      done++;
      shared += u.parts > 1;
      sums += u.parts - 1;
    }
    last = u;
  }
  free(seen);
  return good && last.part == last.parts - 1 && done == heads * j->blocks && shared == s->shared &&
         sums == s->sums && shared <= BWD90_SHARED;
}

/* Whoever claims a key block zeroes for the one so many heads on: what is not zero before is zeroed
 * once, and before anyone needs any of it. */
static bool zeroes(const struct bwd90_jobs *j, const struct bwd90_schedule *s)
{
  int64_t heads = j->p->b * j->p->hkv, ahead = attn_flash_bwd_sm90_ahead(s, heads, j->blocks);
  int *zero = calloc((size_t)heads, sizeof *zero);
  bool good = ahead >= 1 && ahead <= heads;
  for (int64_t id = 0; id < s->units; id++) {
    struct unit u = unit_of(s, heads, j->blocks, id);
    good &= u.head < ahead || zero[u.head] == j->blocks;
    if (u.part > 0 || u.place + ahead * j->blocks >= heads * j->blocks)
      continue;
    int64_t head = place_of(s, heads, j->blocks, u.place + ahead * j->blocks).head;
    good &= head >= ahead;
    zero[head]++;
  }
  free(zero);
  return good;
}

static void random_text(char *text, size_t len)
{
  static const char *masks[] = {"none", "causal", "causal-topleft", "window:70:0",
                                "window:300:200"};
  static const char *heads[] = {"hq=8 hkv=8", "hq=32 hkv=8", "hq=8 hkv=1", "hq=3 hkv=3"};
  const char *mask = masks[below(5)], *head = heads[below(4)];
  if (below(3) == 0)
    snprintf(text, len, "op=bwd d=128 %s mask=%s seqs=%dx%d/%d+%dx%d/%d", head, mask,
             (int)below(9) + 1, (int)below(2000), (int)below(2000), (int)below(40) + 1,
             (int)below(500) + 1, (int)below(900) + 1);
  else
    snprintf(text, len, "op=bwd d=128 %s mask=%s b=%d sq=%d sk=%d", head, mask, (int)below(30) + 1,
             (int)below(3000) + 1, (int)below(3000) + 1);
}

static bool lawful(const struct bwd90_jobs *j, const struct bwd90_schedule *plain,
                   const struct bwd90_schedule *s)
{
  double end = attn_flash_bwd_sm90_end(j, s), pairs = attn_problem_pairs(j->p) * (double)j->p->hq;
  return covers(j, plain) && covers(j, s) && zeroes(j, plain) && zeroes(j, s) &&
         end <= 1.01 * attn_flash_bwd_sm90_end(j, plain) &&
         end >= pairs / ((double)j->km * j->kn * (double)j->processors);
}

static void random_problems(int64_t n)
{
  int64_t bad = 0, shared = 0;
  char text[256], err[256];
  for (int64_t i = 0; i < n; i++) {
    struct attn_problem p;
    struct bwd90_schedule plain, s;
    random_text(text, sizeof text);
    if (attn_problem_parse(text, &p, err, sizeof err)) {
      diag("%s: %s", text, err);
      bad++;
      continue;
    }
    int64_t section = 1 + below(5), heads = p.b * p.hkv;
    struct bwd90_jobs j = {&p, 132, below(2) ? 64 : 80, 128, 128, (p.sk + 127) / 128};
    section = section < heads ? section : heads;
    section = p.mask == ATTN_MASK_NONE && !p.nruns ? 1 : section;
    attn_flash_bwd_sm90_schedule_plain(&j, section, &plain);
    attn_flash_bwd_sm90_schedule(&j, section, &s);
    shared += s.shared > 0;
    if (p.sk > 0 && !lawful(&j, &plain, &s)) {
      diag("%s", text);
      bad++;
    }
  }
  ok(!bad && shared > n / 10, "%d random problems, %d with shared key blocks", (int)n, (int)shared);
}

/* ---- what it is for -------------------------------------------------------------------------- */

/* One sequence, a Llama's heads, steps of 80 queries: at least so many times as fast. */
static void few_heads(void)
{
  static const struct {
    const char *problem;
    int64_t section;
    double gain;
  } cases[] = {{"op=bwd hq=32 hkv=8 d=128 mask=causal s=1k", 5, 2},
               {"op=bwd hq=32 hkv=8 d=128 mask=causal s=4k", 1, 1.4},
               {"op=bwd hq=32 hkv=1 d=128 mask=causal s=2k", 1, 6},
               {"op=bwd b=8 hq=16 hkv=16 d=128 mask=causal s=2k", 10, 1.01},
               {"op=bwd hq=32 hkv=8 d=128 s=1k", 1, 1.5}};
  char err[256];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct attn_problem p;
    struct bwd90_schedule plain, s;
    attn_problem_parse(cases[i].problem, &p, err, sizeof err);
    struct bwd90_jobs j = {&p, 132, 80, 128, 128, p.sk / 128};
    attn_flash_bwd_sm90_schedule_plain(&j, cases[i].section, &plain);
    attn_flash_bwd_sm90_schedule(&j, cases[i].section, &s);
    double gain = attn_flash_bwd_sm90_end(&j, &plain) / attn_flash_bwd_sm90_end(&j, &s);
    ok(gain >= cases[i].gain, "%s: %.2f times as fast", cases[i].problem, gain);
  }
}

int main(void)
{
  const char *seed = getenv("SEED");
  state = seed ? strtoull(seed, NULL, 10) : 1;
  diag("SEED=%llu", (unsigned long long)state);
  random_problems(2000);
  few_heads();
  return done_testing();
}
