/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo.c - planted faults, loaded as plugins.
 */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/zoo.h"

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
