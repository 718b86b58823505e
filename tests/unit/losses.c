/* SPDX-License-Identifier: Apache-2.0
 *
 * losses: an implementation that has cost its share of workers is skipped for the rest of a batch,
 * its neighbour is not; without a share every problem is tried.
 */
#include "config.h"

#include "harness/device/device-host.h"
#include "harness/run/run.h"
#include "tests/tap.h"

static struct {
  int crashes, skips, passes;
} seen;

static void see(const struct record *r, const struct group *g, void *ctx)
{
  seen.crashes += r->status == STATUS_CRASH;
  seen.skips += r->status == STATUS_SKIP;
  seen.passes += r->status == STATUS_PASS;
}

static int run(const struct problem_list *list, int losses)
{
  char err[256] = "";
  struct run_summary sum;
  struct run_options o = {.device = &device_host,
                          .device_options = {.sram_bytes = 1 << 16, .cores = 1},
                          .group = {.seed = 1},
                          .impls = "broken/segv,cpu/naive",
                          .processes = 1,
                          .timeout_s = 20,
                          .losses = losses,
                          .each = see,
                          .quiet = true};
  memset(&seen, 0, sizeof seen);
  int status = run_problems(list, &o, &sum, err, sizeof err);
  if (status)
    diag("%s", err);
  return status;
}

int main(void)
{
  char err[256] = "";
  struct problem_list list = {NULL, 0, 0};
  ok(!catalog_plugin("tests/broken/broken.so", err, sizeof err), "the plugin loads: %s", err);
  ok(!catalog_problems(&list, "dtype=fp32 hq=1 hkv=1 s=5,6,7,8 d=8", err, sizeof err),
     "four problems");
  ok(!run(&list, 2), "two workers may be lost");
  ok(seen.crashes == 2 && seen.skips == 2, "%d crashes, %d skips", seen.crashes, seen.skips);
  ok(seen.passes == 4, "the other passes %d", seen.passes);
  ok(!run(&list, 0), "any number may be lost");
  ok(seen.crashes == 4 && seen.skips == 0, "%d crashes, %d skips", seen.crashes, seen.skips);
  catalog_problems_free(&list);
  return done_testing();
}
