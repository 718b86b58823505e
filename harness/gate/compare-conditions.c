/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-conditions.c - what must be the same before two numbers may be compared.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "harness/gate/compare.h"

#define TIME (1u << QUANTITY_TIME)
#define BYTES (1u << QUANTITY_BYTES)
#define ERRORS (1u << QUANTITY_ERROR)

static int differ(const struct cell *c, const char *what, const char *a, const char *b, char *err,
                  size_t errlen)
{
  snprintf(err, errlen, "%s differ at %s %.160s: %s against %s; --anyway compares all the same",
           what, c->impl, c->problem, a, b);
  return -1;
}

/* Two numbers that are both known. */
static int numbers(const struct cell *c, const char *what, const char *format, double a, double b,
                   char *err, size_t errlen)
{
  char x[48], y[48];
  if (isnan(a) || isnan(b) || a == b)
    return 0;
  snprintf(x, sizeof x, format, a);
  snprintf(y, sizeof y, format, b);
  return differ(c, what, x, y, err, errlen);
}

static int names(const struct cell *c, const struct conditions *a, const struct conditions *b,
                 char *err, size_t errlen)
{
  char x[160], y[160];
  const char *what = !strcmp(a->kind, "cuda") ? "GPUs" : "processors";
  if (strcmp(a->name, b->name))
    return differ(c, what, a->name, b->name, err, errlen);
  if (!a->uuid_hash[0] || !b->uuid_hash[0] || !strcmp(a->uuid_hash, b->uuid_hash))
    return 0;
  snprintf(x, sizeof x, "%s %.8s", a->name, a->uuid_hash);
  snprintf(y, sizeof y, "%s %.8s", b->name, b->uuid_hash);
  return differ(c, what, x, y, err, errlen);
}

static double switched(int tri)
{
  return tri < 0 ? NAN : tri;
}

/* What the time of a run depends on. */
static int clocks(const struct cell *c, const struct conditions *a, const struct conditions *b,
                  char *err, size_t errlen)
{
  if (!strcmp(a->kind, "cpu") &&
      numbers(c, "numbers of cores", "%.0f", a->multiprocessors, b->multiprocessors, err, errlen))
    return -1;
  if (numbers(c, "pauses before a run", "%g s", a->rest_s, b->rest_s, err, errlen))
    return -1;
  if (numbers(c, "power limits", "%.0f W", a->power_limit_w, b->power_limit_w, err, errlen) ||
      numbers(c, "ECC modes", "%.0f", switched(a->ecc), switched(b->ecc), err, errlen) ||
      numbers(c, "MIG modes", "%.0f", switched(a->mig), switched(b->mig), err, errlen))
    return -1;
  return 0;
}

static int inputs(const struct cell *c, const struct conditions *a, const struct conditions *b,
                  char *err, size_t errlen)
{
  if (a->distribution[0] && b->distribution[0] && strcmp(a->distribution, b->distribution))
    return differ(c, "input distributions", a->distribution, b->distribution, err, errlen);
  if (a->seed < 0 || b->seed < 0)
    return 0;
  return numbers(c, "seeds of the inputs", "%.0f", (double)a->seed, (double)b->seed, err, errlen);
}

int conditions_match(const struct cell *base, const struct cell *now, unsigned quantities,
                     char *err, size_t errlen)
{
  const struct conditions *a = &base->on, *b = &now->on;
  bool gpu = !strcmp(a->kind, "cuda");
  if (quantities & (gpu ? TIME | BYTES : TIME) && names(now, a, b, err, errlen))
    return -1;
  if (quantities & TIME && clocks(now, a, b, err, errlen))
    return -1;
  if (!gpu && quantities & (TIME | BYTES) &&
      numbers(now, "sizes of SRAM", "%.0f bytes", a->sram_bytes, b->sram_bytes, err, errlen))
    return -1;
  return quantities & (TIME | ERRORS) ? inputs(now, a, b, err, errlen) : 0;
}
