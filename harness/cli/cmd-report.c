/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-report.c - attnbench report: results files in, a page with figures and tables out.
 */
#include "config.h"

#include <stdio.h>

#include "harness/cli/options.h"
#include "reports/report.h"

static int report(struct options *o)
{
  char err[1024] = "";
  struct report_summary sum;
  const char *dir = o->run.out ? o->run.out : "report";
  if (o->nwords == 0)
    return complain(EXIT_USAGE, "report needs a results file: attnbench report FILE --out DIR");
  if (report_write(o->words, o->nwords, dir, &sum, err, sizeof err))
    return complain(EXIT_USAGE, err);
  if (sum.bad_lines)
    printf("skipped %d torn or foreign line%s\n", sum.bad_lines, sum.bad_lines == 1 ? "" : "s");
  if (sum.newer)
    printf("skipped %d record%s of a newer schema\n", sum.newer, sum.newer == 1 ? "" : "s");
  if (sum.note[0])
    printf("%s\n", sum.note);
  printf("report: %d records, ", sum.records);
  if (sum.mutants)
    printf("%d rows of a kill matrix, ", sum.mutants);
  printf("%d figures: %s/index.html\n", sum.figures, dir);
  return EXIT_OK;
}

const struct command cmd_report = {
    "report", "[options] FILE ...",
    "Writes index.html, figures (SVG, PDF, data) and tables (Markdown, LaTeX, CSV) from records.\n"
    "Exit: 0, or 2 a file cannot be read or written, or holds no record.",
    OPT_REPORT, report};
