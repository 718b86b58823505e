/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-rows.cuh - cuda/decode: the packed queries of a head and what one unit of keys and values
 * does to them.
 *
 * Few queries want the tensor cores' narrow side: S' = K Q' (keys x queries) and O' = V' P' (head
 * dim x queries), so that eight queries cost eight columns and not sixteen rows.  Lane 4g + t then
 * holds of S' keys g and g + 8 and queries 2t and 2t + 1, of O' columns g and g + 8 of the head
 * dimension (2g and 2g + 1 with an e4m3 cache) of the same queries.  P becomes an operand by
 * transposing 8 x 8 blocks in registers.
 */
#ifndef IMPL_CUDA_DECODE_ROWS_CUH
#define IMPL_CUDA_DECODE_ROWS_CUH

#include "impl/cuda/decode/decode-operands.cuh"
#include "impl/cuda/decode/decode-queries.cuh"

/* What a warp carries along the keys of a head, and what it needs to know of it. */
template <class C>
struct decode_rows {
  float o[C::DB][C::NB][4];                      /* unnormalised */
  float m[C::NB][2];                             /* maximum that P refers to, raw scores */
  float l[C::NB][2];                             /* this lane's share of the sum of P */
  uint32_t q[C::SHARED_Q ? 1 : C::DB][C::NB][2]; /* operands, if they fit */
  uint32_t q_at;                                 /* else this lane's first address of them */
  float scale_log2, threshold; /* as in the arguments, with the scale of the keys */
  float raw_scale;
  int clean_begin, clean_end; /* keys in between need no mask */
};

/* Q of the row, this lane's columns; zeros where there is no row. */
template <class C>
__device__ __forceinline__ void decode_load_q(decode_rows<C> &st, const decode_args &a, int nb,
                                              const char *row)
{
  int t = threadIdx.x % 4;
#pragma unroll
  for (int s = 0; s < C::DB; s++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      int col = s * 16 + (C::KV8 ? t * 4 + c * 2 : c * 8 + t * 2);
      st.q[s][nb][c] = row && col < a.d ? *(const uint32_t *)(row + 2 * col) : 0;
    }
}

/* The queries in registers; what scores are to be multiplied with. */
template <class C>
__device__ __forceinline__ float decode_fit_q(decode_rows<C> &st)
{
  decode_fit fit;
#pragma unroll
  for (int i = 0; i < C::DB * C::NB * 2; i++)
    fit.see(st.q[i / 2 / C::NB][i / 2 % C::NB][i % 2]);
  fit.agree();
#pragma unroll
  for (int i = 0; i < C::DB * C::NB * 2; i++) {
    uint32_t &x = st.q[i / 2 / C::NB][i / 2 % C::NB][i % 2];
    x = fit.apply(x);
  }
  return fit.inverse();
}

/* views: of the rows, this warp's own; queries: where those of all warps are shared. */
template <class C>
__device__ __forceinline__ void decode_begin(decode_rows<C> &st, const decode_args &a,
                                             const decode_cursor<C> &at, decode_view *views,
                                             unsigned char *queries)
{
  const decode_seq n = decode_sequence<C>(a, at.seq);
  int kv_head = at.head / n.q_tiles, row0 = at.head % n.q_tiles * C::ROWS, rows = n.sq * a.group;
  st.clean_begin = 0;
  st.clean_end = n.sk;
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++) {
    int row = row0 + nb * 8 + threadIdx.x % 32 / 4;
    if constexpr (!C::SHARED_Q)
      decode_load_q<C>(st, a, nb, row < rows ? q_row<C>(a, n, at.seq, kv_head, row) : NULL);
    decode_view view = decode_view_of(a, n, decode_row(a, kv_head, min(row, rows - 1)));
    if (threadIdx.x % 4 == 0)
      views[row - row0] = view;
    st.clean_begin = max(st.clean_begin, view.begin);
    st.clean_end = min(st.clean_end, view.end);
    st.m[nb][0] = st.m[nb][1] = -CUDART_INF_F;
    st.l[nb][0] = st.l[nb][1] = 0;
#pragma unroll
    for (int db = 0; db < C::DB; db++)
      st.o[db][nb][0] = st.o[db][nb][1] = st.o[db][nb][2] = st.o[db][nb][3] = 0;
  }
  float fit = 1;
  if constexpr (C::SHARED_Q) {
    int lane = threadIdx.x % 32;
    fit = decode_share_q<C>(a, at, n, queries);
    st.q_at =
        shared_address(queries) + tile_offset<C::ROWS>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    __syncthreads();
  } else if constexpr (decode_fits<C>) {
    fit = decode_fit_q<C>(st);
  }
  float keys = C::KV8 ? a.k_scale[kv_head] : 1;
  keys *= fit;
  st.raw_scale = a.raw_scale * keys;
  st.scale_log2 = a.options ? a.scale_log2 : a.scale_log2 * keys;
  st.threshold = a.options ? a.threshold : a.threshold / keys;
  st.clean_begin = __reduce_max_sync(~0u, st.clean_begin);
  st.clean_end = __reduce_min_sync(~0u, st.clean_end);
  __syncwarp();
}

/* 16 columns of Q at step s of the head dimension. */
template <class C>
__device__ __forceinline__ void decode_q(uint32_t (&x)[C::NB][2], const decode_rows<C> &st, int s)
{
  if constexpr (C::SHARED_Q) {
#pragma unroll
    for (int nb = 0; nb < C::NB; nb += 2) {
      uint32_t r[4];
      ldmatrix(r, (st.q_at ^ (s % 4 * 32)) + s / 4 * (C::ROWS * 128) + nb * 8 * 128);
      x[nb][0] = r[0];
      x[nb][1] = r[1];
      x[nb + 1][0] = r[2];
      x[nb + 1][1] = r[3];
    }
  } else {
#pragma unroll
    for (int nb = 0; nb < C::NB; nb++) {
      x[nb][0] = st.q[s][nb][0];
      x[nb][1] = st.q[s][nb][1];
    }
  }
}

/* ---- one unit ------------------------------------------------------------------------------- */

template <class C>
using decode_scores = float[C::SUBS][C::NB][4];

template <class C>
__device__ __forceinline__ void decode_qk(decode_scores<C> &s, const decode_rows<C> &st, uint32_t k)
{
  constexpr int PACE = C::KV8 ? 2 : 1;
#pragma unroll
  for (int sub = 0; sub < C::SUBS; sub++) {
    float odd[C::NB][4] = {}; /* two chains are twice as fast as one */
#pragma unroll
    for (int nb = 0; nb < C::NB; nb++)
      s[sub][nb][0] = s[sub][nb][1] = s[sub][nb][2] = s[sub][nb][3] = 0;
#pragma unroll
    for (int step = 0; step < C::DB; step += PACE) {
      uint32_t x[2][4];
      decode_k<C>(x, k + sub * 16 * 128, step);
#pragma unroll
      for (int i = 0; i < PACE; i++) {
        uint32_t q[C::NB][2];
        decode_q<C>(q, st, step + i);
#pragma unroll
        for (int nb = 0; nb < C::NB; nb++)
          mma<typename C::operand>(C::NB == 1 && (step + i) % 2 ? odd[nb] : s[sub][nb], x[i],
                                   q[nb][0], q[nb][1]);
      }
    }
    if (C::NB == 1)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[sub][0][e] += odd[0][e];
  }
}

/* Where element e of operand nb of 16 keys from n0 lies. */
__device__ __forceinline__ int decode_key(int n0, int e)
{
  return n0 + threadIdx.x % 32 / 4 + e / 2 * 8;
}

__device__ __forceinline__ int decode_query(int nb, int e)
{
  return nb * 8 + threadIdx.x % 4 * 2 + e % 2;
}

/* Raw scores become scaled, softcapped and biased ones. n0: first key. */
template <class C>
__device__ __forceinline__ void decode_options(decode_scores<C> &s, const decode_rows<C> &st,
                                               const decode_args &a, const decode_view *views,
                                               int n0)
{
#pragma unroll
  for (int sub = 0; sub < C::SUBS; sub++)
#pragma unroll
    for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float &x = s[sub][nb][e];
        x = decode_option(a, st.raw_scale, views[decode_query(nb, e)], decode_key(n0 + 16 * sub, e),
                          x);
      }
}

/* Scores that a row does not see become -inf. */
template <class C>
__device__ __forceinline__ void decode_mask(decode_scores<C> &s, const decode_view *views, int n0)
{
#pragma unroll
  for (int sub = 0; sub < C::SUBS; sub++)
#pragma unroll
    for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float &x = s[sub][nb][e];
        x = decode_seen(views[decode_query(nb, e)], decode_key(n0 + 16 * sub, e), x);
      }
}

/* Moves a row's maximum up to the unit's where that is more than the threshold above. */
template <class C>
__device__ __forceinline__ void decode_raise(decode_rows<C> &st, float (&top)[C::NB][2])
{
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float &x = top[nb][half], &m = st.m[nb][half];
      for (int d = 4; d < 32; d *= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
      bool up = x - m > st.threshold;
      float alpha = up ? exp2_approx((m - x) * st.scale_log2) : 1;
      m = up ? x : m;
      st.l[nb][half] *= alpha;
#pragma unroll
      for (int db = 0; db < C::DB; db++) {
        st.o[db][nb][half] *= alpha;
        st.o[db][nb][half + 2] *= alpha;
      }
    }
}

/* The same, which is seldom necessary: a vote says whether. */
template <class C>
__device__ __forceinline__ void decode_rescale(decode_rows<C> &st, const decode_scores<C> &s)
{
  float top[C::NB][2];
  bool grew = false;
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x = st.m[nb][half];
#pragma unroll
      for (int sub = 0; sub < C::SUBS; sub++)
        x = fmaxf(x, fmaxf(s[sub][nb][half], s[sub][nb][half + 2]));
      /* -inf - -inf is NaN, which is not greater */
      grew |= x - st.m[nb][half] > st.threshold;
      top[nb][half] = x;
    }
  if (__any_sync(~0u, grew))
    decode_raise<C>(st, top);
}

/* P = 2^(scale_log2 (s - m)) of 16 keys, as operands. */
template <class C>
__device__ __forceinline__ void decode_p(uint32_t (&p)[C::NB][2], decode_rows<C> &st,
                                         const float (&s)[C::NB][4])
{
#pragma unroll
  for (int nb = 0; nb < C::NB; nb++) {
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float m = st.m[nb][e % 2];
      float shift = m == -CUDART_INF_F ? 0 : m * st.scale_log2 - C::BOOST;
      x[e] = exp2_approx(fmaf(s[nb][e], st.scale_log2, -shift));
    }
    st.l[nb][0] += x[0] + x[2];
    st.l[nb][1] += x[1] + x[3];
    p[nb][0] = transpose(pack<typename C::operand>(x[0], x[1]));
    p[nb][1] = transpose(pack<typename C::operand>(x[2], x[3]));
  }
}

/* o += V' P'. */
template <class C>
__device__ __forceinline__ void decode_pv(decode_rows<C> &st, const decode_scores<C> &s, uint32_t v)
{
  constexpr int PACE = C::KV8 ? 2 : 1;
#pragma unroll
  for (int sub = 0; sub < C::SUBS; sub++) {
    uint32_t p[C::NB][2];
    decode_p<C>(p, st, s[sub]);
#pragma unroll
    for (int db = 0; db < C::DB; db += PACE) {
      uint32_t x[2][4];
      decode_v<C>(x, v + sub * 16 * 128, db);
#pragma unroll
      for (int i = 0; i < PACE; i++)
#pragma unroll
        for (int nb = 0; nb < C::NB; nb++)
          mma<typename C::operand>(st.o[db + i][nb], x[i], p[nb][0], p[nb][1]);
    }
  }
}

/* k, v: this lane's first addresses. */
template <class C>
__device__ __forceinline__ void decode_unit(decode_rows<C> &st, const decode_args &a,
                                            const decode_view *views, int n0, uint32_t k,
                                            uint32_t v)
{
  decode_scores<C> s;
  decode_qk<C>(s, st, k);
  if (a.options)
    decode_options<C>(s, st, a, views, n0);
  if (n0 < st.clean_begin || n0 + C::KEYS > st.clean_end)
    decode_mask<C>(s, views, n0);
  decode_rescale<C>(st, s);
  decode_pv<C>(st, s, v);
}

#endif
