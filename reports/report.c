/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - the order of a report: read, sort, tables, figures, page.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "reports/canvas.h"
#include "reports/figure.h"
#include "reports/report.h"
#include "reports/serving.h"
#include "reports/tables.h"

const struct table_kind table_kinds[] = {
    {"summary", table_summary},
    {"devices", table_devices},
    {"throughput-fwd", table_throughput_fwd},
    {"throughput-bwd", table_throughput_bwd},
    {"throughput-append", table_throughput_append},
    {"bandwidth-decode", table_bandwidth_decode},
    {"against-peers-fwd", table_against_peers_fwd},
    {"against-peers-bwd", table_against_peers_bwd},
    {"against-peers-decode", table_against_peers_decode},
    {"training", table_training},
    {"results", table_results},
    {"fits", table_fits},
    {"reasons", table_reasons},
    {"serving", table_serving},
    {"serving-rope", table_serving_rope},
    {"bits", table_bits},
    {"scores", table_scores},
    {"matrix", table_matrix},
};
const int table_kinds_count = sizeof table_kinds / sizeof *table_kinds;

/* The folder and those above it. */
static int make_folder(const char *path, char *err, size_t errlen)
{
  char part[4096];
  struct stat st;
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    mkdir(part, 0777);
    *slash = '/';
  }
  if ((mkdir(path, 0777) && errno != EEXIST) || stat(path, &st)) {
    snprintf(err, errlen, "%s: cannot make the report's folder: %s; choose another --out", path,
             strerror(errno));
    return -1;
  }
  if (!S_ISDIR(st.st_mode)) {
    snprintf(err, errlen, "%s: is not a folder; choose another --out", path);
    return -1;
  }
  return 0;
}

static int make_folders(const char *outdir, char *err, size_t errlen)
{
  char path[4096];
  if (make_folder(outdir, err, errlen))
    return -1;
  snprintf(path, sizeof path, "%s/tables", outdir);
  if (make_folder(path, err, errlen))
    return -1;
  snprintf(path, sizeof path, "%s/figures", outdir);
  return make_folder(path, err, errlen);
}

static int save_tables(const struct report *r, char *err, size_t errlen)
{
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/tables", r->outdir);
  for (int i = 0; i < table_kinds_count; i++) {
    struct table *t = table_kinds[i].make(r);
    int status = !t || t->failed ? -1 : table_save(t, folder, err, errlen);
    table_free(t);
    if (status)
      return -1;
  }
  return 0;
}

int report_write(const char *const *files, int nfiles, const char *outdir,
                 struct report_summary *sum, char *err, size_t errlen)
{
  struct report r = {.outdir = outdir};
  char gnuplot[4096];
  r.gnuplot = gnuplot_find(gnuplot, sizeof gnuplot);
  int status = report_load(&r, files, nfiles, err, errlen);
  if (status)
    goto out;
  snprintf(err, errlen, "report: out of memory"); /* what a failure without words is */
  status = report_views(&r) || make_folders(outdir, err, errlen) || save_tables(&r, err, errlen);
  if (!status && r.gnuplot)
    status = report_figures(&r, err, errlen) || serving_figures(&r, err, errlen);
  else if (!status)
    snprintf(r.summary.note, sizeof r.summary.note,
             "no figures: gnuplot is missing; install it (Debian, Ubuntu: gnuplot-nox) and run the "
             "report again");
  if (!status)
    status = report_page(&r, err, errlen);
  if (!status)
    err[0] = '\0';
  *sum = r.summary;
out:
  report_free(&r);
  return status ? -1 : 0;
}
