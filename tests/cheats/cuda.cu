/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.cu - the zoo on a GPU, as a plugin: work on other streams, work left out, memory and
 * contexts broken.  One block computes one row; nothing here is fast.
 */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdlib.h>

#include "impl/attn.h"

#define MAX_KEYS 4096

static const char *unsupported(const struct attn_problem *p, const struct attn_device *)
{
  if (p->op != ATTN_FWD || p->mask != ATTN_MASK_NONE || p->layout != ATTN_BSHD || p->nruns)
    return "only op=fwd, no mask, layout bshd";
  if (p->dtype != ATTN_F32 || p->softcap != 0 || p->alibi || p->dropout_p != 0 || p->page ||
      p->sk > MAX_KEYS)
    return "only fp32, no softcap, ALiBi, dropout, pages or more than 4096 keys";
  return NULL;
}

struct shape {
  int64_t hq, hkv, sq, sk, d, dv;
  float scale;
};

/* q (b, sq, hq, d), k (b, sk, hkv, d), v (b, sk, hkv, dv), o (b, sq, hq, dv), lse (b, hq, sq); grid
 * (sq, hq, b), one block a row. */
static __global__ void row_kernel(const float *q, const float *k, const float *v, float *o,
                                  float *lse, shape n)
{
  __shared__ float s[MAX_KEYS], top, sum;
  int64_t i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, g = h / (n.hq / n.hkv);
  q += ((b * n.sq + i) * n.hq + h) * n.d;
  for (int64_t j = threadIdx.x; j < n.sk; j += blockDim.x) {
    float dot = 0;
    for (int64_t c = 0; c < n.d; c++)
      dot += q[c] * k[((b * n.sk + j) * n.hkv + g) * n.d + c];
    s[j] = dot * n.scale;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    top = s[0];
    sum = 0;
    for (int64_t j = 1; j < n.sk; j++)
      top = fmaxf(top, s[j]);
    for (int64_t j = 0; j < n.sk; j++)
      sum += s[j] = expf(s[j] - top);
    lse[(b * n.hq + h) * n.sq + i] = top + logf(sum);
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < n.dv; c += blockDim.x) {
    float x = 0;
    for (int64_t j = 0; j < n.sk; j++)
      x += s[j] * v[((b * n.sk + j) * n.hkv + g) * n.dv + c];
    o[((b * n.sq + i) * n.hq + h) * n.dv + c] = x / sum;
  }
}

static __global__ void spin_kernel(uint64_t ns)
{
  uint64_t start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < ns);
}

static __global__ void wild_kernel(float *p)
{
  p[(size_t)1 << 44] = 1;
}

struct plan {
  const struct attn_problem *p;
  cudaStream_t side;
  cudaEvent_t event;
  float *o, *lse;
  int calls;
};

static size_t o_bytes(const struct attn_problem *p)
{
  return (size_t)(p->b * p->sq * p->hq * p->dv) * sizeof(float);
}

static size_t lse_bytes(const struct attn_problem *p)
{
  return (size_t)(p->b * p->sq * p->hq) * sizeof(float);
}

static int prepare(const struct attn_problem *p, const struct attn_device *, void **out)
{
  struct plan *plan = (struct plan *)calloc(1, sizeof *plan);
  *out = plan;
  if (!plan)
    return ATTN_ENOMEM;
  plan->p = p;
  bool bad = cudaStreamCreateWithFlags(&plan->side, cudaStreamNonBlocking) ||
             cudaEventCreate(&plan->event) || cudaMalloc(&plan->o, o_bytes(p)) ||
             cudaMalloc(&plan->lse, lse_bytes(p));
  return bad ? ATTN_EDEVICE : ATTN_OK;
}

static void finish(void *ctx)
{
  struct plan *plan = (struct plan *)ctx;
  cudaStreamDestroy(plan->side);
  cudaEventDestroy(plan->event);
  cudaFree(plan->o);
  cudaFree(plan->lse);
  free(plan);
}

static int honest(const struct attn_problem *p, const struct attn_args *a, cudaStream_t stream)
{
  float scale = p->scale != 0 ? (float)p->scale : 1 / sqrtf((float)p->d);
  shape n = {p->hq, p->hkv, p->sq, p->sk, p->d, p->dv, scale};
  dim3 grid((unsigned)p->sq, (unsigned)p->hq, (unsigned)p->b);
  row_kernel<<<grid, 128, 0, stream>>>((const float *)a->q.data, (const float *)a->k.data,
                                       (const float *)a->v.data, (float *)a->o.data, a->lse, n);
  return cudaGetLastError() == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

static int fair(void *ctx, const struct attn_args *a, void *stream)
{
  return honest(((struct plan *)ctx)->p, a, (cudaStream_t)stream);
}

static int ten_ms(void *ctx, const struct attn_args *a, void *stream)
{
  spin_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(10000000);
  return fair(ctx, a, stream);
}

static int side_stream(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  return honest(plan->p, a, plan->side);
}

/* In its order behind what was enqueued, and still not waited for. */
static int side_stream_late(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  cudaEventRecord(plan->event, (cudaStream_t)stream);
  cudaStreamWaitEvent(plan->side, plan->event, 0);
  spin_kernel<<<1, 1, 0, plan->side>>>(1000000);
  return honest(plan->p, a, plan->side);
}

static int default_stream(void *ctx, const struct attn_args *a, void *stream)
{
  return honest(((struct plan *)ctx)->p, a, 0);
}

static int skips(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  return plan->calls++ < 3 ? honest(plan->p, a, (cudaStream_t)stream) : ATTN_OK;
}

static int first_output(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  cudaStream_t s = (cudaStream_t)stream;
  if (plan->calls++ == 0) {
    int status = honest(plan->p, a, s);
    cudaMemcpyAsync(plan->o, a->o.data, o_bytes(plan->p), cudaMemcpyDeviceToDevice, s);
    cudaMemcpyAsync(plan->lse, a->lse, lse_bytes(plan->p), cudaMemcpyDeviceToDevice, s);
    return status;
  }
  cudaMemcpyAsync(a->o.data, plan->o, o_bytes(plan->p), cudaMemcpyDeviceToDevice, s);
  cudaMemcpyAsync(a->lse, plan->lse, lse_bytes(plan->p), cudaMemcpyDeviceToDevice, s);
  return ATTN_OK;
}

static int zeroes_later(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  const struct attn_problem *p = plan->p;
  if (plan->calls++ >= 2)
    cudaMemsetAsync(a->v.data, 0, (size_t)(p->b * p->sk * p->hkv * p->dv) * sizeof(float),
                    (cudaStream_t)stream);
  return honest(p, a, (cudaStream_t)stream);
}

static int overrun(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  cudaMemsetAsync((char *)a->o.data + o_bytes(plan->p), 0, 4, (cudaStream_t)stream);
  return honest(plan->p, a, (cudaStream_t)stream);
}

static int waits(void *ctx, const struct attn_args *a, void *stream)
{
  int status = fair(ctx, a, stream);
  cudaDeviceSynchronize();
  return status;
}

/* A sticky error: the context is lost. */
static int wild(void *ctx, const struct attn_args *a, void *stream)
{
  struct plan *plan = (struct plan *)ctx;
  if (plan->calls++ >= 2)
    wild_kernel<<<1, 1, 0, (cudaStream_t)stream>>>((float *)a->o.data);
  return honest(plan->p, a, (cudaStream_t)stream);
}

#define CHEAT(id, words)                                                \
  static const struct attn_impl cheat_##id = {ATTN_ABI,                 \
                                              "cheat-cuda/" #id,        \
                                              ATTN_CUDA,                \
                                              words,                    \
                                              "a cheat, for the tests", \
                                              {},                       \
                                              unsupported,              \
                                              NULL,                     \
                                              prepare,                  \
                                              id,                       \
                                              finish,                   \
                                              NULL,                     \
                                              0}

CHEAT(fair, "does what it is asked");
CHEAT(ten_ms, "does what it is asked, in 10 ms at least");
CHEAT(side_stream, "works on a stream of its own");
CHEAT(side_stream_late, "works on a stream of its own, later");
CHEAT(default_stream, "works on the default stream");
CHEAT(skips, "does nothing from the fourth run on");
CHEAT(first_output, "computes once and returns that ever after");
CHEAT(zeroes_later, "zeroes V after the first runs");
CHEAT(overrun, "writes past its output");
CHEAT(waits, "waits for the device in run");
CHEAT(wild, "writes to an illegal address after the first runs");

static const struct attn_impl *const impls[] = {
    &cheat_wild,           &cheat_side_stream, &cheat_side_stream_late,
    &cheat_default_stream, &cheat_skips,       &cheat_first_output,
    &cheat_zeroes_later,   &cheat_overrun,     &cheat_waits,
    &cheat_fair,           &cheat_ten_ms};

extern "C" const struct attn_plugin attn_plugin = {ATTN_ABI, sizeof impls / sizeof *impls, impls};
