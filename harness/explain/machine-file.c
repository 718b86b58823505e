/* SPDX-License-Identifier: Apache-2.0
 *
 * machine-file.c - reads a machine's limits; every key must be there.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/explain/machine-file.h"
#include "harness/run/catalog.h"
#include "impl/echo.h"

enum key { NAME, BASIS, SM, MULTIPROCESSORS, CLOCK, MATMUL, READ, COPY, EXP, KEYS };
static const char *const names[KEYS] = {
    "name",          "basis",     "sm",        "multiprocessors", "clock_mhz",
    "matmul_tflops", "read_gbps", "copy_gbps", "exp_per_clock"};

struct reading {
  const char *path;
  char text[BASIS + 1][128];
  double number[KEYS];
  bool seen[KEYS];
};

static bool set(struct reading *r, enum key k, const char *value)
{
  char *end;
  r->seen[k] = true;
  if (k <= BASIS)
    return snprintf(r->text[k], sizeof r->text[k], "%s", value) < (int)sizeof r->text[k];
  r->number[k] = strtod(value, &end);
  return *value && !*end && r->number[k] > 0 && isfinite(r->number[k]);
}

static char *trim(char *s)
{
  s += strspn(s, " \t");
  size_t n = strlen(s);
  while (n && strchr(" \t\r\n", s[n - 1]))
    s[--n] = 0;
  return s;
}

static int take_line(struct reading *r, char *line, int number, char *err, size_t errlen)
{
  line[strcspn(line, "#\n")] = 0;
  char *key = trim(line), *equals = strchr(key, '=');
  if (!*key)
    return 0;
  if (equals) {
    *equals = 0;
    key = trim(key);
    for (enum key k = NAME; k < KEYS; k++)
      if (!strcmp(key, names[k]) && set(r, k, trim(equals + 1)))
        return 0;
  }
  snprintf(err, errlen, "%s:%d: %s: want key = value with the keys of a machine, numbers above 0",
           r->path, number, ATTN_ECHOS(key));
  return -1;
}

static int read_lines(struct reading *r, FILE *f, char *err, size_t errlen)
{
  char line[512];
  for (int number = 1; fgets(line, sizeof line, f); number++)
    if (take_line(r, line, number, err, errlen))
      return -1;
  for (enum key k = NAME; k < KEYS; k++)
    if (!r->seen[k]) {
      snprintf(err, errlen, "%s: %s is missing", r->path, names[k]);
      return -1;
    }
  return 0;
}

static void fill(const struct reading *r, struct machine_limits *m)
{
  *m = (struct machine_limits){.kind = ATTN_CUDA,
                               .sm = (int)r->number[SM],
                               .multiprocessors = (int)r->number[MULTIPROCESSORS],
                               .clock_hz = 1e6 * r->number[CLOCK],
                               .matmul_tflops = r->number[MATMUL],
                               .read_gbps = r->number[READ],
                               .copy_gbps = r->number[COPY],
                               .exp_per_clock = r->number[EXP]};
  memcpy(m->name, r->text[NAME], sizeof m->name);
  snprintf(m->basis, sizeof m->basis, "%.90s", r->text[BASIS]);
}

int machine_read(const char *name, struct machine_limits *m, char *err, size_t errlen)
{
  char path[4300];
  const char *profiles = catalog_profiles();
  struct reading r = {.path = path};
  if (strchr(name, '/') || !*name || strlen(name) > 64) {
    snprintf(err, errlen, "--machine %s: want the name of one; attnbench list --machines",
             ATTN_ECHOS(name));
    return -1;
  }
  snprintf(path, sizeof path, "%s/machines/%s.machine", profiles ? profiles : "profiles", name);
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(err, errlen,
             "--machine %s: no such machine (%s); attnbench list --machines shows them",
             ATTN_ECHOS(name), strerror(errno));
    return -1;
  }
  int status = read_lines(&r, f, err, errlen);
  fclose(f);
  if (!status)
    fill(&r, m);
  return status;
}
