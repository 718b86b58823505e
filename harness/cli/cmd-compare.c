/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-compare.c - attnbench compare: two results files, or two sides measured now.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/cli/ab.h"

#define AB_PROCESSES 10

/* Says why the floor was not used, where it was not. */
static void tell_floor(const struct comparison *c, const struct noise_floor *f)
{
  char line[640];
  const struct compared *judged = NULL;
  for (int i = 0; i < c->n; i++) {
    const struct finding *time = &c->item[i].of[QUANTITY_TIME];
    if (time->verdict && isfinite(time->floor))
      return;
    judged = time->verdict ? &c->item[i] : judged;
  }
  if (!judged)
    return;
  if (floor_same_device(f, judged->now))
    snprintf(line, sizeof line,
             "--floor: not used: it holds for %zu processes a side, and here are %zu; repeat aa "
             "with --processes %zu",
             f->processes, c->processes, c->processes);
  else
    snprintf(line, sizeof line,
             "--floor: not used: it is of %s, and the results are of %s; aa measures one there",
             f->on.name, judged->now->on.name);
  remark(line);
}

static int conclude(const struct options *o, const struct comparison *c,
                    const struct compare_print *p)
{
  if (o->gate.compare.floor)
    tell_floor(c, o->gate.compare.floor);
  o->gate.format->print(c, p, stdout);
  return comparison_well(c) ? EXIT_OK : EXIT_VERDICT;
}

static int compare_files(struct options *o)
{
  char err[1024];
  struct cells base = {0}, now = {0};
  struct comparison c = {0};
  int code = EXIT_USAGE;
  if (!cells_read(&base, o->words[0], NULL, err, sizeof err) &&
      !cells_read(&now, o->words[1], NULL, err, sizeof err) &&
      !compare_cells(&base, &now, &o->gate.compare, &c, err, sizeof err)) {
    struct compare_print p = {o->words[0], o->words[1], o->gate.all};
    tell_skipped(&base);
    tell_skipped(&now);
    code = conclude(o, &c, &p);
  } else {
    complain(code, err);
  }
  comparison_free(&c);
  cells_free(&base);
  cells_free(&now);
  return code;
}

/* ---- measured now ---------------------------------------------------------------------------- */

/* Looks slower, or may be: worth a second look on fresh processes. */
static bool suspicious(const struct compared *x, const struct compare_options *o)
{
  const struct finding *f = &x->of[QUANTITY_TIME];
  double line = f->floor > o->threshold ? f->floor : o->threshold;
  return f->verdict == VERDICT_WORSE ||
         (f->verdict == VERDICT_AMBIGUOUS && f->ratio > 1 + line && f->p <= o->rate);
}

static int suspects(const struct comparison *c, const struct compare_options *o,
                    struct problem_list *list, char *err, size_t errlen)
{
  for (int i = 0; i < c->n; i++)
    if (suspicious(&c->item[i], o) && catalog_problems(list, c->item[i].now->problem, err, errlen))
      return -1;
  return 0;
}

/* The first pass only chose what to look at; for those cells the second pass alone decides, over as
 * many hypotheses as were chosen. */
static void replace_findings(struct comparison *first, const struct comparison *second,
                             const struct compare_options *o)
{
  for (int i = 0; i < first->n; i++) {
    struct compared *x = &first->item[i];
    bool chosen = suspicious(x, o);
    for (int k = 0; k < second->n && chosen; k++) {
      const struct compared *y = &second->item[k];
      if (!x->now || !y->now || !cell_same(x->now, y->now))
        continue;
      first->verdicts[QUANTITY_TIME][x->of[QUANTITY_TIME].verdict]--;
      x->of[QUANTITY_TIME] = y->of[QUANTITY_TIME];
      first->verdicts[QUANTITY_TIME][x->of[QUANTITY_TIME].verdict]++;
    }
  }
}

static int confirm(struct ab *ab, const struct options *o, struct comparison *c, char *err,
                   size_t errlen)
{
  struct problem_list list = {0};
  struct comparison again = {0};
  struct ab fresh = *ab;
  int status = suspects(c, &o->gate.compare, &list, err, errlen);
  struct compare_options decide = o->gate.compare;
  decide.screen = false;
  memset(fresh.cells, 0, sizeof fresh.cells);
  memset(fresh.file, 0, sizeof fresh.file);
  if (!status && list.n) {
    status = ab_measure(&fresh, o, &list, "confirm", err, errlen);
    if (!status)
      status = compare_cells(&fresh.cells[0], &fresh.cells[1], &decide, &again, err, errlen);
    if (!status)
      replace_findings(c, &again, &o->gate.compare);
  }
  comparison_free(&again);
  fresh.folder[0] = '\0'; /* it is ab's */
  ab_close(&fresh);
  catalog_problems_free(&list);
  return status;
}

static int measure_and_compare(struct ab *ab, struct options *o, char *err, size_t errlen)
{
  struct comparison c = {0};
  int status = ab_measure(ab, o, &o->problems, "ab", err, errlen), code = EXIT_ENVIRONMENT;
  o->gate.compare.paired = ab_paired(ab);
  o->gate.compare.screen = true;
  if (!status && compare_cells(&ab->cells[0], &ab->cells[1], &o->gate.compare, &c, err, errlen)) {
    code = EXIT_USAGE;
    status = -1;
  }
  if (!status)
    status = confirm(ab, o, &c, err, errlen);
  struct compare_print p = {o->words[0], o->words[1], o->gate.all};
  if (!status)
    code = conclude(o, &c, &p);
  else if (status > 0)
    code = complain(EXIT_INTERRUPTED, "interrupted; nothing was compared");
  else
    complain(code, err);
  comparison_free(&c);
  return code;
}

static int compare_now(struct options *o)
{
  char err[1024] = "out of memory";
  struct ab ab = {0};
  if (!o->processes_given)
    o->run.processes = AB_PROCESSES;
  if (command_device(o, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  if (command_problems(o, 2, "prefill", err, sizeof err) || ab_open(&ab, o, err, sizeof err))
    return complain(EXIT_USAGE, err);
  int code = measure_and_compare(&ab, o, err, sizeof err);
  ab_close(&ab);
  return code;
}

static int compare(struct options *o)
{
  char err[1024];
  struct noise_floor floor = {0};
  if (o->gate.ab ? o->nwords < 2 : o->nwords != 2)
    return complain(EXIT_USAGE, o->gate.ab ? "compare --ab needs two sides; attnbench compare "
                                             "--help explains them"
                                           : "compare needs two results files, the base and the "
                                             "new one; attnbench run --out writes them");
  if (o->gate.floor && floor_read(&floor, o->gate.floor, err, sizeof err))
    return complain(EXIT_USAGE, err);
  o->gate.compare.floor = o->gate.floor ? &floor : NULL;
  int code = o->gate.ab ? compare_now(o) : compare_files(o);
  floor_free(&floor);
  return code;
}

const struct command cmd_compare = {
    "compare", "[options] BASE NEW | --ab [options] A B [PROBLEM ...]",
    "Compares two results files, or two sides measured now, cell by cell.\n"
    "Slower is what is significant over all cells and beyond the threshold and the noise floor;\n"
    "more bytes or workspace, or a larger error, is what is beyond its threshold.\n"
    "Exit: 0 nothing worse, 1 slower, more, larger or newly failing, 2 bad input or nothing that\n"
    "can be compared, 3 no device or no room, 130 interrupted.",
    OPT_COMPARE | OPT_JUDGE | OPT_SELECT | OPT_DISPATCH | OPT_MEASURE | OPT_TIME, compare};
