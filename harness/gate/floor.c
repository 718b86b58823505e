/* SPDX-License-Identifier: Apache-2.0
 *
 * floor.c - the noise floor of a machine as a file: one JSON object, the cells in a list.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gate/compare.h"
#include "harness/record/fields.h"
#include "harness/record/store.h"
#include "impl/echo.h"

#define FLOOR_SCHEMA 1

static const char *one_of(const char *s, const char *a, const char *b)
{
  return !strcmp(s, a) ? a : !strcmp(s, b) ? b : "";
}

static bool read_cell(struct floor_cell *c, const json_t *j)
{
  c->key.impl = strdup(field_text(j, "impl"));
  c->key.problem = strdup(field_text(j, "problem"));
  c->key.cache = one_of(field_text(j, "cache"), "cold", "warm");
  c->key.mode = one_of(field_text(j, "mode"), "rested", "sustained");
  c->floor = field_number(j, "floor");
  c->worst = field_number(j, "worst");
  c->comparisons = (int)json_integer_value(json_object_get(j, "comparisons"));
  return c->key.impl && c->key.problem;
}

static int read_floor(struct noise_floor *f, const json_t *j)
{
  const json_t *device = json_object_get(j, "device"), *cells = json_object_get(j, "cells");
  snprintf(f->on.kind, sizeof f->on.kind, "%s", field_text(device, "kind"));
  snprintf(f->on.name, sizeof f->on.name, "%s", field_text(device, "name"));
  snprintf(f->on.uuid_hash, sizeof f->on.uuid_hash, "%s", field_text(device, "uuid_hash"));
  f->processes = (size_t)json_integer_value(json_object_get(j, "processes"));
  f->comparisons = (int)json_integer_value(json_object_get(j, "comparisons"));
  f->judged = (int)json_integer_value(json_object_get(j, "judged"));
  f->false_alarms = (int)json_integer_value(json_object_get(j, "false_alarms"));
  f->overall = field_number(j, "floor");
  f->cell = calloc(json_array_size(cells) + 1, sizeof *f->cell);
  if (!f->cell)
    return -1;
  for (size_t i = 0; i < json_array_size(cells); i++) {
    struct floor_cell *c = &f->cell[f->n++];
    if (!read_cell(c, json_array_get(cells, i)))
      return -1;
    c->key.on = f->on;
  }
  return 0;
}

int floor_read(struct noise_floor *f, const char *file, char *err, size_t errlen)
{
  FILE *in = fopen(file, "r");
  *f = (struct noise_floor){0};
  if (!in) {
    snprintf(err, errlen, "--floor %s: cannot be read: %s; attnbench aa --out writes one",
             ATTN_ECHOS(file), strerror(errno));
    return -1;
  }
  json_t *j = json_loadf(in, JSON_REJECT_DUPLICATES, NULL);
  fclose(in);
  int bad = strcmp(field_text(j, "kind"), "noise floor") != 0 ||
            json_integer_value(json_object_get(j, "schema")) != FLOOR_SCHEMA;
  if (bad)
    snprintf(err, errlen,
             "--floor %s: holds no noise floor (or one that this version does not know); attnbench "
             "aa --out writes one, which results files are not",
             ATTN_ECHOS(file));
  else if ((bad = read_floor(f, j)))
    snprintf(err, errlen, "--floor %s: out of memory", ATTN_ECHOS(file));
  json_decref(j);
  return bad ? -1 : 0;
}

static json_t *cells_json(const struct noise_floor *f)
{
  json_t *list = json_array();
  for (int i = 0; i < f->n; i++) {
    const struct floor_cell *c = &f->cell[i];
    json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:i}", "impl", c->key.impl,
                                          "problem", c->key.problem, "cache", c->key.cache, "mode",
                                          c->key.mode, "floor", field_real(c->floor), "worst",
                                          field_real(c->worst), "comparisons", c->comparisons));
  }
  return list;
}

int floor_write(const struct noise_floor *f, const char *file, char *err, size_t errlen)
{
  const struct conditions *on = &f->on;
  json_t *j =
      json_pack("{s:i,s:s,s:{s:s,s:s,s:s?},s:I,s:i,s:i,s:i,s:o,s:o}", "schema", FLOOR_SCHEMA,
                "kind", "noise floor", "device", "kind", on->kind, "name", on->name, "uuid_hash",
                on->uuid_hash[0] ? on->uuid_hash : NULL, "processes", (json_int_t)f->processes,
                "comparisons", f->comparisons, "judged", f->judged, "false_alarms", f->false_alarms,
                "floor", field_real(f->overall), "cells", cells_json(f));
  char why[1024] = "out of memory";
  int bad = !j || store_replace(file, j, why, sizeof why);
  if (bad)
    snprintf(err, errlen, "noise floor not written: %.800s", why);
  json_decref(j);
  return bad ? -1 : 0;
}

void floor_free(struct noise_floor *f)
{
  for (int i = 0; i < f->n; i++) {
    free(f->cell[i].key.impl);
    free(f->cell[i].key.problem);
  }
  free(f->cell);
  *f = (struct noise_floor){0};
}

bool floor_same_device(const struct noise_floor *f, const struct cell *c)
{
  return !strcmp(f->on.name, c->on.name) && !strcmp(f->on.uuid_hash, c->on.uuid_hash);
}

double floor_of(const struct noise_floor *f, const struct cell *c, size_t processes)
{
  if (processes < f->processes || !floor_same_device(f, c))
    return NAN;
  for (int i = 0; i < f->n; i++)
    if (cell_same(&f->cell[i].key, c))
      return f->cell[i].floor;
  return f->overall;
}
