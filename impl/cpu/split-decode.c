/* SPDX-License-Identifier: Apache-2.0
 *
 * split-decode.c - cpu/split-decode: few queries on a long cache, contiguous or paged.
 *
 * The keys of a KV head are cut into parts, each a task (packed.h): all queries of all heads that
 * share the KV head stay in SRAM while K and V of the part are read once.  A second pass merges.
 */
#include "config.h"

#include "impl/cpu/cpu.h"
#include "impl/cpu/packed.h"

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return attn_packed_workspace(p, 0, 0);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  *plan = attn_packed_plan(p, attn_packed_tiling(p, dev, 0).stream, 0);
  return *plan ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  struct attn_packed x = {plan, args, 0};
  return attn_packed_run(stream, &x);
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  *t = (struct attn_traffic){0, 0};
  attn_packed_traffic(p, attn_packed_tiling(p, dev, 0).stream, 0, 0, t);
}

const struct attn_impl attn_cpu_split_decode = {
    .abi = ATTN_ABI,
    .name = "cpu/split-decode",
    .device = ATTN_CPU,
    .summary = "query heads of a group packed, keys in parts, merged by LSE; contiguous or paged",
    .provenance = "attnbench; after Dao et al., Flash-Decoding (2023)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_F32, .grad = ATTN_ROUND_F32},
    .unsupported = attn_packed_unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = attn_plan_destroy,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
