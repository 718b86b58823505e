/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90.c - cuda/flash-sm90, the Hopper flash kernels' descriptor: what the forward takes, and
 * which of forward and backward (flash-bwd-sm90.c) a problem is for.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "impl/cuda/sm90-backward/flash-bwd-sm90.h"
#include "impl/cuda/sm90-forward/flash-sm90.h"

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  struct sm90_plan plan;
  if (p->op == ATTN_BWD)
    return attn_flash_bwd_sm90_unsupported(p, dev);
  if (dev->sm != 90)
    return "needs compute capability 9.0 (Hopper)";
  if (p->op == ATTN_DECODE)
    return "its tiles of 128 and more query rows suit no decoding";
  if (p->dtype != ATTN_BF16 && p->dtype != ATTN_F16)
    return "takes bf16 and fp16 only";
  if (p->d > 256 || p->dv > 256)
    return "head dim above 256";
  if (p->d % 8 || p->dv % 8)
    return "head dim must be a multiple of 8 (16-byte rows)";
  if (p->page % 8)
    return "pages must be multiples of 8 tokens (swizzled tiles)";
  if (p->page > SM90_UNLIMITED)
    return "pages of more than 2^29 tokens";
  if (p->page && (p->softcap > 0 || p->alibi || p->dropout_p > 0))
    return "paged KV without softcap, ALiBi and dropout only";
  if (p->scale < 0)
    return "a negative scale turns the maximum into a minimum";
  if (p->sq >= SM90_UNLIMITED / 2 || p->sk >= SM90_UNLIMITED / 2)
    return "sequence of 2^28 tokens or more";
  if (!attn_flash_sm90_choose(p, dev))
    return "no tile for this head dim";
  if (!attn_flash_sm90_plan(p, dev, attn_flash_sm90_choose(p, dev), &plan))
    return "more than 2^31 - 1 tiles";
  return NULL;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->op == ATTN_BWD ? attn_flash_bwd_sm90_workspace(p, dev)
                           : attn_flash_sm90_workspace(p, attn_flash_sm90_choose(p, dev));
}

struct plan {
  enum attn_op op;
  union {
    struct sm90_plan forward;
    struct bwd90_plan backward;
  };
};

static int fill(const struct attn_problem *p, const struct attn_device *dev, struct plan *q)
{
  const struct sm90_kernel *k;
  q->op = p->op;
  if (p->op == ATTN_BWD)
    return attn_flash_bwd_sm90_plan(p, dev, attn_flash_bwd_sm90_choose(p, dev), &q->backward);
  k = attn_flash_sm90_choose(p, dev);
  attn_flash_sm90_plan(p, dev, k, &q->forward);
  return cudaFuncSetAttribute(k->func, cudaFuncAttributeMaxDynamicSharedMemorySize, k->smem) ||
                 (k->careful &&
                  cudaFuncSetAttribute(k->careful, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       k->smem))
             ? ATTN_EDEVICE
             : ATTN_OK;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct plan *q = malloc(sizeof *q);
  int st;
  if (!q)
    return ATTN_ENOMEM;
  if ((st = fill(p, dev, q))) {
    free(q);
    return st;
  }
  *plan = q;
  return ATTN_OK;
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  struct plan *q = plan;
  return q->op == ATTN_BWD ? attn_flash_bwd_sm90_run(&q->backward, args, stream)
                           : attn_flash_sm90_launch(&q->forward, args, stream);
}

static void finish(void *plan)
{
  free(plan);
}

/* Sections keep K and V in L2, so each tensor moves once. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  t->read_bytes = attn_problem_compulsory_read(p);
  t->write_bytes = attn_problem_compulsory_write(p);
}

const struct attn_impl attn_cuda_flash_sm90 = {
    .abi = ATTN_ABI,
    .name = SM90_NAME,
    .device = ATTN_CUDA,
    .summary = "fused forward and backward for Hopper: wgmma, TMA, warp specialisation",
    .provenance = "attnbench; after FlashAttention-3 (Shah et al. 2024)",
    .numerics = {.score = ATTN_ROUND_F32,
                 .prob = ATTN_ROUND_STORAGE,
                 .accum_truncates = true,
                 .tanh_rel = 1e-6},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .variant = attn_flash_sm90_variant,
};
