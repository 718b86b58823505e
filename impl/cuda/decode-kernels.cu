/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-kernels.cu - the kernels of cuda/decode: few queries on a long cache, contiguous or paged.
 *
 *   q, o (b, seqlen_q, hq, d|dv)   lse (b, hq, seqlen_q), ragged (hq, total_q)
 *   k (b, seqlen_k, hkv, d)   v (b, seqlen_k, hkv, dv), or pools (pages, page, hkv, d|dv)
 *
 * The queries of all heads that share a KV head are packed into rows, row i*group + g for query i
 * of the g-th head, so that K and V are read once.  Decode lives on bytes in flight: a warp streams
 * 16 keys and values at a time through a ring of its own in shared memory, with cp.async, and never
 * waits for another warp; the four warps of a block take every fourth 16 keys, each with a softmax
 * of its own, and are merged at the end of a head.
 *
 * Splits.  All 64-key tiles of all heads of all sequences form one line, which is cut into equal
 * slices, one for each block of a grid that just fills the GPU: unequal lengths need no care, and a
 * block sees at most one head that it does not begin and one that it does not finish.  Blocks find
 * their slices from the lengths in device memory, so a captured graph stays right when these
 * change.  A head in several slices is merged by the blocks that do not finish it, each a share of
 * its elements, once all parts have arrived: launched cooperatively, all blocks are there.
 *
 * Pages.  The lane that owns a key's row looks its page up one step ahead of the copy and computes
 * the address, which the others get by shuffle: pages of one token cost what large ones cost.
 * Nothing behind the end of a sequence is read, neither slots nor table entries; such rows are
 * zeros in shared memory, for 0 * NaN is NaN.
 *
 * Numerics: as flash-sm80: scores and statistics in fp32, P rounded to the storage type as an
 * operand while its sum is taken unrounded, a row's maximum moves when it grew by more than 8
 * (log2); partial results in fp32.
 */
#include "config.h"

#include <math_constants.h>

#include "impl/cuda/decode.h"
#include "impl/cuda/mma.cuh"

#define KEYS 16 /* of a unit: what a warp loads and computes at once */
#define WARPS 4
#define THREADS (32 * WARPS)

static_assert(KEYS * WARPS == DECODE_TILE, "a tile is a unit for each warp");

template <class T, int D_, int ROWS_, int STAGES_, int BLOCKS_>
struct decode_config {
  using elem = T;
  static constexpr int D = D_, ROWS = ROWS_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr int MB = ROWS / 16, DB = D / 8, STEPS = D / 16;
  static constexpr int CHUNKS = D / 8, STEP = 32 / CHUNKS; /* of a row; rows of one copy */
  static constexpr int HALF_BYTES = KEYS * D * 2, UNIT_BYTES = 2 * HALF_BYTES; /* K, and V */
  static constexpr int RING_BYTES = WARPS * STAGES * UNIT_BYTES;
  static constexpr int MERGE_BYTES = WARPS * 8 * D * 4;
  static constexpr int STAT_BYTES = WARPS * ROWS * 8;
  static constexpr int PLACE = RING_BYTES + MERGE_BYTES + STAT_BYTES; /* of decode_place */
  static constexpr int SMEM = PLACE + 64;
};

/* ---- where ---------------------------------------------------------------------------------- */

/* A sequence as its lengths in device memory say. */
struct decode_seq {
  int sq, sk;
  int q_tiles, heads;   /* tiles of packed queries; KV heads times those */
  int first, tiles;     /* of the keys that its queries see; at least one, were it empty */
  int64_t q_row, k_row; /* where it starts in packed tensors */
};

template <int ROWS>
__device__ __forceinline__ decode_seq decode_sequence(const decode_args &a, int s)
{
  decode_seq n;
  n.sq = a.sq;
  n.sk = a.sk;
  n.q_row = n.k_row = 0;
  if (a.cu_seqlens_q) {
    n.q_row = a.cu_seqlens_q[s];
    n.sq = a.cu_seqlens_q[s + 1] - (int)n.q_row;
  }
  if (a.cu_seqlens_k) {
    n.k_row = a.cu_seqlens_k[s];
    n.sk = a.cu_seqlens_k[s + 1] - (int)n.k_row;
  }
  if (a.seqlens_k)
    n.sk = a.seqlens_k[s];
  int diagonal = a.bottom_right ? n.sk - n.sq : 0;
  int lo = max(0, diagonal - a.left), hi = min(n.sk, n.sq + diagonal + a.right);
  n.first = lo / DECODE_TILE;
  n.tiles = hi > lo ? (hi + DECODE_TILE - 1) / DECODE_TILE - n.first : 1;
  n.q_tiles = (n.sq * a.group + ROWS - 1) / ROWS;
  n.heads = a.hkv * n.q_tiles;
  return n;
}

/* A block's slice of the line of tiles. */
struct decode_slice {
  int64_t total;   /* tiles of the line */
  int blocks;      /* that share it */
  int64_t at;      /* first tile of the head that the slice begins in */
  int seq, head;   /* that head */
  int skip, tiles; /* tiles of it before the slice; tiles of the slice */
};

__device__ __forceinline__ int64_t slice_start(int64_t total, int blocks, int block)
{
  return total * block / blocks;
}

/* The block whose slice holds a tile of the line. */
__device__ __forceinline__ int slice_of(int64_t total, int blocks, int64_t tile)
{
  return (int)(((tile + 1) * blocks - 1) / total);
}

/* Sums of x over the threads before this one, and over all. */
__device__ __forceinline__ int64_t block_scan(int64_t x, int64_t *shared, int64_t *all)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t sum = x;
  for (int d = 1; d < 32; d *= 2) {
    int64_t other = __shfl_up_sync(~0u, sum, d);
    sum += lane >= d ? other : 0;
  }
  __syncthreads();
  if (lane == 31)
    shared[warp] = sum;
  __syncthreads();
  int64_t before = 0;
  *all = 0;
  for (int w = 0; w < WARPS; w++) {
    before += w < warp ? shared[w] : 0;
    *all += shared[w];
  }
  return before + sum - x;
}

template <int ROWS>
__device__ __forceinline__ int64_t tiles_of(const decode_args &a, int s)
{
  if (s >= a.b)
    return 0;
  decode_seq n = decode_sequence<ROWS>(a, s);
  return (int64_t)n.heads * n.tiles;
}

/* scratch: shared memory. */
template <int ROWS>
__device__ __forceinline__ decode_slice decode_cut(const decode_args &a, int64_t *scratch)
{
  decode_slice *found = (decode_slice *)(scratch + WARPS);
  decode_slice s;
  bool uniform = !a.cu_seqlens_q && !a.cu_seqlens_k && !a.seqlens_k;
  int64_t all;
  s.total = 0;
  if (uniform)
    s.total = a.b * tiles_of<ROWS>(a, 0);
  for (int i = 0; i < a.b && !uniform; i += THREADS) {
    block_scan(tiles_of<ROWS>(a, i + threadIdx.x), scratch, &all);
    s.total += all;
  }
  s.blocks = (int)min((int64_t)gridDim.x, s.total);
  s.tiles = 0;
  if ((int)blockIdx.x >= s.blocks)
    return s;
  int64_t start = slice_start(s.total, s.blocks, blockIdx.x), before = 0;
  s.tiles = (int)(slice_start(s.total, s.blocks, blockIdx.x + 1) - start);
  s.seq = -1;
  if (uniform)
    s.seq = (int)(start / tiles_of<ROWS>(a, 0));
  if (uniform)
    before = s.seq * tiles_of<ROWS>(a, 0);
  for (int i = 0; s.seq < 0; i += THREADS) {
    int64_t mine = tiles_of<ROWS>(a, i + threadIdx.x);
    int64_t from = before + block_scan(mine, scratch, &all);
    if (start >= from && start < from + mine) {
      found->seq = i + threadIdx.x;
      found->at = from;
    }
    before += all;
    __syncthreads();
    if (start < before) {
      s.seq = found->seq;
      before = found->at;
    }
  }
  decode_seq n = decode_sequence<ROWS>(a, s.seq);
  s.head = (int)((start - before) / n.tiles);
  s.at = before + (int64_t)s.head * n.tiles;
  s.skip = (int)(start - s.at);
  return s;
}

/* ---- walking along the slice ---------------------------------------------------------------- */

/* A position in the slice: a tile of a head of a sequence. What else there is to know of the
 * sequence is looked up again where it is needed, since registers are few. */
template <int ROWS>
struct decode_cursor {
  int seq, head;
  int tile, end; /* of the head: [tile, end) is left of it in this slice */
  int left;      /* tiles of the slice after those */

  __device__ __forceinline__ decode_cursor(const decode_args &a, const decode_slice &s)
  {
    seq = s.seq;
    head = s.head;
    decode_seq n = decode_sequence<ROWS>(a, seq);
    tile = n.first + s.skip;
    end = min(n.first + n.tiles, tile + s.tiles);
    left = s.tiles - (end - tile);
  }

  __device__ __forceinline__ bool done() const
  {
    return tile == end;
  }

  /* From the end of a head to the next, if the slice goes on. */
  __device__ __forceinline__ void turn(const decode_args &a)
  {
    if (left == 0)
      return;
    head++;
    decode_seq n = decode_sequence<ROWS>(a, seq);
    while (head >= n.heads) {
      head = 0;
      n = decode_sequence<ROWS>(a, ++seq);
    }
    tile = n.first;
    end = tile + min(n.tiles, left);
    left -= end - tile;
  }
};

/* ---- loads ---------------------------------------------------------------------------------- */

/* A warp's stream of units, ahead of what it computes. */
template <class C>
struct decode_loader {
  decode_cursor<C::ROWS> at;
  int sk, kv_head;
  uint32_t to;          /* this lane's first chunk in a unit */
  int k_bytes, v_bytes; /* 16, or 0 where the chunk is padding past the head dimension */
  int page;             /* where this lane's row of the next unit lies, if paged */

  __device__ __forceinline__ decode_loader(const decode_args &a, const decode_slice &s) : at(a, s)
  {
    int c = threadIdx.x % 32 % C::CHUNKS;
    to = tile_offset<KEYS>(threadIdx.x % 32 / C::CHUNKS, c);
    k_bytes = c * 8 < a.d ? 16 : 0;
    v_bytes = c * 8 < a.dv ? 16 : 0;
    enter(a);
    look_up(a);
  }

  /* A new head. */
  __device__ __forceinline__ void enter(const decode_args &a)
  {
    decode_seq n = decode_sequence<C::ROWS>(a, at.seq);
    sk = n.sk;
    kv_head = at.head / n.q_tiles;
  }

  /* First key of the warp's unit. */
  __device__ __forceinline__ int first_key() const
  {
    return at.tile * DECODE_TILE + threadIdx.x / 32 * KEYS;
  }

  __device__ __forceinline__ void look_up(const decode_args &a)
  {
    int key = first_key() + threadIdx.x % KEYS;
    page = 0;
    if (a.page && !at.done() && key < sk)
      page = a.block_table[at.seq * a.table_stride + key / a.page];
  }

  /* Offset in elements of this lane's row in a tensor; 0 where there is none. */
  __device__ __forceinline__ int64_t row_offset(const decode_args &a, const attn_tensor &t) const
  {
    int key = first_key() + threadIdx.x % KEYS;
    if (key >= sk)
      return 0;
    if (a.page)
      return page * t.sb + key % a.page * t.ss;
    int64_t first = a.cu_seqlens_k ? a.cu_seqlens_k[at.seq] : 0;
    return at.seq * t.sb + (first + key) * t.ss;
  }

  /* Copies the warp's unit of one tensor. */
  __device__ __forceinline__ void copy(const decode_args &a, const attn_tensor &t, int bytes,
                                       uint32_t unit) const
  {
    int64_t offset = row_offset(a, t);
    int lane = threadIdx.x % 32, rows = sk - first_key();
    const char *from = (const char *)t.data + 16 * (lane % C::CHUNKS);
    from += 2 * kv_head * t.sh;
#pragma unroll
    for (int i = 0; i < KEYS / C::STEP; i++) {
      int row = i * C::STEP + lane / C::CHUNKS;
      int64_t off = __shfl_sync(~0u, offset, row);
      copy16(((unit + to) ^ ((i * C::STEP % 8) << 4)) + i * C::STEP * 128, from + 2 * off,
             row < rows ? bytes : 0);
    }
  }

  /* Copies the next unit, if there is one, and looks up the one after it. */
  __device__ __forceinline__ void issue(const decode_args &a, uint32_t unit)
  {
    if (!at.done()) {
      copy(a, a.k, k_bytes, unit);
      copy(a, a.v, v_bytes, unit + C::HALF_BYTES);
      at.tile++;
      if (at.done()) {
        at.turn(a);
        enter(a);
      }
      look_up(a);
    }
    copy_commit();
  }
};

/* ---- one head ------------------------------------------------------------------------------- */

/* What a warp carries along the keys of a head, and what it needs to know of it. */
template <class C>
struct decode_rows {
  float o[C::MB][C::DB][4];       /* unnormalised */
  float m[C::MB][2];              /* maximum that P refers to, raw scores */
  float l[C::MB][2];              /* this lane's share of the sum of P */
  uint32_t q[C::STEPS][C::MB][4]; /* operands */
  int clean_begin, clean_end;     /* keys in between need no mask */
};

/* What a row sees, for the units that need to know; in shared memory, the same by all warps. */
struct decode_view {
  int diagonal;   /* key that the row's query is aligned with */
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

__device__ __forceinline__ int64_t query_offset(const attn_tensor &t, int seq, int64_t row,
                                                int head)
{
  return seq * t.sb + row * t.ss + head * t.sh;
}

/* ALiBi slope of a query head. */
__device__ __forceinline__ float decode_slope(int hq, int head)
{
  int pow2 = 1;
  while (pow2 * 2 <= hq)
    pow2 *= 2;
  return head < pow2 ? exp2f(-8.0f * (head + 1) / pow2)
                     : exp2f(-4.0f * (2 * (head - pow2) + 1) / pow2);
}

/* Q of the row, this lane's columns; zeros where there is no row. */
template <class C>
__device__ __forceinline__ void decode_load_q(decode_rows<C> &st, const decode_args &a, int mb,
                                              int half, const char *row)
{
#pragma unroll
  for (int s = 0; s < C::STEPS; s++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      int col = s * 16 + c * 8;
      uint32_t x = 0;
      if (row && col < a.d)
        x = *(const uint32_t *)(row + 2 * (col + threadIdx.x % 4 * 2));
      st.q[s][mb][half + 2 * c] = x;
    }
}

template <class C>
__device__ __forceinline__ void decode_begin(decode_rows<C> &st, const decode_args &a,
                                             const decode_cursor<C::ROWS> &at, decode_view *views)
{
  const decode_seq n = decode_sequence<C::ROWS>(a, at.seq);
  int kv_head = at.head / n.q_tiles, row0 = at.head % n.q_tiles * C::ROWS, rows = n.sq * a.group;
  int diagonal = a.bottom_right ? n.sk - n.sq : 0;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = row0 + mb * 16 + half * 8 + threadIdx.x % 32 / 4;
      decode_row r(a, kv_head, min(row, rows - 1));
      const char *q =
          (const char *)a.q.data + 2 * query_offset(a.q, at.seq, n.q_row + r.query, r.head);
      decode_load_q<C>(st, a, mb, half, row < rows ? q : NULL);
      int i = r.query + diagonal;
      if (threadIdx.x % 4 == 0)
        views[row - row0] = {i, i - a.left, min(n.sk, i + a.right + 1),
                             a.alibi ? decode_slope(a.hq, r.head) : 0};
      st.m[mb][half] = -CUDART_INF_F;
      st.l[mb][half] = 0;
    }
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int db = 0; db < C::DB; db++)
      st.o[mb][db][0] = st.o[mb][db][1] = st.o[mb][db][2] = st.o[mb][db][3] = 0;
  int first = row0 / a.group + diagonal,
      last = (min(row0 + C::ROWS, rows) - 1) / a.group + diagonal;
  __syncwarp();
  st.clean_begin = last - a.left;
  st.clean_end = min(n.sk, first + a.right + 1);
}

/* ---- one unit ------------------------------------------------------------------------------- */

template <class C>
using decode_scores = float[C::MB][2][4];

template <class C>
__device__ __forceinline__ void decode_qk(decode_scores<C> &s, const decode_rows<C> &st, uint32_t k)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int nb = 0; nb < 2; nb++)
      s[mb][nb][0] = s[mb][nb][1] = s[mb][nb][2] = s[mb][nb][3] = 0;
#pragma unroll
  for (int step = 0; step < C::STEPS; step++) {
    uint32_t kb[4];
    ldmatrix(kb, (k ^ (step % 4 * 32)) + step / 4 * (KEYS * 128));
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++) {
      mma<typename C::elem>(s[mb][0], st.q[step][mb], kb[0], kb[1]);
      mma<typename C::elem>(s[mb][1], st.q[step][mb], kb[2], kb[3]);
    }
  }
}

/* Raw scores become scaled, softcapped and biased ones. n0: first key. */
template <class C>
__device__ __forceinline__ void decode_options(decode_scores<C> &s, const decode_args &a,
                                               const decode_view *views, int n0)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int x = 0; x < 8; x++) {
      int half = x / 2 % 2, key = n0 + x / 4 * 8 + threadIdx.x % 4 * 2 + x % 2;
      const decode_view &row = views[mb * 16 + half * 8 + threadIdx.x % 32 / 4];
      float &y = s[mb][x / 4][x % 4];
      y *= a.raw_scale;
      if (a.softcap > 0)
        y = a.softcap * tanhf(y * a.inv_softcap);
      y -= row.slope * fabsf((float)(row.diagonal - key));
    }
}

/* Scores that a row does not see become -inf. */
template <class C>
__device__ __forceinline__ void decode_mask(decode_scores<C> &s, const decode_view *views, int n0)
{
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int x = 0; x < 8; x++) {
      int half = x / 2 % 2, key = n0 + x / 4 * 8 + threadIdx.x % 4 * 2 + x % 2;
      const decode_view &row = views[mb * 16 + half * 8 + threadIdx.x % 32 / 4];
      if (key < row.begin || key >= row.end)
        s[mb][x / 4][x % 4] = -CUDART_INF_F;
    }
}

/* Moves the rows' maxima up to the unit's where those grew by more than the threshold. */
template <class C>
__device__ __forceinline__ void decode_rescale(decode_rows<C> &st, const decode_scores<C> &s,
                                               const decode_args &a)
{
  float alpha[C::MB][2];
  bool grew = false;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = st.m[mb][half];
#pragma unroll
      for (int nb = 0; nb < 2; nb++)
        top = fmaxf(top, fmaxf(s[mb][nb][2 * half], s[mb][nb][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      /* -inf - -inf is NaN, which is not greater */
      bool up = top - st.m[mb][half] > a.threshold;
      alpha[mb][half] = up ? exp2_approx((st.m[mb][half] - top) * a.scale_log2) : 1;
      st.m[mb][half] = up ? top : st.m[mb][half];
      grew |= up;
    }
  if (!__any_sync(~0u, grew))
    return;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++) {
    st.l[mb][0] *= alpha[mb][0];
    st.l[mb][1] *= alpha[mb][1];
#pragma unroll
    for (int db = 0; db < C::DB; db++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        st.o[mb][db][e] *= alpha[mb][e / 2];
  }
}

/* o += P V, P = 2^(scale_log2 (s - m)); v: this lane's first ldmatrix address. */
template <class C>
__device__ __forceinline__ void decode_pv(decode_rows<C> &st, const decode_scores<C> &s, uint32_t v,
                                          const decode_args &a)
{
  uint32_t pa[C::MB][4];
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int j = 0; j < 4; j++) { /* row half j % 2, key block j / 2 */
      int half = j % 2;
      float shift = st.m[mb][half] == -CUDART_INF_F ? 0 : st.m[mb][half] * a.scale_log2;
      float p0 = exp2_approx(fmaf(s[mb][j / 2][2 * half], a.scale_log2, -shift));
      float p1 = exp2_approx(fmaf(s[mb][j / 2][2 * half + 1], a.scale_log2, -shift));
      st.l[mb][half] += p0 + p1;
      pa[mb][j] = pack<typename C::elem>(p0, p1);
    }
#pragma unroll
  for (int db = 0; db < C::DB; db += 2) {
    uint32_t vb[4];
    ldmatrix_trans(vb, (v ^ (db / 2 % 4 * 32)) + db / 8 * (KEYS * 128));
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++) {
      mma<typename C::elem>(st.o[mb][db], pa[mb], vb[0], vb[1]);
      mma<typename C::elem>(st.o[mb][db + 1], pa[mb], vb[2], vb[3]);
    }
  }
}

/* k, v: this lane's first ldmatrix addresses. */
template <class C>
__device__ __forceinline__ void decode_unit(decode_rows<C> &st, const decode_args &a,
                                            const decode_view *views, int n0, uint32_t k,
                                            uint32_t v)
{
  decode_scores<C> s;
  decode_qk<C>(s, st, k);
  if (a.options)
    decode_options<C>(s, a, views, n0);
  if (n0 < st.clean_begin || n0 + KEYS > st.clean_end)
    decode_mask<C>(s, views, n0);
  decode_rescale<C>(st, s, a);
  decode_pv<C>(st, s, v, a);
}

/* ---- the end of a head ---------------------------------------------------------------------- */

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
    decode_seq n = decode_sequence<C::ROWS>(a, seq);
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
    return a.partial + (int64_t)gridDim.x * 2 * C::ROWS * a.dv + part * C::ROWS + row;
  }

  /* Four elements of a row of the tile, from column c, and with c == 0 its LSE in log2. */
  __device__ __forceinline__ void write(const decode_args &a, int row, int c, float4 x,
                                        float lse2) const
  {
    if (part >= 0) {
      *(float4 *)(part_o(a, part, row) + c) = x;
      if (c == 0)
        *part_lse(a, part, row) = lse2;
      return;
    }
    decode_row r(a, kv_head, row0 + row);
    int64_t at = query_offset(a.o, seq, q_row + r.query, r.head);
    uint2 y = {pack<typename C::elem>(x.x, x.y), pack<typename C::elem>(x.z, x.w)};
    *(uint2 *)((char *)a.o.data + 2 * (at + c)) = y;
    if (c == 0) {
      int64_t lse =
          a.cu_seqlens_q ? r.head * a.total_q + q_row : ((int64_t)seq * a.hq + r.head) * sq;
      a.lse[lse + r.query] = lse2 * (float)CUDART_LN2;
    }
  }
};

/* m (log2) and l of each row, as each warp has them. */
template <class C>
using decode_stats = float2[WARPS][C::ROWS];

/* The warps' shares of a row: the common maximum and the sum under it. */
template <class C>
__device__ __forceinline__ float2 joint_stats(const decode_stats<C> &stats, int row)
{
  float2 all = {-CUDART_INF_F, 0};
#pragma unroll
  for (int w = 0; w < WARPS; w++)
    all.x = fmaxf(all.x, stats[w][row].x);
#pragma unroll
  for (int w = 0; w < WARPS; w++)
    if (stats[w][row].x > -CUDART_INF_F)
      all.y += exp2_approx(stats[w][row].x - all.x) * stats[w][row].y;
  return all;
}

/* Column group db of row r: permuted so that neither the accumulators' nor the rows' accesses
 * collide. */
__device__ __forceinline__ int merge_column(int db, int r)
{
  return (db ^ r) * 8;
}

/* Adds the warps' eight rows from row `first` of the tile, and writes them. */
template <class C>
__device__ __forceinline__ void decode_add(const decode_args &a, const decode_output<C> &out,
                                           const float *buffer, const decode_stats<C> &stats,
                                           int first)
{
  constexpr int QUADS = C::D / 4;
  for (int u = threadIdx.x; u < 8 * QUADS; u += THREADS) {
    int r = u / QUADS, c = u % QUADS * 4;
    if (out.row0 + first + r >= out.rows || c >= a.dv)
      continue;
    float2 all = joint_stats<C>(stats, first + r);
    float inv = all.y > 0 ? 1 / all.y : 0;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float *at = buffer + (w * 8 + r) * C::D + merge_column(c / 8, r) + c % 8;
      float4 x = *(const float4 *)at;
      sum.x += x.x;
      sum.y += x.y;
      sum.z += x.z;
      sum.w += x.w;
    }
    sum.x *= inv;
    sum.y *= inv;
    sum.z *= inv;
    sum.w *= inv;
    out.write(a, first + r, c, sum, all.y > 0 ? all.x + log2f(all.y) : -CUDART_INF_F);
  }
}

/* Merges the four warps, eight rows at a time. */
template <class C>
__device__ __forceinline__ void decode_finish(decode_rows<C> &st, const decode_args &a,
                                              const decode_output<C> &out, float *buffer,
                                              decode_stats<C> &stats)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = st.l[mb][half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (lane % 4 == 0)
        stats[warp][mb * 16 + half * 8 + g] = make_float2(st.m[mb][half] * a.scale_log2, sum);
    }
  __syncthreads();
#pragma unroll
  for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int first = mb * 16 + half * 8;
      if (out.row0 + first >= out.rows)
        continue;
      float own = stats[warp][first + g].x, top = joint_stats<C>(stats, first + g).x;
      float factor = own > -CUDART_INF_F ? exp2_approx(own - top) : 0;
#pragma unroll
      for (int db = 0; db < C::DB; db++) {
        float *to = buffer + (warp * 8 + g) * C::D + merge_column(db, g) + lane % 4 * 2;
        *(float2 *)to =
            make_float2(st.o[mb][db][2 * half] * factor, st.o[mb][db][2 * half + 1] * factor);
      }
      __syncthreads();
      decode_add<C>(a, out, buffer, stats, first);
      __syncthreads();
    }
}

/* ---- the merge of parts --------------------------------------------------------------------- */

__device__ __forceinline__ int load_acquire(const int *p)
{
  int x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

/* The parts of a head that lies in the slices of blocks [first, last]. The first block's part is
 * the second of its two in the workspace, the others' are their first. */
struct decode_parts {
  int first, last;

  __device__ __forceinline__ int count() const
  {
    return last - first + 1;
  }
  __device__ __forceinline__ int part(int i) const
  {
    return 2 * (first + i) + (i == 0);
  }
};

/* Four elements from column c of a row, merged by `lanes` neighbouring lanes. */
template <class C>
__device__ __forceinline__ void decode_merge_quad(const decode_args &a, const decode_output<C> &out,
                                                  const decode_parts &parts, int row, int c,
                                                  int lanes, bool active)
{
  using output = decode_output<C>;
  int lane = threadIdx.x % lanes, n = active ? parts.count() : 0;
  float top = -CUDART_INF_F, sum = 0;
  float4 x = {0, 0, 0, 0};
  for (int i = lane; i < n; i += lanes)
    top = fmaxf(top, __ldcg(output::part_lse(a, parts.part(i), row)));
  for (int d = lanes / 2; d; d /= 2)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int i = lane; i < n; i += lanes) {
    float lse = __ldcg(output::part_lse(a, parts.part(i), row));
    float w = lse > -CUDART_INF_F ? exp2_approx(lse - top) : 0;
    float4 y = __ldcg((const float4 *)(output::part_o(a, parts.part(i), row) + c));
    sum += w;
    x.x += w * y.x;
    x.y += w * y.y;
    x.z += w * y.z;
    x.w += w * y.w;
  }
  for (int d = lanes / 2; d; d /= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
    x.x += __shfl_xor_sync(~0u, x.x, d);
    x.y += __shfl_xor_sync(~0u, x.y, d);
    x.z += __shfl_xor_sync(~0u, x.z, d);
    x.w += __shfl_xor_sync(~0u, x.w, d);
  }
  float inv = sum > 0 ? 1 / sum : 0;
  float4 y = {x.x * inv, x.y * inv, x.z * inv, x.w * inv};
  if (active && lane == 0)
    out.write(a, row, c, y, sum > 0 ? top + log2f(sum) : -CUDART_INF_F);
}

/* This block's share of the merge: all blocks of the head but the last take one. */
template <class C>
__device__ __forceinline__ void decode_merge(const decode_args &a, const decode_output<C> &out,
                                             const decode_parts &parts, int32_t *arrived)
{
  int n = parts.count(), lanes = 2, quads = a.dv / 4;
  int units = min(C::ROWS, out.rows - out.row0) * quads, share = blockIdx.x - parts.first;
  int from = units * share / (n - 1), to = units * (share + 1) / (n - 1);
  while (lanes < n && lanes < 32)
    lanes *= 2;
  if (threadIdx.x == 0)
    while (load_acquire(arrived) < n)
      __nanosleep(32);
  __syncthreads();
  for (int u = from; u < to; u += THREADS / lanes) {
    int unit = u + threadIdx.x / lanes, row = unit / quads;
    decode_merge_quad<C>(a, out, parts, row, (unit - row * quads) * 4, lanes, unit < to);
  }
  __syncthreads();
  /* the last to have read resets the counter for the next run */
  if (threadIdx.x == 0 && atomicAdd(arrived, 1) == 2 * n - 2)
    *arrived = 0;
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* What a block works on; kept in shared memory, for the main loop needs the registers. */
template <int ROWS>
struct decode_place {
  decode_cursor<ROWS> at; /* its tile is the first of the head in the slice */
  int blocks;             /* that share the line */
  int64_t total, line;    /* tiles of the line; the head's first tile on it */
};

/* All units of a head that lie in the slice. */
template <class C>
__device__ __forceinline__ void
decode_head(decode_rows<C> &st, const decode_args &a, const decode_cursor<C::ROWS> &at,
            decode_loader<C> &loader, decode_view *views, uint32_t ring, int &stage)
{
  int lane = threadIdx.x % 32, end = at.end;
  uint32_t k = tile_offset<KEYS>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  uint32_t v = C::HALF_BYTES + tile_offset<KEYS>(lane % 16, lane / 16);
  decode_begin<C>(st, a, at, views);
  for (int tile = at.tile; tile < end; tile++) {
    copy_wait<C::STAGES - 2>();
    __syncwarp();
    loader.issue(a, ring + (stage == 0 ? C::STAGES - 1 : stage - 1) * C::UNIT_BYTES);
    uint32_t unit = ring + stage * C::UNIT_BYTES;
    decode_unit<C>(st, a, views, tile * DECODE_TILE + threadIdx.x / 32 * KEYS, unit + k, unit + v);
    stage = stage == C::STAGES - 1 ? 0 : stage + 1;
  }
}

/* Writes what the block has of a head, and merges the head's parts if it is for this block to do.
 */
template <class C>
__device__ __forceinline__ void decode_leave(decode_rows<C> &st, const decode_args &a,
                                             const decode_place<C::ROWS> &place, float *buffer,
                                             decode_stats<C> &stats)
{
  const decode_cursor<C::ROWS> &at = place.at;
  decode_seq n = decode_sequence<C::ROWS>(a, at.seq);
  bool begun = at.tile == n.first, ended = at.end == n.first + n.tiles;
  int32_t *arrived = a.arrived + (int64_t)at.seq * a.heads + at.head;
  decode_output<C> out(a, at.seq, at.head, begun && ended ? -1 : 2 * (int)blockIdx.x + begun);
  decode_finish<C>(st, a, out, buffer, stats);
  if (out.part < 0)
    return;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
  }
  if (ended)
    return;
  decode_parts parts = {slice_of(place.total, place.blocks, place.line),
                        slice_of(place.total, place.blocks, place.line + n.tiles - 1)};
  out.part = -1;
  decode_merge<C>(a, out, parts, arrived);
}

template <class C>
__global__ __launch_bounds__(THREADS,
                             C::BLOCKS) void decode_forward(const __grid_constant__ decode_args a)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  float *buffer = (float *)(shared + C::RING_BYTES); /* views, then the warps' rows */
  decode_stats<C> &stats = *(decode_stats<C> *)(shared + C::RING_BYTES + C::MERGE_BYTES);
  decode_place<C::ROWS> &place = *(decode_place<C::ROWS> *)(shared + C::PLACE);
  static_assert(sizeof place <= C::SMEM - C::PLACE, "room for the place");
  const uint32_t ring = shared_address(shared) + threadIdx.x / 32 * (C::STAGES * C::UNIT_BYTES);
  const decode_slice slice = decode_cut<C::ROWS>(a, (int64_t *)buffer);
  if (slice.tiles == 0)
    return;
  decode_loader<C> loader(a, slice);
  for (int i = 0; i < C::STAGES - 1; i++)
    loader.issue(a, ring + i * C::UNIT_BYTES);
  if (threadIdx.x == 0)
    place = {decode_cursor<C::ROWS>(a, slice), slice.blocks, slice.total, slice.at};
  __syncthreads(); /* and the slice is known to all: the buffer is free */

  decode_rows<C> st;
  int stage = 0;
  while (true) {
    decode_head<C>(st, a, place.at, loader, (decode_view *)buffer, ring, stage);
    decode_leave<C>(st, a, place, buffer, stats);
    if (place.at.left == 0)
      return;
    __syncthreads();
    if (threadIdx.x == 0) {
      place.line += decode_sequence<C::ROWS>(a, place.at.seq).tiles;
      place.at.turn(a);
    }
    __syncthreads();
  }
}

template <class T, int D, int ROWS, int STAGES, int BLOCKS>
constexpr decode_kernel decode_variant()
{
  using C = decode_config<T, D, ROWS, STAGES, BLOCKS>;
  return {T::dtype, D, ROWS, BLOCKS, THREADS, (size_t)C::SMEM, (const void *)decode_forward<C>};
}

const struct decode_kernel attn_decode_kernels[] = {
    decode_variant<bf16, 64, 16, 4, 3>(),
    decode_variant<fp16, 64, 16, 4, 3>(),
    decode_variant<bf16, 128, 16, 3, 2>(),
    decode_variant<fp16, 128, 16, 3, 2>(),
    decode_variant<bf16, 256, 16, 3, 1>(),
    decode_variant<fp16, 256, 16, 3, 1>(),
    decode_variant<bf16, 64, 32, 4, 2>(),
    decode_variant<fp16, 64, 32, 4, 2>(),
    decode_variant<bf16, 128, 32, 5, 1>(),
    decode_variant<fp16, 128, 32, 5, 1>(),
    {},
};
