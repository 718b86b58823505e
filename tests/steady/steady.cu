/* SPDX-License-Identifier: Apache-2.0
 *
 * steady.cu - a plugin for the power of the gate: attention on a GPU with a planted slowdown.
 * steady-cuda/X does X per cent more work than steady-cuda/0: it goes over as many of the last keys
 * once before it begins.  Blocks are all alike, so that its time grows by nearly X per cent.
 */
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "impl/attn.h"

#define D 64
#define ROWS 128 /* of a block, one a thread */
#define KEYS 32  /* of a tile */

static const char *unsupported(const struct attn_problem *p, const struct attn_device *)
{
  if (p->op != ATTN_FWD || p->dtype != ATTN_BF16 || p->d != D || p->dv != D || p->nruns ||
      p->mask != ATTN_MASK_NONE || p->layout == ATTN_PACKED)
    return "only op=fwd dtype=bf16 d=64, no mask, not packed";
  if (p->softcap != 0 || p->alibi || p->dropout_p != 0 || p->page)
    return "no softcap, ALiBi, dropout or pages";
  return NULL;
}

struct row {
  float q[D], o[D], m, l;
};

static __device__ __forceinline__ void load_tile(float (*tile)[D], const attn_tensor &t, int64_t at,
                                                 int64_t first, int n)
{
  for (int e = threadIdx.x; e < n * D; e += ROWS)
    tile[e / D][e % D] =
        __bfloat162float(((const __nv_bfloat16 *)t.data)[at + (first + e / D) * t.ss + e % D]);
}

static __device__ __forceinline__ void one_key(row &r, const float *k, const float *v)
{
  float s = 0;
#pragma unroll
  for (int c = 0; c < D; c++)
    s = fmaf(r.q[c], k[c], s);
  if (s > r.m) {
    float alpha = exp2f(r.m - s);
    r.m = s;
    r.l *= alpha;
#pragma unroll
    for (int c = 0; c < D; c++)
      r.o[c] *= alpha;
  }
  float p = exp2f(s - r.m);
  r.l += p;
#pragma unroll
  for (int c = 0; c < D; c++)
    r.o[c] = fmaf(p, v[c], r.o[c]);
}

static __device__ __forceinline__ void clear(row &r)
{
  r.m = -INFINITY;
  r.l = 0;
#pragma unroll
  for (int c = 0; c < D; c++)
    r.o[c] = 0;
}

/* q, o (b, sq, hq, 64), k, v (b, sk, hkv, 64), lse (b, hq, sq); grid (query tiles, hq, b). */
static __global__ __launch_bounds__(ROWS) void attention(attn_args a, int sq, int sk, int hq,
                                                         int group, float scale, int more)
{
  __shared__ float k[KEYS][D], v[KEYS][D];
  int64_t i = (int64_t)blockIdx.x * ROWS + threadIdx.x, h = blockIdx.y, b = blockIdx.z;
  int64_t kv = b * a.k.sb + h / group * a.k.sh, vv = b * a.v.sb + h / group * a.v.sh;
  const __nv_bfloat16 *q =
      (const __nv_bfloat16 *)a.q.data + b * a.q.sb + (i < sq ? i : 0) * a.q.ss + h * a.q.sh;
  row r;
  clear(r);
#pragma unroll
  for (int c = 0; c < D; c++)
    r.q[c] = __bfloat162float(q[c]) * (scale * 1.44269504f);
  for (int first = -more; first < sk;) {
    int end = first < 0 ? 0 : sk, n = min(KEYS, end - first), at = first < 0 ? sk + first : first;
    __syncthreads();
    load_tile(k, a.k, kv, at, n);
    load_tile(v, a.v, vv, at, n);
    __syncthreads();
    for (int j = 0; j < n; j++)
      one_key(r, k[j], v[j]);
    first += n;
    if (first == 0)
      clear(r); /* that was the extra work */
  }
  if (i >= sq)
    return;
  __nv_bfloat16 *o = (__nv_bfloat16 *)a.o.data + b * a.o.sb + i * a.o.ss + h * a.o.sh;
#pragma unroll
  for (int c = 0; c < D; c++)
    o[c] = __float2bfloat16(r.o[c] / r.l);
  a.lse[(b * hq + h) * sq + i] = (r.m + log2f(r.l)) * 0.69314718f;
}

static int enqueue(void *plan, const attn_args *args, void *stream, double percent)
{
  const attn_problem *p = (const attn_problem *)plan;
  dim3 grid((unsigned)((p->sq + ROWS - 1) / ROWS), (unsigned)p->hq, (unsigned)p->b);
  float scale = p->scale != 0 ? (float)p->scale : 0.125f;
  attention<<<grid, ROWS, 0, (cudaStream_t)stream>>>(*args, (int)p->sq, (int)p->sk, (int)p->hq,
                                                     (int)(p->hq / p->hkv), scale,
                                                     (int)(p->sk * percent / 100 + 0.5));
  return cudaPeekAtLastError() == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

#define STEADY(id, percent)                                                     \
  static int run_##id(void *plan, const attn_args *args, void *stream)          \
  {                                                                             \
    return enqueue(plan, args, stream, percent);                                \
  }                                                                             \
  static const attn_impl steady_##id = {ATTN_ABI,                               \
                                        "steady-cuda/" #percent,                \
                                        ATTN_CUDA,                              \
                                        "does " #percent " per cent more work", \
                                        "made for the tests",                   \
                                        {},                                     \
                                        unsupported,                            \
                                        NULL,                                   \
                                        NULL,                                   \
                                        run_##id}

STEADY(a, 0);
STEADY(b, 0.25);
STEADY(c, 0.5);
STEADY(d, 1);
STEADY(e, 2);

static const attn_impl *const impls[] = {&steady_a, &steady_b, &steady_c, &steady_d, &steady_e};

extern "C" const attn_plugin attn_plugin = {ATTN_ABI, sizeof impls / sizeof *impls, impls};
