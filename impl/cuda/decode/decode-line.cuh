/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-line.cuh - cuda/decode: who reads which keys.
 *
 * All tiles of keys of all heads of all sequences form one line, which is cut into equal slices.
 * Before its tiles each head has on the line a toll, as many tiles as it costs to begin and end a
 * head: else the blocks with many short heads would be the last ones. There is none where slices
 * fit their heads (decode.c), since all blocks begin and end as many. A gang of blocks, a row of
 * the grid, takes a slice together: where a line's entry is a tile of a set of neighbouring heads,
 * each block of the gang has one of these.  Blocks of a gang move at one pace, and what they read
 * lies side by side in memory (rows of neighbouring heads do), which DRAM rewards: it opens a row
 * once for all of them.
 */
#ifndef IMPL_CUDA_DECODE_LINE_CUH
#define IMPL_CUDA_DECODE_LINE_CUH

#include "impl/cuda/decode/decode.h"
#include "impl/cuda/mma.cuh"

/* What the tensor cores multiply: what is there, but e4m3 is widened to fp16. */
template <class T, bool KV8>
struct decode_operand {
  using type = T;
};
template <class T>
struct decode_operand<T, true> {
  using type = fp16;
};

/* Of a variant: T the type of queries and results, KV8 an e4m3 cache, ROWS packed queries. A unit
 * is what a warp loads and computes at once, a tile a unit for each warp. */
template <class T, bool KV8_, int D_, int ROWS_, int WARPS_, int STAGES_, int BLOCKS_,
          decode_form FORM_>
struct decode_config {
  using elem = T;
  using operand = typename decode_operand<T, KV8_>::type;
  static constexpr bool KV8 = KV8_;
  static constexpr decode_form FORM = FORM_;
  static constexpr int BOOST = KV8 ? 7 : 0; /* log2 of a factor of P: fp16 has few exponents */
  static constexpr int D = D_, ROWS = ROWS_, WARPS = WARPS_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int SIZE = KV8 ? 1 : 2;         /* bytes of an element of the cache */
  static constexpr int NB = ROWS / 8, DB = D / 16; /* 8 queries, 16 columns are an operand */
  static constexpr bool SHARED_Q = NB * DB > 16;   /* else in registers */
  static constexpr int SUBS = KV8 && NB * DB < 16 ? 2 : 1; /* of 16 keys, in a unit */
  static constexpr int KEYS = 16 * SUBS, TILE = KEYS * WARPS;
  static constexpr int CHUNKS = D * SIZE / 16, STEP = 32 / CHUNKS; /* of a row; rows of a copy */
  static constexpr int TEAM = 1, TEAMS = WARPS, PANEL = KEYS; /* each warp's units are its own */
  static constexpr int HALF_BYTES = KEYS * D * SIZE, UNIT_BYTES = 2 * HALF_BYTES; /* K, and V */
  static constexpr int RING_BYTES = WARPS * STAGES * UNIT_BYTES;
  static constexpr int MERGE_BYTES = WARPS * 8 * D * 4;
  static constexpr int STAT_BYTES = WARPS * ROWS * 8;
  static constexpr int PLACE = RING_BYTES + MERGE_BYTES + STAT_BYTES; /* of decode_place */
  static constexpr int SMEM = PLACE + 64;
  static constexpr int Q_AT = WARPS * ROWS * 16; /* in the merge's buffer, behind the views */
  static_assert(D * SIZE >= 128, "rows of whole panels");
  static_assert(!SHARED_Q || Q_AT + ROWS * D * 2 + 64 <= MERGE_BYTES, "room for the queries");
  static_assert(TILE >= DECODE_MIN_TILE, "the host counts tiles of at least this many keys");
};

/* The arguments, with what the variant takes for granted as constants. */
template <class C>
__device__ __forceinline__ decode_args decode_known(const decode_args &given)
{
  decode_args a = given;
  if (C::FORM == DECODE_ANY)
    return a;
  a.cu_seqlens_k = a.fold_q = a.fold_k = NULL;
  a.prefix = NULL;
  a.skip = a.fold = 0;
  a.stash = a.options = a.alibi = false;
  if (C::FORM == DECODE_PAGED) {
    __builtin_assume(a.page > 0);
    return a;
  }
  a.cu_seqlens_q = a.seqlens_k = a.block_table = NULL;
  a.page = 0;
  return a;
}

/* A sequence as its lengths in device memory say. */
struct decode_seq {
  int sq, sk;
  int q_tiles, heads;   /* tiles of packed queries; KV heads times those */
  int first, tiles;     /* of the keys that its queries see; at least one, were it empty */
  int toll;             /* as in the arguments */
  int64_t q_row, k_row; /* where it starts in packed tensors */

  /* Of a head, on the line. */
  __device__ __forceinline__ int length() const
  {
    return toll + tiles;
  }
};

template <class C>
__device__ __forceinline__ decode_seq decode_sequence(const decode_args &a, int s)
{
  decode_seq n;
  n.sq = a.sq;
  n.sk = a.sk;
  n.q_row = n.k_row = 0;
  n.toll = a.toll;
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
  int lo = max(a.skip, diagonal - a.left), hi = min(n.sk, n.sq + diagonal + a.right);
  n.first = lo / C::TILE;
  n.tiles = hi > lo ? (hi + C::TILE - 1) / C::TILE - n.first : 1;
  n.q_tiles = (n.sq * a.group + C::ROWS - 1) / C::ROWS;
  n.heads = a.hkv * n.q_tiles;
  return n;
}

/* ---- the cut -------------------------------------------------------------------------------- */

__device__ __forceinline__ int slice_start(const decode_cut &cut, int slice)
{
  return cut.even * slice + min(slice, cut.rest);
}

/* The slice that holds a tile. */
__device__ __forceinline__ int slice_of(const decode_cut &cut, int tile)
{
  int wide = cut.rest * (cut.even + 1);
  bool first = tile < wide;
  return (first ? 0 : cut.rest) + (first ? tile : tile - wide) / (cut.even + first);
}

/* A block's slice. */
struct decode_slice {
  decode_cut cut;
  int at;          /* where the head that the slice begins in begins on the line */
  int seq, head;   /* that head */
  int skip, tiles; /* how far in it the slice begins; the slice's length, 0: no tile in it */
};

/* Sums of x over the threads before this one, and over all. */
template <class C>
__device__ __forceinline__ int block_scan(int x, int *shared, int *all)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = x;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_up_sync(~0u, sum, d);
    sum += lane >= d ? other : 0;
  }
  __syncthreads();
  if (lane == 31)
    shared[warp] = sum;
  __syncthreads();
  int before = 0;
  *all = 0;
  for (int w = 0; w < C::WARPS; w++) {
    before += w < warp ? shared[w] : 0;
    *all += shared[w];
  }
  return before + sum - x;
}

/* Of a sequence, on the line. */
template <class C>
__device__ __forceinline__ int tiles_of(const decode_args &a, int s)
{
  if (s >= a.b)
    return 0;
  decode_seq n = decode_sequence<C>(a, s);
  return n.heads / a.gang * n.length();
}

/* Where the slice begins on the line, its tiles and the sequence that it begins in, with equal
 * lengths, which the host knows. */
__device__ __forceinline__ int cut_evenly(const decode_args &a, decode_slice &s)
{
  int slice = blockIdx.y;
  s.cut = a.cut;
  s.tiles = 0;
  if (slice >= s.cut.slices)
    return 0;
  int start = slice_start(s.cut, slice);
  s.tiles = slice_start(s.cut, slice + 1) - start;
  s.seq = start / a.each;
  s.at = s.seq * a.each;
  return start;
}

/* The same with unequal ones. Of up to C::THREADS sequences each thread keeps its own. */
template <class C>
__device__ __forceinline__ int cut_ragged(const decode_args &a, decode_slice &s, int *scratch)
{
  int *found = scratch + C::WARPS, slice = blockIdx.y;
  int mine = 0, from = 0, total = 0, all;
  for (int i = 0; i < a.b; i += C::THREADS) {
    mine = tiles_of<C>(a, i + threadIdx.x);
    from = total + block_scan<C>(mine, scratch, &all);
    total += all;
  }
  s.tiles = 0;
  s.cut.slices = min((int)gridDim.y, total);
  if (slice >= s.cut.slices)
    return 0;
  s.cut.even = total / s.cut.slices;
  s.cut.rest = total - s.cut.even * s.cut.slices;
  int start = slice_start(s.cut, slice), end = a.b > C::THREADS ? 0 : total;
  s.tiles = slice_start(s.cut, slice + 1) - start;
  for (int i = 0;; i += C::THREADS) {
    if (a.b > C::THREADS) {
      mine = tiles_of<C>(a, i + threadIdx.x);
      from = end + block_scan<C>(mine, scratch, &all);
      end += all;
    }
    if (start >= from && start < from + mine) {
      found[0] = i + threadIdx.x;
      found[1] = from;
    }
    if (start < end)
      break;
  }
  __syncthreads();
  s.seq = found[0];
  s.at = found[1];
  return start;
}

/* The head that a slice begins in, at `start` on the line. */
template <class C>
__device__ __forceinline__ void find_head(const decode_args &a, decode_slice &s, int start)
{
  if (s.tiles == 0)
    return;
  decode_seq n = decode_sequence<C>(a, s.seq);
  int set = (start - s.at) / n.length();
  s.head = set * a.gang + blockIdx.x;
  s.at += set * n.length();
  s.skip = start - s.at;
  if (s.skip + s.tiles <= a.toll)
    s.tiles = 0;
}

__device__ __forceinline__ int page_of(const decode_args &a, int key)
{
  return (int)((uint64_t)(uint32_t)key * a.page_inverse >> a.page_shift);
}

/* Asks for the entries of the table that a slice begins with. */
template <class C>
__device__ __forceinline__ void foresee(const decode_args &a, const decode_slice &s)
{
  if (s.tiles == 0)
    return;
  decode_seq n = decode_sequence<C>(a, s.seq);
  int page = page_of(a, (n.first + max(0, s.skip - a.toll)) * C::TILE) + threadIdx.x * 8;
  if (page <= page_of(a, n.sk - 1))
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a.block_table + s.seq * a.table_stride + page));
}

/* Have all sequences the length that the host knows? */
template <class C>
__device__ __forceinline__ bool as_planned(const decode_args &a)
{
  bool same = true;
  for (int i = threadIdx.x; i < a.b; i += C::THREADS)
    same = same && a.seqlens_k[i] == a.sk;
  return __syncthreads_and(same);
}

/* scratch: shared memory. Without work the slice has no tiles. Where the host has cut the line for
 * equal lengths, those in memory say whether it may stay so; while they are on their way, so is
 * what will be looked up. */
template <class C>
__device__ __forceinline__ decode_slice decode_cut_line(decode_args &a, int *scratch)
{
  decode_slice s;
  if (C::FORM == DECODE_EVEN || a.each) {
    decode_args plan = a;
    plan.seqlens_k = NULL;
    find_head<C>(plan, s, cut_evenly(plan, s));
    if (C::FORM == DECODE_EVEN || !a.seqlens_k)
      return s;
    foresee<C>(plan, s);
    if (as_planned<C>(a)) {
      a.seqlens_k = NULL;
      return s;
    }
  }
  find_head<C>(a, s, cut_ragged<C>(a, s, scratch));
  return s;
}

/* ---- walking along the slice ---------------------------------------------------------------- */

/* A position in the slice: a tile of a head of a sequence. What else there is to know of the
 * sequence is looked up again where it is needed, since registers are few. */
template <class C>
struct decode_cursor {
  int seq, head;
  int tile, end; /* of the head: [tile, end) is left of it in this slice */
  int left;      /* of the slice after those and the next toll */

  __device__ __forceinline__ decode_cursor(const decode_args &a, const decode_slice &s)
  {
    seq = s.seq;
    head = s.head;
    decode_seq n = decode_sequence<C>(a, seq);
    int until = min(n.tiles, s.skip + s.tiles - a.toll);
    tile = n.first + max(0, s.skip - a.toll);
    end = n.first + until;
    left = max(0, s.skip + s.tiles - n.length() - a.toll);
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
    head += a.gang;
    decode_seq n = decode_sequence<C>(a, seq);
    while (head >= n.heads) {
      head = blockIdx.x;
      n = decode_sequence<C>(a, ++seq);
    }
    tile = n.first;
    end = tile + min(n.tiles, left);
    left = max(0, left - n.length());
  }
};

#endif
