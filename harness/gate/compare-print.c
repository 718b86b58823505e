/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-print.c - a comparison for people: on a terminal, or as a comment on a pull request.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/gate/compare.h"
#include "reports/format.h"

const struct compare_format *compare_format_find(const char *name)
{
  static const struct compare_format formats[] = {{"text", compare_text},
                                                  {"markdown", compare_markdown},
                                                  {"junit", compare_junit},
                                                  {"tap", compare_tap},
                                                  {"annotations", compare_annotations}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, name))
      return &formats[i];
  return NULL;
}

static const struct cell *either(const struct compared *p)
{
  return p->now ? p->now : p->base;
}

static bool shown(const struct finding *f, bool all)
{
  return f->verdict != VERDICT_NONE && (all || f->verdict != VERDICT_SAME);
}

/* Pads to a width in characters, of which UTF-8 may take several bytes. */
static void column(FILE *out, const char *s, int width)
{
  int n = 0;
  for (const char *c = s; *c; c++)
    n += (*c & 0xc0) != 0x80;
  fprintf(out, "%s%*s  ", s, width > n ? width - n : 0, "");
}

static void text_line(const char *verdict, const char *quantity, const char *what,
                      const struct cell *c, FILE *out)
{
  column(out, verdict, 9);
  column(out, quantity, 9);
  column(out, c->impl, 18);
  column(out, what, 56);
  fprintf(out, "%s%s%s%s%s\n", c->problem, c->cache[0] ? ", " : "", c->cache,
          c->mode[0] ? ", " : "", c->mode);
}

void compare_text(const struct comparison *c, const struct compare_print *p, FILE *out)
{
  char what[700];
  for (int i = 0; i < c->n; i++) {
    const struct compared *x = &c->item[i];
    pairing_text(x, what, sizeof what);
    if (what[0])
      text_line(x->failing ? "failing" : "note", "verdict", what, either(x), out);
    for (int q = 0; q < QUANTITIES; q++) {
      if (!shown(&x->of[q], p->all))
        continue;
      finding_text(q, &x->of[q], what, sizeof what);
      text_line(verdict_word(q, x->of[q].verdict), quantity_name(q), what, either(x), out);
    }
  }
  compare_summary(c, out);
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void markdown_row(const char *verdict, const char *quantity, const char *what,
                         const struct cell *c, FILE *out)
{
  fprintf(out, "| %s | %s | ", verdict, quantity);
  write_escaped(out, ESCAPE_MARKDOWN, what);
  fprintf(out, " | ");
  write_escaped(out, ESCAPE_MARKDOWN, c->impl);
  fprintf(out, " | ");
  write_escaped(out, ESCAPE_MARKDOWN, c->problem);
  fprintf(out, "%s%s%s%s |\n", c->cache[0] ? ", " : "", c->cache, c->mode[0] ? ", " : "", c->mode);
}

/* The rows of verdicts that are the same, or of all others; whether there were any. */
static bool markdown_rows(const struct comparison *c, bool same, FILE *out)
{
  char what[700], word[32];
  bool any = false;
  for (int i = 0; i < c->n; i++) {
    const struct compared *x = &c->item[i];
    pairing_text(x, what, sizeof what);
    for (int q = -1; q < QUANTITIES; q++) {
      bool bold = q < 0 ? x->failing : x->of[q].verdict == VERDICT_WORSE;
      if (q < 0 ? same || !what[0]
                : !shown(&x->of[q], same) || same != (x->of[q].verdict == VERDICT_SAME))
        continue;
      if (q >= 0)
        finding_text(q, &x->of[q], what, sizeof what);
      if (!any)
        fprintf(out, "\n| verdict | of | %s | implementation | problem |\n|---|---|---|---|---|\n",
                "base -> new");
      any = true;
      snprintf(word, sizeof word, "%s%s%s", bold ? "**" : "",
               q >= 0       ? verdict_word(q, x->of[q].verdict)
               : x->failing ? "failing"
                            : "note",
               bold ? "**" : "");
      markdown_row(word, q < 0 ? "verdict" : quantity_name(q), what, either(x), out);
    }
  }
  return any;
}

void compare_markdown(const struct comparison *c, const struct compare_print *p, FILE *out)
{
  fprintf(out, "### attnbench: %s\n\n`%s` against `%s`\n\n",
          comparison_well(c) ? "nothing is worse" : "worse", p->now, p->base);
  fprintf(out, "```\n");
  compare_summary(c, out);
  fprintf(out, "```\n");
  markdown_rows(c, false, out);
  if (!p->all)
    return;
  fprintf(out, "\n<details><summary>the same</summary>\n");
  markdown_rows(c, true, out);
  fprintf(out, "\n</details>\n");
}
