/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c - the report as one HTML page: no script, nothing fetched, drawings inline.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "reports/page.h"
#include "reports/tables.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>attnbench report</title>\n<style>\n"
    ":root{--ink:#1b1b1b;--soft:#666;--line:#ddd;--fill:#f6f6f4}\n"
    "body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "color:var(--ink);background:#fff;max-width:1120px;margin:2.5rem auto;padding:0 1.25rem}\n"
    "h1{font-size:1.7rem;margin:0 0 .2rem;font-weight:600}\n"
    "h2{font-size:1.2rem;margin:2.6rem 0 .7rem;font-weight:600;"
    "border-bottom:1px solid var(--line);padding-bottom:.25rem}\n"
    ".device{font-size:1.1rem;color:var(--soft);margin:0 0 1rem}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:0}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".verdict{margin:1.2rem 0 0;font-size:1.05rem}\n"
    ".status{display:inline-block;padding:0 .5em;border-radius:3px;background:#eee}\n"
    ".status.pass{background:#d9efe6;color:#00543f}\n"
    ".status.fail,.status.invalid,.status.crash{background:#f9dcc9;color:#7a2d00}\n"
    ".status.oom,.status.timeout{background:#fbeccb;color:#664400}\n"
    ".status.none{color:var(--soft)}\n"
    ".note{background:#fbeccb;padding:.5rem .8rem}\n"
    ".table{overflow:auto;max-height:36rem;border:1px solid var(--line)}\n"
    "table{border-collapse:collapse;font-size:13px;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.22rem .5rem;text-align:left;vertical-align:top}\n"
    "td{border-top:1px solid #eee}td.l,td.r{white-space:nowrap}td.r,th.r{text-align:right}\n"
    "thead th{position:sticky;top:0;background:var(--fill);border-bottom:1px solid var(--line);"
    "font-weight:600}\n"
    "tr.section th{background:#fff;padding-top:.7rem;font-weight:600;"
    "border-top:1px solid var(--line)}\n"
    "figure{margin:1.6rem 0 2.2rem}figure svg{display:block;max-width:100%;height:auto}\n"
    "figcaption{font-size:14px;color:var(--soft);margin:.3rem 0 0}\n"
    "svg text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif}\n"
    "details{margin:.4rem 0}summary{cursor:pointer;color:var(--soft);font-size:13px}\n"
    "a{color:#00568a}li{margin:.25rem 0}\n"
    "@media print{.table{max-height:none;overflow:visible}body{max-width:none}}\n"
    "</style>\n</head>\n<body>\n";

static void files_line(FILE *out, const char *folder, const char *stem, const char *const *ends,
                       int n)
{
  for (int i = 0; i < n; i++)
    fprintf(out, "%s<a href=\"%s/%s.%s\">%s</a>", i ? " · " : "", folder, stem, ends[i], ends[i]);
}

static int put_table(const struct report *r, const char *name, FILE *out)
{
  static const char *const ends[] = {"md", "tex", "csv"};
  for (int i = 0; i < table_kinds_count; i++) {
    if (strcmp(table_kinds[i].name, name))
      continue;
    struct table *t = table_kinds[i].make(r);
    if (!t || t->failed) {
      table_free(t);
      return -1;
    }
    if (t->nrows) {
      fprintf(out, "<h2 id=\"table-%s\">%s</h2>\n", t->name, t->title);
      table_html(t, out);
      fputs("<p class=\"files\"><small>", out);
      write_escaped(out, ESCAPE_HTML, t->caption);
      fputs(" ", out);
      files_line(out, "tables", t->name, ends, 3);
      fputs("</small></p>\n", out);
    }
    table_free(t);
  }
  return 0;
}

static int put_figure(const struct report *r, const struct report_figure *f, int number, FILE *out,
                      char *err, size_t errlen)
{
  const char *ends[4];
  int n = 0;
  char path[4096];
  int status = 0;
  fprintf(out, "<figure id=\"figure-%s\">\n", f->stem);
  snprintf(path, sizeof path, "%s/figures/%s.svg", r->outdir, f->stem);
  if (f->svg)
    status = page_svg(out, path, f->title, number, err, errlen);
  else
    fputs("<p class=\"note\">This figure could not be drawn.</p>\n", out);
  fprintf(out, "<figcaption><strong>Figure %d.</strong> ", number);
  write_escaped(out, ESCAPE_HTML, f->title);
  fputs(". ", out);
  write_escaped(out, ESCAPE_HTML, f->caption);
  fputs(" <small>", out);
  if (f->svg)
    ends[n++] = "svg";
  if (f->pdf)
    ends[n++] = "pdf";
  ends[n++] = "dat";
  ends[n++] = "gp";
  files_line(out, "figures", f->stem, ends, n);
  fputs("</small></figcaption>\n", out);
  if (f->values && f->values->nrows) {
    fputs("<details><summary>Numbers</summary>\n", out);
    table_html(f->values, out);
    fputs("</details>\n", out);
  }
  fputs("</figure>\n", out);
  return status;
}

static int put_body(const struct report *r, FILE *out, char *err, size_t errlen)
{
  fputs(head, out);
  page_heading(r, out);
  if (put_table(r, "summary", out) || put_table(r, "devices", out) ||
      put_table(r, "results", out) || put_table(r, "serving", out) ||
      put_table(r, "serving-rope", out))
    return -1;
  if (r->nfigures)
    fputs("<h2 id=\"figures\">Figures</h2>\n", out);
  for (int i = 0; i < r->nfigures; i++)
    if (put_figure(r, &r->figures[i], i + 1, out, err, errlen))
      return -1;
  if (put_table(r, "throughput-fwd", out) || put_table(r, "throughput-bwd", out) ||
      put_table(r, "throughput-append", out) || put_table(r, "bandwidth-decode", out) ||
      put_table(r, "against-peers-fwd", out) || put_table(r, "against-peers-bwd", out) ||
      put_table(r, "against-peers-decode", out) || put_table(r, "fits", out) ||
      put_table(r, "bits", out) || put_table(r, "scores", out) || put_table(r, "matrix", out))
    return -1;
  if (r->nrows || r->nserving) {
    fputs("<h2 id=\"method\">How it was measured</h2>\n", out);
    page_method(r, out);
  }
  if (put_table(r, "reasons", out))
    return -1;
  fputs("</body>\n</html>\n", out);
  return 0;
}

int report_page(const struct report *r, char *err, size_t errlen)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/index.html", r->outdir);
  FILE *out = fopen(path, "w");
  if (!out) {
    snprintf(err, errlen, "%s: cannot write: %s", path, strerror(errno));
    return -1;
  }
  int status = put_body(r, out, err, errlen);
  bool failed = ferror(out);
  if ((fclose(out) || failed) && !status) {
    snprintf(err, errlen, "%s: cannot write: %s", path, strerror(errno));
    status = -1;
  }
  return status;
}
