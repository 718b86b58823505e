/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-wide.cuh - cuda/decode on Hopper: up to 64 packed queries of a KV head against the keys
 * that four warps have loaded.
 *
 * With many queries the warps' own units are bound by instructions, not by DRAM. Here the four
 * warps of a team share a unit of 64 keys, each having copied 16 of them, and wgmma takes it from
 * shared memory as it lies there: S (queries x keys) = Q K', then O += P V, Q and P from registers.
 * Queries are its 64 rows, however few there are, since it waits for DRAM all the same; a warp has
 * 16 of them, so that a row's softmax stays in four lanes.  Lane 4g + t holds rows g and g + 8, of
 * each eight columns 2t and 2t + 1.  A block's two teams take turns, and are merged at the end of a
 * head.
 */
#ifndef IMPL_CUDA_DECODE_WIDE_CUH
#define IMPL_CUDA_DECODE_WIDE_CUH

#include "impl/cuda/decode/decode-forward.cuh"
#include "impl/cuda/ptx-sm90.cuh"

/* As decode_config. */
template <class T, class W, int D_, int STAGES_, decode_form FORM_>
struct decode_wide {
  using elem = T;
  using operand = T;
  using wide = W; /* wgmma's name of it */
  static constexpr bool KV8 = false;
  static constexpr decode_form FORM = FORM_;
  static constexpr int D = D_, ROWS = 64, STAGES = STAGES_, BLOCKS = 1;
  static constexpr int TEAM = 4, TEAMS = 2, WARPS = TEAM * TEAMS; /* of warps */
  static constexpr int THREADS = 32 * WARPS, SIZE = 2, DB = D / 16;
  static constexpr int KEYS = 16, TILE = KEYS * WARPS;
  static constexpr int CHUNKS = D * SIZE / 16, STEP = 32 / CHUNKS;
  static constexpr int PANEL = KEYS * TEAM; /* keys of a team's unit */
  static constexpr int HALF_BYTES = PANEL * D * SIZE, UNIT_BYTES = 2 * HALF_BYTES;
  static constexpr int RING_BYTES = TEAMS * STAGES * UNIT_BYTES;
  static constexpr int VIEW_BYTES = ROWS * 16;
  static constexpr int MERGE_BYTES = VIEW_BYTES + ROWS * D * 4;
  static constexpr int STAT_BYTES = TEAMS * ROWS * 8;
  static constexpr int PLACE = RING_BYTES + MERGE_BYTES + STAT_BYTES;
  static constexpr int SMEM = PLACE + 64;
};

/* What a warp carries along the keys of a head. */
template <class C>
struct decode_wide_rows {
  float o[C::D / 2];     /* unnormalised */
  float m[2], l[2];      /* as in decode_rows */
  uint32_t q[C::DB * 4]; /* operands */
  float scale_log2, threshold;
  int clean_begin, clean_end;
};

/* This thread's team, and its place there. */
__device__ __forceinline__ int wide_team()
{
  return threadIdx.x / 128;
}

__device__ __forceinline__ int wide_place()
{
  return threadIdx.x % 128;
}

/* This lane's first row of the tile. */
__device__ __forceinline__ int wide_row()
{
  return wide_place() / 32 * 16 + threadIdx.x % 32 / 4;
}

template <class C>
__device__ __forceinline__ void wide_load_q(decode_wide_rows<C> &st, const decode_args &a,
                                            const decode_cursor<C> &at, const decode_seq &n)
{
  int kv_head = at.head / n.q_tiles, row0 = at.head % n.q_tiles * C::ROWS;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = row0 + wide_row() + 8 * half;
    const char *from = NULL;
    if (row < n.sq * a.group)
      from = q_row<C>(a, n, at.seq, kv_head, row);
#pragma unroll
    for (int i = 0; i < C::DB * 2; i++) {
      int col = i * 8 + threadIdx.x % 4 * 2;
      st.q[i * 2 + half] = from && col < a.d ? *(const uint32_t *)(from + 2 * col) : 0;
    }
  }
}

/* views: a place for the rows'. */
template <class C>
__device__ __forceinline__ void decode_begin(decode_wide_rows<C> &st, const decode_args &a,
                                             const decode_cursor<C> &at, decode_view *views)
{
  const decode_seq n = decode_sequence<C>(a, at.seq);
  int kv_head = at.head / n.q_tiles, row0 = at.head % n.q_tiles * C::ROWS, rows = n.sq * a.group;
  int begin = 0, end = n.sk;
  wide_load_q<C>(st, a, at, n);
  if (threadIdx.x < C::ROWS)
    views[threadIdx.x] =
        decode_view_of(a, n, decode_row(a, kv_head, min(row0 + (int)threadIdx.x, rows - 1)));
  __syncthreads();
  for (int i = threadIdx.x % 32; i < C::ROWS; i += 32) {
    begin = max(begin, views[i].begin);
    end = min(end, views[i].end);
  }
  st.clean_begin = __reduce_max_sync(~0u, begin);
  st.clean_end = __reduce_min_sync(~0u, end);
  st.scale_log2 = a.scale_log2;
  st.threshold = a.threshold;
  st.m[0] = st.m[1] = -CUDART_INF_F;
  st.l[0] = st.l[1] = 0;
#pragma unroll
  for (int i = 0; i < C::D / 2; i++)
    st.o[i] = 0;
}

/* ---- one unit ------------------------------------------------------------------------------- */

template <class C>
using wide_scores = float[C::PANEL / 2];

/* k: descriptor of the keys. */
template <class C>
__device__ __forceinline__ void wide_qk(wide_scores<C> &s, decode_wide_rows<C> &st, uint32_t k)
{
  pin(st.q);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < C::DB; i++)
    wgmma<typename C::wide, C::PANEL>::template rs<0>(
        s, st.q + 4 * i, desc(k + i / 4 * (C::PANEL * 8) + i % 4 * 2), i > 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(s);
}

/* Raw scores become scaled, softcapped and biased ones; what a row does not see -inf. n0: first
 * key. */
template <class C>
__device__ __forceinline__ void wide_options(wide_scores<C> &s, const decode_args &a,
                                             const decode_view *views, int n0)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const decode_view row = views[wide_row() + 8 * half];
#pragma unroll
    for (int i = 0; i < C::PANEL / 4; i++) {
      int key = n0 + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
      float &x = s[i / 2 * 4 + half * 2 + i % 2];
      if (a.options)
        x = decode_option(a, a.raw_scale, row, key, x);
      x = decode_seen(row, key, x);
    }
  }
}

/* As decode_rescale, a row being in four lanes. */
template <class C>
__device__ __forceinline__ void wide_rescale(decode_wide_rows<C> &st, const wide_scores<C> &s)
{
  float top[2] = {st.m[0], st.m[1]};
#pragma unroll
  for (int i = 0; i < C::PANEL / 2; i++)
    top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
  bool grew = top[0] - st.m[0] > st.threshold || top[1] - st.m[1] > st.threshold;
  if (!__any_sync(~0u, grew))
    return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float x = top[half], &m = st.m[half];
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
    bool up = x - m > st.threshold;
    float alpha = up ? exp2_approx((m - x) * st.scale_log2) : 1;
    m = up ? x : m;
    st.l[half] *= alpha;
#pragma unroll
    for (int i = 0; i < C::D / 4; i++)
      st.o[i / 2 * 4 + half * 2 + i % 2] *= alpha;
  }
}

/* P = 2^(scale_log2 (s - m)), as operands. */
template <class C>
__device__ __forceinline__ void wide_p(uint32_t (&p)[C::PANEL / 4], decode_wide_rows<C> &st,
                                       wide_scores<C> &s)
{
  float shift[2], sum[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; half++)
    shift[half] = st.m[half] == -CUDART_INF_F ? 0 : st.m[half] * st.scale_log2;
#pragma unroll
  for (int i = 0; i < C::PANEL / 2; i++) {
    s[i] = exp2_approx(fmaf(s[i], st.scale_log2, -shift[i / 2 % 2]));
    sum[i / 2 % 2] += s[i];
  }
  st.l[0] += sum[0];
  st.l[1] += sum[1];
#pragma unroll
  for (int i = 0; i < C::PANEL / 4; i++)
    p[i] = pack<typename C::elem>(s[2 * i], s[2 * i + 1]);
}

/* v: descriptor of the values. */
template <class C>
__device__ __forceinline__ void wide_pv(decode_wide_rows<C> &st, uint32_t (&p)[C::PANEL / 4],
                                        uint32_t v)
{
  pin(p);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < C::PANEL / 16; i++)
    wgmma<typename C::wide, C::D>::template rs<1>(st.o, p + 4 * i, desc(v + i * 128), 1);
  wgmma_commit();
  wgmma_wait<0>();
  pin(st.o);
  pin(p);
}

/* at: of the team's unit. */
template <class C>
__device__ __forceinline__ void decode_unit(decode_wide_rows<C> &st, const decode_args &a,
                                            const decode_view *views, int n0, uint32_t at)
{
  wide_scores<C> s;
  uint32_t p[C::PANEL / 4];
  wide_qk<C>(s, st, desc_lo(at, 0));
  if (a.options || n0 < st.clean_begin || n0 + C::PANEL > st.clean_end)
    wide_options<C>(s, a, views, n0);
  wide_rescale<C>(st, s);
  wide_p<C>(p, st, s);
  wide_pv<C>(st, p, desc_lo(at + C::HALF_BYTES, C::PANEL * 128));
}

/* As the narrow one; a team's warps wait for each other, since each has loaded a share. */
template <class C>
__device__ __forceinline__ void decode_head(decode_wide_rows<C> &st, const decode_args &a,
                                            const decode_cursor<C> &at, decode_loader<C> &loader,
                                            float *buffer, uint32_t ring, int &stage)
{
  decode_view *views = (decode_view *)buffer;
  const int end = at.end, team = wide_team();
  const uint32_t unit = ring - wide_place() / 32 * (C::KEYS * 128);
  decode_begin<C>(st, a, at, views);
  for (int tile = at.tile; tile < end; tile++) {
    copy_wait<C::STAGES - 2>();
    fence_proxy_async();
    named_sync(1 + team, 32 * C::TEAM);
    loader.issue(a, ring + (stage == 0 ? C::STAGES - 1 : stage - 1) * C::UNIT_BYTES);
    decode_unit<C>(st, a, views, tile * C::TILE + team * C::PANEL, unit + stage * C::UNIT_BYTES);
    stage = stage == C::STAGES - 1 ? 0 : stage + 1;
  }
}

/* ---- the end of a head ---------------------------------------------------------------------- */

/* Element i of a team's share of the columns, the first half or the second. */
template <class C>
__device__ __forceinline__ float wide_element(const decode_wide_rows<C> &st, int team, int i)
{
  return team ? st.o[C::D / 4 + i] : st.o[i];
}

/* What the other team needs: the statistics, and its share of the columns. */
template <class C>
__device__ __forceinline__ void wide_share(const decode_wide_rows<C> &st, float *buffer,
                                           decode_stats<C> &stats)
{
  const int other = 1 - wide_team();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float l = st.l[half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    if (threadIdx.x % 4 == 0)
      stats[wide_team()][wide_row() + 8 * half] = make_float2(st.m[half] * st.scale_log2, l);
  }
#pragma unroll
  for (int i = 0; i < C::D / 4; i++)
    buffer[(other * (C::D / 4) + i) * 128 + wide_place()] = wide_element<C>(st, other, i);
}

/* What a team's elements of a row count. */
template <class C>
__device__ __forceinline__ float wide_weight(const decode_stats<C> &stats, int team, int row,
                                             float2 all)
{
  float m = stats[team][row].x;
  return m > -CUDART_INF_F && all.y > 0 ? exp2_approx(m - all.x) / all.y : 0;
}

/* Merges the teams and writes the rows, each team its share of the columns: of sixteen, an even
 * lane has four of the first eight once it has exchanged two with its neighbour, an odd one four of
 * the others. */
template <class C>
__device__ __forceinline__ void decode_finish(const decode_wide_rows<C> &st, const decode_args &a,
                                              const decode_output<C> &out, float *views,
                                              decode_stats<C> &stats)
{
  float *buffer = views + C::VIEW_BYTES / 4;
  const int t = threadIdx.x % 4, odd = t % 2, team = wide_team();
  const float *other = buffer + team * (C::D / 4) * 128 + wide_place();
  wide_share<C>(st, buffer, stats);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = wide_row() + 8 * half;
    bool there = out.row0 + row < out.rows;
    decode_target to = out.target(a, row);
    float2 all = joint_stats<C>(stats, row);
    float own = wide_weight<C>(stats, team, row, all),
          its = wide_weight<C>(stats, 1 - team, row, all);
    float lse2 = all.y > 0 ? all.x + log2f(all.y) : -CUDART_INF_F;
#pragma unroll
    for (int i = 0; i < C::DB / 2; i++) {
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int at = 8 * i + 2 * half + e / 2 * 4 + e % 2;
        x[e] = wide_element<C>(st, team, at) * own + other[at * 128] * its;
      }
      float c0 = __shfl_xor_sync(~0u, odd ? x[0] : x[2], 1),
            c1 = __shfl_xor_sync(~0u, odd ? x[1] : x[3], 1);
      float4 y = odd ? make_float4(c0, c1, x[2], x[3]) : make_float4(x[0], x[1], c0, c1);
      int c = team * (C::D / 2) + i * 16 + odd * 8 + t / 2 * 4;
      if (there && c < a.dv)
        out.write(a, to, c, y, lse2);
    }
  }
  __syncthreads();
}

template <class T, class W, int D, int STAGES, decode_form FORM>
constexpr decode_kernel decode_wide_variant()
{
  using C = decode_wide<T, W, D, STAGES, FORM>;
  return {T::dtype,
          ATTN_KV_DTYPE,
          D,
          C::ROWS,
          C::TILE,
          C::BLOCKS,
          C::THREADS,
          (size_t)C::SMEM,
          (const void *)decode_forward<C, decode_wide_rows<C>>,
          C::FORM,
          true};
}

/* Rows of a table, one of each form. */
#define WIDE_FORMS(...)                                                                            \
  decode_wide_variant<__VA_ARGS__, DECODE_ANY>(), decode_wide_variant<__VA_ARGS__, DECODE_EVEN>(), \
      decode_wide_variant<__VA_ARGS__, DECODE_PAGED>()

#endif
