/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c - lines of a kill matrix into rows, and their scores.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/record/fields.h"
#include "harness/record/store.h"
#include "reports/matrix.h"

const struct matrix_group matrix_groups[MATRIX_GROUPS] = {
    [MATRIX_BOUND] = {"bound", "bound on O or gradients"},
    [MATRIX_LSE] = {"LSE", "bound on LSE"},
    [MATRIX_ENDS] = {"run", "how the run ended, guards, inputs"},
    [MATRIX_LAWS] = {"laws", "laws and probes"},
    [MATRIX_TWICE] = {"2x", "2x"},
    [MATRIX_CLOSE] = {"allclose", "allclose"},
    [MATRIX_NMSE] = {"NMSE", "nmse"},
};

/* What is in no other group is a law. */
static int group_of(const char *check)
{
  static const struct {
    const char *check;
    int group;
  } known[] = {{"bound", MATRIX_BOUND},    {"lse", MATRIX_LSE},     {"ends", MATRIX_ENDS},
               {"guards", MATRIX_ENDS},    {"inputs", MATRIX_ENDS}, {"2x", MATRIX_TWICE},
               {"allclose", MATRIX_CLOSE}, {"nmse", MATRIX_NMSE}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(check, known[i].check))
      return known[i].group;
  return MATRIX_LAWS;
}

/* The bit of an input's name; 0 where there are too many. */
static uint32_t regime_bit(struct report *r, const char *name)
{
  int i = 0;
  while (i < r->nregimes && strcmp(r->regimes[i], name))
    i++;
  if (i == REPORT_REGIMES)
    return 0;
  if (i == r->nregimes)
    snprintf(r->regimes[r->nregimes++], sizeof *r->regimes, "%s", name);
  return 1u << i;
}

static uint32_t regime_bits(struct report *r, const json_t *list)
{
  uint32_t bits = 0;
  size_t i;
  const json_t *name;
  json_array_foreach(list, i, name) if (json_is_string(name)) bits |=
      regime_bit(r, json_string_value(name));
  return bits;
}

static bool on_cuda(const json_t *j)
{
  return !strncmp(field_text(j, "base"), "cuda/", 5);
}

static struct report_mutant *slot_of(struct report *r, const json_t *j)
{
  for (int i = 0; i < r->nmutants; i++)
    if (!strcmp(r->mutants[i].name, field_text(j, "mutant")) && r->mutants[i].cuda == on_cuda(j))
      return &r->mutants[i];
  struct report_mutant *list = report_grow(r->mutants, &r->nmutants, sizeof *list);
  if (!list)
    return NULL;
  r->mutants = list;
  return &list[r->nmutants - 1];
}

static void fill(struct report *r, struct report_mutant *m, json_t *j)
{
  const char *check;
  json_t *list;
  *m = (struct report_mutant){.json = json_incref(j),
                              .name = field_text(j, "mutant"),
                              .kind = field_text(j, "kind"),
                              .check = field_text(j, "check"),
                              .equivalent = field_text(j, "equivalent"),
                              .clean = json_is_true(json_object_get(j, "clean")),
                              .cuda = on_cuda(j),
                              .cases = (int)json_integer_value(json_object_get(j, "cases"))};
  r->zoo_regimes[m->cuda] |= regime_bits(r, json_object_get(j, "regimes"));
  json_object_foreach(json_object_get(j, "killed"), check, list) m->killed[group_of(check)] |=
      regime_bits(r, list);
  json_object_foreach(json_object_get(j, "alarms"), check, list) m->alarms[group_of(check)] +=
      (int)json_integer_value(list);
}

struct loading {
  struct report *r;
  int lines;
};

static int take(json_t *j, int line, void *ctx)
{
  struct loading *l = ctx;
  struct report_mutant *m = slot_of(l->r, j);
  if (!m)
    return -1;
  json_decref(m->json);
  fill(l->r, m, j);
  l->lines++;
  return 0;
}

int matrix_load(struct report *r, const char *path, int *lines, char *err, size_t errlen)
{
  struct loading l = {r, 0};
  int foreign;
  int status = store_read_zoo(path, take, &l, &foreign, err, errlen);
  *lines = l.lines;
  return status;
}

void matrix_free(struct report *r)
{
  for (int i = 0; i < r->nmutants; i++)
    json_decref(r->mutants[i].json);
  free(r->mutants);
}

static int cells(const struct report_mutant *m, int from, int to)
{
  uint32_t any = 0;
  for (int g = from; g < to; g++)
    any |= m->killed[g];
  return __builtin_popcount(any);
}

static int by_need(const void *a, const void *b)
{
  const struct report_mutant *x = a, *y = b;
  int n[2] = {0, 0};
  if (x->cuda != y->cuda)
    return x->cuda - y->cuda;
  if (x->clean != y->clean)
    return x->clean - y->clean;
  for (int g = MATRIX_TWICE; g < MATRIX_GROUPS; g++) {
    n[0] += cells(x, g, g + 1);
    n[1] += cells(y, g, g + 1);
  }
  if (n[0] != n[1])
    return n[0] - n[1];
  return strcmp(x->name, y->name);
}

void matrix_sort(struct report *r)
{
  if (r->nmutants)
    qsort(r->mutants, (size_t)r->nmutants, sizeof *r->mutants, by_need);
}

void matrix_laws(const struct report_mutant *m, char *buf, size_t len)
{
  const char *check;
  json_t *list;
  buf[0] = '\0';
  json_object_foreach(json_object_get(m->json, "killed"), check, list)
  {
    size_t n = strlen(buf);
    if (group_of(check) == MATRIX_LAWS)
      snprintf(buf + n, len - n, "%s%s", n ? ", " : "", check);
  }
}

struct matrix_score matrix_score(const struct report *r, bool cuda, int from, int to)
{
  struct matrix_score s = {0, 0, 0, 0, 0, 0};
  for (int i = 0; i < r->nmutants; i++) {
    const struct report_mutant *m = &r->mutants[i];
    if (m->cuda != cuda)
      continue;
    if (m->clean) {
      s.correct_cases += m->cases;
      for (int g = from; g < to; g++)
        s.false_alarms += m->alarms[g];
    } else if (!*m->equivalent) {
      s.faults++;
      s.killed += cells(m, from, to) > 0;
      s.cells += cells(m, from, to);
    }
  }
  s.all_cells = s.faults * __builtin_popcount(r->zoo_regimes[cuda]);
  return s;
}
