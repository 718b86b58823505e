/* SPDX-License-Identifier: Apache-2.0
 *
 * advice.c - finds the choices of a device.
 */
#include "config.h"

#include <string.h>

#include "harness/base/path.h"
#include "harness/run/catalog.h"
#include "harness/tune/advice.h"

struct reading {
  struct advice *a;
  int status;
  char *err;
  size_t errlen;
};

static void read_one(const char *name, void *ctx)
{
  struct reading *r = ctx;
  char path[4300];
  if (r->status || r->a->n == ADVICE_TABLES)
    return;
  snprintf(path, sizeof path, "%s/machines/%s.tune", catalog_profiles(), name);
  r->status = choices_read(path, &r->a->table[r->a->n], r->err, r->errlen);
  r->a->n += !r->status;
}

int advice_read(struct advice *a, const char *from, char *err, size_t errlen)
{
  struct reading r = {a, 0, err, errlen};
  size_t used;
  a->n = 0;
  if (from && !strcmp(from, "none"))
    return 0;
  if (from) {
    r.status = choices_read(from, &a->table[0], err, errlen);
    a->n = !r.status;
    if (!r.status)
      a->table[0].device[0] = 0; /* for whatever there is */
  } else if (catalog_profiles()) {
    catalog_files("machines", ".tune", read_one, &r);
  }
  used = strlen(err);
  if (r.status)
    snprintf(err + used, errlen - used, "; --choices none goes without");
  return r.status;
}

void advice_free(struct advice *a)
{
  for (int i = 0; i < a->n; i++)
    choices_free(&a->table[i]);
  a->n = 0;
}

static const char *wanted(const struct attn_device *dev, const char *impl,
                          const struct attn_problem *p)
{
  const struct choice *c = choices_find(dev->wanted_from, impl, p);
  return c ? c->variant : NULL;
}

void advice_apply(const struct advice *a, struct attn_device *dev)
{
  for (int i = 0; i < a->n; i++) {
    const struct choices *c = &a->table[i];
    if (c->device[0] && strcmp(c->device, dev->name))
      continue;
    dev->wanted = wanted;
    dev->wanted_from = c;
    return;
  }
}

static const char *forced(const struct attn_device *dev, const char *impl,
                          const struct attn_problem *p)
{
  (void)impl;
  (void)p;
  return dev->wanted_from;
}

void advice_force(const char *variant, struct attn_device *dev)
{
  dev->wanted = forced;
  dev->wanted_from = variant;
}

const char *advice_variant(const struct attn_impl *impl, const struct attn_problem *p,
                           const struct attn_device *dev, struct attn_variant *v)
{
  if (!impl->variant || impl->variant(p, dev, 0, v))
    return NULL;
  const char *want = attn_wanted(dev, impl->name, p);
  return !want || strcmp(want, v->name) ? "default" : dev->wanted == forced ? "forced" : "table";
}

const struct choices *advice_of(const struct attn_device *dev)
{
  return dev->wanted == wanted ? dev->wanted_from : NULL;
}

void advice_name(const struct attn_device *dev, char *name, size_t len)
{
  const struct choices *c = advice_of(dev);
  snprintf(name, len, "%s", c ? path_base(c->path) : "");
}
