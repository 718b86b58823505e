/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-launch.c - cuda/flash-sm90's forward: tensor maps, and what a launch enqueues.
 */
#include "config.h"

#include <cuda_runtime_api.h>

#include "impl/cuda/sm90-forward/flash-sm90.h"
#include "impl/cuda/tensor-map.h"

static int encode(CUtensorMap *map, const struct sm90_plan *plan, const struct attn_tensor *t,
                  int64_t width, int64_t heads, int64_t max, int64_t total, int box_rows)
{
  struct attn_map_shape s = {plan->dtype, width, heads, max, plan->ragged ? total : plan->params.b,
                             plan->ragged};
  return attn_map_encode(map, t, &s, box_rows);
}

static int encode_kv(CUtensorMap *map, const struct sm90_plan *plan, const struct attn_tensor *t,
                     int64_t width)
{
  const struct sm90_params *a = &plan->params;
  if (a->page)
    return attn_map_encode_pages(map, t, plan->dtype, width, plan->hkv, a->page, a->box);
  return encode(map, plan, t, width, plan->hkv, a->sk, plan->total_k, plan->kernel->kn);
}

/* ---- enqueueing ----------------------------------------------------------------------------- */

static int schedule(const struct sm90_plan *plan, const struct attn_args *args,
                    struct sm90_params *a, cudaStream_t stream)
{
  int32_t *head = args->workspace;
  a->counter = plan->dynamic ? head : NULL;
  a->lost = plan->kernel->careful ? head + 2 : NULL;
  a->token = plan->token;
  if (plan->ragged) {
    a->cu_q = args->cu_seqlens_q;
    a->cu_k = args->cu_seqlens_k;
    a->items = head + 1;
    a->item = (struct sm90_item *)((char *)args->workspace + SM90_WORKSPACE_HEAD);
    return attn_flash_sm90_schedule(a, plan->kernel->km, plan->kernel->kn, stream);
  }
  if (plan->dynamic && cudaMemsetAsync(a->counter, 0, sizeof *a->counter, stream))
    return ATTN_EDEVICE;
  return ATTN_OK;
}

/* Its CTAs are there before the first kernel ends, and wait for that: a launch's latency less. */
static int launch_careful(const struct sm90_kernel *k, dim3 grid, dim3 block, void **params,
                          cudaStream_t stream)
{
  cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  cudaLaunchConfig_t config = {.gridDim = grid,
                               .blockDim = block,
                               .dynamicSmemBytes = k->smem,
                               .stream = stream,
                               .attrs = &early,
                               .numAttrs = 1};
  early.val.programmaticStreamSerializationAllowed = 1;
  return cudaLaunchKernelExC(&config, k->careful, params) ? ATTN_EDEVICE : ATTN_OK;
}

/* Where the tensors are. */
static void place(const struct attn_args *args, struct sm90_params *a)
{
  a->q = args->q.data;
  a->q_sb = args->q.sb;
  a->q_ss = args->q.ss;
  a->q_sh = args->q.sh;
  a->k = args->k.data;
  a->k_sb = args->k.sb;
  a->k_ss = args->k.ss;
  a->k_sh = args->k.sh;
  a->o = args->o.data;
  a->o_sb = args->o.sb;
  a->o_ss = args->o.ss;
  a->o_sh = args->o.sh;
  a->lse = args->lse;
  a->block_table = args->block_table;
  a->table_stride = args->block_table_stride;
  a->seqlens_k = args->seqlens_k;
}

int attn_flash_sm90_launch(struct sm90_plan *plan, const struct attn_args *args,
                           cudaStream_t stream)
{
  const struct sm90_kernel *k = plan->kernel;
  struct sm90_params a = plan->params;
  CUtensorMap q, key, v;
  int st;
  if (!attn_map_aligned(&args->q) || !attn_map_aligned(&args->k) || !attn_map_aligned(&args->v) ||
      !attn_map_aligned(&args->o))
    return ATTN_EINVAL;
  if (plan->grid == 0)
    return ATTN_OK;
  place(args, &a);
  plan->token++;
  if ((st = encode(&q, plan, &args->q, plan->d, a.hq, a.sq, plan->total_q, k->km)) ||
      (st = encode_kv(&key, plan, &args->k, plan->d)) ||
      (st = encode_kv(&v, plan, &args->v, a.dv)) || (st = schedule(plan, args, &a, stream)))
    return st;
  dim3 grid = {(unsigned)plan->grid, 1, 1}, block = {(unsigned)k->threads, 1, 1};
  void *params[] = {&q, &key, &v, &a};
  if (cudaLaunchKernel(k->func, grid, block, params, k->smem, stream))
    return ATTN_EDEVICE;
  a.counter = NULL; /* spent */
  return k->careful ? launch_careful(k, grid, block, params, stream) : ATTN_OK;
}
