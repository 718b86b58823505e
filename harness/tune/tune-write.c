/* SPDX-License-Identifier: Apache-2.0
 *
 * tune-write.c - from the best variant at each point of a sweep to lines of a table, each with the
 * times that it rests on.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/explain/machine-file.h"
#include "harness/record/build.h"
#include "harness/tune/tune.h"
#include "impl/echo.h"

/* ---- where ----------------------------------------------------------------------------------- */

struct naming {
  const struct attn_device *dev;
  char name[64];
};

static void try_machine(const char *name, void *ctx)
{
  struct naming *n = ctx;
  struct machine_limits m;
  char err[256];
  if (!n->name[0] && !machine_read(name, &m, err, sizeof err) && !strcmp(m.name, n->dev->name))
    snprintf(n->name, sizeof n->name, "%s", name);
}

/* The name of the device's .machine file, or one made of its own. */
static void name_of(struct naming *n)
{
  size_t at = 0;
  catalog_files("machines", ".machine", try_machine, n);
  if (n->name[0])
    return;
  for (const char *c = n->dev->name; *c && at + 2 < sizeof n->name; c++)
    if (isalnum((unsigned char)*c))
      n->name[at++] = (char)tolower((unsigned char)*c);
    else if (at && n->name[at - 1] != '-')
      n->name[at++] = '-';
  while (at && n->name[at - 1] == '-')
    at--;
  snprintf(n->name + at, sizeof n->name - at, "%s", at ? "" : "device");
}

void tune_path(const struct attn_device *dev, char *path, size_t len)
{
  struct naming n = {.dev = dev};
  const char *profiles = catalog_profiles();
  name_of(&n);
  if (profiles) {
    snprintf(path, len, "%s/machines", profiles);
    if (!access(path, W_OK)) {
      snprintf(path, len, "%s/machines/%s.tune", profiles, n.name);
      return;
    }
  }
  snprintf(path, len, "%s.tune", n.name);
}

/* ---- classes --------------------------------------------------------------------------------- */

/* Which conditions a line of this point has, rows and keys aside. */
static unsigned conditions(const struct tune_point *p, bool dtypes)
{
  bool bwd = p->problem.op == ATTN_BWD;
  unsigned given = 1u << CHOICE_OP | 1u << CHOICE_D | 1u << CHOICE_MASK | 1u << CHOICE_OPTIONS;
  given |= bwd ? 1u << CHOICE_DETERMINISTIC : 1u << CHOICE_PAGES;
  given |= p->problem.page > 0 ? 1u << CHOICE_PAGE : 0;
  given |= p->packed ? 1u << CHOICE_GROUP | 1u << CHOICE_KV : 0;
  return given | (dtypes ? 1u << CHOICE_DTYPE : 0);
}

/* By implementation, then by condition, the narrow ones before the wide. */
static int order(const struct tune_point *a, const struct tune_point *b, int conditions)
{
  static const enum condition by[] = {
      CHOICE_OP,   CHOICE_DTYPE,         CHOICE_OPTIONS, CHOICE_PAGES, CHOICE_PAGE, CHOICE_KV,
      CHOICE_MASK, CHOICE_DETERMINISTIC, CHOICE_D,       CHOICE_GROUP, CHOICE_ROWS, CHOICE_KEYS};
  _Static_assert(sizeof by / sizeof *by == CONDITIONS, "every condition has its place");
  int c = strcmp(a->impl, b->impl);
  for (int i = 0; i < conditions && !c; i++) {
    double x = a->key.value[by[i]], y = b->key.value[by[i]];
    if (by[i] == CHOICE_GROUP && !a->packed)
      continue;
    c = (x > y) - (x < y);
  }
  return c;
}

static int in_order(const void *a, const void *b)
{
  return order(a, b, CONDITIONS);
}

/* All but the last so many conditions are the same. */
static bool alike(const struct tune_point *a, const struct tune_point *b, int but)
{
  return !order(a, b, CONDITIONS - but);
}

/* Points of which nothing passed say nothing. */
static void drop_unknown(struct tune_result *t)
{
  int n = 0;
  for (int i = 0; i < t->n; i++)
    if (t->point[i].best >= 0)
      t->point[n++] = t->point[i];
  t->n = n;
}

static const char *winner(const struct tune_point *p)
{
  return p->trial[p->best].variant;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_evidence(const struct tune_point *p, FILE *f)
{
  char problem[ATTN_PROBLEM_TEXT], at[32];
  attn_problem_print(&p->problem, problem, sizeof problem);
  fprintf(f, "# %s: ", problem);
  for (int i = 0; i < p->n; i++) {
    const struct trial *t = &p->trial[i];
    show_seconds(at, sizeof at, t->status == STATUS_PASS ? t->median_s : NAN);
    fprintf(f, "%s%s %s", i ? ", " : "", t->variant,
            t->status == STATUS_PASS ? at : record_status_name(t->status));
  }
  fprintf(f, "\n");
}

/* Halfway to the next point, in the logarithm; behind the last an octave. */
static void bound(struct choice *c, enum condition i, const struct tune_point *p,
                  const struct tune_point *next)
{
  double x = p->key.value[i];
  c->given |= 1u << i;
  c->key.value[i] = floor(next ? sqrt(x * next->key.value[i]) : 2 * x);
}

/* Points of one class: a line for each stretch of keys with one winner. next: the point behind
 * them, NULL at the end; if only rows and keys differ, the class ends between them. */
static void write_class(const struct tune_point *p, int n, const struct tune_point *next,
                        bool dtypes, FILE *f)
{
  for (int i = 0; i < n; i++)
    write_evidence(&p[i], f);
  for (int i = 0; i < n; i++) {
    struct choice c = {.given = conditions(&p[i], dtypes), .key = p[i].key};
    if (i + 1 < n && !strcmp(winner(&p[i]), winner(&p[i + 1])))
      continue;
    if (next && alike(p, next, 2))
      bound(&c, CHOICE_ROWS, p, next);
    bound(&c, CHOICE_KEYS, &p[i], i + 1 < n ? &p[i + 1] : NULL);
    snprintf(c.impl, sizeof c.impl, "%s", p[i].impl);
    snprintf(c.variant, sizeof c.variant, "%s", winner(&p[i]));
    choice_print(&c, f);
    fprintf(f, "\n");
  }
}

static void write_all(const struct tune_result *t, const char *how, FILE *f)
{
  char when[32];
  time_t now = time(NULL);
  struct tm tm;
  bool dtypes = false;
  for (int i = 1; i < t->n; i++)
    dtypes |= t->point[i].problem.dtype != t->point[0].problem.dtype;
  strftime(when, sizeof when, "%Y-%m-%d %H:%M", gmtime_r(&now, &tm));
  fprintf(f, "# SPDX-License-Identifier: Apache-2.0\n");
  fprintf(f, "# Which compiled variant a problem gets on this device: %s,\n", how);
  fprintf(f, "# attnbench %s, driver %s, %s UTC. The first line that fits a problem decides;\n",
          build_info()->version, t->driver[0] ? t->driver : "none", when);
  fprintf(f, "# the first time in a comment is of the implementation's own choice.\n");
  fprintf(f, "device = %s\n", t->device.name);
  for (int i = 0, n; i < t->n; i += n) {
    for (n = 1; i + n < t->n && alike(&t->point[i], &t->point[i + n], 1); n++)
      ;
    fprintf(f, "\n");
    write_class(&t->point[i], n, i + n < t->n ? &t->point[i + n] : NULL, dtypes, f);
  }
}

int tune_write(struct tune_result *t, const char *path, const char *how, char *err, size_t errlen)
{
  char part[4300];
  snprintf(part, sizeof part, "%s.part", path);
  drop_unknown(t);
  if (t->n)
    qsort(t->point, (size_t)t->n, sizeof *t->point, in_order);
  FILE *f = fopen(part, "w");
  if (f)
    write_all(t, how, f);
  bool bad = f && ferror(f);
  if (f && !fclose(f) && !bad && !rename(part, path))
    return 0;
  snprintf(err, errlen, "%s: %s; choose another --out", ATTN_ECHOS(path), strerror(errno));
  if (f)
    unlink(part);
  return -1;
}
