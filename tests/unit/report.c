/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of a report: every number in it is the records' number, what is missing is empty, the page
 * needs nothing but itself, and bad input is one clear line or is counted and left out.
 */
#include "config.h"

#include <dirent.h>
#include <math.h>

#include "reports/canvas.h"
#include "reports/figure.h"
#include "reports/format.h"
#include "tests/unit/report-fixture.h"

static json_t *records;

static int keep(json_t *record, void *ctx)
{
  return json_array_append(records, record);
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static const struct {
  const char *column, *object, *member;
} numbers[] = {
    {"median_s", "time", "median_s"},
    {"ci_lo_s", "time", "ci_lo_s"},
    {"ci_hi_s", "time", "ci_hi_s"},
    {"tflops", "rate", "tflops"},
    {"gbps", "rate", "gbps"},
    {"of_matmul", "rate", "of_matmul"},
    {"of_copy", "rate", "of_copy"},
    {"compulsory_bytes", "traffic", "compulsory_bytes"},
    {"workspace_bytes", "memory", "workspace_bytes"},
    {"peak_bytes", "memory", "peak_bytes"},
    {"bound_ratio", "verify", "bound_ratio"},
    {"lse_bound_ratio", "verify", "lse_bound_ratio"},
};

/* What results files hold of a number: nine digits. */
static double stored(const json_t *j)
{
  char text[64];
  snprintf(text, sizeof text, "%.9g", json_number_value(j));
  return strtod(text, NULL);
}

/* Read, written, and what L2 still holds where there is an L2. */
static double moved(const json_t *record)
{
  const json_t *t = json_object_get(record, "traffic"), *rest = json_object_get(t, "residue_bytes");
  const json_t *read = json_object_get(t, "dram_read_bytes");
  const json_t *written = json_object_get(t, "dram_write_bytes");
  return json_is_number(read)
             ? stored(read) + stored(written) + (json_is_null(rest) ? 0 : stored(rest))
             : NAN;
}

/* The number of differences between a line and its record. */
static int compare_line(char **names, char **fields, int n, const json_t *record)
{
  int wrong = strcmp(fields[column_of(names, n, "status")],
                     json_string_value(json_object_get(record, "status"))) != 0;
  const char *bytes = fields[column_of(names, n, "moved_bytes")];
  wrong += isnan(moved(record)) ? *bytes != '\0' : strtod(bytes, NULL) != moved(record);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const char *text = fields[column_of(names, n, numbers[i].column)];
    const json_t *j =
        json_object_get(json_object_get(record, numbers[i].object), numbers[i].member);
    bool same = json_is_number(j) ? *text && strtod(text, NULL) == stored(j) : !*text;
    if (!same)
      diag("%s: \"%s\"", numbers[i].column, text);
    wrong += !same;
  }
  return wrong;
}

/* The record of a line that no earlier line had: the cpu records differ in M only. */
static json_t *take_record(json_t *left, const char *problem, const char *impl)
{
  for (size_t i = 0; i < json_array_size(left); i++) {
    json_t *r = json_array_get(left, i);
    if (strcmp(json_string_value(json_object_get(r, "problem")), problem) ||
        strcmp(json_string_value(json_object_get(r, "impl")), impl))
      continue;
    json_incref(r);
    json_array_remove(left, i);
    return r;
  }
  return NULL;
}

static void test_numbers(void)
{
  char *text = text_of("out/tables/results.csv"), *at = text, *line;
  char *names[FIELDS], *fields[FIELDS];
  json_t *left = json_copy(records);
  int wrong = 0, rows = 0, n = split_csv(strsep(&at, "\n"), names);
  while ((line = strsep(&at, "\n")) && *line) {
    int k = split_csv(line, fields);
    json_t *r = k == n ? take_record(left, fields[column_of(names, n, "problem")],
                                     fields[column_of(names, n, "impl")])
                       : NULL;
    wrong += r ? compare_line(names, fields, n, r) : 1;
    rows++;
    json_decref(r);
  }
  ok(rows == (int)json_array_size(records) && json_array_size(left) == 0,
     "results.csv has every record once");
  ok(wrong == 0, "each number in it is the record's, each null an empty field");
  json_decref(left);
  free(text);
}

static void test_missing(void)
{
  static const char *const tables[] = {"results", "throughput-fwd", "summary",
                                       "devices", "fits",           "reasons"};
  int bad = 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    static const char *const ends[] = {"md", "csv", "tex"};
    for (int k = 0; k < 3; k++) {
      char name[64];
      snprintf(name, sizeof name, "out/tables/%s.%s", tables[i], ends[k]);
      char *text = text_of(name);
      bad += !*text || strstr(text, "nan") || strstr(text, "inf ") || strstr(text, "null");
      free(text);
    }
  }
  ok(!bad, "all tables are there in three forms, without nan, inf or null");
}

/* ---- the page ---------------------------------------------------------------------------------
 */

static int files_with(const char *end)
{
  DIR *dir = opendir(in_folder("out/figures"));
  struct dirent *e;
  int n = 0;
  while (dir && (e = readdir(dir))) {
    size_t len = strlen(e->d_name), tail = strlen(end);
    n += len > tail && !strcmp(e->d_name + len - tail, end);
  }
  if (dir)
    closedir(dir);
  return n;
}

/* Identifiers that occur twice. */
static int doubled(const char *page)
{
  int n = 0;
  for (const char *at = page; (at = strstr(at, " id=")); at++) {
    char id[128];
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 5, "\"'") + 5, at);
    const char *again = strstr(at + 1, id);
    n += again && strchr("\"'", again[strlen(id)]);
  }
  return n;
}

static void test_page(void)
{
  char *page = text_of("out/index.html");
  ok(strstr(page, "Synthetic GPU") && strstr(page, "95 pass"), "the page names device and verdict");
  ok(strstr(page, "head dim 96 needs padding to 128"), "it gives the reasons");
  ok(!strstr(page, "http") && !strstr(page, "src=") && !strstr(page, "<script") &&
         !strstr(page, "<link") && !strstr(page, "@import"),
     "it fetches nothing and runs nothing");
  ok(doubled(page) == 0, "identifiers are unique across its drawings");
  ok(count_of(page, "<svg") == sum.figures, "every figure is in it");
  ok(count_of(page, "<svg") == count_of(page, "</svg>"), "and whole");
  free(page);
}

static void test_figures(void)
{
  static const char *const ends[] = {".svg", ".pdf", ".dat", ".gp"};
  ok(sum.figures >= 15, "%d figures", sum.figures);
  for (int i = 0; i < 4; i++)
    ok(files_with(ends[i]) == sum.figures, "each has its %s", ends[i]);
  ok(file_has("out/figures/memory-synthetic-gpu-fwd.svg", "does not fit"),
     "the memory figure says what does not fit");
  ok(file_has("out/figures/throughput-synthetic-gpu-fwd.svg", "Synthetic GPU"),
     "figures name the GPU");
  ok(file_has("out/figures/error-synthetic-gpu.svg", "1 not finite"),
     "a result that is not finite is said, not drawn");
}

/* ---- fits -------------------------------------------------------------------------------------
 */

static void test_fits(void)
{
  double x[] = {1, 2, 4, 8, 16}, y[5], tail[] = {NAN, 1, 1, 4, 16};
  for (int i = 0; i < 5; i++)
    y[i] = 3 * x[i] * x[i];
  ok(fabs(fit_power(x, y, 5) - 2) < 1e-12, "the power of 3 x^2 is 2");
  ok(isnan(fit_power(x, y, 1)), "one point has no power");
  ok(isnan(fit_exponent(x, y, 2)), "two lengths have no exponent");
  ok(fabs(fit_exponent(x, tail, 5) - fit_power(x + 1, tail + 1, 4)) < 1e-12,
     "a length without a value is left out");
  ok(file_has("out/tables/fits.md", "| cpu/naive | N | 1.9"), "naive traffic grows as N^2");
  ok(file_has("out/tables/fits.md", "| cpu/flash | M | -0.9"), "flash traffic falls as 1/M");
}

/* ---- training ---------------------------------------------------------------------------------
 */

static double number_of(const char *problem, const char *impl, const char *object,
                        const char *member)
{
  for (size_t i = 0; i < json_array_size(records); i++) {
    const json_t *r = json_array_get(records, i);
    if (!strcmp(json_string_value(json_object_get(r, "problem")), problem) &&
        !strcmp(json_string_value(json_object_get(r, "impl")), impl))
      return stored(json_object_get(json_object_get(r, object), member));
  }
  return NAN;
}

/* Wrong fields in the line of a forward problem. */
static int wrong_training(char **names, char **fields, int n)
{
  const char *impl = fields[column_of(names, n, "impl")];
  struct attn_problem p;
  char problem[ATTN_PROBLEM_TEXT];
  attn_problem_parse(fields[column_of(names, n, "problem")], &p, err, sizeof err);
  double forward = number_of(fields[column_of(names, n, "problem")], impl, "time", "median_s");
  p.op = ATTN_BWD;
  attn_problem_print(&p, problem, sizeof problem);
  double backward = number_of(problem, impl, "time", "median_s");
  double rate = strtod(fields[column_of(names, n, "tokens_per_s")], NULL);
  double again = strtod(fields[column_of(names, n, "recomputed_s")], NULL);
  double peak = strtod(fields[column_of(names, n, "peak_bytes")], NULL);
  return !(fabs(rate * (forward + backward) / (double)(p.b * p.sq) - 1) < 1e-6) +
         !(fabs(again * 5 / backward - 1) < 1e-6) +
         (peak != number_of(problem, impl, "memory", "peak_bytes"));
}

static void test_training(void)
{
  char *text = text_of("out/tables/training.csv"), *at = text, *line;
  char *names[FIELDS], *fields[FIELDS];
  int wrong = 0, rows = 0, n = split_csv(strsep(&at, "\n"), names);
  for (; (line = strsep(&at, "\n")) && *line; rows++)
    wrong += split_csv(line, fields) == n ? wrong_training(names, fields, n) : 1;
  ok(rows >= 10 && wrong == 0,
     "training: %d rows; tokens/s is tokens over forward and backward, Q K^T a fifth of backward",
     rows);
  free(text);
}

/* ---- bad input --------------------------------------------------------------------------------
 */

static void fails(const char *path, const char *out, const char *what)
{
  int status = report_on(path, out);
  bool clear = strstr(err, what) && !strchr(err, '\n');
  if (!clear)
    diag("%s", err);
  ok(status == -1 && clear, "refused in one line: %s", what);
}

static void test_bad_input(void)
{
  int n = (int)json_array_size(records);
  fails(in_folder("nowhere.jsonl"), "bad", "nowhere.jsonl: cannot read");
  fails(folder, "bad", "cannot read");
  fails(write_results("empty.jsonl", 0, ""), "bad", "empty.jsonl: no record");
  fails(write_results("foreign.jsonl", 0, "hello\n{}\n"), "bad", "2 other lines");
  fails(write_results("newer.jsonl", 0,
                      "{\"schema\":2,\"problem\":\"p\",\"impl\":\"i\",\"status\":\"pass\"}\n"),
        "bad", "newer than 1");
  const char *good = write_results("good.jsonl", 1, "");
  fails(good, "good.jsonl", "is not a folder");
  int status =
      report_on(write_results("torn.jsonl", 1, "hello\n[1]\n{\"schema\":1,\"prob"), "torn");
  ok(!status && sum.records == n && sum.bad_lines == 3,
     "a torn last line and foreign lines are counted and left out");
  ok(file_has("torn/index.html", "3 torn or foreign lines skipped"), "and the page says so");
  ok(!report_on(write_results("twice.jsonl", 2, ""), "twice") && sum.superseded == n &&
         file_has("twice/index.html", "95 pass"),
     "of two records of a case the later one counts");
}

/* A record whose texts would break each of the forms if they were not escaped. */
static void test_escapes(void)
{
  json_t *r = json_deep_copy(json_array_get(records, 0));
  json_object_set_new(r, "impl", json_string("cuda/a_b<script>'\"&%,|"));
  json_object_set_new(r, "problem", json_string("not=a problem"));
  char *line = json_dumps(r, JSON_COMPACT), tail[16384];
  snprintf(tail, sizeof tail, "%s\n", line);
  ok(!report_on(write_results("escape.jsonl", 0, tail), "escape"),
     "names of any kind, and a problem of a later version, can be reported");
  char *page = text_of("escape/index.html");
  ok(!strstr(page, "<script") && strstr(page, "a_b&lt;script&gt;"), "escaped in HTML");
  ok(file_has("escape/tables/results.tex", "a\\_b\\textless{}script\\textgreater{}'\"\\&\\%,|"),
     "escaped in LaTeX");
  ok(file_has("escape/tables/results.md", "a\\_b&lt;script>'\"&%,\\|"), "escaped in Markdown");
  ok(file_has("escape/tables/results.csv", "\"cuda/a_b<script>'\"\"&%,|\""), "quoted in CSV");
  free(page);
  free(line);
  json_decref(r);
}

/* Twice as fast as the fastest peer of its run; a faster one of another run does not count. */
static void test_against_peers(void)
{
  static char lines[65536];
  json_t *like = NULL, *r;
  size_t i;
  json_array_foreach(records, i, r) if (!like && json_is_object(json_object_get(r, "time")) &&
                                        !strncmp(json_string_value(json_object_get(r, "problem")),
                                                 "op=fwd", 6)) like = r;
  lines[0] = 0;
  add_line(lines, sizeof lines, like, "cuda/ours", "one", 1);
  add_line(lines, sizeof lines, like, "peer/fast", "one", 2);
  add_line(lines, sizeof lines, like, "peer/slow", "one", 3);
  add_line(lines, sizeof lines, like, "peer/other", "two", 0.1);
  ok(!report_on(write_results("peers.jsonl", 0, lines), "peers"), "a report with peers");
  char *csv = text_of("peers/tables/against-peers-fwd.csv"), *row = csv ? strchr(csv, '\n') : NULL;
  ok(row && strstr(row, ",10,2\n") && !strchr(row + 1 + strcspn(row + 1, "\n") + 1, ','),
     "one row: 2 times the fastest peer of its run, of 10 processes");
  diag("%s", csv ? csv : "no table");
  free(csv);
  lines[0] = 0;
  add_line(lines, sizeof lines, like, "cuda/ours", "one", 1);
  ok(!report_on(write_results("alone.jsonl", 0, lines), "alone") &&
         access(in_folder("alone/tables/against-peers-fwd.md"), F_OK),
     "without peers there is no table");
}

static void test_two_files(void)
{
  const char *files[] = {write_results("before.jsonl", 1, ""), write_results("after.jsonl", 1, "")};
  char kept[2][512];
  for (int i = 0; i < 2; i++) {
    snprintf(kept[i], sizeof kept[i], "%s", files[i]);
    files[i] = kept[i];
  }
  ok(!report_write(files, 2, in_folder("two"), &sum, err, sizeof err), "two files, one report");
  ok(file_has("two/tables/summary.md", "before: Synthetic GPU") &&
         file_has("two/tables/summary.md", "after: Synthetic GPU"),
     "devices say which file they are from");
}

static void test_no_gnuplot(void)
{
  setenv("GNUPLOT", "/nonexistent/gnuplot", 1);
  int status = report_on(in_folder("good.jsonl"), "plain");
  unsetenv("GNUPLOT");
  ok(!status && sum.figures == 0 && strstr(sum.note, "gnuplot"), "without gnuplot: tables only");
  ok(file_has("plain/index.html", "gnuplot is missing"), "and the page says so");
  ok(file_has("plain/tables/results.csv", "Synthetic GPU"), "with its tables");
}

static void test_format(void)
{
  is_str(format_seconds(1.2344e-3).s, "1.234 ms", "seconds");
  is_str(format_seconds(NAN).s, "", "no seconds");
  is_str(format_bytes(268435456).s, "268 MB", "bytes");
  is_str(format_binary(3 * 1024.0).s, "3 KiB", "binary bytes");
  is_str(format_tokens(16384).s, "16k", "tokens");
  is_str(format_tokens(1000).s, "1000", "tokens that are no multiple");
  is_str(format_exact(0.1).s, "0.1", "the shortest that reads back");
  is_str(format_number(0.00012345, 3).s, "0.000123", "three digits");
}

int main(void)
{
  char gnuplot[4096];
  records = json_array();
  synthetic_records(keep, NULL);
  make_folder();
  test_format();
  int status = report_on(write_results("results.jsonl", 1, ""), "out");
  if (!ok(!status, "a report of the synthetic records"))
    diag("%s", err);
  ok(sum.records == (int)json_array_size(records) && !sum.bad_lines, "all of them");
  test_numbers();
  test_missing();
  test_page();
  if (gnuplot_find(gnuplot, sizeof gnuplot))
    test_figures();
  else
    skip("figures: gnuplot is missing");
  test_fits();
  test_training();
  test_bad_input();
  test_escapes();
  test_two_files();
  test_no_gnuplot();
  test_against_peers();
  remove_folder();
  json_decref(records);
  return done_testing();
}
