/* SPDX-License-Identifier: Apache-2.0
 *
 * decode-forward.cuh - the kernel of cuda/decode: few queries on a long cache, contiguous or paged.
 *
 *   q, o (b, seqlen_q, hq, d|dv)   lse (b, hq, seqlen_q), ragged (hq, total_q)
 *   k (b, seqlen_k, hkv, d)   v (b, seqlen_k, hkv, dv), or pools (pages, page, hkv, d|dv)
 *
 * The queries of all heads that share a KV head are packed into rows, row i*group + g for query i
 * of the g-th head, so that K and V are read once.  Decode lives on bytes in flight: a warp streams
 * units of 8 KB through a ring of its own in shared memory and never waits for another warp
 * (decode-load.cuh); the warps of a block take turns, each with a softmax of its own
 * (decode-rows.cuh), and are merged at the end of a head (decode-merge.cuh).
 *
 * Blocks share the work evenly, whatever the lengths (decode-line.cuh): a block sees at most one
 * head that it does not begin and one that it does not finish.  Blocks find their slices from the
 * lengths in device memory, so a captured graph stays right when these change.  A head in several
 * slices is merged by the blocks that do not finish it, each a share of its elements, once all
 * parts have arrived: launched cooperatively, all blocks are there.
 *
 * Numerics: as flash-sm80: scores and statistics in fp32, P rounded to the storage type as an
 * operand while its sum is taken unrounded, a row's maximum moves when it grew by more than 8
 * (log2); partial results in fp32.  The scale of an e4m3 cache's keys is a factor of the scores,
 * that of its values a factor of O.
 *
 * Variants (registers on sm_90, none spills; shared memory of a block; a unit is K and V of
 * `keys`):
 *
 *   cache   head dim  queries  warps  keys  stages  KB     blocks an SM  registers
 *   16 bit        64  8 16 32      4    16       4   73               3  98 111 168
 *   16 bit       128        8      4    16       3  112               2  128       (small pages)
 *   16 bit       128        8      8    16       3  225               1  128
 *   16 bit       128    16 32      8    16       3  226               1  179 245
 *   16 bit       256     8 16      4    16       3  225               1  197 240
 *   e4m3         128        8      8    32       3  225               1  167
 *   e4m3         128    16 32      8    16       6  226               1  187 240
 *   e4m3         256     8 16      4    16       6  225               1  215 246
 *
 * What the steps gave on an H200 (bf16, head dim 128, 32 on 8 heads unless said; GB/s of keys and
 * values, cold, each line one sitting; reading alone 4575 to 4650):
 *
 *   queries on the narrow side, regular rows by one address, gangs: 16 x 8k 3989 -> 4106, in pages
 * of 16 3759 -> 4007, ragged 3553 -> 4085; of that the gangs 4012 -> 4131 (1 x 128k, pages of 16)
 *     and 3888 -> 4171 (head dim 64)
 *   eight warps and Q in shared memory for 16 and 32 rows: one KV head 2608 -> 3277 (2090 before
 *     all), 16 queries a sequence 1493 -> 2459
 *   the cut from the host: 16 x 8k 4065 -> 4222, 64 x 2k 4156 -> 4264, 1 x 128k 4258 -> 4308 (all
 *     steps so far against none)
 *   a toll of two tiles a head: ragged 4061 -> 4167, in pages of 16 3837 -> 4072
 *   eight warps for eight rows of a contiguous cache: 16 x 8k 4167 -> 4251, 1 x 128k 4223 -> 4247,
 * 64 x 2k 4147 -> 4155 (but pages of 16 4090 -> 4035, 4115 -> 4002, 4051 -> 3953)
 *
 *   pages looked up two units ahead and without division: pages of 16 16 x 8k 4079 -> 4160, 64 x 2k
 *     4036 -> 4117, 1 x 128k 4109 -> 4182, 1 x 4k 1225 -> 1298, of e4m3 2685 -> 2782; pages of 1
 *     3901 -> 3975; eight warps for pages of 64 on: 16 x 8k 4149 -> 4213 (64 x 2k 4157 -> 4147, and
 *     pages of 16 lose 1 to 3 %)
 *   no more lanes to merge a row than there are threads for all rows: 16 queries a sequence 2631 ->
 *     2765, one KV head 3542 -> 3610
 *
 * The loop itself runs at the speed of reading alone. What is lost is 2.5 us before the first copy
 * and 5 us after the last: 1.7 to merge the warps, 0.7 to announce a part, 3 to merge the parts.
 * Without gain: a plain launch for the cooperative one (0.0 us), L2 prefetch of 256 bytes (-3 %),
 * computing before the next copy (0), Q asked for in L2 as soon as its head is known (0), gangs of
 * 4 on all SMs (0), running a head's end once at the start to have its code at hand (-2 to -5 %), K
 * and V by one loop (0, irregular pages -9 %), merging four parts at once (-1 us at 1 x 4k); a
 * tenth of the line in short slices that go to who is done first, and the last part to arrive
 * merging them all (-6 to -10 %): blocks end up to 5 us apart, but each further slice of a block
 * costs that much, since what ends it - part, fence, counter, merge, the next Q - waits for memory
 * four times, longer than the ring holds out.
 */
#ifndef IMPL_CUDA_DECODE_FORWARD_CUH
#define IMPL_CUDA_DECODE_FORWARD_CUH

#include "impl/cuda/decode/decode-load.cuh"
#include "impl/cuda/decode/decode-merge.cuh"

/* What a block works on; kept in shared memory, for the main loop needs the registers. */
template <class C>
struct decode_place {
  decode_cursor<C> at; /* its tile is the first of the head in the slice */
  decode_cut cut;
  int line; /* where the head begins on the line */
};

/* All units of a head that lie in the slice. */
template <class C>
__device__ __forceinline__ void decode_head(decode_rows<C> &st, const decode_args &a,
                                            const decode_cursor<C> &at, decode_loader<C> &loader,
                                            float *buffer, uint32_t ring, int &stage)
{
  decode_view *views = (decode_view *)buffer + threadIdx.x / 32 * C::ROWS;
  int end = at.end;
  uint32_t k = decode_k_lane<C>(), v = decode_v_lane<C>();
  decode_begin<C>(st, a, at, views, (unsigned char *)buffer + C::Q_AT);
  for (int tile = at.tile; tile < end; tile++) {
    copy_wait<C::STAGES - 2>();
    __syncwarp();
    loader.issue(a, ring + (stage == 0 ? C::STAGES - 1 : stage - 1) * C::UNIT_BYTES);
    uint32_t unit = ring + stage * C::UNIT_BYTES;
    decode_unit<C>(st, a, views, tile * C::TILE + threadIdx.x / 32 * C::KEYS, unit + k, unit + v);
    stage = stage == C::STAGES - 1 ? 0 : stage + 1;
  }
}

/* Writes what the block has of a head, and merges the head's parts if it is for this block to do.
 */
template <class C>
__device__ __forceinline__ void decode_leave(const decode_rows<C> &st, const decode_args &a,
                                             const decode_place<C> &place, float *buffer,
                                             decode_stats<C> &stats)
{
  const decode_cursor<C> &at = place.at;
  decode_seq n = decode_sequence<C>(a, at.seq);
  bool begun = at.tile == n.first, ended = at.end == n.first + n.tiles;
  int32_t *arrived = a.arrived + (int64_t)at.seq * a.heads + at.head;
  decode_output<C> out(a, at.seq, at.head,
                       begun && ended ? -1 : part_at(blockIdx.y, blockIdx.x) + begun);
  decode_finish<C>(st, a, out, buffer, stats);
  if (out.part < 0)
    return;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
  }
  if (ended)
    return;
  int first = place.line + DECODE_TOLL;
  decode_parts parts = {slice_of(place.cut, first), slice_of(place.cut, first + n.tiles - 1)};
  out.part = -1;
  decode_merge<C>(a, out, parts, arrived);
}

template <class C>
__global__ __launch_bounds__(C::THREADS,
                             C::BLOCKS) void decode_forward(const __grid_constant__ decode_args a)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  float *buffer = (float *)(shared + C::RING_BYTES); /* views, then the warps' rows */
  decode_stats<C> &stats = *(decode_stats<C> *)(shared + C::RING_BYTES + C::MERGE_BYTES);
  decode_place<C> &place = *(decode_place<C> *)(shared + C::PLACE);
  static_assert(sizeof place <= C::SMEM - C::PLACE, "room for the place");
  const uint32_t ring = shared_address(shared) + threadIdx.x / 32 * (C::STAGES * C::UNIT_BYTES);
  const decode_slice slice = decode_cut_line<C>(a, (int *)buffer);
  if (slice.tiles == 0)
    return;
  decode_loader<C> loader(a, slice);
  for (int i = 0; i < C::STAGES - 1; i++)
    loader.issue(a, ring + i * C::UNIT_BYTES);
  if (threadIdx.x == 0)
    place = {decode_cursor<C>(a, slice), slice.cut, slice.at};
  __syncthreads(); /* and the slice is known to all: the buffer is free */

  decode_rows<C> st;
  int stage = 0;
  while (true) {
    decode_head<C>(st, a, place.at, loader, buffer, ring, stage);
    decode_leave<C>(st, a, place, buffer, stats);
    if (place.at.left == 0)
      return;
    __syncthreads();
    if (threadIdx.x == 0) {
      place.line += decode_sequence<C>(a, place.at.seq).length();
      place.at.turn(a);
    }
    __syncthreads();
  }
}

struct e4m3;

template <class T, int D, int ROWS, int WARPS, int STAGES, int BLOCKS, class KV = T>
constexpr decode_kernel decode_variant()
{
  constexpr bool kv8 = same_type<KV, e4m3>::value;
  using C = decode_config<T, kv8, D, ROWS, WARPS, STAGES, BLOCKS>;
  return {T::dtype,        kv8 ? ATTN_KV_E4M3 : ATTN_KV_DTYPE, D, ROWS, C::TILE, BLOCKS, C::THREADS,
          (size_t)C::SMEM, (const void *)decode_forward<C>};
}

#endif
