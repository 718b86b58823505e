/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-report.c - attnbench report: results files in, a page with figures and tables out.
 */
#include "config.h"

#include <stdio.h>

#include "harness/options.h"
#include "reports/report.h"

static int report(struct options *o)
{
  char err[1024] = "";
  const char *dir = o->run.out ? o->run.out : "report";
  if (o->nwords == 0)
    return complain(EXIT_USAGE, "report needs a results file: attnbench report FILE --out DIR");
  if (report_write(o->words, o->nwords, dir, err, sizeof err))
    return complain(EXIT_USAGE, err);
  printf("report: %s/index.html\n", dir);
  return EXIT_OK;
}

const struct command cmd_report = {
    "report", "[options] FILE ...",
    "Writes index.html, figures (SVG, PDF, data) and tables (Markdown, LaTeX, CSV) from records.\n"
    "Exit: 0, or 2 a file cannot be read or written, or holds no record.",
    OPT_REPORT, report};
