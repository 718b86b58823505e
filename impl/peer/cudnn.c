/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn.c - peer/cudnn: NVIDIA's fused attention, the yardstick on NVIDIA GPUs.
 *
 * Forward and backward by the composed pattern of the backend graph API (cudnn-sdpa.c). Only cuDNN
 * knows whether it takes a problem, and only by trying to build the plan; so unsupported() builds
 * it (0.5-1.5 s for a kernel that is new to the process) and workspace() and prepare() find it in a
 * cache. A plan is for the canonical strides of the problem's layout: run() refuses others.
 *
 * Packed batches are ragged tensors: tiny kernels make lengths and offsets from cu_seqlens first,
 * and lse, which cuDNN keeps dense, is copied between the two forms.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "impl/peer/cudnn-plan.h"
#include "impl/peer/cudnn-ragged.h"
#include "impl/peer/cudnn-sdpa.h"
#include "impl/peer/cudnn.h"

#define CACHE_MAX 32
#define SCRATCH_ALIGN 256
#define NOT_SCRATCH SIZE_MAX

struct plan {
  struct plan *next;
  char problem[ATTN_PROBLEM_TEXT];
  int device, users;
  int status; /* ATTN_OK, or why there is no backend plan: */
  char reason[256];
  struct attn_cudnn_spec spec;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t backend;
  uint32_t bound; /* uids that the variant pack must hold */
  int nscalars;
  struct attn_cg_scalar scalars[ATTN_CG_SCALARS];
  size_t scratch[UID_END]; /* where in the workspace a tensor of ours is, or NOT_SCRATCH */
  size_t own_scratch;      /* where cuDNN's own part begins */
  size_t workspace_bytes;
};

static const struct attn_cudnn_api *api;
static struct plan *cache; /* most recent first */
static char provenance[96] = "NVIDIA cuDNN 9, closed source";

/* ---- what is refused without asking cuDNN --------------------------------------------------- */

/* Some query sees no key, or some key has no query: cuDNN leaves such rows of O, or of dK and dV,
 * unwritten (seen with 9.14). */
static bool has_blind_rows(const struct attn_problem *p)
{
  for (int64_t s = 0; s < p->b; s++) {
    int64_t sq, sk, lo, hi;
    attn_problem_seq(p, s, &sq, &sk);
    attn_problem_visible(p, sq, sk, 0, &lo, &hi);
    if ((sq > 0) != (sk > 0) || (sq > 0 && lo >= hi))
      return true;
  }
  return false;
}

static const char *refusal(const struct attn_problem *p, const struct attn_device *dev)
{
  const struct {
    bool no;
    const char *why;
  } checks[] = {
      {dev->sm < 80, "cuDNN's fused attention needs compute capability 8.0 or later"},
      {p->dtype == ATTN_F32, "cuDNN's fused attention takes bf16 and fp16, not fp32"},
      {p->d % 8 || p->dv % 8, "cuDNN needs head dims that are multiples of 8"},
      {p->op == ATTN_BWD && (p->d > 256 || p->dv > 256), "cuDNN's backward ends at head dim 256"},
      {p->softcap != 0, "the cuDNN wrapper has no softcap"},
      {p->alibi, "the cuDNN wrapper has no alibi"},
      {p->dropout_p != 0, "cuDNN draws another dropout mask than reference/SEMANTICS defines"},
      {p->page != 0, "the cuDNN wrapper has no paged KV"},
      {has_blind_rows(p),
       "some queries see no key, or keys have no query: cuDNN leaves their rows unwritten"},
  };
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    if (checks[i].no)
      return checks[i].why;
  return NULL;
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Lays out the tensors with memory that are not the caller's, then cuDNN's own workspace. */
static void lay_out(struct plan *plan, size_t backend_bytes)
{
  const struct attn_cudnn_spec *s = &plan->spec;
  const size_t rows = (size_t)(s->b * s->hq * s->sq), b = (size_t)s->b;
  const size_t bytes[UID_END] = {
      [UID_STATS] = s->ragged ? rows * sizeof(float) : 0,
      [UID_SOFTMAX_SUM] = rows * sizeof(float),
      [UID_DQ_ACCUM] = rows * (size_t)s->d * sizeof(float),
      [UID_SEQLEN_Q] = b * sizeof(int32_t),
      [UID_SEQLEN_K] = b * sizeof(int32_t),
      [UID_OFFSET_Q] = (b + 1) * sizeof(int64_t),
      [UID_OFFSET_K] = (b + 1) * sizeof(int64_t),
      [UID_OFFSET_V] = (b + 1) * sizeof(int64_t),
      [UID_OFFSET_O] = (b + 1) * sizeof(int64_t),
  };
  size_t at = 0;
  for (int uid = 0; uid < UID_END; uid++) {
    plan->scratch[uid] = NOT_SCRATCH;
    if (bytes[uid] && plan->bound >> uid & 1) {
      plan->scratch[uid] = at;
      at += (bytes[uid] + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    }
  }
  plan->own_scratch = at;
  plan->workspace_bytes = at + backend_bytes;
}

static int build(struct plan *plan)
{
  const struct attn_cudnn_spec *s = &plan->spec;
  struct attn_cudnn_target target = {.handle = plan->handle};
  int64_t bytes = 0, count = 0;
  struct attn_cg g;
  attn_cg_init(&g, api);
  if (s->backward)
    attn_cudnn_backward(&g, s);
  else
    attn_cudnn_forward(&g, s);
  int rc = attn_cudnn_plan(&g, &target, &plan->backend, plan->reason, sizeof plan->reason);
  if (rc)
    goto out;
  if (!attn_cg_ok(&g,
                  api->get(plan->backend, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                           CUDNN_TYPE_INT64, 1, &count, &bytes),
                  "workspace size")) {
    snprintf(plan->reason, sizeof plan->reason, "%s", g.error);
    rc = ATTN_EDEVICE;
    goto out;
  }
  plan->bound = g.bound;
  plan->nscalars = g.nscalars;
  memcpy(plan->scalars, g.scalars, sizeof g.scalars);
  lay_out(plan, (size_t)bytes);
out:
  attn_cg_destroy(&g);
  return rc;
}

static void destroy(struct plan *plan)
{
  if (plan->backend)
    api->destroy_descriptor(plan->backend);
  free(plan);
}

/* Drops unused plans beyond the CACHE_MAX most recent. */
static void trim(void)
{
  int n = 0;
  for (struct plan **at = &cache; *at;) {
    struct plan *plan = *at;
    if (++n > CACHE_MAX && plan->users == 0) {
      *at = plan->next;
      destroy(plan);
    } else {
      at = &plan->next;
    }
  }
}

/* The plan of a problem that refusal() lets pass, built on first use; NULL out of memory. */
static struct plan *find(const struct attn_problem *p, const struct attn_device *dev)
{
  char text[ATTN_PROBLEM_TEXT];
  attn_problem_print(p, text, sizeof text);
  for (struct plan *plan = cache; plan; plan = plan->next)
    if (plan->device == dev->index && !strcmp(plan->problem, text))
      return plan;
  struct plan *plan = calloc(1, sizeof *plan);
  if (!plan)
    return NULL;
  memcpy(plan->problem, text, sizeof text);
  plan->device = dev->index;
  attn_cudnn_spec(p, &plan->spec);
  plan->status = attn_cudnn_handle(dev->index, &plan->handle, plan->reason, sizeof plan->reason);
  if (!plan->status)
    plan->status = build(plan);
  plan->next = cache;
  cache = plan;
  trim();
  return plan;
}

/* ---- the implementation --------------------------------------------------------------------- */

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  const char *why = refusal(p, dev);
  if (why)
    return why;
  api = attn_cudnn_load(&why);
  if (!api)
    return why;
  snprintf(provenance, sizeof provenance, "NVIDIA cuDNN %s, closed source", attn_cudnn_version());
  struct plan *plan = find(p, dev);
  if (!plan)
    return "out of host memory";
  return plan->status ? plan->reason : NULL;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  struct plan *plan = unsupported(p, dev) ? NULL : find(p, dev);
  return plan ? plan->workspace_bytes : 0;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **out)
{
  struct plan *plan = unsupported(p, dev) ? NULL : find(p, dev);
  if (!plan)
    return ATTN_EUNSUPPORTED;
  plan->users++;
  *out = plan;
  return ATTN_OK;
}

static void finish(void *self)
{
  struct plan *plan = self;
  plan->users--;
  trim();
}

static bool has_strides(const struct plan *plan, const struct attn_tensor *t,
                        const int64_t stride[4], int64_t h, int64_t seq)
{
  const struct attn_cudnn_spec *s = &plan->spec;
  bool batch = s->ragged ? t->sb == 0 : s->b == 1 || t->sb == stride[0];
  return batch && (h == 1 || t->sh == stride[1]) &&
         (t->ss == stride[2] || (seq == 1 && !s->ragged));
}

static bool strides_fit(const struct plan *plan, const struct attn_args *a)
{
  const struct attn_cudnn_spec *s = &plan->spec;
  bool fit = has_strides(plan, &a->q, s->stride_q, s->hq, s->sq) &&
             has_strides(plan, &a->k, s->stride_k, s->hkv, s->sk) &&
             has_strides(plan, &a->v, s->stride_v, s->hkv, s->sk) &&
             has_strides(plan, &a->o, s->stride_o, s->hq, s->sq);
  if (!s->backward)
    return fit;
  return fit && has_strides(plan, &a->dout, s->stride_o, s->hq, s->sq) &&
         has_strides(plan, &a->dq, s->stride_q, s->hq, s->sq) &&
         has_strides(plan, &a->dk, s->stride_k, s->hkv, s->sk) &&
         has_strides(plan, &a->dv, s->stride_v, s->hkv, s->sk);
}

static int check_args(const struct plan *plan, const struct attn_args *a)
{
  bool starts = !plan->spec.ragged || (a->cu_seqlens_q && a->cu_seqlens_k);
  if (!starts || a->workspace_bytes < plan->workspace_bytes)
    return ATTN_EINVAL;
  return strides_fit(plan, a) ? ATTN_OK : ATTN_EUNSUPPORTED;
}

static void *address(const struct plan *plan, const struct attn_args *a, int uid)
{
  if (plan->scratch[uid] != NOT_SCRATCH)
    return (char *)a->workspace + plan->scratch[uid];
  void *const caller[UID_END] = {
      [UID_Q] = a->q.data,   [UID_K] = a->k.data,       [UID_V] = a->v.data,
      [UID_O] = a->o.data,   [UID_DOUT] = a->dout.data, [UID_DQ] = a->dq.data,
      [UID_DK] = a->dk.data, [UID_DV] = a->dv.data,     [UID_STATS] = a->lse,
  };
  return caller[uid];
}

static int execute(struct plan *plan, const struct attn_args *a, void *stream)
{
  int64_t uids[UID_END + ATTN_CG_SCALARS], n = 0;
  void *data[UID_END + ATTN_CG_SCALARS];
  void *workspace = (char *)a->workspace + plan->own_scratch;
  cudnnBackendDescriptor_t pack = NULL;
  struct attn_cg g;
  for (int uid = 0; uid < UID_END; uid++)
    if (plan->bound >> uid & 1) {
      uids[n] = uid;
      data[n] = address(plan, a, uid);
      if (!data[n++])
        return ATTN_EINVAL;
    }
  for (int i = 0; i < plan->nscalars; i++) {
    uids[n] = plan->scalars[i].uid;
    data[n++] = &plan->scalars[i].value;
  }
  attn_cg_init(&g, api);
  pack = attn_cg_node(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  attn_cg_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids);
  attn_cg_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
  attn_cg_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  attn_cg_finalize(&g, pack, "variant pack");
  bool done = attn_cg_ok(&g, api->set_stream(plan->handle, stream), "set stream") &&
              attn_cg_ok(&g, api->execute(plan->handle, plan->backend, pack), "execute");
  attn_cg_destroy(&g);
  return done ? ATTN_OK : ATTN_EDEVICE;
}

static int index_sequences(const struct plan *plan, const struct attn_args *a, void *stream)
{
  const struct attn_cudnn_spec *s = &plan->spec;
  struct attn_cudnn_ragged r = {
      .b = (int32_t)s->b,
      .cu_seqlens_q = a->cu_seqlens_q,
      .cu_seqlens_k = a->cu_seqlens_k,
      .seqlen_q = address(plan, a, UID_SEQLEN_Q),
      .seqlen_k = address(plan, a, UID_SEQLEN_K),
      .offset_q = address(plan, a, UID_OFFSET_Q),
      .offset_k = address(plan, a, UID_OFFSET_K),
      .offset_v = address(plan, a, UID_OFFSET_V),
      .offset_o = address(plan, a, UID_OFFSET_O),
      .row_q = s->stride_q[2],
      .row_k = s->stride_k[2],
      .row_v = s->stride_v[2],
      .row_o = s->stride_o[2],
  };
  return attn_cudnn_ragged_index(&r, stream) ? ATTN_EDEVICE : ATTN_OK;
}

static int run(void *self, const struct attn_args *a, void *stream)
{
  struct plan *plan = self;
  const struct attn_cudnn_spec *s = &plan->spec;
  int rc = check_args(plan, a);
  if (rc)
    return rc;
  if (!s->ragged)
    return execute(plan, a, stream);
  struct attn_cudnn_stats stats = {(int32_t)s->b, (int32_t)s->hq,  (int32_t)s->sq,
                                   s->total_q,    a->cu_seqlens_q, address(plan, a, UID_STATS),
                                   a->lse};
  rc = index_sequences(plan, a, stream);
  if (!rc && s->backward)
    rc = attn_cudnn_stats_unpack(&stats, stream) ? ATTN_EDEVICE : ATTN_OK;
  if (!rc)
    rc = execute(plan, a, stream);
  if (!rc && !s->backward)
    rc = attn_cudnn_stats_pack(&stats, stream) ? ATTN_EDEVICE : ATTN_OK;
  return rc;
}

const struct attn_impl attn_peer_cudnn = {
    .abi = ATTN_ABI,
    .name = "peer/cudnn",
    .device = ATTN_CUDA,
    .summary = "NVIDIA cuDNN's fused attention, forward and backward",
    .provenance = provenance,
    .numerics = {.score = ATTN_ROUND_F32,
                 .prob = ATTN_ROUND_STORAGE,
                 .accum_truncates = true,
                 .grad = ATTN_ROUND_STORAGE},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
};
