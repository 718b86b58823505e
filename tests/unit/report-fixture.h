/* SPDX-License-Identifier: Apache-2.0
 *
 * report-fixture.h - results files to report on, folders to report into, and what is in them.
 */
#ifndef TESTS_UNIT_REPORT_FIXTURE_H
#define TESTS_UNIT_REPORT_FIXTURE_H

#include <sys/stat.h>
#include <unistd.h>

#include "reports/report.h"
#include "tests/records/synthetic.h"
#include "tests/tap.h"

static char folder[256]; /* of this test's files */
static struct report_summary sum;
static char err[1024];

static const char *in_folder(const char *name)
{
  static char paths[4][512];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void make_folder(void)
{
  const char *tmp = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/attnbench-report-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(folder)) {
    printf("Bail out! cannot make a folder in %s\n", tmp ? tmp : "/tmp");
    exit(1);
  }
}

static void remove_folder(void)
{
  char command[512];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  if (system(command))
    diag("%s is left", folder);
}

static int write_record(json_t *record, void *ctx)
{
  json_dumpf(record, ctx, JSON_COMPACT | JSON_REAL_PRECISION(9));
  return fputc('\n', ctx) == EOF;
}

/* A results file of the synthetic records, times over, with tail after them. */
static const char *write_results(const char *name, int times, const char *tail)
{
  const char *path = in_folder(name);
  FILE *out = fopen(path, "w");
  for (int i = 0; out && i < times; i++)
    synthetic_records(write_record, out);
  if (out) {
    fputs(tail, out);
    fclose(out);
  }
  return path;
}

/* A record like another, of another implementation and run, and so many times as slow. */
static void add_line(char *lines, size_t len, json_t *like, const char *impl, const char *run,
                     double of_median)
{
  json_t *r = json_deep_copy(like), *time = json_object_get(r, "time");
  double median = json_real_value(json_object_get(time, "median_s"));
  json_object_set_new(r, "impl", json_string(impl));
  json_object_set_new(r, "run_id", json_string(run));
  json_object_set_new(time, "median_s", json_real(of_median * median));
  json_object_set_new(time, "processes", json_integer(10));
  char *line = json_dumps(r, JSON_COMPACT);
  snprintf(lines + strlen(lines), len - strlen(lines), "%s\n", line);
  free(line);
  json_decref(r);
}

static int report_on(const char *path, const char *out)
{
  memset(&sum, 0, sizeof sum);
  err[0] = '\0';
  return report_write(&path, 1, in_folder(out), &sum, err, sizeof err);
}

/* A file of the folder as text, to be freed; "" if it is not there. */
static char *text_of(const char *name)
{
  FILE *in = fopen(in_folder(name), "r");
  char *text = NULL;
  size_t n = 0;
  if (in && getdelim(&text, &n, '\0', in) < 0) {
    free(text);
    text = NULL;
  }
  if (in)
    fclose(in);
  return text ? text : strdup("");
}

static bool file_has(const char *name, const char *what)
{
  char *text = text_of(name);
  bool has = strstr(text, what) != NULL;
  if (!has)
    diag("%s does not have: %s", name, what);
  free(text);
  return has;
}

static int count_of(const char *text, const char *what)
{
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
    n++;
  return n;
}

#define FIELDS 64

/* The fields of a CSV line, in place; quotes removed. */
static int split_csv(char *line, char **fields)
{
  int n = 0;
  char *to = line;
  for (char *s = line; n < FIELDS; s++) {
    bool quoted = false;
    fields[n++] = to;
    for (; *s && (quoted || *s != ','); s++) {
      if (*s != '"')
        *to++ = *s;
      else if (quoted && s[1] == '"')
        *to++ = *s++;
      else
        quoted = !quoted;
    }
    bool end = !*s;
    *to++ = '\0';
    if (end)
      break;
  }
  return n;
}

static int column_of(char **names, int n, const char *name)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name))
      return i;
  return 0;
}

#endif
