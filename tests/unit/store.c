/* SPDX-License-Identifier: Apache-2.0
 *
 * store: what was recorded survives a torn line, a foreign line and a full disk.
 */
#include "config.h"

#include <fcntl.h>
#include <unistd.h>

#include "harness/record/store.h"
#include "tests/tap.h"

static char path[256], err[512];

static json_t *record(int i)
{
  return json_pack("{s:i,s:s,s:s,s:s,s:i}", "schema", 1, "problem", "op=fwd", "impl", "cpu/x",
                   "status", "pass", "i", i);
}

static void append_text(const char *text)
{
  FILE *f = fopen(path, "a");
  fputs(text, f);
  fclose(f);
}

static int append(struct store *s, int i)
{
  json_t *j = record(i);
  int status = store_append(s, j, err, sizeof err);
  json_decref(j);
  return status;
}

static int sum_up(json_t *j, int line, void *ctx)
{
  (void)line;
  *(int *)ctx += (int)json_integer_value(json_object_get(j, "i"));
  return 0;
}

static void round_trip(void)
{
  struct store s;
  int sum = 0, bad = -1;
  ok(!store_open(&s, path, err, sizeof err), "opens a new file");
  ok(!append(&s, 1) && !append(&s, 2), "appends two records");
  store_close(&s);
  ok(!store_read(path, sum_up, &sum, &bad, err, sizeof err) && sum == 3 && bad == 0,
     "reads both back");
}

static void torn_line(void)
{
  struct store s;
  int sum = 0, bad = -1;
  append_text("{\"schema\":1,\"problem\":\"op=f");
  ok(!store_open(&s, path, err, sizeof err) && !append(&s, 4), "appends behind a torn line");
  store_close(&s);
  ok(!store_read(path, sum_up, &sum, &bad, err, sizeof err) && sum == 7 && bad == 1,
     "the torn line costs itself only: sum %d, bad %d", sum, bad);
  append_text("not json\n\n{\"other\":1}\n");
  sum = 0;
  ok(!store_read(path, sum_up, &sum, &bad, err, sizeof err) && sum == 7 && bad == 3,
     "foreign lines are counted and skipped, empty ones ignored");
}

static void failures(void)
{
  struct store s;
  int sum = 0, bad;
  ok(store_read("/nonexistent/x.jsonl", sum_up, &sum, &bad, err, sizeof err) &&
         strstr(err, "/nonexistent/x.jsonl"),
     "a missing file is named");
  ok(store_open(&s, "/nonexistent/x.jsonl", err, sizeof err) && strstr(err, "--out"),
     "an unwritable place says what to do");
  if (access("/dev/full", W_OK)) {
    skip("no /dev/full");
    return;
  }
  ok(!store_open(&s, "/dev/full", err, sizeof err) && append(&s, 1) && strstr(err, "No space"),
     "a full disk is an error that says so: %s", err);
  store_close(&s);
}

int main(void)
{
  snprintf(path, sizeof path, "store-test-%d.jsonl", (int)getpid());
  unlink(path);
  round_trip();
  torn_line();
  failures();
  unlink(path);
  return done_testing();
}
