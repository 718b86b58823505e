/* SPDX-License-Identifier: Apache-2.0
 *
 * Law: what the program writes, and every committed baseline, is a record of the schema; a record
 * that breaks it in any one way is not.
 */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "harness/record/record.h"
#include "harness/record/store.h"
#include "tests/records/synthetic.h"
#include "tests/schema.h"
#include "tests/tap.h"

static json_t *schema;
static char err[512];

static const char *source(const char *path)
{
  static char full[4096];
  const char *srcdir = getenv("srcdir");
  snprintf(full, sizeof full, "%s/%s", srcdir ? srcdir : ".", path);
  return full;
}

/* Every rule of the schema has words for its readers. */
static int undescribed(const json_t *rule, const char *name)
{
  int n = 0;
  const char *key;
  json_t *member;
  if (!json_object_get(rule, "description")) {
    diag("%s has no description", name);
    n++;
  }
  json_object_foreach(json_object_get(rule, "properties"), key, member)
  {
    n += undescribed(member, key);
  }
  const json_t *items = json_object_get(json_object_get(rule, "items"), "properties");
  json_object_foreach((json_t *)items, key, member)
  {
    n += undescribed(member, key);
  }
  return n;
}

static int check_one(json_t *record, void *ctx)
{
  int *bad = ctx;
  if (!schema_valid(schema, record, "", err, sizeof err)) {
    diag("%s", err);
    ++*bad;
  }
  return 0;
}

static int check_line(json_t *record, int line, void *ctx)
{
  return check_one(record, ctx);
}

/* ---- records that break it ------------------------------------------------------------------- */

struct breakage {
  const char *object, *member, *json; /* json NULL: the member is taken away */
};

static const struct breakage breakages[] = {
    {"", "schema", "2"},
    {"", "impl", NULL},
    {"", "status", "\"PASS\""},
    {"", "time_utc", "\"yesterday\""},
    {"", "impl_hash", "\"abc\""},
    {"", "extra", "1"},
    {"", "flops", "\"many\""},
    {"time", "median_s", "0"},
    {"time", "ci_lo_s", NULL},
    {"time", "graph_s", "0"},
    {"time", "cache", "\"lukewarm\""},
    {"time", "samples_s", "[1, null]"},
    {"time", "n", "1.5"},
    {"verify", "bound_ratio", "-1"},
    {"verify", "checks", "{\"guards\": true}"},
    {"traffic", "source", "\"guess\""},
    {"traffic", "dram_read_byte", "1"},
    {"memory", "peak_bytes", "-1"},
    {"device", "kind", "\"tpu\""},
    {"device", "name", "\"\""},
    {"device", "throttle", "[1]"},
    {"device", "ecc", "1"},
    {"build", "version", NULL},
};

static json_t *pass_record;

static int keep_pass(json_t *record, void *ctx)
{
  if (!pass_record)
    pass_record = json_incref(record);
  return 0;
}

static void test_breakage(const struct breakage *b)
{
  json_t *copy = json_deep_copy(pass_record);
  json_t *object = *b->object ? json_object_get(copy, b->object) : copy;
  if (b->json)
    json_object_set_new(object, b->member, json_loads(b->json, JSON_DECODE_ANY, NULL));
  else
    json_object_del(object, b->member);
  bool valid = schema_valid(schema, copy, "", err, sizeof err);
  ok(!valid && strstr(err, b->member), "refused: %s.%s %s", b->object, b->member,
     b->json ? b->json : "missing");
  json_decref(copy);
}

/* ---- what the program writes ----------------------------------------------------------------- */

static void test_unknown_record(void)
{
  struct record r;
  struct device dev = {.info = {.kind = ATTN_CPU, .name = "a processor", .multiprocessors = 2}};
  char text[128];
  int bad = 0;
  record_init(&r);
  snprintf(r.run_id, sizeof r.run_id, "run");
  snprintf(r.impl, sizeof r.impl, "cpu/naive");
  attn_problem_parse("b=1 hq=1 sq=8 d=16", &r.problem, text, sizeof text);
  json_t *j = record_to_json(&r, &dev, "attnbench verify");
  check_one(j, &bad);
  ok(!bad, "a record of which nothing is known yet is valid");
  json_decref(j);
}

static void test_full_record(void)
{
  struct record r;
  struct device dev = {.info = {.kind = ATTN_CUDA, .name = "a GPU", .sm = 90, .multiprocessors = 2},
                       .driver = "1",
                       .runtime = "2",
                       .uuid_hash = "0123456789abcdef"};
  double samples[] = {1e-3, 2e-3};
  char text[128];
  int bad = 0;
  record_init(&r);
  snprintf(r.run_id, sizeof r.run_id, "run");
  snprintf(r.impl, sizeof r.impl, "cuda/naive");
  attn_problem_parse("b=1 hq=1 sq=8 d=16", &r.problem, text, sizeof text);
  r.status = STATUS_PASS;
  r.verified = r.timed = true;
  r.verdict = (struct ref_verdict){.pass = true, .lse_bound_ratio = NAN};
  r.guards_intact = r.inputs_unchanged = r.rerun_bitwise = 1;
  r.median_s = r.ci_lo_s = r.ci_hi_s = r.min_s = 1e-3;
  r.method = "hidden-events";
  r.samples = samples;
  r.n = 2;
  r.processes = 1;
  r.tflops = r.gbps = r.of_matmul = r.of_copy = 0.5;
  r.counters.source = "cupti";
  r.counters.dram_read_bytes = 12345;
  r.nkernels = 1;
  r.kernels[0] = (struct kernel_info){.name = "k", .calls = 1};
  r.state.throttle = 4;
  json_t *j = record_to_json(&r, &dev, "attnbench run");
  check_one(j, &bad);
  ok(!bad, "a record of which much is known is valid");
  json_decref(j);
}

static void test_baselines(void)
{
  DIR *dir = opendir(source("profiles/baselines"));
  struct dirent *e;
  while (dir && (e = readdir(dir))) {
    char path[512], why[512];
    int bad = 0, foreign = 0;
    if (!strstr(e->d_name, ".jsonl") || !strncmp(e->d_name, "zoo-", 4))
      continue;
    snprintf(path, sizeof path, "profiles/baselines/%.200s", e->d_name);
    int status = store_read(source(path), check_line, &bad, &foreign, why, sizeof why);
    ok(!status && !bad && !foreign, "%s: every line is a valid record", path);
  }
  if (dir)
    closedir(dir);
}

/* The kill matrix has a schema of its own. */
static void test_zoo(void)
{
  json_t *of_records = schema;
  int bad = 0, foreign = 0;
  char why[512];
  schema = json_load_file(source("profiles/zoo.schema.json"), JSON_REJECT_DUPLICATES, NULL);
  if (ok(schema != NULL, "the schema of the kill matrix is JSON")) {
    ok(undescribed(schema, "line") == 0, "every member is described");
    static const char *const files[] = {"zoo-cpu", "zoo-h200"};
    for (int i = 0; i < 2; i++) {
      char name[64];
      snprintf(name, sizeof name, "profiles/baselines/%s.jsonl", files[i]);
      if (i && access(source(name), F_OK))
        continue; /* of a GPU, where one was at hand */
      int status = store_read_zoo(source(name), check_line, &bad, &foreign, why, sizeof why);
      ok(!status && !bad && !foreign, "every line of the recorded kill matrix %s is valid",
         files[i]);
    }
    json_decref(schema);
  }
  schema = of_records;
}

int main(void)
{
  json_error_t why;
  int bad = 0;
  schema = json_load_file(source("profiles/record.schema.json"), JSON_REJECT_DUPLICATES, &why);
  if (!ok(schema != NULL, "the schema is JSON"))
    return done_testing();
  ok(undescribed(schema, "record") == 0, "every member is described");
  ok(!synthetic_records(check_one, &bad) && !bad, "the synthetic records are valid");
  synthetic_records(keep_pass, NULL);
  for (size_t i = 0; i < sizeof breakages / sizeof *breakages; i++)
    test_breakage(&breakages[i]);
  test_unknown_record();
  test_full_record();
  test_baselines();
  test_zoo();
  json_decref(pass_record);
  json_decref(schema);
  return done_testing();
}
