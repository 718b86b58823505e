/* SPDX-License-Identifier: Apache-2.0
 *
 * variants.c - a plugin whose variants are known: tune/work takes 24 ms as "steady", its own
 * choice; 6 ms up to 100 keys and 72 ms beyond as "short"; 1 ms and the wrong answer as "wrong",
 * which it has for dtype=fp32 alone.  The second, tune/alone, has one variant; tune/elsewhere and
 * tune/alone-elsewhere have the same on a GPU, where they are only asked for them.
 */
#include <stdio.h>

#include "tests/cheats/honest.h"

enum { STEADY, SHORT, WRONG, VARIANTS };
static const char *const names[VARIANTS] = {"steady", "short", "wrong"};

struct work {
  struct attn_problem p;
  int variant;
};

static bool takes(const struct attn_problem *p, int v)
{
  return v != WRONG || !p || p->dtype == ATTN_F32;
}

static int choose(const struct attn_problem *p, const struct attn_device *dev)
{
  const char *wanted = attn_wanted(dev, "tune/work", p);
  for (int v = 0; wanted && v < VARIANTS; v++)
    if (!strcmp(wanted, names[v]) && takes(p, v))
      return v;
  return STEADY;
}

static int describe(int v, struct attn_variant *out)
{
  *out = (struct attn_variant){.rows = 16, .keys = 8 << v, .threads = 1};
  snprintf(out->name, sizeof out->name, "%s", names[v]);
  return 0;
}

static int variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                   struct attn_variant *out)
{
  int first = p ? choose(p, dev) : STEADY;
  if (i == 0)
    return describe(first, out);
  for (int v = 0; v < VARIANTS; v++)
    if (v != first && takes(p, v) && --i == 0)
      return describe(v, out);
  return -1;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct work *w = malloc(sizeof *w);
  if (w)
    *w = (struct work){*p, choose(p, dev)};
  *plan = w;
  return w ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *plan, const struct attn_args *a, void *stream)
{
  const struct work *w = plan;
  double ms[] = {24, w->p.sk <= 100 ? 6 : 72, 1}, until = seconds() + 1e-3 * ms[w->variant];
  honest_rows(&w->p, a, w->p.sq, w->variant == WRONG ? w->p.sk / 2 : w->p.sk);
  spin_until(until);
  return ATTN_OK;
}

static int one_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                       struct attn_variant *out)
{
  return i ? -1 : describe(STEADY, out);
}

#define WORK(id, label, where, choices)                                   \
  static const struct attn_impl id = {.abi = ATTN_ABI,                    \
                                      .name = label,                      \
                                      .device = where,                    \
                                      .provenance = "made for the tests", \
                                      .unsupported = honest_unsupported,  \
                                      .prepare = prepare,                 \
                                      .run = run,                         \
                                      .finish = free,                     \
                                      .variant = choices}
WORK(work, "tune/work", ATTN_CPU, variant);
WORK(alone, "tune/alone", ATTN_CPU, one_variant);
WORK(elsewhere, "tune/elsewhere", ATTN_CUDA, variant);
WORK(alone_elsewhere, "tune/alone-elsewhere", ATTN_CUDA, one_variant);

static const struct attn_impl *const impls[] = {&work, &alone, &elsewhere, &alone_elsewhere};

const struct attn_plugin attn_plugin = {ATTN_ABI, sizeof impls / sizeof *impls, impls};
