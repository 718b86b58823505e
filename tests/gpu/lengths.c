/* SPDX-License-Identifier: Apache-2.0
 *
 * Law: a plan of cuda/decode and of cuda/cascade for a paged cache of equal lengths is right for
 * any shorter ones in device memory, as a captured graph needs whose sequences grow.  Judged by the
 * bound of the problem that has those lengths, of one head, so that both lay out LSE alike.
 */
#include "config.h"

#include "harness/run/catalog.h"
#include "harness/run/group.h"
#include "harness/run/tensors.h"
#include "tests/gpu/open.h"
#include "tests/tap.h"

static struct device dev = {.ops = &device_cuda};

static int run(const struct attn_impl *impl, const struct attn_problem *p, struct arena *arena,
               struct attn_args args)
{
  struct arena_buffer *workspace;
  void *plan;
  int status = arena_alloc(arena, "workspace", impl->workspace(p, &dev.info), &workspace);
  if (status)
    return status;
  args.workspace = workspace->data;
  args.workspace_bytes = workspace->bytes;
  status = impl->prepare(p, &dev.info, &plan);
  if (status)
    return status;
  status = impl->run(plan, &args, device_cuda.stream(&dev));
  int synced = device_cuda.sync(&dev);
  impl->finish(plan);
  return status ? status : synced;
}

/* equal: the problem of the plan. */
static void check(const struct attn_impl *impl, const char *equal, const char *unequal)
{
  const struct ref_plan all = {0};
  struct ref_verdict v = {0};
  struct attn_problem planned, p;
  struct arena arena;
  struct tensors t = {0};
  char err[256];
  if (attn_problem_parse(equal, &planned, err, sizeof err) ||
      attn_problem_parse(unequal, &p, err, sizeof err)) {
    ok(false, "%s", err);
    return;
  }
  arena_init(&arena, &dev);
  int status = tensors_create(&t, &p, &arena);
  if (!status)
    status = tensors_draw(&t, 1);
  if (!status)
    status = tensors_poison_outputs(&t);
  struct attn_args args = t.args;
  args.cu_seqlens_q = NULL;
  args.q.sb = args.q.ss;
  args.o.sb = args.o.ss;
  if (!status)
    status = run(impl, &planned, &arena, args);
  if (!status)
    status = ref_verify_cuda(&p, &impl->numerics, &t.args, &all, device_cuda.stream(&dev), &v);
  ok(!status && v.pass, "%s, planned for %s: %.3f of the bound of %s", impl->name, equal,
     v.bound_ratio, unequal);
  tensors_destroy(&t);
  arena_destroy(&arena);
}

int main(void)
{
  const struct attn_impl *impls[2];
  char err[256];
  open_gpu(&dev);
  int n = catalog_select(ATTN_CUDA, "cuda/decode,cuda/cascade", impls, 2, err, sizeof err);
  ok(n == 2, "both are there");
  for (int i = 0; i < n; i++) {
    check(impls[i], "op=decode b=4 hq=1 hkv=1 sk=2077 d=64 page=16",
          "op=decode hq=1 hkv=1 seqs=1x1/2077+1x1/300+1x1/2000+1x1/41 d=64 page=16");
    check(impls[i], "op=decode b=300 hq=1 hkv=1 sk=130 d=128 page=5",
          "op=decode hq=1 hkv=1 seqs=299x1/130+1x1/7 d=128 page=5");
  }
  device_cuda.close(&dev);
  return done_testing();
}
