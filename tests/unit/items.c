/* SPDX-License-Identifier: Apache-2.0
 *
 * items: each item of a list has the implementations, the regime and the laws that it is described
 * with, is described once, and is recorded in the order of the list, side by side or not.
 */
#include "config.h"

#include <string.h>

#include "harness/device/device-host.h"
#include "harness/run/run.h"
#include "tests/tap.h"

#define ITEMS 7

static int described[ITEMS], last, wrong, seen;

/* Item i: naive or flash or both, regime i modulo 3, every third with laws. */
static void describe(int i, struct run_item *it, void *ctx)
{
  described[i]++;
  it->regime = regime_at(i % 3);
  it->laws = i % 3 == 2;
  if (i % 4 != 1)
    it->impls[it->nimpls++] = catalog_named("cpu/naive");
  if (i % 4 != 2)
    it->impls[it->nimpls++] = catalog_named("cpu/flash");
}

static void see(const struct record *r, const struct group *g, void *ctx)
{
  bool naive = !strcmp(r->impl, "cpu/naive"), laws = false;
  for (int i = 0; i < law_count(); i++)
    laws |= r->law[i] == LAW_PASS;
  wrong += r->status != STATUS_PASS || g->item < last || laws != (g->item % 3 == 2) ||
           strcmp(r->distribution, regime_at(g->item % 3)->name) || g->item % 4 == (naive ? 1 : 2);
  last = g->item;
  seen++;
}

static void check(int lanes)
{
  char err[256] = "";
  struct problem_list list = {NULL, 0, 0};
  struct run_summary sum;
  struct run_options o = {.device = &device_host,
                          .device_options = {.sram_bytes = 1 << 16, .cores = 4},
                          .group = {.seed = 1},
                          .item = describe,
                          .lanes = lanes,
                          .processes = 1,
                          .timeout_s = 60,
                          .each = see,
                          .quiet = true};
  memset(described, 0, sizeof described);
  last = wrong = seen = 0;
  for (int i = 0; i < ITEMS; i++)
    catalog_problems(&list, "dtype=fp32 b=2 hq=2 hkv=1 sq=9 sk=11 d=8", err, sizeof err);
  ok(list.n == ITEMS && !run_problems(&list, &o, &sum, err, sizeof err), "%d at once: runs %s",
     lanes, err);
  for (int i = 0; i < ITEMS; i++)
    ok(described[i] == 1, "item %d is described once", i);
  ok(seen == 10 && !wrong, "%d records in order, each as described", seen);
  catalog_problems_free(&list);
}

int main(void)
{
  check(1);
  check(4);
  return done_testing();
}
