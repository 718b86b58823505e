/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-ragged.cu - see cudnn-ragged.h. These kernels are part of what a packed batch costs with
 * cuDNN, and are timed with it: its interface has no cu_seqlens.
 */
#include "config.h"

#include <cuda_runtime.h>

#include "impl/peer/cudnn-ragged.h"

#define THREADS 256
#define BLOCKS_Y_MAX 65535

static __global__ void ragged_index(struct attn_cudnn_ragged r)
{
  int i = (int)(blockIdx.x * THREADS + threadIdx.x);
  if (i > r.b)
    return;
  int q = r.cu_seqlens_q[i], k = r.cu_seqlens_k[i];
  r.offset_q[i] = q * r.row_q;
  r.offset_o[i] = q * r.row_o;
  r.offset_k[i] = k * r.row_k;
  r.offset_v[i] = k * r.row_v;
  if (i < r.b) {
    r.seqlen_q[i] = r.cu_seqlens_q[i + 1] - q;
    r.seqlen_k[i] = r.cu_seqlens_k[i + 1] - k;
  }
}

/* One thread for element (b, h, i) of the dense array; rows past a sequence's end are empty rows.
 */
template <bool to_dense>
static __global__ void stats_copy(struct attn_cudnn_stats s)
{
  int i = (int)(blockIdx.x * THREADS + threadIdx.x);
  if (i >= s.sq)
    return;
  for (int64_t bh = blockIdx.y; bh < (int64_t)s.b * s.hq; bh += gridDim.y) {
    int64_t b = bh / s.hq, h = bh % s.hq;
    int64_t first = s.cu_seqlens_q[b], length = s.cu_seqlens_q[b + 1] - first;
    float *packed = s.packed + h * s.total_q + first + i, *dense = s.dense + bh * s.sq + i;
    if (to_dense)
      *dense = i < length ? *packed : -INFINITY;
    else if (i < length)
      *packed = *dense;
  }
}

extern "C" int attn_cudnn_ragged_index(const struct attn_cudnn_ragged *r, void *stream)
{
  ragged_index<<<r->b / THREADS + 1, THREADS, 0, (cudaStream_t)stream>>>(*r);
  return cudaGetLastError();
}

static dim3 stats_grid(const struct attn_cudnn_stats *s)
{
  int64_t heads = (int64_t)s->b * s->hq;
  return dim3((unsigned)((s->sq + THREADS - 1) / THREADS),
              (unsigned)(heads < BLOCKS_Y_MAX ? heads : BLOCKS_Y_MAX));
}

extern "C" int attn_cudnn_stats_pack(const struct attn_cudnn_stats *s, void *stream)
{
  stats_copy<false><<<stats_grid(s), THREADS, 0, (cudaStream_t)stream>>>(*s);
  return cudaGetLastError();
}

extern "C" int attn_cudnn_stats_unpack(const struct attn_cudnn_stats *s, void *stream)
{
  stats_copy<true><<<stats_grid(s), THREADS, 0, (cudaStream_t)stream>>>(*s);
  return cudaGetLastError();
}
