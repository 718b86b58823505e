/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace readers: the two formats are read to the token, and what is wrong with a file is told in
 * one line that names file, row and what to do. Content: the same hash id is the same tokens,
 * another is not, and without ids no two requests share any.
 */
#include "config.h"

#include "harness/serve/trace.h"
#include "impl/attn.h"
#include "tests/tap.h"

#include <math.h>
#include <unistd.h>

#define GOOD "{\"timestamp\":5,\"input_length\":3,\"output_length\":2,\"hash_ids\":[1]}\n"
#define HEAD "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static struct trace t;
static char err[512];

static const char *fixture(const char *name)
{
  static char path[1024];
  const char *srcdir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/tests/traces/%s", srcdir ? srcdir : ".", name);
  return path;
}

static void reads(void)
{
  ok(!trace_read(&t, fixture("mooncake.jsonl"), 0, err, sizeof err), "a Mooncake trace is read");
  ok(t.n == 8 && t.request[3].input == 1600 && t.request[3].output == 3 && t.request[3].row == 4 &&
         t.request[3].ids == 4 && t.id[t.request[3].id + 3] == 7,
     "row 4 is what the file says");
  ok(fabs(t.request[7].arrival_s - 1) < 1e-12, "milliseconds become seconds");
  trace_free(&t);
  ok(!trace_read(&t, fixture("mooncake.jsonl"), 3, err, sizeof err) && t.n == 3, "--requests 3");
  trace_free(&t);
  ok(!trace_read(&t, fixture("azure.csv"), 0, err, sizeof err), "an Azure trace is read, CR LF");
  ok(t.n == 4 && t.request[1].input == 396 && t.request[1].output == 19 && t.request[1].row == 3 &&
         t.request[1].ids == 0,
     "row 3 is what the file says");
  ok(fabs(t.request[1].arrival_s - 0.75) < 1e-6 && fabs(t.request[3].arrival_s - 2.5) < 1e-6,
     "times count from the first request, over midnight");
  trace_free(&t);
}

/* The rows of a text, or -1. */
static int rows_of(const char *text)
{
  char path[] = "/tmp/serve-trace-XXXXXX";
  int fd = mkstemp(path);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
    diag("no temporary file");
  close(fd);
  int status = trace_read(&t, path, 0, err, sizeof err);
  if (status)
    diag("%s", err);
  unlink(path);
  return status ? -1 : (int)t.n;
}

static void dialects(void)
{
  ok(rows_of("\xef\xbb\xbf" HEAD "2023-11-16 18:15:46.68,3,4\n") == 1 && t.request[0].row == 2,
     "a byte order mark before the heading");
  trace_free(&t);
  ok(rows_of("\xef\xbb\xbf" GOOD) == 1, "and before a Mooncake row");
  trace_free(&t);
  ok(rows_of(HEAD "2024-05-10 00:00:00.250000+00:00,3,4\n2024-05-10 00:00:01+00:00,3,4\n"
                  "2024-05-10 02:00:02Z,3,4\n2024-05-10 05:30:02.5+03:30,3,4\n"
                  "2024-05-10 01:00:03-01:00,3,4\n") == 5,
     "times with a zone");
  const double want[] = {0, 0.75, 7201.75, 7202.25, 7202.75};
  for (size_t i = 0; i < t.n; i++)
    ok(fabs(t.request[i].arrival_s - want[i]) < 1e-6, "row %d arrives after %.2f s",
       t.request[i].row, want[i]);
  trace_free(&t);
}

static void content(void)
{
  static int32_t a[1600], b[1600];
  trace_read(&t, fixture("mooncake.jsonl"), 0, err, sizeof err);
  trace_tokens(&t, 0, 5, 1000, a);
  trace_tokens(&t, 3, 5, 1000, b);
  ok(!memcmp(a, b, 1100 * sizeof *a), "equal ids are equal tokens, a partial block's too");
  trace_tokens(&t, 1, 5, 1000, b);
  int same = 0, outside = 0;
  for (int i = 0; i < 1100; i++) {
    same += i >= 512 && a[i] == b[i];
    outside += a[i] < 0 || a[i] >= 1000;
  }
  ok(!memcmp(a, b, 512 * sizeof *a) && same < 10 && !outside,
     "other ids are other tokens of the vocabulary, %d of 588 equal by chance", same);
  trace_free(&t);
  trace_read(&t, fixture("azure.csv"), 0, err, sizeof err);
  same = 0;
  for (int i = 0; i < 374; i++)
    same += trace_content(&t, 0, i) == trace_content(&t, 1, i);
  ok(!same, "without ids nothing is shared");
  trace_free(&t);
}

/* One line with the file, the row, and the words. */
static void refuses(const char *text, size_t n, const char *row, const char *words)
{
  char path[] = "/tmp/serve-trace-XXXXXX";
  int fd = mkstemp(path);
  err[0] = '\0';
  if (fd < 0 || write(fd, text, n) != (ssize_t)n)
    diag("no temporary file");
  close(fd);
  int status = trace_read(&t, path, 0, err, sizeof err);
  bool said = strstr(err, path) && strstr(err, row) && strstr(err, words) && !strchr(err, '\n');
  if (!ok(status && said && !t.request, "refused: %s", words))
    diag("%s", err);
  trace_free(&t);
  unlink(path);
}

#define REFUSES(text, row, words) refuses(text, sizeof(text) - 1, row, words)

static void refusals(void)
{
  REFUSES("", "", "no requests");
  REFUSES(HEAD, "", "no requests");
  REFUSES("\n\n", "", "no requests");
  REFUSES("\x7f"
          "ELF\2\1\1\0\0\0",
          "row 1", "binary");
  REFUSES(GOOD "\0\0\0\0\n", "row 2", "binary");
  REFUSES("hello\n", "row 1", "neither a Mooncake");
  REFUSES(GOOD "{\"timestamp\":6,\n", "row 2", "no JSON object");
  REFUSES(GOOD "[1]\n", "row 2", "no JSON object");
  REFUSES("{\"input_length\":3,\"output_length\":2,\"hash_ids\":[1]}", "row 1",
          "timestamp is missing");
  REFUSES("{\"timestamp\":5,\"input_length\":3.5,\"output_length\":2,\"hash_ids\":[1]}", "row 1",
          "input_length is no whole number");
  REFUSES("{\"timestamp\":5,\"input_length\":3,\"hash_ids\":[1]}", "row 1",
          "output_length is missing");
  REFUSES("{\"timestamp\":5,\"input_length\":513,\"output_length\":2,\"hash_ids\":[1]}", "row 1",
          "takes 2 blocks");
  REFUSES("{\"timestamp\":5,\"input_length\":3,\"output_length\":2,\"hash_ids\":[\"a\"]}", "row 1",
          "hash_ids[0]");
  REFUSES("{\"timestamp\":5,\"input_length\":3,\"output_length\":0,\"hash_ids\":[1]}", "row 1",
          "output of 0");
  REFUSES(GOOD GOOD "{\"timestamp\":4,\"input_length\":3,\"output_length\":2,\"hash_ids\":[1]}\n",
          "row 3", "goes back");
  REFUSES(HEAD "2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:45.68,1,1\n", "row 3", "goes back");
  REFUSES(GOOD "{\"timestamp\":1e14,\"input_length\":3,\"output_length\":2,\"hash_ids\":[1]}\n",
          "row 2", "more than a year");
  REFUSES(HEAD "2024-05-10 00:00:01+25,3,4\n", "row 2", "time is \"2024-05-10 00:00:01+25\"");
  REFUSES(HEAD "2024-05-10 00:00:01+00:00x,3,4\n", "row 2", "time is");
  REFUSES(HEAD "2024-05-10 00:00:01 UTC,3,4\n", "row 2", "time is");
  REFUSES("\xef\xbb\xbf", "", "no requests");
  REFUSES(HEAD "yesterday,374,44\n", "row 2", "time is \"yesterday\"");
  REFUSES(HEAD "2023-13-16 18:15:46.68,374,44\n", "row 2", "time is");
  REFUSES(HEAD "2023-11-16 18:15:46.68,374\n", "row 2", "two commas");
  REFUSES(HEAD "2023-11-16 18:15:46.68,-3,44\n", "row 2", "ContextTokens");
  REFUSES(HEAD "2023-11-16 18:15:46.68,3,44,5\n", "row 2", "GeneratedTokens");
  REFUSES(HEAD "2023-11-16 18:15:46.68,0,44\n", "row 2", "prompt of 0");
  REFUSES(HEAD "2023-11-16 18:15:46.68,99999999999,44\n", "row 2", "prompt of 99999999999");
  ok(trace_read(&t, "/nonexistent/trace", 0, err, sizeof err) && strstr(err, "/nonexistent/trace"),
     "a file that is not there is named");
  ok(trace_read(&t, "/", 0, err, sizeof err) && strstr(err, "cannot read"), "a folder is refused");
}

int main(void)
{
  reads();
  dialects();
  content();
  refusals();
  return done_testing();
}
