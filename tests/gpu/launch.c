/* SPDX-License-Identifier: Apache-2.0
 *
 * launch IMPL PROBLEM [count] - one implementation on one problem, for a look from outside: runs it
 * once, so that it is loaded, empties the cache as before every count, and runs it again.  That
 * second run is what ncu --cache-control none --clock-control none counts; with "count" CUPTI
 * counts it instead, and the bytes are printed: read, written.  build-aux/prove bytes compares the
 * two.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/device/device-cuda.h"
#include "harness/device/instrument.h"
#include "harness/run/catalog.h"
#include "harness/run/tensors.h"

struct subject {
  const struct attn_impl *impl;
  struct attn_problem p;
  void *plan;
  struct attn_args args;
};

static int complain(const char *what, const char *why)
{
  fprintf(stderr, "launch: %s: %s\n", what, why);
  return 2;
}

static int launch(void *ctx, void *stream)
{
  struct subject *s = ctx;
  return s->impl->run(s->plan, &s->args, stream);
}

static int prepare(struct subject *s, struct device *dev, struct arena *arena, struct tensors *t)
{
  struct arena_buffer *workspace;
  size_t bytes = s->impl->workspace ? s->impl->workspace(&s->p, &dev->info) : 0;
  int status = tensors_create(t, &s->p, arena);
  if (!status)
    status = tensors_draw(t, 1);
  if (!status)
    status = arena_alloc(arena, "workspace", bytes, &workspace);
  s->plan = &s->p;
  if (!status && s->impl->prepare)
    status = s->impl->prepare(&s->p, &dev->info, &s->plan);
  if (status)
    return status;
  s->args = t->args;
  s->args.workspace = workspace->data;
  s->args.workspace_bytes = bytes;
  return launch(s, dev->ops->stream(dev));
}

static int observe(struct subject *s, struct device *dev, bool count)
{
  struct counted one = {.launch = launch, .ctx = s};
  const struct counters *c = &one.counters;
  int status = dev->ops->sync(dev);
  if (!status && count) {
    status = instrument_cupti.count(dev, &one, 1);
    if (!status && c->source)
      printf("%.0f %.0f\n", c->dram_read_bytes, c->dram_write_bytes);
    return status || !c->source ? complain("not counted", c->reason) : 0;
  }
  if (!status)
    status = cuda_flush(dev);
  if (!status)
    status = dev->ops->sync(dev);
  if (!status)
    status = launch(s, dev->ops->stream(dev));
  return status || dev->ops->sync(dev) ? complain("run", dev->error) : 0;
}

int main(int argc, char **argv)
{
  struct subject s = {.impl = NULL};
  struct device dev = {.ops = &device_cuda};
  struct device_options how = {0};
  struct arena arena;
  struct tensors t;
  char err[256] = "launch IMPL PROBLEM [count]";
  if (argc < 3 || catalog_select(ATTN_CUDA, argv[1], &s.impl, 1, err, sizeof err) != 1 ||
      attn_problem_parse(argv[2], &s.p, err, sizeof err))
    return complain("usage", err);
  if (dev.ops->absent() || dev.ops->open(&dev, &how))
    return complain("no GPU", dev.error);
  if (attn_unsupported(s.impl, &s.p, &dev.info))
    return complain(argv[1], attn_unsupported(s.impl, &s.p, &dev.info));
  arena_init(&arena, &dev);
  if (prepare(&s, &dev, &arena, &t))
    return complain(argv[1], dev.error);
  return observe(&s, &dev, argc > 3 && !strcmp(argv[3], "count"));
}
