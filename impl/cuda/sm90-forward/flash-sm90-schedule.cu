/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-schedule.cu - the schedule of a ragged batch, made on the device from cu_seqlens: all
 * row blocks, those with the most keys first (a counting sort over key tiles, one block).
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

#define THREADS 1024
#define BUCKETS 1024

/* Calls f(sequence, first row, bucket) for every row block, a warp a sequence; bucket 0 has the
 * most keys. */
template <class F>
static __device__ void each_block(const sm90_params &p, int km, int kn, F f)
{
  const int most = (p.sk + kn - 1) / kn;
  for (int seq = threadIdx.x / 32; seq < p.b; seq += THREADS / 32) {
    const int sq = p.cu_q[seq + 1] - p.cu_q[seq], sk = sm90_length(p, seq);
    for (int m0 = threadIdx.x % 32 * km; m0 < sq; m0 += 32 * km) {
      const int2 n = sm90_keys(p, m0, sq, sk, km, kn);
      const int size = (int)((int64_t)(n.y - n.x) * (BUCKETS - 1) / max(most, 1));
      f(seq, m0, BUCKETS - 1 - size);
    }
  }
}

static __global__ void __launch_bounds__(THREADS, 1)
    flash_sm90_schedule(const sm90_params p, int km, int kn)
{
  __shared__ int place[BUCKETS];
  const int t = threadIdx.x;
  place[t] = 0;
  __syncthreads();
  each_block(p, km, kn, [&](int, int, int bucket) { atomicAdd(&place[bucket], 1); });
  __syncthreads();
  const int mine = place[t];
  for (int step = 1; step < BUCKETS; step *= 2) {
    const int before = t >= step ? place[t - step] : 0;
    __syncthreads();
    place[t] += before;
    __syncthreads();
  }
  if (t == BUCKETS - 1)
    *p.items = place[t];
  if (t == 0 && p.counter)
    *p.counter = 0;
  __syncthreads();
  place[t] -= mine;
  __syncthreads();
  each_block(p, km, kn, [&](int seq, int m0, int bucket) {
    p.item[atomicAdd(&place[bucket], 1)] = sm90_item{seq, m0};
  });
}

int attn_flash_sm90_schedule(const struct sm90_params *p, int km, int kn, cudaStream_t stream)
{
  flash_sm90_schedule<<<1, THREADS, 0, stream>>>(*p, km, kn);
  return cudaGetLastError() == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}
