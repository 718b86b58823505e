/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-merge.cuh - cuda/decode: the end of a head. First the warps of a block are merged,
 * eight rows at a time; then, where slices cut the head, the parts that the blocks left in the
 * workspace, each block taking a share of the elements.
 */
#ifndef IMPL_CUDA_DECODE_MERGE_CUH
#define IMPL_CUDA_DECODE_MERGE_CUH

#include "impl/cuda/decode/decode-rows.cuh"

/* The first of the two parts that a block has in the workspace. */
__device__ __forceinline__ int part_at(int slice, int member)
{
  return 2 * (slice * gridDim.x + member);
}

/* A sum of weighted rows, four elements of it, under the largest weight so far (log2). */
struct decode_sum {
  float top, sum;
  float4 x;

  __device__ __forceinline__ void add(float lse, float n, float4 y)
  {
    float up = fmaxf(top, lse), old = top > -CUDART_INF_F ? exp2_approx(top - up) : 0;
    float w = lse > -CUDART_INF_F ? exp2_approx(lse - up) : 0;
    top = up;
    sum = sum * old + n * w;
    x.x = x.x * old + y.x * w;
    x.y = x.y * old + y.y * w;
    x.z = x.z * old + y.z * w;
    x.w = x.w * old + y.w * w;
  }

  /* Divides by the sum; LSE in log2. */
  __device__ __forceinline__ float end()
  {
    float inv = sum > 0 ? 1 / sum : 0;
    x = {x.x * inv, x.y * inv, x.z * inv, x.w * inv};
    return sum > 0 ? top + log2f(sum) : -CUDART_INF_F;
  }
};

/* Where a row of the tile goes. */
struct decode_target {
  decode_row row;
  char *o;
  float *lse;
};

/* Where a head's results go: to O and LSE, or to the workspace. */
template <class C>
struct decode_output {
  int seq, kv_head, row0, rows; /* packed rows of the tile and of the sequence */
  int sq;
  int64_t q_row;
  int part; /* of the workspace; -1: the result is whole */

  __device__ __forceinline__ decode_output(const decode_args &a, int seq_, int head, int part_)
      : seq(seq_), part(part_)
  {
    decode_seq n = decode_sequence<C>(a, seq);
    kv_head = head / n.q_tiles;
    row0 = head % n.q_tiles * C::ROWS;
    rows = n.sq * a.group;
    sq = n.sq;
    q_row = n.q_row;
  }

  static __device__ __forceinline__ float *part_o(const decode_args &a, int part, int row)
  {
    return a.partial + ((int64_t)part * C::ROWS + row) * a.dv;
  }

  /* LSE of a part, in log2, behind the parts' O. */
  static __device__ __forceinline__ float *part_lse(const decode_args &a, int part, int row)
  {
    return a.partial + ((int64_t)part_at(gridDim.y, 0) * a.dv + part) * C::ROWS + row;
  }

  /* Adds what the pass over the prefix left; or leaves that, and returns false. */
  __device__ __forceinline__ bool join_prefix(const decode_args &a, const decode_row &r, int c,
                                              float4 &x, float &lse2) const
  {
    int64_t token = (a.cu_seqlens_q ? q_row : (int64_t)seq * sq) + r.query;
    int64_t row = token * a.hq + r.head;
    float4 *o = (float4 *)(a.prefix + row * a.dv + c);
    float *lse = a.prefix + a.total_q * a.hq * a.dv + row;
    if (a.stash) {
      *o = x;
      if (c == 0)
        *lse = lse2;
      return false;
    }
    decode_sum s = {*lse, 1, *o};
    s.add(lse2, 1, x);
    lse2 = s.end();
    x = s.x;
    return true;
  }

  __device__ __forceinline__ decode_target target(const decode_args &a, int row) const
  {
    decode_row r(a, kv_head, row0 + row);
    if (part >= 0)
      return {r, (char *)part_o(a, part, row), part_lse(a, part, row)};
    int64_t lse = a.cu_seqlens_q ? r.head * a.total_q + q_row : ((int64_t)seq * a.hq + r.head) * sq;
    return {r, (char *)a.o.data + 2 * query_offset(a, a.o, seq, q_row + r.query, r.head),
            a.lse + lse + r.query};
  }

  /* Four elements of a row, from column c, and with c == 0 its LSE in log2. */
  __device__ __forceinline__ void write(const decode_args &a, const decode_target &to, int c,
                                        float4 x, float lse2) const
  {
    if (part >= 0) {
      ((float4 *)to.o)[c / 4] = x;
      if (c == 0)
        *to.lse = lse2;
      return;
    }
    if (a.prefix && !join_prefix(a, to.row, c, x, lse2))
      return;
    ((uint2 *)to.o)[c / 4] = {pack<typename C::elem>(x.x, x.y), pack<typename C::elem>(x.z, x.w)};
    if (c == 0)
      *to.lse = lse2 * (float)CUDART_LN2;
  }
};

/* ---- the warps ------------------------------------------------------------------------------ */

/* m (log2) and l of each row, as each warp has them. */
template <class C>
using decode_stats = float2[C::TEAMS][C::ROWS];

/* The warps' shares of a row: the common maximum and the sum under it. */
template <class C>
__device__ __forceinline__ float2 joint_stats(const decode_stats<C> &stats, int row)
{
  float2 all = {-CUDART_INF_F, 0};
#pragma unroll
  for (int w = 0; w < C::TEAMS; w++)
    all.x = fmaxf(all.x, stats[w][row].x);
#pragma unroll
  for (int w = 0; w < C::TEAMS; w++)
    if (stats[w][row].x > -CUDART_INF_F)
      all.y += exp2_approx(stats[w][row].x - all.x) * stats[w][row].y;
  return all;
}

/* Column c of row r of eight, permuted so that rows do not collide. */
__device__ __forceinline__ int merge_column(int c, int r)
{
  return c ^ (r / 2 * 8);
}

/* Adds the warps' eight rows from row `first` of the tile, and writes them. */
template <class C>
__device__ __forceinline__ void decode_add(const decode_args &a, const decode_output<C> &out,
                                           const float *buffer, const decode_stats<C> &stats,
                                           int first)
{
  constexpr int QUADS = C::D / 4;
  float values = C::KV8 ? a.v_scale[out.kv_head] : 1;
  for (int u = threadIdx.x; u < 8 * QUADS; u += C::THREADS) {
    int r = u / QUADS, c = u % QUADS * 4;
    if (out.row0 + first + r >= out.rows || c >= a.dv)
      continue;
    float2 all = joint_stats<C>(stats, first + r);
    float inv = all.y > 0 ? values / all.y : 0;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < C::WARPS; w++) {
      float4 x = *(const float4 *)(buffer + (w * 8 + r) * C::D + merge_column(c, r));
      sum.x += x.x;
      sum.y += x.y;
      sum.z += x.z;
      sum.w += x.w;
    }
    sum.x *= inv;
    sum.y *= inv;
    sum.z *= inv;
    sum.w *= inv;
    out.write(a, out.target(a, first + r), c, sum,
              all.y > 0 ? all.x + log2f(all.y) : -CUDART_INF_F);
  }
}

/* This warp's statistics of all rows. */
template <class C>
__device__ __forceinline__ void decode_state(const decode_rows<C> &st, decode_stats<C> &stats)
{
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = st.l[nb][half];
      for (int d = 4; d < 32; d *= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
      if (lane < 4)
        stats[threadIdx.x / 32][decode_query(nb, half)] =
            make_float2(st.m[nb][half] * st.scale_log2 - C::BOOST, sum);
    }
}

/* This warp's share of eight rows, under the common maximum. */
template <class C>
__device__ __forceinline__ void decode_share(const decode_rows<C> &st, int nb, float *buffer,
                                             const decode_stats<C> &stats)
{
  int lane = threadIdx.x % 32, g = lane / 4, r = lane % 4 * 2;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float own = stats[threadIdx.x / 32][nb * 8 + r + half].x;
    float top = joint_stats<C>(stats, nb * 8 + r + half).x;
    factor[half] = own > -CUDART_INF_F ? exp2_approx(own - top) : 0;
  }
  float *row = buffer + (threadIdx.x / 32 * 8 + r) * C::D;
#pragma unroll
  for (int db = 0; db < C::DB; db++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int c = db * 16 + (C::KV8 ? 2 * g + e / 2 : g + e / 2 * 8);
      row[e % 2 * C::D + merge_column(c, r)] = st.o[db][nb][e] * factor[e % 2];
    }
}

/* Merges the warps. */
template <class C>
__device__ __forceinline__ void decode_finish(const decode_rows<C> &st, const decode_args &a,
                                              const decode_output<C> &out, float *buffer,
                                              decode_stats<C> &stats)
{
  decode_state<C>(st, stats);
  __syncthreads();
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++) {
    if (out.row0 + nb * 8 >= out.rows)
      break;
    decode_share<C>(st, nb, buffer, stats);
    __syncthreads();
    decode_add<C>(a, out, buffer, stats, nb * 8);
    __syncthreads();
  }
}

/* ---- the parts ------------------------------------------------------------------------------ */

__device__ __forceinline__ int load_acquire(const int *p)
{
  int x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

/* The parts of a head that lies in the slices [first, last]. The first block's part is the second
 * of its two in the workspace, the others' are their first. */
struct decode_parts {
  int first, last;
  int shares; /* blocks that merge them: all but the last, if that has another head to begin */

  __device__ __forceinline__ int count() const
  {
    return last - first + 1;
  }
  /* Counts an arrival, or a share that is done: after the last of these the counter is 0 again. */
  __device__ __forceinline__ void tick(int32_t *arrived) const
  {
    atomicInc((unsigned *)arrived, (unsigned)(count() + shares - 1));
  }
  __device__ __forceinline__ int part(int i) const
  {
    return part_at(first + i, blockIdx.x) + (i == 0);
  }
};

/* Four elements from column c of a row, merged by `lanes` neighbouring lanes. */
template <class C>
__device__ __forceinline__ void decode_merge_quad(const decode_args &a, const decode_output<C> &out,
                                                  const decode_parts &parts, int row, int c,
                                                  int lanes, bool active)
{
  using output = decode_output<C>;
  constexpr int BATCH = 4; /* loads under way */
  decode_sum s = {-CUDART_INF_F, 0, {0, 0, 0, 0}};
  int n = active ? parts.count() : 0;
  for (int i = threadIdx.x % lanes; i < n; i += BATCH * lanes) {
    float lse[BATCH];
    float4 y[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      int part = parts.part(min(i + k * lanes, n - 1));
      lse[k] = __ldcg(output::part_lse(a, part, row));
      y[k] = __ldcg((const float4 *)(output::part_o(a, part, row) + c));
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++)
      if (i + k * lanes < n)
        s.add(lse[k], 1, y[k]);
  }
  for (int d = lanes / 2; d; d /= 2) {
    float4 y = {__shfl_xor_sync(~0u, s.x.x, d), __shfl_xor_sync(~0u, s.x.y, d),
                __shfl_xor_sync(~0u, s.x.z, d), __shfl_xor_sync(~0u, s.x.w, d)};
    float lse = __shfl_xor_sync(~0u, s.top, d), sum = __shfl_xor_sync(~0u, s.sum, d);
    s.add(lse, sum, y);
  }
  float lse2 = s.end();
  if (active && threadIdx.x % lanes == 0)
    out.write(a, out.target(a, row), c, s.x, lse2);
}

/* This block's share of the merge. */
template <class C>
__device__ __forceinline__ void decode_merge(const decode_args &a, const decode_output<C> &out,
                                             const decode_parts &parts, int32_t *arrived)
{
  int n = parts.count(), lanes = 1, quads = a.dv / 4;
  int units = min(C::ROWS, out.rows - out.row0) * quads;
  int share = blockIdx.y - parts.first;
  int from = units * share / parts.shares, to = units * (share + 1) / parts.shares;
  while (lanes < n && lanes < 32 && 2 * lanes * (to - from) <= C::THREADS)
    lanes *= 2;
  if (threadIdx.x == 0)
    while (load_acquire(arrived) < n)
      __nanosleep(32);
  __syncthreads();
  for (int u = from; u < to; u += C::THREADS / lanes) {
    int unit = u + threadIdx.x / lanes, row = unit / quads;
    decode_merge_quad<C>(a, out, parts, row, (unit - row * quads) * 4, lanes, unit < to);
  }
  __syncthreads();
  if (threadIdx.x == 0)
    parts.tick(arrived);
}

#endif
