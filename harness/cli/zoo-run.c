/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo-run.c - planted faults through every check in every regime.
 *
 * First all that may be side by side. Then, one at a time and with nothing beside them: faults that
 * are known to hang, problems that need the whole device, and once more what hung in the first
 * part; for a neighbour that hangs may hold up anybody, and only who hangs alone has hung. A row
 * that is finished is written.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/zoo.h"

#define SEVERAL 24 /* mutants to a group of cases, beside the clean builds */
#define SRAM 20480 /* so small that short sequences make several tiles */
#define LARGE_TIMEOUT 120

/* What the zoo of a device is run on. What hangs costs a GPU its time and a new process. */
struct tour {
  const char *device, *suite, *laws, *regimes; /* regimes: separated by blanks; NULL: all */
  bool by_base; /* faults in the same sources go together, with their clean build alone */
  double timeout_s, alone_s; /* without progress: beside others, alone */
  int losses;                /* workers that a mutant may cost, then it is dead; 0: any number */
};
static const struct tour tours[] = {
    {"cpu", "zoo", "zoo-laws", NULL, false, 20, 20, 0},
    {"cuda", "zoo-cuda", "zoo-cuda-laws", " normal falling ", true, 4, 2.5, 2},
};

/* One problem, one regime, with or without laws, on some rows. */
struct item {
  const struct regime *regime;
  bool laws;
  int n;
  short row[GROUP_CASES];
};

/* items.item[i] is what list.item[i] is run as. */
struct plan {
  struct problem_list list;
  struct item *item;
  int room;
};

struct watch {
  struct zoo *z;
  const struct tour *tour;
  struct plan beside, alone, large, *at;
  struct zoo_clean clean;
  FILE *out;
};

/* ---- plans ----------------------------------------------------------------------------------- */

static int add_item(struct plan *p, const struct attn_problem *problem, const struct item *x)
{
  if (p->list.n == p->list.room || p->list.n == p->room) {
    int room = 2 * p->list.n + 64;
    void *items = realloc(p->item, (size_t)room * sizeof *p->item);
    void *problems = items ? realloc(p->list.item, (size_t)room * sizeof *p->list.item) : NULL;
    p->item = items ? items : p->item;
    p->list.item = problems ? problems : p->list.item;
    if (!problems)
      return ATTN_ENOMEM;
    p->room = p->list.room = room;
  }
  p->item[p->list.n] = *x;
  p->list.item[p->list.n++] = *problem;
  return ATTN_OK;
}

/* Adds an item that its rows have before them. */
static int expect(struct watch *w, struct plan *p, const struct attn_problem *problem,
                  const struct item *x)
{
  for (int i = 0; i < x->n; i++)
    w->z->row[x->row[i]].left++;
  return add_item(p, problem, x);
}

static int add_suite(struct watch *w, bool alone, const char *suite, const struct item *x,
                     char *err, size_t errlen)
{
  struct problem_list list = {NULL, 0, 0};
  int status = catalog_suite(&list, suite, err, errlen);
  for (int i = 0; i < list.n && !status; i++)
    status = expect(w,
                    run_takes_all(&list.item[i]) ? &w->large
                    : alone                      ? &w->alone
                                                 : &w->beside,
                    &list.item[i], x);
  catalog_problems_free(&list);
  return status;
}

/* The clean builds of a group, and those mutants that name the suite. */
static struct item with_suite(const struct zoo *z, const struct item *x, const char *suite)
{
  struct item own = *x;
  own.n = 0;
  for (int i = 0; i < x->n; i++)
    if (z->row[x->row[i]].clean || !strcmp(z->row[x->row[i]].suite, suite))
      own.row[own.n++] = x->row[i];
  return own;
}

/* Each suite that mutants of a group name, once. */
static int add_own_suites(struct watch *w, bool alone, const struct item *x, char *err,
                          size_t errlen)
{
  const struct zoo *z = w->z;
  int status = ATTN_OK;
  for (int i = 0; i < x->n && !status; i++) {
    const char *suite = z->row[x->row[i]].suite;
    bool first = suite[0] != 0;
    for (int k = 0; k < i; k++)
      first &= strcmp(z->row[x->row[k]].suite, suite) != 0;
    struct item own = with_suite(z, x, suite);
    if (first)
      status = add_suite(w, alone, suite, &own, err, errlen);
  }
  return status;
}

static bool in_tour(const struct tour *t, const struct regime *regime)
{
  char name[64];
  snprintf(name, sizeof name, " %s ", regime->name);
  return !t->regimes || strstr(t->regimes, name);
}

/* All that a group of rows is run on. */
static int add_group(struct watch *w, bool alone, struct item x, char *err, size_t errlen)
{
  int status = ATTN_OK;
  for (int i = 0; regime_at(i) && !status; i++) {
    x.regime = regime_at(i);
    if (in_tour(w->tour, x.regime))
      status = add_suite(w, alone, w->tour->suite, &x, err, errlen);
  }
  x.regime = regime_at(0);
  if (!status)
    status = add_own_suites(w, alone, &x, err, errlen);
  x.laws = true;
  return status ? status : add_suite(w, alone, w->tour->laws, &x, err, errlen);
}

/* Whether a fault is expected to hang ("kills:" begins with "ends"): then it is not run beside
 * others. */
static bool hangs(const struct zoo_row *r)
{
  return !strncmp(r->killer, "ends", 4);
}

/* The clean builds, of a base or of all (NULL). */
static struct item clean_builds(const struct zoo *z, const char *base)
{
  struct item x = {NULL, false, 0, {0}};
  for (int i = 0; i < z->n; i++)
    if (z->row[i].clean && x.n < GROUP_CASES - SEVERAL && (!base || !strcmp(z->row[i].base, base)))
      x.row[x.n++] = (short)i;
  return x;
}

/* Mutants of a base (NULL: any) in groups beside their clean builds, which are run in any case. */
static int add_base(struct watch *w, bool alone, const char *base, char *err, size_t errlen)
{
  const struct zoo *z = w->z;
  struct item clean = clean_builds(z, base), x = clean;
  int groups = 0, status = ATTN_OK;
  for (int i = 0; i < z->n && !status; i++) {
    const struct zoo_row *r = &z->row[i];
    bool apart = w->tour->by_base && hangs(r);
    if (r->clean || apart != alone || (base && strcmp(r->base, base)))
      continue;
    x.row[x.n++] = (short)i;
    if (x.n < clean.n + SEVERAL)
      continue;
    status = add_group(w, alone, x, err, errlen);
    x = clean;
    groups++;
  }
  if (!status && (x.n > clean.n || (!groups && !alone)))
    status = add_group(w, alone, x, err, errlen);
  return status;
}

static int make_plans(struct watch *w, char *err, size_t errlen)
{
  const struct zoo *z = w->z;
  int status = ATTN_OK;
  for (int alone = 0; alone < 2; alone++)
    for (int i = 0; i < z->n && !status; i++) {
      bool first = w->tour->by_base || i == 0;
      for (int k = 0; k < i; k++)
        first &= strcmp(z->row[k].base, z->row[i].base) != 0;
      if (first)
        status = add_base(w, alone, w->tour->by_base ? z->row[i].base : NULL, err, errlen);
    }
  return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* One of the items that a row had before it is behind it. */
static void settle(struct watch *w, struct zoo_row *row)
{
  if (!--row->left && w->out)
    zoo_write_row(w->z, row, w->out);
}

/* What a group alone is worth: it and the clean build that it is compared with. */
static int again(struct watch *w, int item, int row)
{
  struct item x = w->beside.item[item];
  struct zoo *z = w->z;
  x.n = 0;
  for (int i = 0; i < w->beside.item[item].n; i++) {
    int other = w->beside.item[item].row[i];
    if (other != row && !z->row[row].clean && z->row[other].clean) {
      x.row[x.n++] = (short)other;
      z->row[other].left++;
    }
  }
  x.row[x.n++] = (short)row;
  return add_item(&w->alone, &w->beside.list.item[item], &x);
}

static bool lost_enough(const struct watch *w, const struct zoo_row *r)
{
  int losses = w->at != &w->beside && w->tour->losses ? 1 : w->tour->losses;
  return losses && !r->clean && r->losses >= losses;
}

/* Hung so often beside others that the rest is left for when it is alone. */
static bool put_off(struct watch *w, int item, int row)
{
  const struct zoo_row *r = &w->z->row[row];
  return w->at == &w->beside && w->tour->losses && r->hung >= w->tour->losses &&
         !again(w, item, row);
}

/* The clean builds were run beside others: alone they are there to be compared with. */
static bool worth_it(const struct watch *w, const struct item *x)
{
  bool clean = true;
  for (int k = 0; k < x->n; k++)
    clean &= w->z->row[x->row[k]].clean;
  for (int k = 0; k < x->n; k++)
    if (!w->z->row[x->row[k]].clean && !lost_enough(w, &w->z->row[x->row[k]]))
      return true;
  return clean;
}

/* Called as the group is prepared: what has cost its share of workers is not tried again. */
static void describe(int i, struct run_item *it, void *ctx)
{
  struct watch *w = ctx;
  const struct item *x = &w->at->item[i];
  bool wanted = worth_it(w, x);
  it->regime = x->regime;
  it->laws = x->laws;
  for (int k = 0; k < x->n; k++) {
    struct zoo_row *r = &w->z->row[x->row[k]];
    if (lost_enough(w, r) || !wanted)
      settle(w, r);
    else if (!put_off(w, i, x->row[k]))
      it->impls[it->nimpls++] = r->impl;
  }
}

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct watch *w = ctx;
  struct zoo *z = w->z;
  int row = 0;
  while (row < z->n && strcmp(z->row[row].impl->name, r->impl))
    row++;
  if (row == z->n)
    return;
  struct zoo_row *x = &z->row[row];
  bool hung = r->status == STATUS_TIMEOUT || (r->status == STATUS_SKIP && x->hung);
  if (w->at == &w->beside && hung && !again(w, g->item, row)) {
    x->hung++;
    return;
  }
  zoo_mark(z, x, &w->clean, r, g);
  settle(w, x);
}

static double least(double a, double b)
{
  return a < b ? a : b;
}

static struct run_options options_of(const struct run_options *given, struct watch *w)
{
  struct run_options o = *given;
  o.device_options.sram_bytes = SRAM;
  o.group.zoo = o.quiet = true;
  o.group.laws = o.group.time = o.group.count = false;
  o.timeout_s = least(given->timeout_s, w->tour->timeout_s);
  o.losses = w->tour->losses;
  o.item = describe;
  o.each = see;
  o.ctx = w;
  o.out = NULL;
  return o;
}

static int run_plan(struct watch *w, struct plan *p, const struct run_options *o, char *err,
                    size_t errlen)
{
  struct run_summary sum;
  w->at = p;
  memset(&w->clean, 0, sizeof w->clean);
  int status = p->list.n ? run_problems(&p->list, o, &sum, err, errlen) : ATTN_OK;
  return p->list.n && sum.interrupted ? -1 : status;
}

static int run_plans(struct watch *w, const struct run_options *given, struct run_options *o,
                     char *err, size_t errlen)
{
  int status = run_plan(w, &w->beside, o, err, errlen);
  o->lanes = 1;
  o->losses = w->tour->losses ? 1 : 0;
  o->timeout_s = least(given->timeout_s, w->tour->alone_s);
  if (!status)
    status = run_plan(w, &w->alone, o, err, errlen);
  o->timeout_s = least(given->timeout_s, LARGE_TIMEOUT);
  return status ? status : run_plan(w, &w->large, o, err, errlen);
}

static void forget(struct plan *p)
{
  catalog_problems_free(&p->list);
  free(p->item);
}

int zoo_run(struct zoo *z, const struct run_options *given, const char *out, char *err,
            size_t errlen)
{
  struct watch *w = calloc(1, sizeof *w);
  int status = w ? 0 : -1;
  if (!w)
    return status;
  w->z = z;
  w->tour = &tours[strcmp(given->device->name, tours[0].device) != 0];
  for (int i = 0; regime_at(i); i++)
    z->regimes |= in_tour(w->tour, regime_at(i)) ? 1u << i : 0;
  if (out && !(w->out = fopen(out, "w"))) {
    snprintf(err, errlen, "--out %s: cannot be written", out);
    status = -1;
  }
  struct run_options o = options_of(given, w);
  if (!status)
    status = make_plans(w, err, errlen);
  if (!status)
    status = run_plans(w, given, &o, err, errlen);
  if (w->out)
    fclose(w->out);
  forget(&w->beside);
  forget(&w->alone);
  forget(&w->large);
  free(w);
  return status;
}
