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
 * (decode-rows.cuh), and are merged at the end of a head (decode-merge.cuh).  Of many queries on
 * Hopper the warps of a block share units (decode-wide.cuh).
 *
 * Blocks share the work evenly, whatever the lengths (decode-line.cuh): a block sees at most one
 * head that it does not begin and one that it does not finish.  Blocks find their slices from the
 * lengths in device memory, so a captured graph stays right when these change.  A head in several
 * slices is merged by their blocks, but the last if it has another head to begin, each a share of
 * its elements, once all parts have arrived: launched cooperatively, all blocks are there.
 *
 * Numerics: as flash-sm80: scores and statistics in fp32, P rounded to the storage type as an
 * operand while its sum is taken unrounded, a row's maximum moves when it grew by more than 8
 * (log2); partial results in fp32.  An e4m3 cache is fp16 to the tensor cores, exactly, and so are
 * Q, times a power of two, and P; the scale of its keys is a factor of the scores, that of its
 * values a factor of O.
 *
 * A kernel's code is short where it may take things for granted (enum decode_form): at its start
 * and at the end of a head all code is cold.
 *
 * Variants (registers on sm_90, the most of all forms, none spills; shared memory of a block; a
 * unit is K and V of `keys`):
 *
 *   cache   head dim  queries  warps  keys  stages  KB     blocks an SM  registers
 *   16 bit        64  8 16 32      4    16       6  104              2  102 126 208
 *   16 bit       128        8      4    16       3  112              2  134    (many paged heads)
 *   16 bit       128        8      8    16       3  225              1  134
 *   16 bit       128    16 32      8    16       3  226              1  189 249  (32: not Hopper)
 *   16 bit    64 128       64      8    64     6 3  210 226          1  166 212  (decode-wide.cuh)
 *   16 bit       256     8 16      4    16       3  225              1  216 245
 *   e4m3         128        8      4    32       3  112              2  133    (many heads)
 *   e4m3         128        8      8    32       3  225              1  132
 *   e4m3         128    16 32      8    16       6  226              1  176 250
 *   e4m3         256     8 16      4    16       6  225              1  179 254
 *
 * What the steps gave on an H200 (bf16, head dim 128, 32 on 8 heads unless said; GB/s of keys and
 * values, cold, each line one sitting; reading alone 4575 to 4660):
 *
 *   queries on the narrow side, regular rows by one address, gangs: 16 x 8k 3989 -> 4106, in pages
 *     of 16 3759 -> 4007, ragged 3553 -> 4085; of that the gangs 4012 -> 4131 (1 x 128k, pages of
 *     16) and 3888 -> 4171 (head dim 64)
 *   the cut from the host: 16 x 8k 4065 -> 4222, 64 x 2k 4156 -> 4264, 1 x 128k 4258 -> 4308 (all
 *     steps so far against none)
 *   a toll of two tiles a head: ragged 4061 -> 4167, in pages of 16 3837 -> 4072
 *   eight warps for eight rows of a contiguous cache: 16 x 8k 4167 -> 4251, 1 x 128k 4223 -> 4247
 *     (but pages of 16 lose 1 to 3 %)
 *   pages looked up two units ahead and without division: pages of 16 16 x 8k 4079 -> 4160, 64 x 2k
 *     4036 -> 4117, 1 x 128k 4109 -> 4182; pages of 1 3901 -> 3975
 *   code for one form: 16 x 8k 4269 -> 4339, 64 x 2k 4186 -> 4212, 1 x 128k 4268 -> 4300, 1 x 1k
 *     8.9 -> 7.5 us; pages of 16 4151 -> 4167
 *   slices that fit the heads where lengths are equal, so that a block has one part of a head or
 *     whole heads: 16 x 8k 4420 -> 4497, 64 x 2k 4339 -> 4480, 32 KV heads 4313 -> 4498; in pages
 *     of 16 4281 -> 4320, 4250 -> 4346
 *
 *   64 rows by wgmma for more than 16, and Q loaded at once: one KV head 3642 -> 4074 (2090 before
 *     all steps), 16 queries a sequence 2752 -> 3747
 *
 *   e4m3 widened to fp16 by one instruction, not to bf16 by seven: pages of 16 2629 -> 3808, of 64
 *     3091 -> 4029 (4307 with forms and fitting slices)
 *
 * The steps since then, each against the one before in the same minute (reading alone 4587):
 *
 *   the merge shared by all blocks of a head: one KV head 3957 -> 4070, 16 queries 3638 -> 3864, 8
 *     queries 3925 -> 4036, 1 x 128k 4284 -> 4324, 1 x 1k 8.96 -> 7.87 us, 1 x 4k 11.97 -> 10.98 us
 *   for 64 rows two teams of four warps in one block, not two blocks, so that blocks have whole
 *     heads: one KV head 4079 -> 4266, 16 queries 3872 -> 4233, 8 queries 4029 -> 4254
 *   head dim 64 in two blocks of six stages, not three of four: slices fit the heads: 4226 -> 4409
 *   pages looked up 32 units at a time, a lane each: pages of 16, eight warps, 16 x 8k 4252 ->
 *     4281, 64 x 2k 4176 -> 4208, 1 x 128k 4105 -> 4151 (four warps 0 to -0.7 %); eight warps are
 *     the better ones since, but where blocks end many heads
 *   the host's cut for pages too, once all lengths are seen to be the problem's, with the table
 *     asked for meanwhile: 1 x 1k and 1 x 4k 0.3 to 0.4 us of 10 to 14, 16 x 8k 0
 *   what is read once leaves L2 first: 64 x 2k 4352 -> 4395, in pages of 16 4228 -> 4270, 1 x 128k
 *     4312 -> 4340, ragged 4163 -> 4192, 16 x 8k 0
 *
 * And since those (reading alone 4586 for the first line, 4675 for the others):
 *
 *   e4m3's upper halves widened as they lie there: 16 x 16k in pages of 16 3812 -> 3923, of 64 4157
 *     -> 4196; a unit of 32 keys in two pieces, so that pages of 16 are regular: 3923 -> 4163, 64 x
 *     4k 3630 -> 4061
 *   e4m3 in blocks of four warps where these end many heads: 64 x 4k 4167 -> 4228 (16 x 16k 4290 ->
 *     4182, which keeps eight)
 *   irregular pages without the L2 hint, rows there told from others once a unit, not once a copy:
 *     pages of 1 4074 -> 4207, of 8 4112 -> 4260, e4m3 in pages of 1 3790 -> 4058
 *   where a row goes computed once, not for each four of its elements (9 % of the code of 64
 *     rows): one KV head 4366 -> 4395, in pages of 16 4129 -> 4199, 16 queries 4317 -> 4345, 1 x 1k
 *     of 16 queries 11.36 -> 10.98 us (in pages, also of what comes next)
 *   pages taken for granted in the form that has them: pages of 16, 16 x 8k 4372 -> 4393, 64 x 2k
 *     4392 -> 4409, 1 x 128k 4276 -> 4300, 1 x 1k 9.47 -> 9.31 us
 *
 * The loop itself runs at the speed of reading alone: 64 x 8k 4506, in pages of 16 4440. What is
 * lost, at 16 x 8k, is 1.3 us before the first copies, in pages 2.3 us (lengths 0.8 us, pages 0.3
 * us), and 2 us after the last. Of pages of 16 in random order the first bytes are there 3.5 us
 * after that, not 1.8: 500 regions of 2 MB have their addresses translated at once (pages in order
 * gain 1.2 us).  64 rows end 1 us later: the last two units come together, and take 0.7 us each.
 *
 * Without gain: a plain launch for the cooperative one (0.0 us), L2 prefetch of 256 bytes (-3 %),
 * computing before the next copy, which has more bytes under way (-1 %), two stages for three (+1
 * to -3 %), six stages for four warps (-1 %), touching all arguments' cache lines at the start (0),
 * Q asked for in L2 as soon as its head is known (0), running a head's end once at the start to
 * have its code at hand (-2 to -5 %; each warp for itself, without barriers, 0 to -1 %), K and V by
 * one loop (0, irregular pages -9 %); two to eight times as many blocks as fit, the last to arrive
 * of a head merging it (-2 to -10 %); a tenth of the line in short slices that go to who is done
 * first (-6 to -10 %): each further slice of a block costs what a head's end costs - part, fence,
 * counter, merge, the next Q - which waits for memory four times, longer than the ring holds out.
 *
 * Nor did these, since then: in pages of 16, copying nothing once while the lengths are on their
 * way, to have the code at hand (-0.5 %), looking up pages before the lengths are known (0; 1 x 1k
 * 0.4 us), asking ahead for the next sequence's part of the table (0); strides of 32 bits and the
 * first copies by a rolled loop (0); units of 32 keys for head dim 64 (0), for 64 rows (-1.5 %, in
 * pages -5 %); 64 rows written from shared memory by one rolled loop (-1 to -1.5 %), divided by a
 * fast division (+0.3 %, in pages -0.3 %).
 *
 * Nor of e4m3: L2 prefetch of 256 bytes, two heads' rows (-3 %), units of 16 keys in six stages
 * (-1.5 %), twelve warps of three (-1 %, many heads -5 %), neither hint nor prefetch (0), nor a
 * head's address kept from unit to unit (0; 1 x 1k 0.25 us more). Most of what is missing is the
 * copies': without computing, pages of 16 reach 4260 (all 4157, reading alone 4586), those of bf16
 * 4375 (4310, 4575).
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
template <class C, class ROWS>
__device__ __forceinline__ void decode_leave(const ROWS &st, const decode_args &a,
                                             const decode_place<C> &place, float *buffer,
                                             decode_stats<C> &stats)
{
  const decode_cursor<C> &at = place.at;
  decode_seq n = decode_sequence<C>(a, at.seq);
  bool begun = at.tile == n.first, ended = at.end == n.first + n.tiles;
  int32_t *arrived = a.arrived + (int64_t)at.seq * a.heads + at.head;
  decode_output<C> out(a, at.seq, at.head,
                       begun && ended ? -1 : part_at(blockIdx.y, blockIdx.x) + begun);
  decode_finish(st, a, out, buffer, stats);
  if (out.part < 0)
    return;
  int begin = place.line + a.toll, end = begin + n.tiles;
  decode_parts parts = {slice_of(place.cut, begin), slice_of(place.cut, end - 1)};
  bool fits = end == slice_start(place.cut, parts.last + 1);
  parts.shares = parts.count() - !fits;
  if (threadIdx.x == 0) {
    __threadfence();
    parts.tick(arrived);
  }
  if (ended && !fits)
    return;
  out.part = -1;
  decode_merge<C>(a, out, parts, arrived);
}

template <class C, class ROWS = decode_rows<C>>
__global__
__launch_bounds__(C::THREADS,
                  C::BLOCKS) void decode_forward(const __grid_constant__ decode_args given)
{
  extern __shared__ __align__(1024) unsigned char shared[];
  decode_args a = decode_known<C>(given);
  float *buffer = (float *)(shared + C::RING_BYTES); /* views, then the warps' rows */
  decode_stats<C> &stats = *(decode_stats<C> *)(shared + C::RING_BYTES + C::MERGE_BYTES);
  decode_place<C> &place = *(decode_place<C> *)(shared + C::PLACE);
  static_assert(sizeof place <= C::SMEM - C::PLACE, "room for the place");
  const int warp = threadIdx.x / 32;
  const uint32_t ring = shared_address(shared) + warp / C::TEAM * (C::STAGES * C::UNIT_BYTES) +
                        warp % C::TEAM * (C::KEYS * 128);
  const decode_slice slice = decode_cut_line<C>(a, (int *)buffer);
  if (slice.tiles == 0)
    return;
  decode_loader<C> loader(a, slice);
  for (int i = 0; i < C::STAGES - 1; i++)
    loader.issue(a, ring + i * C::UNIT_BYTES);
  if (threadIdx.x == 0)
    place = {decode_cursor<C>(a, slice), slice.cut, slice.at};
  __syncthreads(); /* and the slice is known to all: the buffer is free */

  ROWS st;
  int stage = 0;
  while (true) {
    decode_head(st, a, place.at, loader, buffer, ring, stage);
    decode_leave(st, a, place, buffer, stats);
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

/* KV: of the cache, T or e4m3. */
template <class T, class KV, int D, int ROWS, int WARPS, int STAGES, int BLOCKS,
          decode_form FORM = DECODE_ANY>
constexpr decode_kernel decode_variant()
{
  constexpr bool kv8 = same_type<KV, e4m3>::value;
  using C = decode_config<T, kv8, D, ROWS, WARPS, STAGES, BLOCKS, FORM>;
  return {
      T::dtype,        kv8 ? ATTN_KV_E4M3 : ATTN_KV_DTYPE, D,   ROWS, C::TILE, BLOCKS, C::THREADS,
      (size_t)C::SMEM, (const void *)decode_forward<C>,    FORM};
}

/* Rows of a table: a variant as it comes, and those that know pages, or a contiguous cache too. */
#define DECODE_PAGES(...) decode_variant<__VA_ARGS__>(), decode_variant<__VA_ARGS__, DECODE_PAGED>()
#define DECODE_FORMS(...) DECODE_PAGES(__VA_ARGS__), decode_variant<__VA_ARGS__, DECODE_EVEN>()

#endif
