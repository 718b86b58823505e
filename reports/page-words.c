/* SPDX-License-Identifier: Apache-2.0
 *
 * page-words.c - what the page says in words, all of it from the records.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "harness/base/path.h"
#include "reports/page.h"
#include "reports/serving.h"

/* Record i of all: rows, then serving records. */
static const json_t *record_at(const struct report *r, int i)
{
  return i < r->nrows ? r->rows[i].json : r->serving[i - r->nrows].json;
}

static int records_of(const struct report *r)
{
  return r->nrows + r->nserving;
}

static const char *text_of(const json_t *record, const char *object, const char *name)
{
  const json_t *o = *object ? json_object_get(record, object) : record;
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

/* The distinct texts of a member over all rows, separated by commas; of a suite that was a file the
 * name alone; at most len. */
static void distinct_texts(const struct report *r, const char *object, const char *name, char *buf,
                           size_t len)
{
  buf[0] = '\0';
  for (int i = 0; i < records_of(r); i++) {
    const char *s = text_of(record_at(r, i), object, name);
    bool seen = !*s;
    for (int k = 0; k < i && !seen; k++)
      seen = !strcmp(s, text_of(record_at(r, k), object, name));
    size_t n = strlen(buf);
    if (!seen)
      snprintf(buf + n, len - n, "%s%s", n ? ", " : "", path_base(s));
  }
}

static void item(FILE *out, const char *term, const char *text)
{
  if (!*text)
    return;
  fprintf(out, "<dt>%s</dt><dd>", term);
  write_escaped(out, ESCAPE_HTML, text);
  fputs("</dd>\n", out);
}

/* "2026-11-29T10:00:00Z to ...": ISO 8601 sorts as text. */
static void dates(const struct report *r, char *buf, size_t len)
{
  const char *from = text_of(record_at(r, 0), "", "time_utc"), *to = from;
  for (int i = 1; i < records_of(r); i++) {
    const char *t = text_of(record_at(r, i), "", "time_utc");
    from = strcmp(t, from) < 0 ? t : from;
    to = strcmp(t, to) > 0 ? t : to;
  }
  snprintf(buf, len, strcmp(from, to) ? "%s to %s" : "%s", from, to);
}

static void files(const struct report *r, FILE *out)
{
  fputs("<dt>results</dt><dd>", out);
  for (int i = 0; i < r->nfiles; i++) {
    const struct report_file *f = &r->files[i];
    fputs(i ? "<br>" : "", out);
    write_escaped(out, ESCAPE_HTML, f->path);
    fprintf(out, ": %d record%s", f->records, f->records == 1 ? "" : "s");
    if (f->mutants)
      fprintf(out, ", %d rows of a kill matrix", f->mutants);
    if (f->bad)
      fprintf(out, ", <strong>%d torn or foreign line%s skipped</strong>", f->bad,
              f->bad == 1 ? "" : "s");
    if (f->newer)
      fprintf(out, ", <strong>%d of a newer schema skipped</strong>", f->newer);
  }
  if (r->summary.superseded)
    fprintf(out, "<br>%d replaced by a later record of the same case", r->summary.superseded);
  fputs("</dd>\n", out);
}

static void verdict(const struct report *r, FILE *out)
{
  int counts[REPORT_STATUSES] = {0};
  const char *comma = "";
  for (int i = 0; i < r->nrows; i++)
    counts[r->rows[i].status]++;
  for (int i = 0; i < r->nserving; i++)
    if (!r->serving[i].superseded)
      counts[r->serving[i].pass ? STATUS_PASS : STATUS_FAIL]++;
  fputs("<p class=\"verdict\">", out);
  for (int s = 0; s < REPORT_STATUSES; s++)
    if (counts[s] || s == STATUS_PASS || s == STATUS_FAIL) {
      const char *name = record_status_name((enum record_status)s);
      fprintf(out, "%s<span class=\"status %s\">%d %s</span>", comma, counts[s] ? name : "none",
              counts[s], name);
      comma = " ";
    }
  fputs("</p>\n", out);
}

void page_heading(const struct report *r, FILE *out)
{
  char text[1024] = "", title[256];
  for (int i = 0; i < r->ndevices; i++) {
    size_t n = strlen(text);
    report_device_title(r, &r->devices[i], title, sizeof title);
    if (!strstr(text, title))
      snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", title);
  }
  fputs("<h1>Attention: exactness, bytes, time</h1>\n<p class=\"device\">", out);
  write_escaped(out, ESCAPE_HTML, text);
  fputs("</p>\n<dl>\n", out);
  if (r->nrows || r->nserving)
    dates(r, text, sizeof text);
  item(out, "measured", text);
  distinct_texts(r, "", "suite", text, sizeof text);
  item(out, "suites", text);
  distinct_texts(r, "build", "version", text, sizeof text);
  item(out, "attnbench", text);
  distinct_texts(r, "build", "commit", text, sizeof text);
  item(out, "commit", text);
  distinct_texts(r, "build", "compiler", text, sizeof text);
  item(out, "compiler", text);
  distinct_texts(r, "build", "nvcc", text, sizeof text);
  item(out, "nvcc", text);
  files(r, out);
  fputs("</dl>\n", out);
  if (r->nrows || r->nserving)
    verdict(r, out);
  if (r->summary.note[0]) {
    fputs("<p class=\"note\">", out);
    write_escaped(out, ESCAPE_HTML, r->summary.note);
    fputs("</p>\n", out);
  }
}

/* ---- how it was measured --------------------------------------------------------------------- */

struct method_note {
  const char *object, *name, *value; /* said if any record has this */
  const char *text;
};

static const struct method_note notes[] = {
    {"", "status", "pass",
     "Speed belongs to verified rows only: every timed case was checked against the fp64 reference "
     "before and after timing, on outputs that were poisoned first."},
    {"time", "method", "hidden-events",
     "GPU time is that of an event pair queued behind a blocking kernel, so that launch cost is "
     "hidden, minus an empty pair queued in the same way."},
    {"time", "method", "host-clock",
     "Host time is the monotonic clock around one run on the two-level-memory machine: it says "
     "how fast this host emulates the algorithm, not how fast a GPU would be."},
    {"time", "cache", "cold", "Cold cache: twice the L2 cache is read before every run."},
    {"time", "cache", "warm", "Warm cache: what the run before left is still there."},
    {"time", "mode", "rested",
     "Rested: a pause of at least 50 ms before every run, so that a power-limited card runs at "
     "full clock; ceilings are measured in the same way."},
    {"time", "mode", "sustained",
     "Sustained: at least 3 s of load before the first sample; ceilings are measured in the same "
     "way."},
    {"traffic", "source", "cupti",
     "HBM bytes are hardware counters (CUPTI), taken in runs of their own; written bytes include "
     "what L2 still holds when the run ends."},
    {"traffic", "source", "io-model",
     "HBM bytes on the cpu device are the two-level-memory machine's own count of every tile "
     "loaded and stored."},
    {"traffic", "source", "model",
     "Some rows have no counted bytes; they are left out of the traffic figures, not filled in "
     "from a model."},
};

static bool any_has(const struct report *r, const struct method_note *note)
{
  for (int i = 0; i < r->nrows; i++)
    if (!strcmp(text_of(r->rows[i].json, note->object, note->name), note->value))
      return true;
  return false;
}

static void samples(const struct report *r, FILE *out)
{
  double lo = INFINITY, hi = 0;
  for (int i = 0; i < r->nrows; i++) {
    const json_t *time = json_object_get(r->rows[i].json, "time");
    const json_t *n = json_object_get(time, "n");
    if (json_is_integer(n)) {
      lo = fmin(lo, (double)json_integer_value(n));
      hi = fmax(hi, (double)json_integer_value(n));
    }
  }
  if (isfinite(lo))
    fprintf(out,
            "<li>Times are medians of %.0f to %.0f samples with 95 %% bootstrap intervals; "
            "implementations of a problem were interleaved in one run on the same inputs. All "
            "samples are in the results file.</li>\n",
            lo, hi);
}

void page_method(const struct report *r, FILE *out)
{
  char text[1024];
  fputs("<ul>\n", out);
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
    if (any_has(r, &notes[i]))
      fprintf(out, "<li>%s</li>\n", notes[i].text);
  samples(r, out);
  fputs("<li>FLOPs are 2(d+d<sub>v</sub>) for each unmasked pair of query and key and each query "
        "head, 2.5 times that for backward. Compulsory bytes are every input read once and every "
        "output written once. TFLOP, GB: powers of ten; GiB: powers of two.</li>\n",
        out);
  fputs("<li>Error is componentwise: |out − reference| over a bound that follows from the problem "
        "and the number types; above 1 is a wrong result.</li>\n",
        out);
  distinct_texts(r, "traffic", "reason", text, sizeof text);
  if (*text) {
    fputs("<li>Where nothing was counted: ", out);
    write_escaped(out, ESCAPE_HTML, text);
    fputs("</li>\n", out);
  }
  fputs("</ul>\n", out);
}
