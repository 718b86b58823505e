/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-ends.cuh - what the Hopper backward does at its ends: the sums of a block to dK
 * and dV, also where several blocks share the queries of a key block, and the passes before and
 * after.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_ENDS_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_ENDS_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-load.cuh"

/* ---- epilogue -------------------------------------------------------------------------------- */

/* dK or dV: 64 rows of a warpgroup from row n, warp and lane within it. */
template <class T, int N>
SM90_DEV void bwd90_store_kv(const attn_tensor &out, const volatile bwd90_tile *t, int n, int warp,
                             int lane, int cols, float factor, const float (&x)[N])
{
  uint16_t *base = bwd90_at(out, t->seq, t->row_k, t->kv_head);
  bwd90_store<T>(base, out.ss, n + 16 * warp + lane / 4, t->sk, cols, factor, lane, x);
}

/* ---- shared key blocks ----------------------------------------------------------------------- */

/* Where a warpgroup's sums of a part lie; at: 0 dV or 1 dK, and the warpgroup's place within. */
template <class C>
SM90_DEV float *bwd90_part(const bwd90_params &p, int64_t n, int at)
{
  return p.shared + n * 2 * C::KN * C::D + rederive(at * 64 * C::D + threadIdx.x % 128 * 4);
}

template <class C>
SM90_DEV void bwd90_give_part(const bwd90_params &p, int n, int at, const float (&x)[C::D / 2])
{
  float *out = bwd90_part<C>(p, n, at);
#pragma unroll
  for (int j = 0; j < C::D / 8; j++)
    *(float4 *)(out + 512 * j) = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
}

template <class C>
SM90_DEV void bwd90_take_parts(const bwd90_params &p, int first, int n, int at,
                               float (&x)[C::D / 2])
{
#pragma unroll 1
  for (int i = first; i < first + n; i++) {
    const float *in = bwd90_part<C>(p, i, at);
#pragma unroll
    for (int j = 0; j < C::D / 8; j++) {
      const float4 y = __ldcg((const float4 *)(in + 512 * j));
      x[4 * j] += y.x;
      x[4 * j + 1] += y.y;
      x[4 * j + 2] += y.z;
      x[4 * j + 3] += y.w;
    }
  }
}

/* A warpgroup whose part is given says so. */
SM90_DEV void bwd90_gave_part(const bwd90_lane &w, const bwd90_params &p, int block)
{
  __threadfence();
  named_sync(2 + w.wg, 128);
  if (rederive(threadIdx.x) % 128 == 0)
    red_release(p.joined + block * 2 + w.wg, 1);
}

/* The last part waits for the others, whose blocks have all begun before its own. */
SM90_DEV void bwd90_await_parts(const bwd90_lane &w, const bwd90_params &p, int block, int given)
{
  const int *joined = p.joined + block * 2 + w.wg;
  if (rederive(threadIdx.x) % 128 == 0)
    bwd90_await_turn(joined, given);
  named_sync(2 + w.wg, 128);
}

/* ---- before and after ------------------------------------------------------------------------ */

/* A query block of one head.  From the last to the first: what pre has read last main reads first,
 * and what main has added to last post reads first, from L2. */
struct bwd90_rows {
  int m0, seq, head, sq, sk, row_q;
  int acc; /* its first padded row */
};

SM90_DEV bwd90_rows bwd90_rows_of(const bwd90_params &p, int km)
{
  bwd90_rows r;
  const int at = gridDim.x - 1 - blockIdx.x, head = at / p.qblocks;
  r.m0 = (at - head * p.qblocks) * km;
  r.seq = head / p.hq;
  r.head = head - r.seq * p.hq;
  r.row_q = p.cu_q ? p.cu_q[r.seq] : 0;
  r.sq = p.cu_q ? p.cu_q[r.seq + 1] - r.row_q : p.sq;
  r.sk = p.cu_q ? p.cu_k[r.seq + 1] - p.cu_k[r.seq] : p.sk;
  r.acc = bwd90_acc(p, r.seq, r.row_q, km) + r.head * p.acc_sh + r.m0;
  return r;
}

/* Do the queries see any key?  If not, no key block adds to their dQ. */
SM90_DEV bool bwd90_sees(const bwd90_params &p, const bwd90_rows &r, int km)
{
  const int shift = p.topleft ? 0 : r.sk - r.sq;
  return r.sk > 0 && r.m0 + shift - p.left < r.sk && min(r.m0 + km, r.sq) + shift + p.right > 0;
}

static __device__ __forceinline__ float2 bwd90_unpack(__nv_bfloat16, uint32_t x)
{
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

static __device__ __forceinline__ float2 bwd90_unpack(__half, uint32_t x)
{
  return __half22float2(*(const __half2 *)&x);
}

template <class T>
SM90_DEV float bwd90_dot(uint4 a, uint4 b)
{
  const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 u = bwd90_unpack(T(), x[i]), v = bwd90_unpack(T(), y[i]);
    sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
  }
  return sum;
}

#define BWD90_ROW_THREADS 256

template <class C>
__global__ void __launch_bounds__(BWD90_ROW_THREADS)
    flash_bwd_pre_sm90(const __grid_constant__ bwd90_params p)
{
  constexpr int LANES = C::D / 8, ROWS = BWD90_ROW_THREADS / LANES;
  const bwd90_rows r = bwd90_rows_of(p, C::KM);
  const int t = threadIdx.x, lane = t % LANES, seq = p.cu_q ? 0 : r.seq;
  admit_next_kernel();
  if (blockIdx.x == 0)
    for (int i = t; i < BWD90_COUNTERS; i += BWD90_ROW_THREADS)
      p.joined[i] = 0;
  if (r.m0 >= r.sq)
    return;
  const uint16_t *o = bwd90_at(p.o, seq, r.row_q, r.head) + 8 * lane;
  const uint16_t *g = bwd90_at(p.dout, seq, r.row_q, r.head) + 8 * lane;
#pragma unroll
  for (int i = 0; i < (C::KM + ROWS - 1) / ROWS; i++) {
    const int k = i * ROWS + t / LANES, row = r.m0 + k;
    float sum = 0, l = INFINITY;
    if (row < r.sq && 8 * lane < p.dv_cols)
      sum = bwd90_dot<typename C::T>(__ldcs((const uint4 *)(o + row * p.o.ss)),
                                     *(const uint4 *)(g + row * p.dout.ss));
#pragma unroll
    for (int step = LANES / 2; step; step /= 2)
      sum += __shfl_xor_sync(~0u, sum, step);
    if (lane || k >= C::KM)
      continue;
    if (row < r.sq)
      l = p.lse[seq * p.lse_sb + r.head * p.lse_sh + r.row_q + row] * (float)M_LOG2E;
    p.dsum[r.acc + k] = sum;
    p.lse2[r.acc + k] = l == -INFINITY ? INFINITY : l;
  }
  if (!C::DQ_ADDED)
    return;
  if (t < BWD90_TURNS)
    p.states[(int64_t)(r.acc / C::KM) * BWD90_TURNS + t] = 0;
  if (p.zeroed ? !bwd90_zeroed_before(p, r.seq, r.head / p.group)
               : (p.turns || p.firsts) && bwd90_sees(p, r, C::KM))
    return;
  float4 *acc = (float4 *)(p.dqacc + (int64_t)r.acc * C::D);
#pragma unroll
  for (int i = t; i < C::KM * C::D / 4; i += BWD90_ROW_THREADS)
    acc[i] = make_float4(0, 0, 0, 0);
}

template <class C>
__global__ void __launch_bounds__(BWD90_ROW_THREADS)
    flash_bwd_post_sm90(const __grid_constant__ bwd90_params p)
{
  const bwd90_rows r = bwd90_rows_of(p, C::KM);
  const int part = threadIdx.x / 128, t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
  await_kernel_before();
  if (r.m0 >= r.sq || p.queue && *bwd90_state<C>(p.states, r.acc, 0, BWD90_MADE) > 4 * part + warp)
    return;
  const float *acc = p.dqacc + (int64_t)r.acc * C::D + part * 64 * C::DQN + 4 * t;
  float x[C::DQN / 2];
#pragma unroll
  for (int j = 0; j < C::DQN / 8; j++)
    *(float4 *)&x[4 * j] = __ldcg((const float4 *)(acc + 512 * j));
  uint16_t *dq = bwd90_at(p.dq, p.cu_q ? 0 : r.seq, r.row_q, r.head);
  if (C::DQ_SWAPPED) {
    bwd90_store_t<typename C::T>(dq, p.dq.ss, r.m0, r.sq, 64 * part + 16 * warp, p.d, p.scale, lane,
                                 x);
    return;
  }
  const int col = C::DQ_ROWS ? 0 : part * C::DQN, row = C::DQ_ROWS ? 64 * part : 0;
  dq += col;
  bwd90_store<typename C::T>(dq, p.dq.ss, r.m0 + row + 16 * warp + lane / 4, r.sq, p.d - col,
                             p.scale, lane, x);
}

static constexpr enum attn_dtype bwd90_dtype(__nv_bfloat16)
{
  return ATTN_BF16;
}

static constexpr enum attn_dtype bwd90_dtype(__half)
{
  return ATTN_F16;
}

template <class C>
static const void *bwd90_post()
{
  if constexpr (C::DQ_ADDED)
    return (const void *)flash_bwd_post_sm90<C>;
  else
    return NULL;
}

/* A variant's row in a table. */
template <class C>
static bwd90_kernel bwd90_row(const char *name, int uses, const void *main)
{
  return {name,
          uses,
          (const void *)flash_bwd_pre_sm90<C>,
          bwd90_post<C>(),
          main,
          bwd90_dtype(typename C::T()),
          C::D,
          C::KM,
          C::KN,
          C::THREADS,
          C::SMEM,
          C::QSTAGES,
          C::STEP_SMEM,
          NULL,
          0,
          0,
          C::SCORE,
          C::DROP,
          C::AHEAD,
          C::FIRSTS,
          false,
          false,
          C::CLAIMS,
          C::MAKES};
}

/* A row of the same kernel, for problems without a mask: key blocks that run at the same time start
 * at different query blocks, and do not meet at the same dQ. */
static inline bwd90_kernel bwd90_spread(bwd90_kernel k)
{
  k.only = k.spread = true;
  return k;
}

#endif
