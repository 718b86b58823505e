/* SPDX-License-Identifier: Apache-2.0
 *
 * cascade.c - cuda/cascade: sequences on one paged cache that begin alike, in two passes of
 * cuda/decode's kernels.
 *
 * First the prefix: all queries of all sequences, as if they were one sequence's with as many
 * heads, are packed into the rows of tiles, and each tile sees the prefix's keys go by once; tiles
 * of one KV head are read by blocks side by side, so that DRAM gives a key once and L2 the rest.
 * What comes out is kept in fp32 in the workspace.  Then each sequence's own keys, from the end of
 * the prefix on, and the prefix's result is the last part of the merge by LSE.  Each query keeps
 * its own mask in both passes, for new tokens may lie inside the prefix.  Without a prefix it is
 * cuda/decode.
 *
 * On an H200 (bf16, head dim 128, 32 on 8 heads, pages of 16, cold): bytes of DRAM over the
 * compulsory ones, and us, of which cuda/decode's in brackets:
 *
 *   64 x 4.5k, 4k shared               1.07 (1.11)     80 (136)
 *   16 x 9k, 8k shared, 4 queries      1.11 (1.00)     75  (81)
 *   64 x 33k, 32k shared               1.03 (1.42)    183 (856)
 *
 * Where L2 keeps the prefix, so that cuda/decode reads little twice, two passes may cost more than
 * they save; the second line is close to that. A long prefix comes from L2 once for every tile of
 * queries.
 */
#include "config.h"

#include <stdlib.h>

#include "impl/cuda/decode/decode.h"

struct cascade {
  struct decode_plan prefix, rest;
  size_t parts; /* bytes of the workspace before what the prefix leaves */
  bool shared;
};

static enum decode_pass rest_of(const struct attn_problem *p)
{
  return p->prefix ? DECODE_REST : DECODE_ALL;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (!p->page)
    return "no pages that sequences could share";
  return attn_decode_unsupported(p, dev);
}

/* Both passes' parts, one after the other in the same place; aligned for what follows. */
static size_t parts_bytes(const struct attn_problem *p, const struct attn_device *dev)
{
  size_t n = attn_decode_workspace(p, dev, rest_of(p));
  size_t shared = p->prefix ? attn_decode_workspace(p, dev, DECODE_PREFIX) : 0;
  return ((n > shared ? n : shared) + 15) / 16 * 16;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  size_t rows = (size_t)(attn_problem_total_q(p) * p->hq);
  return parts_bytes(p, dev) + (p->prefix ? rows * (size_t)(p->dv + 1) * sizeof(float) : 0);
}

static void finish(void *plan)
{
  struct cascade *c = plan;
  attn_decode_finish(&c->prefix);
  attn_decode_finish(&c->rest);
  free(c);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct cascade *c = calloc(1, sizeof *c);
  if (!c)
    return ATTN_ENOMEM;
  c->shared = p->prefix > 0 && attn_problem_total_q(p) > 0;
  c->parts = parts_bytes(p, dev);
  int status = attn_decode_prepare(p, dev, rest_of(p), &c->rest);
  if (!status && c->shared)
    status = attn_decode_prepare(p, dev, DECODE_PREFIX, &c->prefix);
  if (status)
    finish(c);
  else
    *plan = c;
  return status;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  const struct cascade *c = plan;
  float *left = (float *)((char *)args->workspace + c->parts);
  int status = c->shared ? attn_decode_run(&c->prefix, args, left, stream) : ATTN_OK;
  return status ? status : attn_decode_run(&c->rest, args, left, stream);
}

/* Keys of the sequences behind the prefix that some query sees. */
static double rest_keys(const struct attn_problem *p)
{
  double keys = 0;
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk, lo, hi, unused;
    attn_problem_seq(p, s, &sq, &sk);
    if (!sq)
      continue;
    attn_problem_visible(p, sq, sk, 0, &lo, &unused);
    attn_problem_visible(p, sq, sk, sq - 1, &unused, &hi);
    lo = lo > p->prefix ? lo : p->prefix;
    keys += hi > lo ? (double)(hi - lo) : 0;
  }
  return keys;
}

/* Q twice, and what the prefix leaves there and back.  The prefix whole, whoever sees it: once, or
 * where L2 does not keep it, once for as many tiles of queries as read it side by side. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  double rows = (double)attn_problem_total_q(p) * (double)p->hq, size = sizeof(float);
  double q = rows * (double)p->d * (double)attn_dtype_size(p->dtype);
  double left = p->prefix ? rows * (double)(p->dv + 1) * size : 0;
  double key = (double)(p->hkv * (p->d + p->dv)) * (double)attn_dtype_size(attn_problem_kv_type(p));
  double prefix = (double)p->prefix * (key + 4 / (double)p->page);
  if (prefix > (double)dev->l2_bytes / 2) {
    int64_t tiles = attn_decode_reads(p, dev, DECODE_PREFIX);
    prefix *= (double)((tiles + DECODE_GANG - 1) / DECODE_GANG);
  }
  double rest = rest_keys(p) * (key + 4 / (double)p->page);
  rest *= (double)attn_decode_reads(p, dev, rest_of(p));
  t->read_bytes = q + (p->prefix ? q + left + prefix : 0) + rest;
  t->write_bytes = attn_problem_compulsory_write(p) + left;
}

const struct attn_impl attn_cuda_cascade = {
    .abi = ATTN_ABI,
    .name = "cuda/cascade",
    .device = ATTN_CUDA,
    .summary = "a shared prefix read once for all sequences, then each one's rest, merged by LSE",
    .provenance = "attnbench; after Juravsky et al., Hydragen (2024), and FlashInfer's cascade "
                  "(2024)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_STORAGE, .accum_truncates = true},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
