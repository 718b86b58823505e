/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo.c - planted faults, loaded as plugins, through every check in every regime.
 */
#include "config.h"

#include <dirent.h>
#include <math.h>
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
  double timeout_s;
  int losses; /* workers that a mutant may cost, then it is dead */
};
static const struct tour tours[] = {
    {"cpu", "zoo", "zoo-laws", NULL, 20, 0},
    {"cuda", "zoo-cuda", "zoo-cuda-laws", " normal falling ", 4, 2},
};

/* ---- loading --------------------------------------------------------------------------------- */

static const struct {
  const char *key;
  size_t at, size;
} fields[] = {
    {"kind", offsetof(struct zoo_row, kind), sizeof((struct zoo_row *)0)->kind},
    {"kills", offsetof(struct zoo_row, killer), sizeof((struct zoo_row *)0)->killer},
    {"impl", offsetof(struct zoo_row, base), sizeof((struct zoo_row *)0)->base},
    {"equivalent", offsetof(struct zoo_row, equivalent), sizeof((struct zoo_row *)0)->equivalent},
    {"suite", offsetof(struct zoo_row, suite), sizeof((struct zoo_row *)0)->suite},
};

/* "key: value" lines up to the first @@@. */
static int read_description(struct zoo_row *r, const char *path, char *err, size_t errlen)
{
  char line[512];
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(err, errlen, "--mutants: %s: cannot be read; tests/mutants/build.sh makes it", path);
    return -1;
  }
  while (fgets(line, sizeof line, f) && strncmp(line, "@@@", 3)) {
    line[strcspn(line, "\n")] = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
      size_t n = strlen(fields[i].key);
      if (!strncmp(line, fields[i].key, n) && !strncmp(line + n, ": ", 2))
        snprintf((char *)r + fields[i].at, fields[i].size, "%s", line + n + 2);
    }
  }
  fclose(f);
  return 0;
}

static const struct attn_impl *last_impl(void)
{
  int n = 0;
  while (catalog_impl(n))
    n++;
  return catalog_impl(n - 1);
}

static int load_one(struct zoo *z, const char *dir, const char *name, char *err, size_t errlen)
{
  char path[4096];
  struct zoo_row *r = &z->row[z->n];
  if (z->n == ZOO_ROWS) {
    snprintf(err, errlen, "--mutants: more than %d in %s", ZOO_ROWS, dir);
    return -1;
  }
  snprintf(path, sizeof path, "%s/%s.so", dir, name);
  if (catalog_plugin(path, err, errlen))
    return -1;
  r->impl = last_impl();
  snprintf(r->name, sizeof r->name, "%s", name);
  r->clean = !strncmp(r->impl->name, "clean/", 6);
  snprintf(path, sizeof path, "%s/%s.mutant", dir, name);
  if (read_description(r, path, err, errlen))
    return -1;
  z->n++;
  return 0;
}

static int is_plugin(const struct dirent *e)
{
  size_t n = strlen(e->d_name);
  return n > 3 && !strcmp(e->d_name + n - 3, ".so");
}

/* The clean builds come first, since the others' bits are compared with theirs. */
static int clean_first(const struct dirent **a, const struct dirent **b)
{
  int first = strncmp((*a)->d_name, "clean-", 6) != 0,
      second = strncmp((*b)->d_name, "clean-", 6) != 0;
  return first != second ? first - second : strcmp((*a)->d_name, (*b)->d_name);
}

int zoo_load(struct zoo *z, const char *dir, char *err, size_t errlen)
{
  struct dirent **entry;
  int n = scandir(dir, &entry, is_plugin, clean_first), status = 0;
  if (n <= 0) {
    snprintf(err, errlen, "--mutants %s: no plugins there; tests/mutants/build.sh makes them", dir);
    return -1;
  }
  for (int i = 0; i < n; i++) {
    entry[i]->d_name[strlen(entry[i]->d_name) - 3] = 0;
    if (!status)
      status = load_one(z, dir, entry[i]->d_name, err, errlen);
    free(entry[i]);
  }
  free(entry);
  return status;
}

/* ---- running --------------------------------------------------------------------------------- */

struct watch {
  struct zoo *z;
  char problem[ATTN_PROBLEM_TEXT];
  struct record_rules clean[ZOO_ROWS]; /* of the clean builds, on that problem */
};

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

/* The clean build of a mutant's sources on this problem, or NULL. */
static const struct record_rules *clean_of(struct watch *w, const struct zoo_row *row,
                                           const struct record *r)
{
  char problem[ATTN_PROBLEM_TEXT];
  const char *base = strcmp(row->base, "cpu/null") ? row->base : "cpu/flash";
  attn_problem_print(&r->problem, problem, sizeof problem);
  if (strcmp(problem, w->problem)) {
    snprintf(w->problem, sizeof w->problem, "%s", problem);
    memset(w->clean, 0, sizeof w->clean);
  }
  if (row->clean) {
    w->clean[row - w->z->row] = r->rules;
    return NULL;
  }
  for (int i = 0; i < w->z->n; i++)
    if (w->clean[i].known && !strcmp(w->z->row[i].base, base))
      return &w->clean[i];
  return NULL;
}

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct watch *w = ctx;
  for (int i = 0; i < w->z->n; i++) {
    struct zoo_row *row = &w->z->row[i];
    if (strcmp(row->impl->name, r->impl) || r->status == STATUS_UNSUPPORTED ||
        r->status == STATUS_SKIP)
      continue;
    row->losses += r->status == STATUS_CRASH || r->status == STATUS_TIMEOUT;
    const struct record_rules *clean = clean_of(w, row, r);
    row->cases++;
    row->reached |= clean && (!r->rules.known || r->rules.bits != clean->bits);
    mark_checks(row, r);
    mark_rules(row, r, clean);
  }
}

/* The clean builds and some mutants, from row *at on, as patterns; how many mutants. */
static int patterns_of(const struct zoo *z, const struct tour *t, int *at, char *text, size_t len)
{
  size_t used = (size_t)snprintf(text, len, "clean/*");
  int taken = 0;
  for (; *at < z->n && taken < SEVERAL; ++*at) {
    if (z->row[*at].clean || (t->losses && z->row[*at].losses >= t->losses))
      continue;
    used += (size_t)snprintf(text + used, len - used, ",%s", z->row[*at].impl->name);
    taken++;
  }
  return taken;
}

static struct run_options options_of(const struct run_options *given, struct watch *w,
                                     const struct tour *t, const struct regime *regime)
{
  struct run_options o = *given;
  o.device_options.sram_bytes = SRAM;
  o.group.zoo = o.quiet = true;
  o.group.laws = o.group.time = o.group.count = false;
  o.group.regime = regime;
  o.timeout_s = t->timeout_s;
  o.losses = t->losses;
  o.each = see;
  o.ctx = w;
  o.out = NULL;
  return o;
}

static int run_patterns(const struct problem_list *list, struct run_options *o,
                        const char *patterns, char *err, size_t errlen)
{
  struct run_summary sum;
  o->impls = patterns;
  int status = run_problems(list, o, &sum, err, errlen);
  return sum.interrupted ? -1 : status;
}

static int run_suite(struct watch *w, const struct tour *t, struct run_options *o,
                     const char *suite, char *err, size_t errlen)
{
  static char patterns[SEVERAL * 80 + 16];
  struct problem_list list = {NULL, 0, 0};
  int status = catalog_suite(&list, suite, err, errlen), at = 0;
  for (bool first = true; !status && at < w->z->n; first = false)
    if (patterns_of(w->z, t, &at, patterns, sizeof patterns) || first)
      status = run_patterns(&list, o, patterns, err, errlen);
  catalog_problems_free(&list);
  return status;
}

/* A mutant and the clean build of its sources on the suite that it names. */
static int run_own(struct run_options *o, const struct zoo_row *row, char *err, size_t errlen)
{
  char patterns[160];
  struct problem_list list = {NULL, 0, 0};
  int status = catalog_suite(&list, row->suite, err, errlen);
  snprintf(patterns, sizeof patterns, "clean/%s,%s", strchr(row->base, '/') + 1, row->impl->name);
  o->timeout_s = LARGE_TIMEOUT;
  if (!status)
    status = run_patterns(&list, o, patterns, err, errlen);
  catalog_problems_free(&list);
  return status;
}

static bool in_tour(const struct tour *t, const struct regime *regime)
{
  char name[64];
  snprintf(name, sizeof name, " %s ", regime->name);
  return !t->regimes || strstr(t->regimes, name);
}

int zoo_run(struct zoo *z, const struct run_options *given, char *err, size_t errlen)
{
  struct watch *w = calloc(1, sizeof *w);
  const struct tour *t = &tours[strcmp(given->device->name, tours[0].device) != 0];
  struct run_options o;
  int status = w ? 0 : -1;
  if (w)
    w->z = z;
  for (int i = 0; regime_at(i) && !status; i++) {
    if (!in_tour(t, regime_at(i)))
      continue;
    z->regimes |= 1u << i;
    o = options_of(given, w, t, regime_at(i));
    status = run_suite(w, t, &o, t->suite, err, errlen);
  }
  o = options_of(given, w, t, regime_at(0));
  for (int i = 0; i < z->n && !status; i++)
    if (z->row[i].suite[0] && strchr(z->row[i].base, '/'))
      status = run_own(&o, &z->row[i], err, errlen);
  o = options_of(given, w, t, regime_at(0));
  o.group.laws = true;
  if (!status)
    status = run_suite(w, t, &o, t->laws, err, errlen);
  free(w);
  return status;
}
