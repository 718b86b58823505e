/* SPDX-License-Identifier: Apache-2.0
 *
 * tell.c - lines on stderr, each of them one line whatever is in it.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/options.h"
#include "impl/echo.h"

void remark(const char *line)
{
  char text[4096];
  attn_escape(text, 0, sizeof text, line, strlen(line));
  fprintf(stderr, "attnbench: %s\n", text);
}

int complain(int code, const char *line)
{
  remark(line);
  return code;
}

void tell_skipped(const struct cells *c)
{
  char line[800];
  if (c->bad) {
    snprintf(line, sizeof line, "%s: skipped %d line%s that are no records", ATTN_ECHOS(c->file),
             c->bad, c->bad == 1 ? "" : "s");
    remark(line);
  }
  if (c->newer) {
    snprintf(line, sizeof line,
             "%s: skipped %d record%s of a newer version; use the attnbench that wrote them",
             ATTN_ECHOS(c->file), c->newer, c->newer == 1 ? "" : "s");
    remark(line);
  }
  if (c->serving) {
    snprintf(line, sizeof line, "%s: skipped %d record%s of serve, which attnbench report shows",
             ATTN_ECHOS(c->file), c->serving, c->serving == 1 ? "" : "s");
    remark(line);
  }
}
