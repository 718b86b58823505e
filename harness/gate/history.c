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

int history_read(struct history *h, const char *const *files, int nfiles, unsigned quantities,
                 double level, const double magnitude[QUANTITIES], char *err, size_t errlen)
{
  *h = (struct history){.files = files};
  h->cells = calloc((size_t)nfiles, sizeof *h->cells);
  for (; h->cells && h->nfiles < nfiles; h->nfiles++)
    if (cells_read(&h->cells[h->nfiles], files[h->nfiles], NULL, err, errlen))
      return -1;
  snprintf(err, errlen, "out of memory");
  for (int f = 0; f < h->nfiles; f++)
    for (int i = 0; i < h->cells[f].n; i++) {
      if (seen(h, f, &h->cells[f].item[i]))
        continue;
      for (int q = 0; q < QUANTITIES; q++)
        if (quantities >> q & 1 && add_series(h, &h->cells[f].item[i], q))
          return -1;
    }
  for (int i = 0; i < h->n; i++) {
    fill(h, &h->series[i]);
    search(&h->series[i], level, magnitude[h->series[i].quantity]);
  }
  return h->cells ? 0 : -1;
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
