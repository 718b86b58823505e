/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-ci.c - a comparison for machines: JUnit, TAP, and the annotations of GitHub workflows.
 *
 * A test is a quantity of a cell, or the cell's verdict.  Worse and newly failing fail; ambiguous,
 * new and missing are skipped, with the reason.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/gate/compare.h"
#include "reports/format.h"

#define CASE_TEXT (ATTN_PROBLEM_TEXT + 40)

enum outcome { GOOD, BAD, OPEN };

struct ci_test {
  const struct cell *cell;
  const char *of;   /* quantity, or "verdict" */
  const char *word; /* verdict */
  enum outcome outcome;
  char what[700];
};

/* Of a verdict the word stands before it already. */
static void pair_test(const struct compared *x, struct ci_test *t)
{
  static const char *const words[] = {"same", "changed", "new", "missing"};
  char said[sizeof t->what];
  *t = (struct ci_test){.cell = x->now ? x->now : x->base, .of = "verdict"};
  t->word = words[x->state];
  t->outcome = x->failing ? BAD : x->state == PAIR_NEW || x->state == PAIR_MISSING ? OPEN : GOOD;
  pairing_text(x, said, sizeof said);
  const char *colon = strstr(said, ": ");
  snprintf(t->what, sizeof t->what, "%s", colon ? colon + 2 : record_status_name(t->cell->status));
}

static void finding_test(const struct compared *x, enum quantity q, struct ci_test *t)
{
  const struct finding *f = &x->of[q];
  *t = (struct ci_test){.cell = x->now, .of = quantity_name(q)};
  t->word = verdict_word(q, f->verdict);
  t->outcome = f->verdict == VERDICT_WORSE ? BAD : f->verdict == VERDICT_AMBIGUOUS ? OPEN : GOOD;
  finding_text(q, f, t->what, sizeof t->what);
}

static void each_test(const struct comparison *c, void (*emit)(const struct ci_test *t, void *ctx),
                      void *ctx)
{
  struct ci_test t;
  for (int i = 0; i < c->n; i++) {
    pair_test(&c->item[i], &t);
    emit(&t, ctx);
    for (int q = 0; q < QUANTITIES; q++) {
      if (c->item[i].of[q].verdict == VERDICT_NONE)
        continue;
      finding_test(&c->item[i], q, &t);
      emit(&t, ctx);
    }
  }
}

struct tally {
  FILE *out;
  int n[3];
};

static void tally(const struct ci_test *t, void *ctx)
{
  ((struct tally *)ctx)->n[t->outcome]++;
}

/* The problem with the cache's state and the mode, which tell cells apart as well. */
static void case_text(const struct cell *c, char *buf, size_t len)
{
  snprintf(buf, len, "%s%s%s%s%s", c->problem, c->cache[0] ? ", " : "", c->cache,
           c->mode[0] ? ", " : "", c->mode);
}

/* ---- JUnit ----------------------------------------------------------------------------------- */

static void junit_case(const struct ci_test *t, void *ctx)
{
  FILE *out = ((struct tally *)ctx)->out;
  char name[CASE_TEXT];
  case_text(t->cell, name, sizeof name);
  fprintf(out, "  <testcase classname=\"");
  write_escaped(out, ESCAPE_HTML, t->cell->impl);
  fprintf(out, "\" name=\"%s: ", t->of);
  write_escaped(out, ESCAPE_HTML, name);
  fprintf(out, "\"");
  if (t->outcome == GOOD) {
    fprintf(out, "/>\n");
    return;
  }
  fprintf(out, "><%s message=\"%s: ", t->outcome == BAD ? "failure" : "skipped", t->word);
  write_escaped(out, ESCAPE_HTML, t->what);
  fprintf(out, "\"/></testcase>\n");
}

void compare_junit(const struct comparison *c, const struct compare_print *p, FILE *out)
{
  struct tally n = {.out = out};
  each_test(c, tally, &n);
  fprintf(out,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"attnbench "
          "compare\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">\n",
          n.n[GOOD] + n.n[BAD] + n.n[OPEN], n.n[BAD], n.n[OPEN]);
  each_test(c, junit_case, &n);
  fprintf(out, "</testsuite>\n</testsuites>\n");
}

/* ---- TAP ------------------------------------------------------------------------------------- */

static void tap_text(FILE *out, const char *s)
{
  for (; *s; s++)
    fprintf(out, *s == '#' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void tap_line(const struct ci_test *t, void *ctx)
{
  struct tally *n = ctx;
  char name[CASE_TEXT];
  case_text(t->cell, name, sizeof name);
  fprintf(n->out, "%s %d - %s %s: ", t->outcome == BAD ? "not ok" : "ok", ++n->n[GOOD],
          t->cell->impl, t->of);
  tap_text(n->out, name);
  if (t->outcome == OPEN)
    fprintf(n->out, " # SKIP %s, ", t->word);
  else
    fprintf(n->out, ": %s, ", t->word);
  tap_text(n->out, t->what);
  fprintf(n->out, "\n");
}

void compare_tap(const struct comparison *c, const struct compare_print *p, FILE *out)
{
  struct tally n = {.out = out};
  fprintf(out, "TAP version 13\n");
  each_test(c, tap_line, &n);
  fprintf(out, "1..%d\n", n.n[GOOD]);
}

/* ---- annotations of GitHub workflows --------------------------------------------------------- */

/* Of a message; of a property, too, where : and , mean something. */
static void command_text(FILE *out, const char *s, bool property)
{
  for (; *s; s++) {
    if (strchr("%\r\n", *s) || (property && strchr(":,", *s)))
      fprintf(out, "%%%02X", (unsigned)*s);
    else
      fputc(*s, out);
  }
}

static void annotate(const struct ci_test *t, void *ctx)
{
  FILE *out = ((struct tally *)ctx)->out;
  char name[CASE_TEXT];
  if (t->outcome == GOOD)
    return;
  case_text(t->cell, name, sizeof name);
  fprintf(out, "::%s title=", t->outcome == BAD ? "error" : "warning");
  command_text(out, t->of, true);
  fputc(' ', out);
  command_text(out, t->word, true);
  fprintf(out, "::");
  command_text(out, t->cell->impl, false);
  fputc(' ', out);
  command_text(out, name, false);
  fprintf(out, ": ");
  command_text(out, t->what, false);
  fputc('\n', out);
}

void compare_annotations(const struct comparison *c, const struct compare_print *p, FILE *out)
{
  struct tally n = {.out = out};
  each_test(c, annotate, &n);
  compare_summary(c, out);
}
