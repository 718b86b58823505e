/* SPDX-License-Identifier: Apache-2.0
 *
 * history.c - series from files, and their change points.
 *
 * A value is one file's median (or its bytes); regimes are compared by the medians of their
 * logarithms, so a change is relative.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gate/history.h"
#include "impl/echo.h"

#define SEED 1 /* of the permutations: the same files, the same answer */

static int add_series(struct history *h, const struct cell *key, enum quantity q)
{
  struct series *grown = realloc(h->series, ((size_t)h->n + 1) * sizeof *grown);
  if (!grown)
    return -1;
  h->series = grown;
  struct series *s = &grown[h->n++];
  *s = (struct series){.key = key, .quantity = q};
  s->value = malloc((size_t)h->nfiles * sizeof *s->value);
  s->file = malloc((size_t)h->nfiles * sizeof *s->file);
  s->change = malloc((size_t)h->nfiles * sizeof *s->change);
  return s->value && s->file && s->change ? 0 : -1;
}

static const struct cell *find(const struct cells *in, const struct cell *key)
{
  for (int i = 0; i < in->n; i++)
    if (cell_same(&in->item[i], key))
      return &in->item[i];
  return NULL;
}

/* Whether an earlier file has the cell already. */
static bool seen(const struct history *h, int file, const struct cell *key)
{
  for (int f = 0; f < file; f++)
    if (find(&h->cells[f], key))
      return true;
  return false;
}

static void fill(const struct history *h, struct series *s)
{
  for (int f = 0; f < h->nfiles; f++) {
    const struct cell *c = find(&h->cells[f], s->key);
    double x = c && c->status == STATUS_PASS ? c->value[s->quantity] : NAN;
    s->value[f] = x > 0 ? x : NAN;
    if (x > 0)
      s->file[s->n++] = (size_t)f;
  }
}

static void search(struct series *s, double level, double magnitude)
{
  double logs[STATS_SERIES];
  size_t from = s->n > STATS_SERIES ? s->n - STATS_SERIES : 0;
  for (size_t i = from; i < s->n; i++)
    logs[i - from] = log(s->value[s->file[i]]);
  s->changes = stats_changes(logs, s->n - from, level, log1p(magnitude), SEED, s->change);
  for (size_t k = 0; k < s->changes; k++)
    s->change[k] += from;
}

double history_level(const struct series *s, size_t k, bool after)
{
  double x[STATS_SERIES];
  size_t n = 0, from = k ? s->change[k - 1] : 0, until = s->change[k];
  if (after) {
    from = s->change[k];
    until = k + 1 < s->changes ? s->change[k + 1] : s->n;
  }
  for (size_t i = from; i < until && n < STATS_SERIES; i++)
    x[n++] = s->value[s->file[i]];
  return stats_median(x, n);
}

static unsigned both_have(const struct cell *a, const struct cell *b)
{
  unsigned has = 0;
  for (int q = 0; q < QUANTITIES; q++)
    if (a->value[q] > 0 && b->value[q] > 0)
      has |= 1u << q;
  return has;
}

/* A case that comes again must come from the same device, clocks and inputs. A file that shares no
 * case with any other is not of this history. */
static int related(struct history *h, const struct history_options *o, char *err, size_t errlen)
{
  for (int f = 1; f < h->nfiles; f++)
    for (int i = 0; i < h->cells[f].n; i++) {
      const struct cell *now = &h->cells[f].item[i], *before = NULL;
      int g = f;
      while (!before && g-- > 0)
        before = find(&h->cells[g], now);
      if (!before)
        continue;
      h->cells[f].shared = h->cells[g].shared = true;
      if (!o->anyway &&
          conditions_match(before, now, o->quantities & both_have(before, now), err, errlen))
        return -1;
    }
  for (int f = 0; f < h->nfiles; f++)
    if (!h->cells[f].shared) {
      snprintf(err, errlen, "%s: has no case in common with the other files: no history of these",
               ATTN_ECHOS(h->files[f]));
      return -1;
    }
  return 0;
}

static int add_file(struct history *h, int f, unsigned quantities)
{
  for (int i = 0; i < h->cells[f].n; i++) {
    if (seen(h, f, &h->cells[f].item[i]))
      continue;
    for (int q = 0; q < QUANTITIES; q++)
      if (quantities >> q & 1 && add_series(h, &h->cells[f].item[i], q))
        return -1;
  }
  return 0;
}

int history_read(struct history *h, const char *const *files, int nfiles,
                 const struct history_options *o, char *err, size_t errlen)
{
  *h = (struct history){.files = files};
  snprintf(err, errlen, "out of memory");
  h->cells = calloc((size_t)nfiles, sizeof *h->cells);
  for (; h->cells && h->nfiles < nfiles; h->nfiles++)
    if (cells_read(&h->cells[h->nfiles], files[h->nfiles], NULL, err, errlen))
      return -1;
  if (!h->cells || related(h, o, err, errlen))
    return -1;
  for (int f = 0; f < h->nfiles; f++)
    if (add_file(h, f, o->quantities)) {
      snprintf(err, errlen, "out of memory");
      return -1;
    }
  for (int i = 0; i < h->n; i++) {
    fill(h, &h->series[i]);
    search(&h->series[i], o->level, o->magnitude[h->series[i].quantity]);
  }
  return 0;
}

void history_free(struct history *h)
{
  for (int i = 0; i < h->n; i++) {
    free(h->series[i].value);
    free(h->series[i].file);
    free(h->series[i].change);
  }
  for (int f = 0; f < h->nfiles; f++)
    cells_free(&h->cells[f]);
  free(h->series);
  free(h->cells);
  *h = (struct history){0};
}
