/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep SUITE [IMPLEMENTATIONS] - every compiled variant of ours that takes a problem of the suite,
 * by the choice of each variant in turn, launched once; nothing is compared.  For tools that watch
 * from outside and slow everything down (make check-sanitize): no kernel but those under test runs,
 * but for the inputs.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/device/arena.h"
#include "harness/device/device-cuda.h"
#include "harness/run/catalog.h"
#include "harness/run/group.h"
#include "harness/run/tensors.h"
#include "harness/tune/advice.h"

static struct device dev = {.ops = &device_cuda};
static int launched, failed;

/* The workspace is as the driver gives it: an arena's would have been written to. */
static int once(const struct attn_impl *impl, const struct attn_problem *p,
                const struct attn_device *info, const struct tensors *t)
{
  struct attn_args args = t->args;
  void *plan = (void *)p;
  args.workspace = NULL;
  args.workspace_bytes = impl->workspace ? impl->workspace(p, info) : 0;
  int status = ATTN_OK;
  if (args.workspace_bytes)
    status = dev.ops->alloc(&dev, args.workspace_bytes, &args.workspace);
  if (!status && impl->prepare)
    status = impl->prepare(p, info, &plan);
  if (status)
    return status;
  status = impl->run(plan, &args, dev.ops->stream(&dev));
  if (!status)
    status = dev.ops->sync(&dev);
  if (impl->prepare && impl->finish)
    impl->finish(plan);
  dev.ops->free(&dev, args.workspace);
  return status;
}

static void say(const struct attn_impl *impl, const char *variant, const struct attn_problem *p,
                int status, double seconds)
{
  char text[ATTN_PROBLEM_TEXT];
  attn_problem_print(p, text, sizeof text);
  printf("%6.2f s  %s %s %s%s\n", seconds, impl->name, variant, text, status ? ": failed" : "");
  fflush(stdout);
  launched++;
  failed += status != 0;
}

/* Each variant that takes the problem; where there is no choice, what there is. */
static void launch(const struct attn_impl *impl, const struct attn_problem *p,
                   const struct tensors *t)
{
  struct attn_variant v = {.name = ""};
  bool choice = impl->variant && !impl->variant(p, &dev.info, 0, &v);
  int i = 0;
  do {
    struct attn_device info = dev.info;
    if (choice)
      advice_force(v.name, &info);
    double begun = clock_now();
    int status = once(impl, p, &info, t);
    say(impl, v.name, p, status, clock_now() - begun);
  } while (choice && !impl->variant(p, &dev.info, ++i, &v));
}

static void sweep(const struct attn_problem *p, const struct attn_impl *const *impls, int n)
{
  struct arena arena;
  struct tensors t;
  bool taken = false;
  for (int i = 0; i < n; i++)
    taken |= !attn_unsupported(impls[i], p, &dev.info);
  if (!taken)
    return;
  arena_init(&arena, &dev);
  if (tensors_create(&t, p, &arena) || tensors_draw(&t, 1)) {
    failed++;
    printf("no operands: %s\n", dev.error);
    return;
  }
  for (int i = 0; i < n; i++)
    if (!attn_unsupported(impls[i], p, &dev.info))
      launch(impls[i], p, &t);
  tensors_destroy(&t);
  arena_destroy(&arena);
}

int main(int argc, char **argv)
{
  const struct attn_impl *impls[GROUP_CASES];
  struct device_options how = {0};
  struct problem_list list = {NULL, 0, 0};
  char err[256] = "sweep SUITE [IMPLEMENTATIONS]";
  int n = argc < 2 ? -1
                   : catalog_select(ATTN_CUDA, argc > 2 ? argv[2] : "cuda/*", impls, GROUP_CASES,
                                    err, sizeof err);
  if (n < 0 || catalog_suite(&list, argv[1], err, sizeof err)) {
    fprintf(stderr, "sweep: %s\n", err);
    return 2;
  }
  if (dev.ops->absent() || dev.ops->open(&dev, &how)) {
    fprintf(stderr, "sweep: no GPU: %s\n", dev.ops->absent() ? dev.ops->absent() : dev.error);
    return 2;
  }
  for (int i = 0; i < list.n; i++)
    sweep(&list.item[i], impls, n);
  printf("%d launches, %d failed\n", launched, failed);
  catalog_problems_free(&list);
  dev.ops->close(&dev);
  return failed > 0;
}
