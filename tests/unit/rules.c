/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c - the customary rules and what they are asked with: the exact results of all rows are
 * those of each row alone, bit for bit; plain attention in fp32 is exact but for fp32's roundings,
 * and in 16 bits for theirs; exact results pass every rule, and results of which an eighth are lost
 * pass none.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/run/rules.h"
#include "tests/tap.h"

static uint64_t seed;
static volatile uint64_t beats;

/* Inputs at random; those of backward with the O and LSE of an exact forward. */
static bool make(struct law_set *s, const char *text)
{
  struct attn_problem p;
  char err[256];
  if (attn_problem_parse(text, &p, err, sizeof err) || law_set_make(s, &p, false)) {
    ok(false, "%s: %s", text, err);
    return false;
  }
  for (int op = 0; op < LAW_OPERANDS; op++) {
    if (!s->used[op] || s->output[op] || op == LAW_O || op == LAW_LSE)
      continue;
    for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
      for (int64_t c = 0; c < law_width(s, op); c++)
        law_put(s, op, &at, c, law_random(seed + (uint64_t)op, (uint64_t)(law_at(s, op, &at) + c)));
  }
  return p.op != ATTN_BWD || !law_set_forward(s);
}

/* Rows of O whose exact values differ from those of the row alone. */
static int different(const struct law_set *s, const struct rule_truth *t)
{
  struct attn_args args = law_args(s);
  double row[256], lse;
  int n = 0;
  for (struct law_place at = law_first(s, LAW_O); law_there(s, &at); law_next(s, LAW_O, &at)) {
    ref_row_host(&s->p, &args, at.seq, at.head, at.row, row, &lse);
    n += memcmp(row, t->want[LAW_O] + law_at(s, LAW_O, &at), (size_t)s->p.dv * sizeof *row) != 0;
  }
  return n;
}

/* The exact results where outputs are, all but every eighth row. */
static void put_exact(struct law_set *s, const struct rule_truth *t, bool all)
{
  int n = 0;
  for (int op = 0; op < LAW_OPERANDS; op++)
    for (struct law_place at = law_first(s, op); t->want[op] && law_there(s, &at);
         law_next(s, op, &at), n++)
      for (int64_t c = 0; c < law_width(s, op); c++)
        law_put(s, op, &at, c, all || n % 8 ? t->want[op][law_at(s, op, &at) + c] : 0);
}

/* The largest error of plain attention lies in (least, most). */
static void check(const char *text, double least, double most)
{
  struct law_set s;
  struct rule_truth t;
  double error = 0;
  if (!make(&s, text))
    return;
  ok(!rules_prepare(&s, &t, &beats), "%s: prepared", text);
  if (s.p.op == ATTN_FWD)
    ok(!different(&s, &t), "%s: all rows are as each alone, bit for bit", text);
  for (int op = 0; op < LAW_OPERANDS; op++)
    error = fmax(error, t.same_types[op]);
  ok(error > least && error < most, "%s: plain attention is off by %.2g", text, error);
  put_exact(&s, &t, true);
  for (int r = 0; r < RULES; r++)
    ok(rules_pass(&t, &s, r), "%s: exact results pass %s", text, rule_name(r));
  put_exact(&s, &t, false);
  for (int r = 0; r < RULES; r++)
    ok(!rules_pass(&t, &s, r), "%s: with rows of zeros they fail %s", text, rule_name(r));
  rules_free(&t);
  law_set_free(&s);
}

int main(void)
{
  static const char *const shapes[] = {
      "b=2 hq=6 hkv=2 sq=37 sk=53 d=24 mask=causal",
      "b=1 hq=2 hkv=2 sq=41 sk=29 d=16 dv=24 mask=window:9:3 softcap=5",
      "b=2 hq=3 hkv=1 sq=19 sk=31 d=32 alibi=1 layout=bhsd",
      "hq=4 hkv=2 d=16 mask=causal seqs=2x7/7+1x19/23+1x0/5+1x3/0 dropout=0.3@5"};
  char text[256];
  const char *given = getenv("SEED");
  seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  diag("SEED=%llu", (unsigned long long)seed);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int bwd = 0; bwd < 2; bwd++) {
      snprintf(text, sizeof text, "op=%s dtype=fp32 %s", bwd ? "bwd" : "fwd", shapes[i]);
      check(text, 0, 1e-4);
      snprintf(text, sizeof text, "op=%s dtype=bf16 %s", bwd ? "bwd" : "fwd", shapes[i]);
      check(text, 1e-4, 0.3);
    }
  ok(beats > 0, "heads are beats");
  return done_testing();
}
