/* SPDX-License-Identifier: Apache-2.0
 *
 * compare: verdicts of planted changes in made-up records; what is refused; and what the gate
 * promises over a matrix: false alarms when nothing changed, power when something did.
 *
 * A "GPU" here has 0.15 % between processes and 0.5 % inside one; an H200 in rested mode has less.
 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "harness/gate/compare.h"
#include "harness/record/store.h"
#include "tests/tap.h"
#include "tests/unit/simulate.h"

struct made {
  int cells, processes;
  int changed;                    /* cell with a planted change; -1: none */
  double shift;                   /* of its log time */
  double bytes, workspace, error; /* factors of its values */
  const char *status, *reason;    /* of it; NULL: pass */
  bool untimed;                   /* it has no time */
  const char *gpu, *uuid, *hash, *kind, *source, *variant;
  double clock, power_limit;
  int seed;
  uint64_t noise;
};

static const struct made plain = {.cells = 20,
                                  .processes = 8,
                                  .changed = -1,
                                  .bytes = 1,
                                  .workspace = 1,
                                  .error = 1,
                                  .gpu = "Made-up GPU",
                                  .uuid = "0011223344556677",
                                  .hash = "aa",
                                  .kind = "cuda",
                                  .source = "cupti",
                                  .clock = 1.98e9,
                                  .power_limit = 700,
                                  .seed = 1,
                                  .noise = 1};

static json_t *times(const struct made *m, int cell, bool changed)
{
  struct simulate o = {(size_t)m->processes, 9, 0.0015, 0.005, changed ? m->shift : 0};
  struct simulated s;
  json_t *samples = json_array(), *starts = json_array();
  simulate(&s, &o, NULL, rng_at(m->noise, (uint64_t)cell));
  for (size_t i = 0; i < s.start[o.processes]; i++)
    json_array_append_new(samples, json_real(s.x[i]));
  for (size_t p = 0; p < o.processes; p++)
    json_array_append_new(starts, json_integer((json_int_t)s.start[p]));
  return json_pack("{s:s,s:s,s:o,s:o}", "cache", "cold", "mode", "rested", "samples_s", samples,
                   "process_start", starts);
}

static json_t *record(const struct made *m, int cell)
{
  bool changed = cell == m->changed, pass = !changed || !m->status;
  char problem[64];
  snprintf(problem, sizeof problem, "op=fwd b=1 hq=8 sq=%d d=128", 64 * (cell + 1));
  json_t *j = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s?}", "schema", 1, "impl", "cuda/made-up",
                        "problem", problem, "impl_hash", m->hash, "status",
                        pass ? "pass" : m->status, "reason", pass ? NULL : m->reason);
  json_object_set_new(j, "time", pass && !m->untimed ? times(m, cell, changed) : json_null());
  json_object_set_new(j, "variant",
                      m->variant ? json_pack("{s:s}", "name", m->variant) : json_null());
  json_object_set_new(j, "inputs",
                      json_pack("{s:s,s:i}", "distribution", "normal", "seed", m->seed));
  json_object_set_new(j, "device",
                      json_pack("{s:s,s:s,s:s,s:f,s:f,s:f,s:b}", "kind", m->kind, "name", m->gpu,
                                "uuid_hash", m->uuid, "sm_clock_hz", m->clock, "power_limit_w",
                                m->power_limit, "sram_bytes", 232448.0, "ecc", 1));
  json_object_set_new(j, "traffic",
                      json_pack("{s:s,s:f,s:f,s:n}", "source", m->source, "dram_read_bytes",
                                1e9 * (changed ? m->bytes : 1), "dram_write_bytes", 5e8,
                                "residue_bytes"));
  json_object_set_new(j, "memory",
                      json_pack("{s:f}", "workspace_bytes", 1e6 * (changed ? m->workspace : 1)));
  json_object_set_new(j, "verify",
                      json_pack("{s:f}", "bound_ratio", 0.1 * (changed ? m->error : 1)));
  return j;
}

static void append(const struct made *m, const char *path)
{
  struct store s;
  char err[256];
  if (store_open(&s, path, err, sizeof err))
    exit(1);
  for (int i = 0; i < m->cells; i++) {
    json_t *j = record(m, i);
    if (store_append(&s, j, err, sizeof err))
      exit(1);
    json_decref(j);
  }
  store_close(&s);
}

static struct cells read_made(const struct made *m)
{
  char path[] = "/tmp/attnbench-compare.XXXXXX", err[256];
  struct cells c;
  int fd = mkstemp(path);
  if (fd < 0 || close(fd))
    exit(1);
  append(m, path);
  if (cells_read(&c, path, NULL, err, sizeof err))
    diag("%s", err);
  c.file = "made";
  unlink(path);
  return c;
}

static const struct compare_options usual = {.threshold = 0.005,
                                             .bytes_threshold = 0.02,
                                             .error_threshold = 0.5,
                                             .rate = 0.05,
                                             .quantities = (1u << QUANTITIES) - 1};
static char said[512];

/* Compares two made sets; the comparison keeps no cells. -1: refused, see said. */
static int compare_made(const struct made *a, const struct made *b, const struct compare_options *o,
                        struct comparison *c)
{
  struct cells base = read_made(a), now = read_made(b);
  said[0] = '\0';
  int status = compare_cells(&base, &now, o, c, said, sizeof said);
  cells_free(&base);
  cells_free(&now);
  return status;
}

static void count(const struct comparison *c, enum quantity q, int same, int better, int worse,
                  int ambiguous, const char *name)
{
  const int *v = c->verdicts[q];
  if (!ok(v[VERDICT_SAME] == same && v[VERDICT_BETTER] == better && v[VERDICT_WORSE] == worse &&
              v[VERDICT_AMBIGUOUS] == ambiguous,
          "%s", name))
    diag("same %d, better %d, worse %d, ambiguous %d", v[VERDICT_SAME], v[VERDICT_BETTER],
         v[VERDICT_WORSE], v[VERDICT_AMBIGUOUS]);
}

static void times_change(void)
{
  struct comparison c;
  struct made now = plain;
  now.noise = 2;
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_TIME, 20, 0, 0, 0, "nothing changed: 20 the same");
  ok(comparison_well(&c) && c.states[PAIR_BOTH] == 20, "all is well");
  comparison_free(&c);

  now.changed = 7;
  now.shift = 0.02;
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_TIME, 19, 0, 1, 0, "2 % planted in one of 20: one slower");
  const struct finding *f = &c.item[7].of[QUANTITY_TIME];
  ok(f->verdict == VERDICT_WORSE && f->lo < exp(0.02) && f->hi > exp(0.02) && f->mde < 0.01,
     "it is that one, and the interval holds 2 %%");
  ok(!comparison_well(&c), "and that is not well");
  comparison_free(&c);

  now.shift = -0.02;
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_TIME, 19, 1, 0, 0, "2 % less: faster");
  ok(comparison_well(&c), "which is well");
  comparison_free(&c);

  now.shift = 0.0045;
  now.processes = 30;
  struct made base = plain;
  base.processes = 30;
  compare_made(&base, &now, &usual, &c);
  f = &c.item[7].of[QUANTITY_TIME];
  ok(f->q < 0.05 && f->verdict == VERDICT_SAME, "significant, but below the threshold: the same");
  comparison_free(&c);
}

static void floors(void)
{
  struct comparison c;
  struct made now = plain;
  struct noise_floor floor = {.processes = 8, .overall = 0.05};
  struct compare_options o = usual;
  now.noise = 3;
  now.changed = 7;
  now.shift = 0.02;
  memcpy(floor.on.name, "Made-up GPU", 12);
  memcpy(floor.on.uuid_hash, plain.uuid, 17);
  o.floor = &floor;
  compare_made(&plain, &now, &o, &c);
  count(&c, QUANTITY_TIME, 20, 0, 0, 0, "2 % below a noise floor of 5 %: the same");
  comparison_free(&c);
  floor.processes = 9;
  compare_made(&plain, &now, &o, &c);
  ok(c.verdicts[QUANTITY_TIME][VERDICT_WORSE] == 1,
     "a floor of 9 processes says nothing about 8 (which vary more)");
  comparison_free(&c);

  struct made one = plain, other = now;
  one.processes = other.processes = 1;
  other.shift = 0.2;
  compare_made(&one, &other, &usual, &c);
  ok(c.by_sample && c.item[7].of[QUANTITY_TIME].verdict == VERDICT_AMBIGUOUS &&
         c.verdicts[QUANTITY_TIME][VERDICT_WORSE] == 0,
     "one process a side: 20 %% is ambiguous at most");
  comparison_free(&c);
  floor.processes = 1;
  floor.overall = 0.02;
  compare_made(&one, &other, &o, &c);
  ok(c.item[7].of[QUANTITY_TIME].verdict == VERDICT_WORSE,
     "unless a floor says how much one process varies");
  comparison_free(&c);

  one.processes = other.processes = 3;
  compare_made(&one, &other, &usual, &c);
  ok(c.item[7].of[QUANTITY_TIME].verdict == VERDICT_AMBIGUOUS && c.enough == 6,
     "3 processes cannot show a lone change among 20 cells; 6 can (%zu)", c.enough);
  comparison_free(&c);
}

static void values_change(void)
{
  struct comparison c;
  struct made now = plain;
  now.changed = 3;
  now.bytes = 1.05; /* of the bytes read, so 3.3 % of all */
  now.workspace = 1.01;
  now.error = 1.4;
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_BYTES, 19, 0, 1, 0, "3.3 % more bytes: more");
  count(&c, QUANTITY_WORKSPACE, 20, 0, 0, 0, "1 % more workspace: the same");
  count(&c, QUANTITY_ERROR, 20, 0, 0, 0, "error 1.4 times as large: the same");
  ok(!comparison_well(&c), "more bytes are not well");
  comparison_free(&c);
  now.bytes = 1.02; /* 1.3 % */
  now.workspace = 1.03;
  now.error = 1.6;
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_BYTES, 20, 0, 0, 0, "1.3 % more bytes: the same");
  count(&c, QUANTITY_WORKSPACE, 19, 0, 1, 0, "3 % more workspace: larger");
  count(&c, QUANTITY_ERROR, 19, 0, 1, 0, "error 1.6 times as large: larger");
  comparison_free(&c);
  now = plain;
  now.source = "io-model";
  compare_made(&plain, &now, &usual, &c);
  count(&c, QUANTITY_BYTES, 0, 0, 0, 0, "bytes of different counters are not compared");
  ok(c.lopsided[QUANTITY_BYTES] == 20 && !c.lopsided[QUANTITY_ERROR], "which is counted");
  comparison_free(&c);
}

static void statuses_change(void)
{
  struct comparison c;
  struct made bad = plain, fewer = plain;
  bad.changed = 5;
  bad.status = "fail";
  bad.reason = "wrong";
  compare_made(&plain, &bad, &usual, &c);
  ok(c.states[PAIR_CHANGED] == 1 && c.failing == 1 && !comparison_well(&c), "pass -> fail");
  comparison_free(&c);
  compare_made(&bad, &plain, &usual, &c);
  ok(c.states[PAIR_CHANGED] == 1 && c.failing == 0 && comparison_well(&c), "fail -> pass is well");
  comparison_free(&c);
  compare_made(&bad, &bad, &usual, &c);
  ok(c.states[PAIR_CHANGED] == 0 && c.failing == 0, "fail -> fail is nothing new");
  comparison_free(&c);
  fewer.cells = 18;
  compare_made(&plain, &fewer, &usual, &c);
  ok(c.states[PAIR_MISSING] == 2 && comparison_well(&c), "two cells missing");
  comparison_free(&c);
  compare_made(&fewer, &plain, &usual, &c);
  ok(c.states[PAIR_NEW] == 2 && comparison_well(&c), "two cells new");
  comparison_free(&c);
  bad.changed = 19;
  compare_made(&fewer, &bad, &usual, &c);
  ok(c.failing == 1, "a new cell that fails is newly failing");
  comparison_free(&c);
  bad.status = "unsupported";
  compare_made(&fewer, &bad, &usual, &c);
  ok(c.failing == 0, "a new cell that refuses is not");
  comparison_free(&c);
  compare_made(&plain, &bad, &usual, &c);
  ok(c.failing == 1, "one that refuses what it did before is");
  comparison_free(&c);
}

static void refuses(const struct made *b, const char *what, const char *name)
{
  struct comparison c;
  struct compare_options o = usual;
  ok(compare_made(&plain, b, &usual, &c) == -1 && strstr(said, what) && strstr(said, "--anyway"),
     "%s: %s", name, said);
  comparison_free(&c);
  o.anyway = true;
  ok(compare_made(&plain, b, &o, &c) == 0 && strstr(c.warning, what),
     "--anyway compares, and says so");
  comparison_free(&c);
}

static void conditions(void)
{
  struct comparison c;
  struct compare_options o = usual;
  struct made other = plain;
  other.gpu = "Another GPU";
  refuses(&other, "GPUs differ", "another GPU");
  other = plain;
  other.uuid = "8899aabbccddeeff";
  refuses(&other, "GPUs differ", "another card of the same name");
  other = plain;
  other.power_limit = 350;
  refuses(&other, "power limits differ", "another power limit");
  other = plain;
  other.clock = 1.2e9;
  refuses(&other, "clock differs by -39.4 %", "another clock");
  other = plain;
  other.seed = 2;
  refuses(&other, "seeds of the inputs differ", "other inputs");
  other = plain;
  other.kind = "cpu";
  struct made cpu = other;
  cpu.gpu = "Another processor";
  o.quantities &= ~(1u << QUANTITY_TIME);
  ok(compare_made(&other, &cpu, &o, &c) == 0, "bytes and errors of different processors compare");
  comparison_free(&c);
  ok(compare_made(&other, &cpu, &usual, &c) == -1 && strstr(said, "processors differ"),
     "their times do not");
  comparison_free(&c);
  ok(compare_made(&plain, &other, &usual, &c) == -1 && strstr(said, "no case in common"),
     "two kinds of device have nothing in common");
  comparison_free(&c);
}

/* Records of the same build are replicates; those of another are not. */
static void pools(void)
{
  char path[] = "/tmp/attnbench-compare.XXXXXX", err[256];
  struct made one = plain, changed = plain;
  struct cells c;
  one.processes = changed.processes = 1;
  changed.hash = "bb";
  int fd = mkstemp(path);
  if (fd < 0 || close(fd))
    exit(1);
  for (one.noise = 1; one.noise <= 5; one.noise++)
    append(&one, path);
  ok(!cells_read(&c, path, NULL, err, sizeof err) && c.n == 20 && c.item[0].processes == 5,
     "five records of one build are five processes");
  cells_free(&c);
  append(&changed, path);
  ok(!cells_read(&c, path, NULL, err, sizeof err) && c.item[0].processes == 1,
     "a record of another build stands alone");
  cells_free(&c);
  changed.variant = "a";
  append(&changed, path);
  changed.variant = "b";
  append(&changed, path);
  ok(!cells_read(&c, path, NULL, err, sizeof err) && c.item[0].processes == 1,
     "nor are those of another compiled variant");
  cells_free(&c);
  one = plain;
  one.cells = 1;
  one.changed = 0;
  one.status = "crash";
  append(&one, path);
  ok(!cells_read(&c, path, NULL, err, sizeof err) && c.n == 20 && c.item[0].status == STATUS_CRASH,
     "a later crash, which has no time, is how the timed cell ended");
  cells_free(&c);
  unlink(path);
}

/* ---- over many comparisons ------------------------------------------------------------------- */

/* 60 cells, 5 comparisons, 7 processes a side: what the A/A test on a GPU does. */
static void false_alarms(void)
{
  struct made a = plain, b = plain;
  int alarms = 0, judged = 0;
  a.cells = b.cells = 60;
  a.processes = b.processes = 7;
  for (uint64_t k = 0; k < 5; k++) {
    struct comparison c;
    a.noise = rng_at(77, 2 * k);
    b.noise = rng_at(77, 2 * k + 1);
    compare_made(&a, &b, &usual, &c);
    for (int q = 0; q < QUANTITIES; q++)
      alarms += c.verdicts[q][VERDICT_WORSE] + c.verdicts[q][VERDICT_BETTER];
    judged += c.judged;
    comparison_free(&c);
  }
  ok(judged == 300 && alarms <= 1, "%d false alarms in %d comparisons of a thing with itself",
     alarms, judged);
}

static int found(double shift)
{
  struct made a = plain, b = plain;
  int n = 0;
  a.processes = b.processes = 7;
  a.cells = b.cells = 12;
  b.changed = 4;
  b.shift = log1p(shift);
  for (uint64_t k = 0; k < 40; k++) {
    struct comparison c;
    a.noise = 1000 + 2 * k;
    b.noise = 1001 + 2 * k;
    compare_made(&a, &b, &usual, &c);
    n += c.item[4].of[QUANTITY_TIME].verdict == VERDICT_WORSE;
    comparison_free(&c);
  }
  return n;
}

static void power(void)
{
  int two = found(0.02), one = found(0.01);
  ok(two >= 38, "2 %% slower is found in %d of 40 trials", two);
  ok(one >= 32, "1 %% slower in %d", one);
}

int main(void)
{
  times_change();
  floors();
  values_change();
  statuses_change();
  conditions();
  pools();
  false_alarms();
  power();
  return done_testing();
}
