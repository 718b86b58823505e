/* SPDX-License-Identifier: Apache-2.0
 *
 * naive-rows.cu - cuda/naive's kernels: the row softmax, forward and backward, on score matrices in
 * HBM.
 *
 *   s, dp (count, hq, sq, ld)   lse (b, hq, sq)   o, dout (b, sq, hq, dv)
 *
 * A team of 1, 4 or 16 warps owns a row. Forward: each thread keeps up to four 16-byte vectors, so
 * that rows of up to 16,384 16-bit scores are read once and written once, in place; longer rows are
 * read twice. What the mask hides is neither read nor computed, only written as zeros, since the
 * product with V reads it. Backward: P is recomputed from the scores and LSE, and dS takes the
 * place of dP, in one pass.
 */
#include "config.h"

#include "impl/cuda/naive/naive-row.cuh"

/* ---- forward -------------------------------------------------------------------------------- */

template <class T, bool OPTIONS>
__device__ __forceinline__ void store_weights(const naive_rows &a, const row_place<T> &at, int n,
                                              float *p, float inv)
{
  constexpr int N = vec<T>::N;
#pragma unroll
  for (int e = 0; e < N; e++) {
    p[e] *= inv;
    if (OPTIONS)
      p[e] *= dropout(a, at, n * N + e);
  }
  ((vec<T> *)a.s)[at.row * (a.ld / N) + n] = packed<T>(p);
}

/* Threads of a block: 128 at least, so that short rows share one. */
template <int WARPS>
struct block_of {
  static constexpr int TEAM = 32 * WARPS, THREADS = WARPS < 4 ? 128 : TEAM, TEAMS = THREADS / TEAM;
};

/* Rows that the team's registers hold. */
template <class T, int WARPS, bool OPTIONS>
__global__ __launch_bounds__(block_of<WARPS>::THREADS) void softmax_short(const naive_rows a,
                                                                          int64_t rows)
{
  constexpr int N = vec<T>::N, TEAM = 32 * WARPS, TEAMS = block_of<WARPS>::TEAMS;
  __shared__ float shared[32];
  int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
  bool live = row < rows;
  row_place<T> at = locate<T, OPTIONS>(a, live ? row : 0);
  at.hi = live ? at.hi : at.lo;
  int t = threadIdx.x % TEAM, vectors = (int)(a.ld / N);
  float x[VECTORS][N], top = -INFINITY, sum = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    load_scores<T, OPTIONS>(a, at, t + v * TEAM, x[v]);
#pragma unroll
    for (int e = 0; e < N; e++)
      top = fmaxf(top, x[v][e]);
  }
  top = team_reduce<WARPS, true>(top, shared);
  float shift = top == -INFINITY ? 0 : top * LOG2E;
#pragma unroll
  for (int v = 0; v < VECTORS; v++)
#pragma unroll
    for (int e = 0; e < N; e++) {
      x[v][e] = exp2_approx(fmaf(x[v][e], LOG2E, -shift));
      sum += x[v][e];
    }
  sum = team_reduce<WARPS, false>(sum, shared);
  if (!live)
    return;
  float inv = sum == 0 ? 0 : 1 / sum;
#pragma unroll
  for (int v = 0; v < VECTORS; v++)
    if (t + v * TEAM < vectors)
      store_weights<T, OPTIONS>(a, at, t + v * TEAM, x[v], inv);
  if (t == 0)
    a.lse[at.seq * a.lse_seq + at.head * a.lse_head + at.i] =
        sum == 0 ? -INFINITY : top + logf(sum);
}

/* Longer rows: maximum and sum of each thread's part together, then a second read. */
template <class T, int WARPS, bool OPTIONS>
__global__ __launch_bounds__(32 * WARPS) void softmax_long(const naive_rows a)
{
  constexpr int N = vec<T>::N, TEAM = 32 * WARPS;
  __shared__ float shared[32];
  row_place<T> at = locate<T, OPTIONS>(a, blockIdx.x);
  int vectors = (int)(a.ld / N);
  float x[N], mine = -INFINITY, sum = 0;
  for (int n = at.lo / N + threadIdx.x; n * N < at.hi; n += TEAM) {
    load_scores<T, OPTIONS>(a, at, n, x);
    float top = mine;
#pragma unroll
    for (int e = 0; e < N; e++)
      top = fmaxf(top, x[e]);
    float shift = top == -INFINITY ? 0 : top * LOG2E;
    sum *= mine == top ? 1 : exp2_approx((mine - top) * LOG2E);
#pragma unroll
    for (int e = 0; e < N; e++)
      sum += exp2_approx(fmaf(x[e], LOG2E, -shift));
    mine = top;
  }
  float top = team_reduce<WARPS, true>(mine, shared);
  float shift = top == -INFINITY ? 0 : top * LOG2E;
  sum *= mine == top ? 1 : exp2_approx((mine - top) * LOG2E);
  sum = team_reduce<WARPS, false>(sum, shared);
  float inv = sum == 0 ? 0 : 1 / sum;
  for (int n = threadIdx.x; n < vectors; n += TEAM) {
    load_scores<T, OPTIONS>(a, at, n, x);
#pragma unroll
    for (int e = 0; e < N; e++)
      x[e] = exp2_approx(fmaf(x[e], LOG2E, -shift));
    store_weights<T, OPTIONS>(a, at, n, x, inv);
  }
  if (threadIdx.x == 0)
    a.lse[at.seq * a.lse_seq + at.head * a.lse_head + at.i] =
        sum == 0 ? -INFINITY : top + logf(sum);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* D = dO . O of the row. */
template <class T, int WARPS>
__device__ __forceinline__ float row_dot(const naive_rows &a, const row_place<T> &at, float *shared)
{
  int64_t o = at.seq * a.o.sb + at.i * a.o.ss + at.head * a.o.sh;
  int64_t d = at.seq * a.dout.sb + at.i * a.dout.ss + at.head * a.dout.sh;
  float sum = 0;
  for (int c = threadIdx.x % (32 * WARPS); c < a.dv; c += 32 * WARPS)
    sum += (float)((const T *)a.o.data)[o + c] * (float)((const T *)a.dout.data)[d + c];
  return team_reduce<WARPS, false>(sum, shared);
}

/* dS of vector n from its scores and dP; the weights replace the scores. */
template <class T, bool OPTIONS>
__device__ __forceinline__ void gradient_vector(const naive_rows &a, const row_place<T> &at, int n,
                                                float lse, float d)
{
  constexpr int N = vec<T>::N;
  int64_t at_n = at.row * (a.ld / N) + n;
  float s[N] = {}, dp[N] = {};
  if (n * N < at.hi && n * N + N > at.lo) {
    unpack(((const vec<T> *)a.s)[at_n], s);
    unpack(((const vec<T> *)a.dp)[at_n], dp);
  }
#pragma unroll
  for (int e = 0; e < N; e++) {
    int j = n * N + e;
    float t = 0, z = 1, x = OPTIONS ? optioned(a, at, j, s[e], &t) : s[e];
    bool seen = j >= at.lo && j < at.hi;
    float p = seen ? exp2_approx(fmaf(x, LOG2E, -lse)) : 0;
    if (OPTIONS)
      z = dropout(a, at, j);
    s[e] = p * z;
    dp[e] = seen ? p * (z * dp[e] - d) * (1 - t * t) : 0;
  }
  ((vec<T> *)a.s)[at_n] = packed<T>(s);
  ((vec<T> *)a.dp)[at_n] = packed<T>(dp);
}

template <class T, int WARPS, bool OPTIONS>
__global__ __launch_bounds__(128) void gradient_rows(const naive_rows a, int64_t rows)
{
  constexpr int TEAM = 32 * WARPS, TEAMS = 128 / TEAM;
  __shared__ float shared[32];
  int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
  bool live = row < rows;
  row_place<T> at = locate<T, OPTIONS>(a, live ? row : 0);
  float d = row_dot<T, WARPS>(a, at, shared);
  if (!live)
    return;
  float lse = a.lse[at.seq * a.lse_seq + at.head * a.lse_head + at.i] * LOG2E;
  int vectors = (int)(a.ld / vec<T>::N);
  for (int n = threadIdx.x % TEAM; n < vectors; n += TEAM)
    gradient_vector<T, OPTIONS>(a, at, n, lse, d);
}

template <class T>
__global__ void store_kernel(attn_tensor to, const float *from, int64_t rows, int64_t heads,
                             int64_t d, int64_t total)
{
  int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= total)
    return;
  int64_t c = n % d, i = n / d % rows, h = n / d / rows % heads, s = n / d / rows / heads;
  ((T *)to.data)[s * to.sb + i * to.ss + h * to.sh + c] = (T)(from ? from[n] : 0);
}

/* ---- launchers ------------------------------------------------------------------------------ */

static int launched(void)
{
  return cudaGetLastError() == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

static int64_t row_count(const naive_rows *a)
{
  return a->count * a->hq * a->sq;
}

template <class T, int WARPS, bool OPTIONS>
static int launch_short(const naive_rows *a, cudaStream_t stream)
{
  constexpr int THREADS = block_of<WARPS>::THREADS, TEAMS = block_of<WARPS>::TEAMS;
  int64_t rows = row_count(a);
  unsigned blocks = (unsigned)((rows + TEAMS - 1) / TEAMS);
  softmax_short<T, WARPS, OPTIONS><<<blocks, THREADS, 0, stream>>>(*a, rows);
  return launched();
}

template <class T, bool OPTIONS>
static int softmax_of(const naive_rows *a, cudaStream_t stream)
{
  int64_t vectors = a->ld / vec<T>::N;
  if (vectors <= VECTORS * 32)
    return launch_short<T, 1, OPTIONS>(a, stream);
  if (vectors <= VECTORS * 128)
    return launch_short<T, 4, OPTIONS>(a, stream);
  if (vectors <= VECTORS * 512)
    return launch_short<T, 16, OPTIONS>(a, stream);
  softmax_long<T, 16, OPTIONS><<<(unsigned)row_count(a), 512, 0, stream>>>(*a);
  return launched();
}

template <class T, bool OPTIONS>
static int gradient_of(const naive_rows *a, cudaStream_t stream)
{
  int64_t rows = row_count(a);
  if (a->ld / vec<T>::N <= 128)
    gradient_rows<T, 1, OPTIONS><<<(unsigned)((rows + 3) / 4), 128, 0, stream>>>(*a, rows);
  else
    gradient_rows<T, 4, OPTIONS><<<(unsigned)rows, 128, 0, stream>>>(*a, rows);
  return launched();
}

static bool has_options(const naive_rows *a)
{
  return a->softcap > 0 || a->alibi || a->drop_threshold > 0;
}

template <class T>
static int softmax_typed(const naive_rows *a, cudaStream_t stream)
{
  return has_options(a) ? softmax_of<T, true>(a, stream) : softmax_of<T, false>(a, stream);
}

template <class T>
static int gradient_typed(const naive_rows *a, cudaStream_t stream)
{
  return has_options(a) ? gradient_of<T, true>(a, stream) : gradient_of<T, false>(a, stream);
}

extern "C" int attn_naive_softmax(enum attn_dtype t, const struct naive_rows *a, void *stream)
{
  cudaStream_t s = (cudaStream_t)stream;
  return t == ATTN_BF16  ? softmax_typed<__nv_bfloat16>(a, s)
         : t == ATTN_F16 ? softmax_typed<__half>(a, s)
                         : softmax_typed<float>(a, s);
}

extern "C" int attn_naive_gradient(enum attn_dtype t, const struct naive_rows *a, void *stream)
{
  cudaStream_t s = (cudaStream_t)stream;
  return t == ATTN_BF16  ? gradient_typed<__nv_bfloat16>(a, s)
         : t == ATTN_F16 ? gradient_typed<__half>(a, s)
                         : gradient_typed<float>(a, s);
}

template <class T>
static int store_typed(const attn_tensor *to, const float *from, int64_t count, int64_t rows,
                       int64_t heads, int64_t d, cudaStream_t stream)
{
  int64_t total = count * rows * heads * d;
  if (total)
    store_kernel<T>
        <<<(unsigned)((total + 255) / 256), 256, 0, stream>>>(*to, from, rows, heads, d, total);
  return launched();
}

extern "C" int attn_naive_store(enum attn_dtype t, const struct attn_tensor *to, const float *from,
                                int64_t count, int64_t rows, int64_t heads, int64_t d, void *stream)
{
  cudaStream_t s = (cudaStream_t)stream;
  return t == ATTN_BF16  ? store_typed<__nv_bfloat16>(to, from, count, rows, heads, d, s)
         : t == ATTN_F16 ? store_typed<__half>(to, from, count, rows, heads, d, s)
                         : store_typed<float>(to, from, count, rows, heads, d, s);
}
