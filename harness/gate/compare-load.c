/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-load.c - results files as cells: records of the same case are pooled, process by process.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gate/compare.h"
#include "harness/record/fields.h"
#include "harness/record/store.h"
#include "impl/echo.h"

/* ---- one record ------------------------------------------------------------------------------ */

static int known(const json_t *o, const char *key)
{
  const json_t *x = json_object_get(o, key);
  return json_is_boolean(x) ? json_is_true(x) : -1;
}

static const char *one_of(const char *s, const char *a, const char *b)
{
  return !strcmp(s, a) ? a : !strcmp(s, b) ? b : "";
}

static enum record_status status_of(const json_t *record)
{
  const char *name = field_text(record, "status");
  int s = 0;
  while (s < STATUS_CRASH && strcmp(name, record_status_name(s)))
    s++;
  return s;
}

static void read_conditions(struct conditions *on, const json_t *record)
{
  const json_t *d = json_object_get(record, "device"), *in = json_object_get(record, "inputs");
  const json_t *seed = json_object_get(in, "seed");
  snprintf(on->kind, sizeof on->kind, "%s", field_text(d, "kind"));
  snprintf(on->name, sizeof on->name, "%s", field_text(d, "name"));
  snprintf(on->uuid_hash, sizeof on->uuid_hash, "%s", field_text(d, "uuid_hash"));
  snprintf(on->distribution, sizeof on->distribution, "%s", field_text(in, "distribution"));
  on->multiprocessors = field_number(d, "multiprocessors");
  on->sram_bytes = field_number(d, "sram_bytes");
  on->power_limit_w = field_number(d, "power_limit_w");
  on->sm_clock_hz = field_number(d, "sm_clock_hz");
  on->rest_s = field_number(json_object_get(record, "time"), "rest_s");
  on->ecc = known(d, "ecc");
  on->mig = known(d, "mig");
  on->seed = json_is_integer(seed) ? json_integer_value(seed) : -1;
}

/* What the record says beside its samples. */
static void read_values(struct cell *c, const json_t *record)
{
  const json_t *traffic = json_object_get(record, "traffic");
  double residue = field_number(traffic, "residue_bytes");
  c->status = status_of(record);
  snprintf(c->reason, sizeof c->reason, "%s", field_text(record, "reason"));
  snprintf(c->build, sizeof c->build, "%.64s %.60s %.40s", field_text(record, "impl_hash"),
           field_text(json_object_get(record, "build"), "commit"),
           field_text(json_object_get(record, "variant"), "name"));
  snprintf(c->source, sizeof c->source, "%s", field_text(traffic, "source"));
  c->value[QUANTITY_BYTES] = field_number(traffic, "dram_read_bytes") +
                             field_number(traffic, "dram_write_bytes") +
                             (residue > 0 ? residue : 0);
  c->value[QUANTITY_WORKSPACE] = field_number(json_object_get(record, "memory"), "workspace_bytes");
  c->value[QUANTITY_ERROR] = field_number(json_object_get(record, "verify"), "bound_ratio");
  c->value[QUANTITY_TIME] = NAN;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Where process p of the record's samples ends. */
static size_t process_end(const json_t *starts, size_t p, size_t n)
{
  const json_t *next = json_array_get(starts, p + 1);
  return json_is_integer(next) ? (size_t)json_integer_value(next) : n;
}

/* Appends the record's processes to the cell's. */
static int append_samples(struct cell *c, const json_t *time)
{
  const json_t *x = json_object_get(time, "samples_s"),
               *starts = json_object_get(time, "process_start");
  size_t n = json_array_size(x), more = json_array_size(starts), had = c->processes;
  size_t before = had ? c->start[had] : 0;
  more = more ? more : n > 0;
  double *samples = realloc(c->samples, (before + n + 1) * sizeof *samples);
  if (samples)
    c->samples = samples;
  size_t *start = realloc(c->start, (had + more + 1) * sizeof *start);
  if (start)
    c->start = start;
  if (!samples || !start)
    return -1;
  for (size_t i = 0; i < n; i++)
    samples[before + i] = json_number_value(json_array_get(x, i));
  start[0] = 0;
  for (size_t p = 0; p < more; p++) {
    size_t end = process_end(starts, p, n);
    if (end > n || before + end <= start[c->processes])
      return 0; /* offsets that make no sense: keep what did */
    start[++c->processes] = before + end;
  }
  return 0;
}

static bool positive(const struct cell *c)
{
  for (size_t i = 0; c->processes && i < c->start[c->processes]; i++)
    if (!(c->samples[i] > 0))
      return false;
  return c->processes > 0;
}

static void drop_samples(struct cell *c)
{
  c->processes = 0;
}

/* ---- cells ----------------------------------------------------------------------------------- */

bool cell_timed(const struct cell *c)
{
  return c->status == STATUS_PASS && c->processes > 0;
}

struct stats_units cell_units(const struct cell *c)
{
  return (struct stats_units){c->samples, c->start, c->processes};
}

bool cell_same_case(const struct cell *a, const struct cell *b)
{
  return !strcmp(a->impl, b->impl) && !strcmp(a->problem, b->problem) &&
         !strcmp(a->on.kind, b->on.kind);
}

bool cell_same(const struct cell *a, const struct cell *b)
{
  return cell_same_case(a, b) && !strcmp(a->cache, b->cache) && !strcmp(a->mode, b->mode);
}

static bool same_conditions(const struct conditions *a, const struct conditions *b)
{
  return !strcmp(a->name, b->name) && !strcmp(a->uuid_hash, b->uuid_hash) &&
         !strcmp(a->distribution, b->distribution) && a->seed == b->seed &&
         (a->sram_bytes == b->sram_bytes || isnan(a->sram_bytes));
}

static void free_cell(struct cell *c)
{
  free(c->impl);
  free(c->problem);
  free(c->samples);
  free(c->start);
}

struct reading {
  struct cells *cells;
  const char *impl;
};

/* The cell of a record, new if need be. */
static struct cell *cell_for(struct cells *all, struct cell *key)
{
  for (int i = 0; i < all->n; i++)
    if (cell_same(&all->item[i], key))
      return &all->item[i];
  struct cell *grown = realloc(all->item, ((size_t)all->n + 1) * sizeof *grown);
  if (!grown)
    return NULL;
  all->item = grown;
  struct cell *c = &grown[all->n];
  *c = (struct cell){.cache = key->cache, .mode = key->mode, .on = key->on};
  c->impl = strdup(key->impl);
  c->problem = strdup(key->problem);
  if (!c->impl || !c->problem) {
    free_cell(c);
    return NULL;
  }
  all->n++;
  return c;
}

static int take(json_t *record, int line, void *ctx)
{
  struct reading *r = ctx;
  const json_t *time = json_object_get(record, "time");
  struct cell key = {.impl = (char *)field_text(record, "impl"),
                     .problem = (char *)field_text(record, "problem")};
  if (r->impl && strcmp(r->impl, key.impl))
    return 0;
  if (json_integer_value(json_object_get(record, "schema")) > RECORD_SCHEMA) {
    r->cells->newer++;
    return 0;
  }
  if (json_is_object(json_object_get(record, "serve"))) {
    r->cells->serving++;
    return 0;
  }
  key.cache = one_of(field_text(time, "cache"), "cold", "warm");
  key.mode = one_of(field_text(time, "mode"), "rested", "sustained");
  read_conditions(&key.on, record);
  read_values(&key, record);
  struct cell *c = cell_for(r->cells, &key);
  if (!c)
    return -1;
  if (strcmp(c->build, key.build) || !same_conditions(&c->on, &key.on))
    drop_samples(c);
  c->on = key.on;
  c->status = key.status;
  c->line = line;
  memcpy(c->reason, key.reason, sizeof c->reason);
  memcpy(c->build, key.build, sizeof c->build);
  memcpy(c->source, key.source, sizeof c->source);
  memcpy(c->value, key.value, sizeof c->value);
  if (append_samples(c, time))
    return -1;
  if (c->status != STATUS_PASS || !positive(c))
    drop_samples(c);
  else
    c->value[QUANTITY_TIME] = stats_process_median(c->samples, c->start, c->processes);
  return 0;
}

/* A record without a time belongs to the timed cells of its case: it says how they ended, if it is
 * later and no pass. */
static void fold_untimed(struct cells *all)
{
  for (int i = 0; i < all->n; i++) {
    struct cell *u = &all->item[i];
    bool folded = false;
    for (int k = 0; k < all->n && !u->cache[0]; k++) {
      struct cell *t = &all->item[k];
      if (!t->cache[0] || !cell_same_case(u, t))
        continue;
      folded = true;
      if (u->line > t->line && u->status != STATUS_PASS) {
        t->status = u->status;
        memcpy(t->reason, u->reason, sizeof t->reason);
      }
    }
    if (folded) {
      free_cell(u);
      *u = all->item[--all->n];
      i--;
    }
  }
}

int cells_read(struct cells *c, const char *file, const char *impl, char *err, size_t errlen)
{
  struct reading r = {c, impl};
  *c = (struct cells){.file = file};
  snprintf(err, errlen, "%s: out of memory", ATTN_ECHOS(file));
  if (store_read(file, take, &r, &c->bad, err, errlen))
    return -1;
  fold_untimed(c);
  if (c->n)
    return 0;
  snprintf(err, errlen, "%s: no records%s%s%s; attnbench run --out writes them", ATTN_ECHOS(file),
           impl ? " of " : "", impl ? impl : "",
           c->newer     ? " but of a newer version"
           : c->serving ? " but of serve, which attnbench report shows"
                        : "");
  return -1;
}

void cells_free(struct cells *c)
{
  for (int i = 0; i < c->n; i++)
    free_cell(&c->item[i]);
  free(c->item);
  *c = (struct cells){0};
}
