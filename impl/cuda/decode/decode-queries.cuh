/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-queries.cuh - cuda/decode: the packed queries of a head: where they lie, what each sees,
 * and on the way to the tensor cores.
 */
#ifndef IMPL_CUDA_DECODE_QUERIES_CUH
#define IMPL_CUDA_DECODE_QUERIES_CUH

#include <math_constants.h>

#include "impl/cuda/alibi.cuh"
#include "impl/cuda/decode/decode-line.cuh"

/* What a row sees, for the units that need to know; in shared memory. */
struct decode_view {
  int diagonal;   /* key that ALiBi counts from */
  int begin, end; /* keys that it sees */
  float slope;    /* ALiBi */
};

/* A row of packed queries. */
struct decode_row {
  int head, query; /* of the sequence */

  __device__ __forceinline__ decode_row(const decode_args &a, int kv_head, int row)
  {
    query = row / a.group;
    head = kv_head * a.group + row - query * a.group;
  }
};

__device__ __forceinline__ int64_t query_offset(const decode_args &a, const attn_tensor &t, int seq,
                                                int64_t row, int head)
{
  if (a.fold)
    return row / a.fold * t.sb + row % a.fold * t.ss + head * t.sh;
  return seq * t.sb + row * t.ss + head * t.sh;
}

/* A query of a folded pass becomes its sequence's: n has that one's queries and all of its keys. */
__device__ __forceinline__ void decode_unfold(const decode_args &a, decode_seq &n, int &query)
{
  int s = query / a.fold, end = a.folded;
  if (a.fold_q)
    while (end - s > 1) {
      int middle = (s + end) / 2;
      bool behind = a.fold_q[middle] <= query;
      s = behind ? middle : s;
      end = behind ? end : middle;
    }
  int from = a.fold_q ? a.fold_q[s] : s * a.fold;
  n.sq = a.fold_q ? a.fold_q[s + 1] - from : a.fold;
  n.sk = a.fold_k[s];
  query -= from;
}

/* Q's operands come in the order of the columns of K's: of an e4m3 cache, pair 2t + c of a step's
 * eight is pair t of operand c, else pair 4c + t. */
template <class C>
__device__ __forceinline__ const char *q_row(const decode_args &a, const decode_seq &n, int seq,
                                             int kv_head, int row)
{
  decode_row r(a, kv_head, row);
  return (const char *)a.q.data + 2 * query_offset(a, a.q, seq, n.q_row + r.query, r.head);
}

/* Queries of bf16 meet an e4m3 cache as fp16, times a power of two that takes the tile's largest to
 * 2^14 and above: what is lost is below 2^-38 of that. */
struct decode_fit {
  int top = 0; /* largest magnitude, as bits of bf16; infinity and NaN stay what they are */

  __device__ __forceinline__ void see(uint32_t pair)
  {
    int lo = pair & 0x7fff, hi = pair >> 16 & 0x7fff;
    top = max(top, max(lo < 0x7f80 ? lo : 0, hi < 0x7f80 ? hi : 0));
  }
  /* From here on, all lanes' largest; its exponent in the range that the factors allow. */
  __device__ __forceinline__ void agree()
  {
    top = max(__reduce_max_sync(~0u, top) >> 7, 64);
  }
  /* All warps'. scratch: as many words of shared memory. */
  __device__ __forceinline__ void agree(int *scratch, int warps)
  {
    agree();
    if (threadIdx.x % 32 == 0)
      scratch[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < warps; w++)
      top = max(top, scratch[w]);
  }
  __device__ __forceinline__ uint32_t apply(uint32_t pair) const
  {
    float2 x = unpack<bf16>(pair);
    float factor = __int_as_float((268 - top) << 23);
    return pack<fp16>(x.x * factor, x.y * factor);
  }
  __device__ __forceinline__ float inverse() const
  {
    return __int_as_float((top - 14) << 23);
  }
};

template <class C>
constexpr bool decode_fits = !same_type<typename C::elem, typename C::operand>::value;

/* 16 columns of a row, and where they go: of an e4m3 cache in another order. */
template <class C>
struct decode_sixteen {
  uint32_t x[8];

  __device__ __forceinline__ void load(const decode_args &a, const char *row, int col)
  {
    uint4 none = {0, 0, 0, 0};
    uint4 lo = row && col < a.d ? *(const uint4 *)(row + 2 * col) : none;
    uint4 hi = row && col + 8 < a.d ? *(const uint4 *)(row + 2 * col + 16) : none;
    x[0] = lo.x, x[1] = lo.y, x[2] = lo.z, x[3] = lo.w;
    x[4] = hi.x, x[5] = hi.y, x[6] = hi.z, x[7] = hi.w;
  }
  __device__ __forceinline__ void store(unsigned char *to, int row, int col) const
  {
    constexpr int step = C::KV8 ? 2 : 1, next = C::KV8 ? 1 : 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
      *(uint4 *)(to + tile_offset<C::ROWS>(row, col / 8 + i)) = {
          x[i * next], x[i * next + step], x[i * next + 2 * step], x[i * next + 3 * step]};
  }
};

/* Q of all rows into shared memory, all threads of the block together, with one load each under way
 * or two; returns what scores are to be multiplied with. */
template <class C>
__device__ __forceinline__ float decode_share_q(const decode_args &a, const decode_cursor<C> &at,
                                                const decode_seq &n, unsigned char *to)
{
  constexpr int SHARES = C::ROWS * C::DB / C::THREADS;
  static_assert(SHARES * C::THREADS == C::ROWS * C::DB, "every thread takes as much");
  int kv_head = at.head / n.q_tiles, row0 = at.head % n.q_tiles * C::ROWS;
  decode_sixteen<C> part[SHARES];
  decode_fit fit;
#pragma unroll
  for (int i = 0; i < SHARES; i++) {
    int unit = i * C::THREADS + threadIdx.x, row = row0 + unit / C::DB;
    bool there = row < n.sq * a.group;
    part[i].load(a, there ? q_row<C>(a, n, at.seq, kv_head, row) : NULL, unit % C::DB * 16);
  }
  if constexpr (decode_fits<C>) {
#pragma unroll
    for (int i = 0; i < 8 * SHARES; i++)
      fit.see(part[i / 8].x[i % 8]);
    fit.agree((int *)(to + C::ROWS * C::D * 2), C::WARPS);
#pragma unroll
    for (int i = 0; i < 8 * SHARES; i++)
      part[i / 8].x[i % 8] = fit.apply(part[i / 8].x[i % 8]);
  }
#pragma unroll
  for (int i = 0; i < SHARES; i++) {
    int unit = i * C::THREADS + threadIdx.x;
    part[i].store(to, unit / C::DB, unit % C::DB * 16);
  }
  return decode_fits<C> ? fit.inverse() : 1;
}

/* A raw score becomes a scaled, softcapped and biased one. */
__device__ __forceinline__ float decode_option(const decode_args &a, float raw_scale,
                                               const decode_view &row, int key, float x)
{
  x *= raw_scale;
  if (a.softcap > 0)
    x = a.softcap * tanhf(x * a.inv_softcap);
  return x - row.slope * fabsf((float)(row.diagonal - key));
}

/* What the row does not see becomes -inf. */
__device__ __forceinline__ float decode_seen(const decode_view &row, int key, float x)
{
  return key < row.begin || key >= row.end ? -CUDART_INF_F : x;
}

__device__ __forceinline__ decode_view decode_view_of(const decode_args &a, const decode_seq &n,
                                                      const decode_row &r)
{
  decode_seq own = n;
  int query = r.query;
  if (a.fold)
    decode_unfold(a, own, query);
  int i = query + (a.bottom_right ? own.sk - own.sq : 0);
  return {query + own.sk - own.sq, max(i - a.left, a.skip), min(n.sk, i + a.right + 1),
          a.alibi ? alibi_slope(a.hq, r.head) : 0};
}

#endif
