/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo-marks.c - a record of the zoo's run into the kill matrix.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/zoo.h"

static int regime_of(const struct record *r)
{
  int i = 0;
  while (regime_at(i) && strcmp(regime_at(i)->name, r->distribution))
    i++;
  return i;
}

static void mark(struct zoo_row *row, const struct record *r, int check)
{
  row->killed[check] |= (uint16_t)(1u << regime_of(r));
  row->alarms[check]++;
  if (check < ZOO_RULES && !row->example[0]) {
    char problem[ATTN_PROBLEM_TEXT];
    attn_problem_print(&r->problem, problem, sizeof problem);
    snprintf(row->example, sizeof row->example, "%.120s: %.180s", problem, r->reason);
  }
}

static void mark_checks(struct zoo_row *row, const struct record *r)
{
  bool ended = r->status == STATUS_CRASH || r->status == STATUS_TIMEOUT ||
               (r->status == STATUS_FAIL && !r->rules.known && r->guards_intact != 0);
  if (ended)
    mark(row, r, ZOO_ENDS);
  if (r->guards_intact == 0)
    mark(row, r, ZOO_GUARDS);
  if (r->inputs_unchanged == 0)
    mark(row, r, ZOO_INPUTS);
  if (r->rules.known && !r->rules.bound)
    mark(row, r, ZOO_BOUND);
  if (r->rules.known && !r->rules.lse)
    mark(row, r, ZOO_LSE);
  for (int i = 0; i < law_count(); i++)
    if (r->law[i] == LAW_FAIL)
      mark(row, r, ZOO_LAWS + i);
}

/* A customary rule kills where it passes the correct build. */
static void mark_rules(struct zoo_row *row, const struct record *r,
                       const struct record_rules *clean)
{
  bool ended = !r->rules.known && r->status == STATUS_CRASH;
  for (int i = 0; i < RULES; i++)
    if ((!clean || clean->customary[i]) && (r->rules.known ? !r->rules.customary[i] : ended))
      mark(row, r, ZOO_RULES + i);
}

/* The clean build of a mutant's sources in this group of cases, or NULL: clean builds come first.
 */
static const struct record_rules *clean_of(struct zoo_clean *c, const struct zoo *z,
                                           const struct zoo_row *row, const struct group *g,
                                           const struct record *r)
{
  const char *base = strcmp(row->base, "cpu/null") ? row->base : "cpu/flash";
  if (c->item != g->item + 1)
    memset(c, 0, sizeof *c);
  c->item = g->item + 1;
  if (row->clean) {
    c->rules[row - z->row] = r->rules;
    return NULL;
  }
  for (int i = 0; i < z->n; i++)
    if (c->rules[i].known && !strcmp(z->row[i].base, base))
      return &c->rules[i];
  return NULL;
}

void zoo_mark(const struct zoo *z, struct zoo_row *row, struct zoo_clean *c, const struct record *r,
              const struct group *g)
{
  if (r->status == STATUS_UNSUPPORTED || r->status == STATUS_SKIP)
    return;
  row->losses += r->status == STATUS_CRASH || r->status == STATUS_TIMEOUT;
  const struct record_rules *clean = clean_of(c, z, row, g, r);
  row->cases++;
  row->reached |= clean && (!r->rules.known || r->rules.bits != clean->bits);
  mark_checks(row, r);
  mark_rules(row, r, clean);
}
