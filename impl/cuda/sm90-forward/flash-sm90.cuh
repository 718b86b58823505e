/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90.cuh - the Hopper forward kernel: O = softmax(mask(scale Q K^T)) V and its LSE, in one
 * pass.  Q (b, sq, hq, d), K (b, sk, hkv, d), V (b, sk, hkv, dv), O like Q with dv; fp32 inside.
 *
 * A persistent CTA is one producer thread and WGS consumer warpgroups of 64 query rows each.
 *   producer   takes the next tile (row block x head), tells the consumers through a four-slot
 *              mailbox, and lets TMA fill shared memory: K0, Q, K1, V0, K2, V1 ...; K and V have
 *              rings of STAGES tiles with a full and an empty mbarrier a slot
 *   consumers  walk the keys from right to left.  Each step issues S = Q K^T for the next tile and
 *              O += P V for the present one back to back, does softmax on S while P V runs, and
 *              only then packs P and rescales O
 *
 * The running maximum is kept unless it grew by more than 8 in log2 units: P stays below 2^8, and
 * most steps need no rescaling of O.  Masks cost one uniform branch a step where there is none to
 * apply.  Tiles start at the right end with the longest rows first, in sections of heads whose K
 * and V stay in L2.
 *
 * A paged cache: the producer loads a tile of keys box by box, a box being the rows that a page and
 * a tile have in common (their greatest common divisor, 8 at least: a swizzle's period), and looks
 * the next page up while TMA loads from the present one.  Slots behind the end of a sequence lie
 * outside the map and become zeros, entries behind the end of the table's row are not read.
 *
 * head_dim  tile     stages  registers           shared memory  what else
 *      64   192x128  3       32 / 160 (3 groups)      147,776   SM90_TURNS, SM90_TWICE, two Q slots
 *     128   128x128  3       40 / 232                 229,696   SM90_QREG, SM90_GUARD; up to 1024
 *                                                               keys SM90_TURNS, too; paged
 *                                                               SM90_TWICE, 56 / 224
 *     256   128x80   2       40 / 232                 229,664   SM90_GUARD; paged SM90_TWICE
 *
 * What the steps gained, H200, bf16, rested, medians, TFLOP/s full / causal (16,384 tokens, 2048
 * columns).  At 8192, from three runs:
 *                                                         d = 64       128        256
 *   wait for P V in front of softmax, as ptxas placed it  499 / 465  698 / 675  773 / 753
 *   softmax beside P V (sm90_await_v)                         -      707 / 687  829 / 788
 *   SM90_GUARD                                                -      752 / 733  833 / 790
 *   the pipeline runs on across row blocks                532 / 491  744 / 706  825 / 782
 *   SM90_EARLY, two stages, uniform descriptors           533 / 495  740 / 710      -
 *   SM90_EARLY, three stages, SM90_TURNS                  531 / 501      -          -
 *   cuDNN 9.14                                            556 / 502  677 / 621  741 / 623
 * At all lengths, lines between rules in one run (of several, entries take turns; who comes first
 * gains up to 1.5 %):
 *                                       512         2048         8192         16384
 *   d = 64   TURNS, EARLY               355 / 207    471 / 386    525 / 495    531 / 516
 *            maximum in four chains     362 / 209    488 / 397    544 / 511    546 / 533
 *            cuDNN                      345 / 208    502 / 383    552 / 499    562 / 531
 *            --
 *            TURNS, EARLY, TWICE        369 / 200    527 / 405    599 / 550    606 / 578
 *            TURNS, TWICE               369 / 201    524 / 402    592 / 544    598 / 574  ships
 *            cuDNN                      377 / 213    500 / 390    552 / 503    563 / 529
 *   d = 128  two stages                 475 / 300    667 / 563    735 / 721    746 / 753
 *            three stages               508 / 310    691 / 579    752 / 726    761 / 757  ships
 *            three stages, TURNS        511 / 315    684 / 572    742 / 713    751 / 744  to 1024
 *            cuDNN                      491 / 302    627 / 502    677 / 613    683 / 637
 *
 * What lost, at 8192 (reasons that were not measured have a question mark):
 *   d = 64, across row blocks with turns: 521 / 490; with three stages, too: 503 / 475
 *   d = 64, two groups: 128x192 with GUARD 495 / 471, 128x128 453 / 449
 *   d = 64, P through shared memory: 444 / 421, 192 keys 456 / 434 with spills
 *   d = 64, S twice, the next step's Q K^T before softmax: two groups of 128 keys 438 / 435, three
 * of 80 445 / 424, three of 64 416 / 395 d = 64 with GUARD: sm90_again spills 88 bytes or more at
 * 160 registers, from shared memory, too d = 64, some exponentials by polynomial: 377 to 488 (more
 * instructions to issue?) ex2.f16x2: 16 cycles a warp instruction, ex2.f32 8, so the rate is the
 * same d = 128, 128x176 with Q in shared memory: 738 / 711; at 512 causal 260 against 308 counters
 * that the last CTA zeroes instead of a memset: 290 against 291 at 512 causal, d = 128
 *
 * Where d = 64 spends its time, in cycles a step of a warpgroup, of roles alone in one SM: softmax
 * of one, two, three groups 776, 1106, 1594 (512 a group are the exponentials' bound), Q K^T and P
 * V 588, of three groups 1535 (their bound); one group's products beside two groups' softmax 700
 * and 1339.  Three groups that do all of it, without loads, masks and barriers: 2304 a round, in
 * turns or not, which at 1755 MHz were 632 TFLOP/s.
 *
 * Pages, against the same problem contiguous (32 heads on 8, 1024 queries on 8192 keys, causal):
 *                                    8     16     64    128
 *   d = 128  one thread loads      .26    .44    .87    .94
 *            four threads          .36    .59    .85    .85
 *   d = 64   one thread              -    .53      -    .95
 *            four threads            -    .64      -    .91
 * A box costs its thread some 300 cycles (the divisions by the page share a pipe with the
 * exponentials?).
 *
 * Accumulator of a warpgroup: thread lane of warp w holds rows 16w + lane/4 and that + 8, columns
 * 8j + 2(lane%4) + {0,1}, at [4j + 2*half + {0,1}].
 */
#ifndef IMPL_CUDA_FLASH_SM90_CUH
#define IMPL_CUDA_FLASH_SM90_CUH

#include <float.h>
#include <math.h>

#include "impl/cuda/sm90-forward/flash-sm90.h"
#include "impl/cuda/ptx-sm90.cuh"
#include "impl/dropout.h"

#define SM90_BOXES 4 /* mailbox slots, a power of two */

enum {
  SM90_QREG = 1,    /* Q as register fragments instead of shared-memory operands */
  SM90_GUARD = 2,   /* no row maximum where there is no mask: the sums tell when it was needed */
  SM90_TURNS = 4,   /* warpgroups take turns to issue; descriptors in uniform registers */
  SM90_EARLY = 8,   /* the next row block's first Q K^T is issued before this one's O is stored */
  SM90_SCORE = 16,  /* softcap, ALiBi */
  SM90_DROP = 32,   /* dropout */
  SM90_PAGED = 64,  /* K and V in pages */
  SM90_TWICE = 128, /* SM90_GUARD, but lost rows have a kernel without it do everything again */
};

template <class T_, int D_, int DV_, int WGS_, int KN_, int STAGES_, int QSTAGES_, int PREGS_,
          int CREGS_, int FLAGS_>
struct sm90_cfg {
  typedef T_ T;
  static constexpr int D = D_, DV = DV_, WGS = WGS_, KM = 64 * WGS_, KN = KN_;
  static constexpr int STAGES = STAGES_, QSTAGES = QSTAGES_, PREGS = PREGS_, CREGS = CREGS_;
  static constexpr bool QREG = FLAGS_ & SM90_QREG, GUARD = FLAGS_ & (SM90_GUARD | SM90_TWICE);
  static constexpr bool TURNS = FLAGS_ & SM90_TURNS, EARLY = FLAGS_ & SM90_EARLY;
  static constexpr bool SCORE = FLAGS_ & SM90_SCORE, DROP = FLAGS_ & SM90_DROP;
  static constexpr bool PAGED = FLAGS_ & SM90_PAGED, TWICE = FLAGS_ & SM90_TWICE;
  static constexpr int THREADS = 128 * (WGS + 1), FEEDERS = PAGED ? 4 : 1; /* producer threads */
  static constexpr int Q_BYTES = KM * D * 2, K_BYTES = KN * D * 2, V_BYTES = KN * DV * 2;
  static constexpr int Q0 = 0, K0 = Q0 + QSTAGES * Q_BYTES, V0 = K0 + STAGES * K_BYTES;
  static constexpr int BARS = V0 + STAGES * V_BYTES;
  /* barriers, 8 bytes each: full and empty of the Q, K, V and mailbox rings */
  static constexpr int Q_FULL = BARS, Q_EMPTY = Q_FULL + 8 * QSTAGES;
  static constexpr int K_FULL = Q_EMPTY + 8 * QSTAGES, K_EMPTY = K_FULL + 8 * STAGES;
  static constexpr int V_FULL = K_EMPTY + 8 * STAGES, V_EMPTY = V_FULL + 8 * STAGES;
  static constexpr int BOX_FULL = V_EMPTY + 8 * STAGES, BOX_EMPTY = BOX_FULL + 8 * SM90_BOXES;
  static constexpr int BOX = (BOX_EMPTY + 8 * SM90_BOXES + 31) / 32 * 32;
  static constexpr int SMEM = BOX + 32 * SM90_BOXES;
  static_assert(D % 64 == 0 && DV % 64 == 0 && KN % 16 == 0 && SMEM <= 232448, "tile");
  static_assert(TWICE || !(GUARD && PAGED), "keys are made again from contiguous memory");
  static_assert(!(GUARD && SCORE), "the score is made anew from Q and K alone");
};

/* One unit of work: query rows m0.. of one head, keys of tiles [lo, hi). */
struct sm90_tile {
  int m0; /* -1: no more work */
  int head, seq;
  int lo, hi;
  int sq, sk;
  int row0; /* of the sequence in a packed tensor */
};

/* A place in a ring of N: slot and parity of its present use, in one register; who fills the slot
 * waits for the other parity. */
template <int N>
struct sm90_ring {
  int at; /* N = 1, 2: how many uses went before; else 2 * slot + parity */
  static constexpr bool COUNT = N <= 2;
  __device__ __forceinline__ int slot() const
  {
    return COUNT ? at & (N - 1) : at >> 1;
  }
  __device__ __forceinline__ int phase() const
  {
    return COUNT ? at >> (N - 1) & 1 : at & 1;
  }
  __device__ __forceinline__ sm90_ring next() const
  {
    return COUNT ? sm90_ring{at + 1} : at >= 2 * N - 2 ? sm90_ring{at & 1 ^ 1} : sm90_ring{at + 2};
  }
  __device__ __forceinline__ sm90_ring before() const
  {
    return COUNT     ? sm90_ring{at - 1}
           : at >= 2 ? sm90_ring{at - 2}
                     : sm90_ring{2 * N - 2 + (at ^ 1)};
  }
};

/* ---- scheduling ------------------------------------------------------------------------------ */

/* Query row i of a sequence sees the keys [i + shift - left, i + shift + right]. */
SM90_DEV int sm90_shift(const sm90_params &p, int sq, int sk)
{
  return p.topleft ? 0 : sk - sq;
}

/* Keys of a sequence of a ragged batch. */
SM90_DEV int sm90_length(const sm90_params &p, int seq)
{
  return p.seqlens_k ? p.seqlens_k[seq] : p.cu_k[seq + 1] - p.cu_k[seq];
}

/* Half-open range of the key tiles that any of the rows m0 .. m0 + km - 1 sees. */
SM90_DEV int2 sm90_keys(const sm90_params &p, int m0, int sq, int sk, int km, int kn)
{
  const int shift = sm90_shift(p, sq, sk), end = min(m0 + km, sq);
  const int hi = (max(0, min(sk, end + shift + p.right)) + kn - 1) / kn;
  return make_int2(min(max(0, m0 + shift - p.left) / kn, hi), hi);
}

template <class C>
SM90_DEV sm90_tile sm90_decode(const sm90_params &p, int n)
{
  sm90_tile t;
  const int blocks = p.items ? *p.items : p.blocks, heads = p.items ? p.hq : p.b * p.hq;
  const int s = n / (p.section * blocks), r = n - s * p.section * blocks;
  const int here = min(p.section, heads - s * p.section);
  const int item = here > 0 ? r / here : blocks;
  t.m0 = -1;
  t.head = t.seq = t.lo = t.hi = t.row0 = 0;
  t.sq = p.sq;
  t.sk = p.sk;
  if (item >= blocks)
    return t;
  const int head = s * p.section + r - item * here;
  if (p.items) {
    const sm90_item at = p.item[item];
    t.seq = at.seq;
    t.m0 = at.m0;
    t.head = head;
    t.row0 = p.cu_q[t.seq];
    t.sq = p.cu_q[t.seq + 1] - t.row0;
    t.sk = sm90_length(p, t.seq);
  } else {
    t.seq = head / p.hq;
    t.head = head - t.seq * p.hq;
    t.m0 = (blocks - 1 - item) * C::KM;
  }
  const int2 keys = sm90_keys(p, t.m0, t.sq, t.sk, C::KM, C::KN);
  t.lo = keys.x;
  t.hi = keys.y;
  return t;
}

/* ---- mailbox --------------------------------------------------------------------------------- */

SM90_DEV int4 lds128(uint32_t at)
{
  int4 x;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
  return x;
}

/* What the mailbox says of the count-th tile.  It is read again wherever it is needed: registers
 * are dearer. */
template <class C>
SM90_DEV sm90_tile sm90_read(uint32_t smem, int count)
{
  const uint32_t at = smem + C::BOX + 32 * (count % SM90_BOXES);
  const int4 a = lds128(at), b = lds128(at + 16);
  return sm90_tile{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

/* Tells the consumers of the count-th tile. */
template <class C>
SM90_DEV void sm90_post(uint32_t smem, int count, const sm90_tile &t)
{
  const int slot = count % SM90_BOXES;
  const uint32_t at = smem + C::BOX + 32 * slot;
  mbar_wait(smem + C::BOX_EMPTY + 8 * slot, count / SM90_BOXES % 2 ^ 1);
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(t.m0), "r"(t.head),
               "r"(t.seq), "r"(t.lo)
               : "memory");
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(at + 16), "r"(t.hi), "r"(t.sq),
               "r"(t.sk), "r"(t.row0)
               : "memory");
  mbar_arrive(smem + C::BOX_FULL + 8 * slot);
}

/* ---- producer -------------------------------------------------------------------------------- */

/* Panels that columns of a tensor fall into, of W/64.  The others are not loaded: a box that lies
 * wholly outside its map makes TMA touch the map's base address, which for packed tensors and pages
 * lies before the tensor. */
template <int W>
SM90_DEV int sm90_panels(int width)
{
  return W == 64 ? 1 : (width + 63) / 64;
}

/* Loads rows [row, row + ROWS) as W/64 panels; rows and columns outside the tensor become zero. */
template <int ROWS, int W>
SM90_DEV void sm90_load(uint32_t dst, const CUtensorMap *map, uint32_t bar, int width, int row,
                        int head, int batch)
{
  const int panels = sm90_panels<W>(width);
  mbar_expect(bar, ROWS * 128 * panels);
#pragma unroll
  for (int i = 0; i < W / 64; i++)
    if (i < panels)
      tma_load_4d(dst + i * ROWS * 128, map, bar, 64 * i, row, head, batch);
}

/* Entry of the block table for a key; the first for one behind the end, for the rest of a row may
 * be anything. */
SM90_DEV const int32_t *sm90_entry(const sm90_params &p, const sm90_tile &t, int key)
{
  return p.block_table + t.seq * p.table_stride + (key < t.sk ? key / p.page : 0);
}

/* Brings the entry into L1. */
SM90_DEV void sm90_touch(const sm90_params &p, const sm90_tile &t, int key)
{
  asm volatile("{\n.reg .s32 x;\nld.global.nc.s32 x, [%0];\n}" ::"l"(sm90_entry(p, t, key)));
}

/* Loads a feeder's boxes of tile n of the keys of t into their slot, once the consumers have given
 * that back; the number of the first page is there when the slot is.  The rows behind the end of
 * the sequence lie outside the map and read as zero: they are rows of the page that ends where the
 * keys do.  A box without keys loads the first of all keys, for one that lies wholly outside makes
 * TMA touch the map's base address, where nothing need be; that key is masked. */
template <class C, int W>
SM90_DEV void sm90_load_pages(const sm90_params &p, const sm90_tile &t, int width, int head, int n,
                              uint32_t dst, uint32_t full, int parity, const CUtensorMap *map,
                              int feeder)
{
  const int end = (n + 1) * C::KN;
  int key = n * C::KN + feeder * p.box;
  if (key >= end)
    return;
  const int panels = sm90_panels<W>(width);
  int page = __ldg(sm90_entry(p, t, key));
  mbar_wait(full + 8 * C::STAGES, parity);
  if (feeder == 0)
    mbar_expect(full, C::KN * 128 * panels);
#pragma unroll 1
  for (dst += feeder * p.box * 128; key < end; dst += C::FEEDERS * p.box * 128) {
    const int here = page, there = max(1, min(p.box, t.sk - key));
    const int stop = (key < t.sk ? key % p.page : 0) + there;
    key += C::FEEDERS * p.box;
    if (key < end)
      page = __ldg(sm90_entry(p, t, key));
#pragma unroll
    for (int i = 0; i < W / 64; i++)
      if (i < panels)
        tma_load_5d(dst + i * C::KN * 128, map, full, 64 * i, p.page - there, head, stop, here);
  }
}

/* Loads tile n of the keys of t into its slot, once the consumers have given that back.  A packed
 * tensor's map has rows [0, max) of a sequence that ends at row max, and the end of the sequence in
 * the packed tensor as its last coordinate: what lies beyond reads as zero. */
template <class C, int W>
SM90_DEV void sm90_load_kv(const sm90_params &p, const sm90_tile &t, int width, int head, int n,
                           uint32_t tiles, uint32_t bars, sm90_ring<C::STAGES> r,
                           const CUtensorMap *map, int feeder = 0)
{
  const uint32_t dst = tiles + r.slot() * C::KN * W * 2, full = bars + 8 * r.slot();
  if (C::PAGED) {
    sm90_load_pages<C, W>(p, t, width, head, n, dst, full, r.phase() ^ 1, map, feeder);
    return;
  }
  const int row = n * C::KN + (p.items ? p.sk - t.sk : 0);
  const int batch = p.items ? p.cu_k[t.seq + 1] : t.seq;
  mbar_wait(full + 8 * C::STAGES, r.phase() ^ 1);
  sm90_load<C::KN, W>(dst, map, full, width, row, head, batch);
}

template <class C>
SM90_DEV void sm90_load_q(uint32_t smem, const CUtensorMap *mq, const sm90_params &p,
                          const sm90_tile &t, sm90_ring<C::QSTAGES> qr)
{
  mbar_wait(smem + C::Q_EMPTY + 8 * qr.slot(), qr.phase() ^ 1);
  sm90_load<C::KM, C::D>(smem + C::Q0 + qr.slot() * C::Q_BYTES, mq,
                         smem + C::Q_FULL + 8 * qr.slot(), p.d, t.m0 + (p.items ? p.sq - t.sq : 0),
                         t.head, p.items ? t.row0 + t.sq : t.seq);
}

template <class C>
SM90_DEV void sm90_produce(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *mk,
                           const CUtensorMap *mv, const sm90_params &p)
{
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  int n = blockIdx.x;
  for (int count = 0;; count++) {
    const sm90_tile t = sm90_decode<C>(p, n);
    sm90_post<C>(smem, count, t);
    if (t.m0 < 0)
      break;
    n += gridDim.x;
    const int head = t.head / p.group;
#pragma unroll 1
    for (int i = t.hi - 1; i >= t.lo; i--) {
      if (i == t.lo && p.counter)
        n = atomicAdd(p.counter, 1) + gridDim.x;
      sm90_load_kv<C, C::D>(p, t, p.d, head, i, smem + C::K0, smem + C::K_FULL, r, mk);
      if (i == t.hi - 1) {
        sm90_load_q<C>(smem, mq, p, C::PAGED ? sm90_read<C>(smem, count) : t, qr);
        qr = qr.next();
      } else {
        sm90_load_kv<C, C::DV>(p, t, p.dv, head, i + 1, smem + C::V0, smem + C::V_FULL, r.before(),
                               mv);
      }
      r = r.next();
    }
    if (t.lo < t.hi)
      sm90_load_kv<C, C::DV>(p, t, p.dv, head, t.lo, smem + C::V0, smem + C::V_FULL, r.before(),
                             mv);
    else if (p.counter)
      n = atomicAdd(p.counter, 1) + gridDim.x;
  }
}

/* The other feeders of a paged cache: told of the tiles as the consumers are, they load boxes in
 * the same order. */
template <class C>
SM90_DEV void sm90_feed(uint32_t smem, const CUtensorMap *mk, const CUtensorMap *mv,
                        const sm90_params &p, int feeder)
{
  sm90_ring<C::STAGES> r = {};
  for (int count = 0;; count++) {
    mbar_wait(smem + C::BOX_FULL + 8 * (count % SM90_BOXES), count / SM90_BOXES % 2);
    const sm90_tile t = sm90_read<C>(smem, count);
    if (t.m0 < 0)
      break;
    const int head = t.head / p.group;
#pragma unroll 1
    for (int i = t.hi - 1; i >= t.lo - 1; i--) {
      if (i >= t.lo)
        sm90_load_kv<C, C::D>(p, t, p.d, head, i, smem + C::K0, smem + C::K_FULL, r, mk, feeder);
      if (i > t.lo)
        sm90_touch(p, t, (i - 1) * C::KN);
      if (i < t.hi - 1)
        sm90_load_kv<C, C::DV>(p, t, p.dv, head, i + 1, smem + C::V0, smem + C::V_FULL, r.before(),
                               mv, feeder);
      if (i >= t.lo)
        r = r.next();
    }
    mbar_arrive(smem + C::BOX_EMPTY + 8 * (rederive(count) % SM90_BOXES));
  }
}

/* ---- consumer -------------------------------------------------------------------------------- */

/* Where a consumer thread is. */
struct sm90_lane {
  uint32_t smem;
  int wg, warp, lane;
  int row; /* of the tile: its upper one */
  bool elected;
};

SM90_DEV int sm90_uniform(int x)
{
  return __shfl_sync(~0u, x, 0);
}

/* The count-th tile is done with. */
template <class C>
SM90_DEV void sm90_forget(const sm90_lane &w, int count)
{
  __syncwarp();
  if (w.lane == 0)
    mbar_arrive(w.smem + C::BOX_EMPTY + 8 * (count % SM90_BOXES));
}

/* Waits for Q; as fragments, it is read at once and its slot given back. */
template <class C>
SM90_DEV void sm90_take_q(const sm90_lane &w, sm90_ring<C::QSTAGES> &qr, uint32_t (&Q)[C::D / 4])
{
  mbar_wait(w.smem + C::Q_FULL + 8 * qr.slot(), qr.phase());
  if (!C::QREG)
    return;
  const int r = 64 * w.wg + 16 * w.warp + (w.lane & 15);
  const uint32_t base = w.smem + C::Q0 + qr.slot() * C::Q_BYTES + r * 128;
#pragma unroll
  for (int k = 0; k < C::D / 16; k++) {
    uint32_t f[4];
    const int chunk = (2 * k & 7) + (w.lane >> 4);
    ldmatrix_x4(f, base + k / 4 * C::KM * 128 + ((chunk ^ (r & 7)) << 4));
#pragma unroll
    for (int i = 0; i < 4; i++)
      Q[4 * k + i] = f[i];
  }
  fence_proxy_async();
  __syncwarp();
  if (w.lane == 0)
    mbar_arrive(w.smem + C::Q_EMPTY + 8 * qr.slot());
  qr = qr.next();
}

/* Q in shared memory: the slot is given back after the tile's last Q K^T. */
template <class C>
SM90_DEV void sm90_drop_q(const sm90_lane &w, sm90_ring<C::QSTAGES> &qr)
{
  if (C::QREG)
    return;
  if (w.elected)
    mbar_arrive(w.smem + C::Q_EMPTY + 8 * qr.slot());
  qr = qr.next();
}

/* Waits for this warpgroup's turn to issue.  Its products run in one piece, so that its softmax
 * falls beside the others' products. */
template <class C>
SM90_DEV void sm90_take_turn(const sm90_lane &w)
{
  if (C::TURNS)
    named_sync(1 + w.wg, 256);
}

template <class C>
SM90_DEV void sm90_pass_turn(const sm90_lane &w)
{
  if (C::TURNS)
    named_arrive(w.wg == C::WGS - 1 ? 1 : 2 + w.wg, 256);
}

/* A descriptor's base, equal in all lanes.  By way of redux.sync it lands in a uniform register,
 * which saves two to four instructions in front of each wgmma. */
template <class C>
SM90_DEV uint32_t sm90_base(uint32_t at, uint32_t leading_bytes)
{
  const uint32_t lo = desc_lo(at, leading_bytes);
  return C::TURNS ? __reduce_or_sync(~0u, lo) : rederive(lo);
}

/* S = Q K^T, one group; in_turn: a P V follows in the same turn; waited: K is there */
template <class C>
SM90_DEV void sm90_qk(const sm90_lane &w, float (&S)[C::KN / 2], const uint32_t (&Q)[C::D / 4],
                      int qslot, const sm90_ring<C::STAGES> &r, bool in_turn, bool waited = false)
{
  const uint32_t q = sm90_base<C>(w.smem + C::Q0 + qslot * C::Q_BYTES + w.wg * 8192, 0);
  const uint32_t k0 = sm90_base<C>(w.smem + C::K0 + r.slot() * C::K_BYTES, 0);
  if (!waited)
    mbar_wait(w.smem + C::K_FULL + 8 * r.slot(), r.phase());
  if (in_turn)
    sm90_take_turn<C>(w);
  undefine(S);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++) {
    const uint64_t b = desc(k0 + k / 4 * C::KN * 8 + k % 4 * 2);
    if (C::QREG)
      wgmma<typename C::T, C::KN>::template rs<0>(S, Q + 4 * k, b, k > 0);
    else
      wgmma<typename C::T, C::KN>::ss(S, desc(q + k / 4 * C::KM * 8 + k % 4 * 2), b, k > 0);
  }
  wgmma_commit();
}

/* O (+)= P V, one group; V is there */
template <class C>
SM90_DEV void sm90_pv(const sm90_lane &w, float (&O)[C::DV / 2], const uint32_t (&P)[C::KN / 4],
                      const sm90_ring<C::STAGES> &r, int add)
{
  const uint32_t v0 = sm90_base<C>(w.smem + C::V0 + r.slot() * C::V_BYTES, C::KN * 128);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::KN / 16; k++)
    wgmma<typename C::T, C::DV>::template rs<1>(O, P + 4 * k, desc(v0 + k * 128), k > 0 ? 1 : add);
  wgmma_commit();
}

SM90_DEV void sm90_release(const sm90_lane &w, uint32_t bar)
{
  if (w.elected)
    mbar_arrive(w.smem + bar);
}

/* Where this warpgroup is in the keys: steps n = hi - 1 .. lo; those >= right or < left need a
 * mask. */
struct sm90_walk {
  int n, lo, right, left;
};

template <class C>
SM90_DEV sm90_walk sm90_start(const sm90_lane &w, const sm90_params &p, const sm90_tile &t)
{
  const int first = t.m0 + 64 * w.wg + sm90_shift(p, t.sq, t.sk);
  sm90_walk k;
  k.n = sm90_uniform(t.hi);
  k.lo = sm90_uniform(t.lo);
  k.right = sm90_uniform(max(0, min(t.sk, first + p.right + 1)) / C::KN);
  k.left = sm90_uniform((max(0, first + 63 - p.left) + C::KN - 1) / C::KN);
  return k;
}

/* Every row sees all keys of step n. */
SM90_DEV bool sm90_clear(const sm90_walk &k)
{
  return k.n < k.right && k.n >= k.left;
}

/* Hides the keys of step n that this thread's rows do not see. */
template <class C>
SM90_DEV void sm90_mask(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                        float (&S)[C::KN / 2])
{
  if (sm90_clear(k))
    return;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const int base = k.n * C::KN + 2 * (w.lane & 3), at = t.m0 + w.row + sm90_shift(p, t.sq, t.sk);
  if (k.n >= k.right) {
    const int r0 = min(t.sk, at + p.right + 1) - base, r1 = min(t.sk, at + p.right + 9) - base;
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      if (i / 4 * 8 + i % 2 >= (i & 2 ? r1 : r0))
        S[i] = -INFINITY;
  }
  if (k.n < k.left) {
    const int r0 = at - p.left - base, r1 = r0 + 8;
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      if (i / 4 * 8 + i % 2 < (i & 2 ? r1 : r0))
        S[i] = -INFINITY;
  }
}

SM90_DEV float quad_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

SM90_DEV float quad_sum(float x)
{
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/* Two rows' state: the maximum in use, in log2 units, and the sum of this thread's part. */
struct sm90_rows {
  float m[2], l[2];
};

/* Moves the maxima up to those of S, unless they grew by 8 or less; alpha: what that does to O. */
template <int N>
SM90_DEV bool sm90_raise(const float (&S)[N], sm90_rows &s, float (&alpha)[2], float c)
{
  float top[2][4];
#pragma unroll
  for (int i = 0; i < N; i++) {
    float &x = top[i / 2 % 2][i / 4 % 2 * 2 + i % 2];
    x = i < 8 ? S[i] : fmaxf(x, S[i]);
  }
  bool grew = false;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float *t = top[h], m = quad_max(fmaxf(fmaxf(t[0], t[1]), fmaxf(t[2], t[3]))) * c;
    const bool grow = m - s.m[h] > 8.f;
    alpha[h] = grow ? ex2(s.m[h] - m) : 1.f;
    s.m[h] = grow ? m : s.m[h];
    grew |= grow;
  }
  return __any_sync(~0u, grew);
}

/* S becomes P = 2^(S c - m); t: this thread's sums. */
template <int N>
SM90_DEV void sm90_exp(float (&S)[N], const sm90_rows &s, float (&t)[2], float c)
{
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float m = fmaxf(s.m[h], -FLT_MAX);
    float sum[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      float &x = S[i / 2 * 4 + 2 * h + i % 2];
      x = ex2(fmaf(x, c, -m));
      sum[i % 2] += x;
    }
    t[h] = sum[0] + sum[1];
  }
}

/* S = Q K^T once more, from global memory, for a tile without masked keys.  Few registers count
 * here, not time: the parameters are read through a pointer whose origin is hidden, lest what
 * follows from them be kept in registers all along. */
template <class C>
static __device__ __forceinline__ void sm90_again(const sm90_lane &w, const sm90_params &params,
                                                  int n, int count, float (&S)[C::KN / 2])
{
  const sm90_params *hidden = &params;
  asm volatile("" : "+l"(hidden));
  const sm90_params &p = *hidden;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const int seq = p.items ? 0 : t.seq, col = 2 * (w.lane & 3), row = t.m0 + w.row;
  const int64_t key = (p.items ? p.cu_k[t.seq] : 0) + n * C::KN + w.lane / 4;
  const uint16_t *q = (const uint16_t *)p.q + seq * p.q_sb + t.head * p.q_sh + col +
                      (int64_t)(t.row0 + min(row, t.sq - 1)) * p.q_ss;
  const int64_t down = (min(row + 8, t.sq - 1) - min(row, t.sq - 1)) * p.q_ss;
  const uint16_t *k =
      (const uint16_t *)p.k + seq * p.k_sb + key * p.k_ss + t.head / p.group * p.k_sh + col;
#pragma unroll
  for (int j = 0; j < C::KN / 8; j++) {
    float *s = &S[4 * j];
    s[0] = s[1] = s[2] = s[3] = 0.f;
#pragma unroll 1
    for (int i = 0; i < p.d; i += 16) {
      const bool two = i + 8 < p.d;
      const uint32_t a[4] = {ldg32(q + i), ldg32(q + down + i), two ? ldg32(q + i + 8) : 0,
                             two ? ldg32(q + down + i + 8) : 0};
      mma_m16n8k16(typename C::T(), s, a, ldg32(k + i), two ? ldg32(k + i + 8) : 0);
    }
    k += 8 * p.k_ss;
  }
}

/* Below it, sums of 2^(S c - m) are taken as they are: the maximum in use may be 8 below the true
 * one.  Above the second, they may have overflowed. */
#define SM90_HIGH 16384.f
#define SM90_LOST 1.329228e36f

/* The maxima in use turned out low, but nothing overflowed: moves them by powers of two.  A sum has
 * at most 64 terms, so that no maximum in use gets above the true one. */
template <int N>
SM90_DEV void sm90_shrink(float (&S)[N], sm90_rows &s, float (&t)[2], float (&alpha)[2])
{
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float top = quad_max(t[h]), by = top < SM90_HIGH ? 0.f : floorf(lg2(top)) - 7.f;
    const float f = ex2(-by);
    s.m[h] += by;
    alpha[h] *= f;
    t[h] *= f;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
      S[i / 2 * 4 + 2 * h + i % 2] *= f;
  }
}

/* ---- options --------------------------------------------------------------------------------- */

/* (1 - e) / (1 + e), e = 2^(-2 |x| log2 e): absolute error 1.2e-7 */
SM90_DEV float sm90_tanh(float x)
{
  const float e = ex2(fabsf(x) * -2.885390081777927f);
  return copysignf((1.f - e) * rcp(1.f + e), x);
}

/* The slope of head h of hq: powers of 2^(-8/n), n the largest power of two up to hq; the heads
 * beyond n take the odd powers of its root. */
SM90_DEV float sm90_slope(int hq, int h)
{
  const int n = 1 << (31 - __clz(hq));
  return exp2f(h < n ? -8.f * (h + 1) / n : -4.f * (2 * (h - n) + 1) / n);
}

/* Raw products become scores in log2 units: scaled, capped, biased. */
template <class C>
SM90_DEV void sm90_score(const sm90_lane &w, const sm90_params &p, int n, int count,
                         float (&S)[C::KN / 2])
{
  if (p.cap > 0.f) {
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      S[i] = p.cap * sm90_tanh(S[i] * p.cap_scale);
  } else {
#pragma unroll
    for (int i = 0; i < C::KN / 2; i++)
      S[i] *= p.cap_scale;
  }
  if (!p.alibi)
    return;
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const float slope = sm90_slope(p.hq, t.head) * -1.4426950408889634f;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float far = (float)(t.m0 + w.row + 8 * h + t.sk - t.sq - n * C::KN - 2 * (w.lane & 3));
#pragma unroll
    for (int i = 0; i < C::KN / 4; i++)
      S[i / 2 * 4 + 2 * h + i % 2] += slope * fabsf(far - (i / 2 * 8 + i % 2));
  }
}

/* Zeroes the weights that dropout drops; one call of the generator decides four of a thread's. */
template <class C>
SM90_DEV void sm90_drop(const sm90_lane &w, const sm90_params &p, int n, int count,
                        float (&S)[C::KN / 2])
{
  const sm90_tile t = sm90_read<C>(w.smem, count);
  const uint32_t key = attn_dropout_key(p.drop_seed, t.seq, p.hq, t.head);
  const int row = t.m0 + w.row, col = n * C::KN + 2 * (w.lane & 3);
#pragma unroll
  for (int j = 0; j < C::KN / 16; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      uint32_t up, down;
      attn_dropout_words(p.drop_seed, key, row, col + 16 * j + e, &up, &down);
      float *s = &S[8 * j + e];
      s[0] = (up & 0xffff) >= p.drop_threshold ? s[0] : 0.f;
      s[2] = (down & 0xffff) >= p.drop_threshold ? s[2] : 0.f;
      s[4] = up >> 16 >= p.drop_threshold ? s[4] : 0.f;
      s[6] = down >> 16 >= p.drop_threshold ? s[6] : 0.f;
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* What a softmax step leaves to be done when the P V beside it has finished. */
struct sm90_step {
  float t[2], alpha[2]; /* this step's sums; what O must be multiplied by */
  bool rescale;         /* alpha is not 1 */
  bool low;             /* the maximum in use was too low */
};

/* S becomes P.  Without a careful step's maximum it may turn out that one was needed; after a
 * careful step every row that sees a key has one. */
template <class C>
SM90_DEV void sm90_softmax(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                           bool first, float (&S)[C::KN / 2], sm90_rows &s, sm90_step &x)
{
  const bool careful = !C::GUARD || first || k.n >= k.right - 1 || k.n < k.left;
  x.alpha[0] = x.alpha[1] = 1.f;
  x.rescale = false;
  if (careful) {
    if (C::SCORE)
      sm90_score<C>(w, p, k.n, count, S);
    sm90_mask<C>(w, p, k, count, S);
    x.rescale = sm90_raise(S, s, x.alpha, p.c);
  }
  sm90_exp(S, s, x.t, p.c);
  if (C::DROP)
    sm90_drop<C>(w, p, k.n, count, S);
  x.low = C::GUARD && !careful && !__all_sync(~0u, fmaxf(x.t[0], x.t[1]) < SM90_HIGH);
}

/* Mends a step whose maximum was too low, and adds its sums. */
template <class C>
SM90_DEV void sm90_settle(const sm90_lane &w, const sm90_params &p, const sm90_walk &k, int count,
                          float (&S)[C::KN / 2], sm90_rows &s, sm90_step &x)
{
  if (x.low) {
    x.rescale = true;
    const bool kept = __all_sync(~0u, x.t[0] < SM90_LOST && x.t[1] < SM90_LOST);
    if (C::TWICE && !kept && w.lane == 0)
      *p.lost = p.token;
    if (C::TWICE || kept) {
      sm90_shrink(S, s, x.t, x.alpha);
    } else {
      sm90_again<C>(w, p, k.n, count, S);
      sm90_raise(S, s, x.alpha, p.c);
      sm90_exp(S, s, x.t, p.c);
    }
  }
  s.l[0] = fmaf(s.l[0], x.alpha[0], x.t[0]);
  s.l[1] = fmaf(s.l[1], x.alpha[1], x.t[1]);
}

/* Waits for V, after softmax and before the wait for the P V that runs beside it.  The parity seems
 * to depend on the sums (which are never negative), and the wait is a branch: otherwise ptxas moves
 * the wait for P V up in front of softmax, which serialises the two. */
template <class C>
SM90_DEV void sm90_await_v(const sm90_lane &w, const sm90_params &p, const sm90_ring<C::STAGES> &r,
                           const sm90_step &x)
{
  mbar_wait(w.smem + C::V_FULL + 8 * r.slot(), r.phase() ^ (fminf(x.t[0], x.t[1]) < -p.c));
}

template <class T, int N>
SM90_DEV void sm90_pack(uint32_t (&P)[N / 2], const float (&S)[N])
{
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    P[i] = pack2(T(), S[2 * i], S[2 * i + 1]);
}

template <int N>
SM90_DEV void sm90_rescale(float (&O)[N], const float (&alpha)[2])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    O[i] *= alpha[i >> 1 & 1];
}

/* Lane q of a quad gives word k of row q, and receives word q of row k. */
SM90_DEV void quad_transpose(uint32_t (&x)[4], int lane)
{
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool up = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit)
        continue;
      const uint32_t give = up ? x[i] : x[i | bit];
      const uint32_t get = __shfl_xor_sync(~0u, give, bit);
      x[i] = up ? get : x[i];
      x[i | bit] = up ? x[i | bit] : get;
    }
  }
}

/* Writes the LSE of a finished row block; f becomes what O must be multiplied by.  An empty row
 * gives -inf and 0. */
template <class C>
SM90_DEV void sm90_finish(const sm90_lane &w, const sm90_params &p, const sm90_tile &t,
                          const sm90_rows &s, float (&f)[2])
{
  const int row = t.m0 + w.row, seq = p.items ? 0 : t.seq;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float l = quad_sum(s.l[h]);
    const bool empty = l == 0.f;
    f[h] = empty ? 0.f : rcp(l);
    if (C::DROP)
      f[h] *= p.keep_scale;
    if ((w.lane & 3) == 0 && row + 8 * h < t.sq)
      p.lse[seq * p.lse_sb + t.head * p.lse_sh + t.row0 + row + 8 * h] =
          empty ? -INFINITY : (s.m[h] + lg2(l)) * 0.693147180559945f;
  }
}

template <class C>
SM90_DEV void sm90_store(const sm90_lane &w, const sm90_params &p, const sm90_tile &t,
                         const float (&O)[C::DV / 2])
{
  const int row = t.m0 + w.row, seq = p.items ? 0 : t.seq;
  uint16_t *o = (uint16_t *)p.o + seq * p.o_sb + (int64_t)(t.row0 + row) * p.o_ss +
                t.head * p.o_sh + 8 * (w.lane & 3);
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int j = 0; j < C::DV / 32; j++) {
      uint32_t x[4];
#pragma unroll
      for (int k = 0; k < 4; k++)
        x[k] = pack2(typename C::T(), O[16 * j + 4 * k + 2 * h], O[16 * j + 4 * k + 2 * h + 1]);
      quad_transpose(x, w.lane);
      if (row + 8 * h < t.sq && 32 * j + 8 * (w.lane & 3) < p.dv)
        *(uint4 *)(o + 8 * h * p.o_ss + 32 * j) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

/* A row block that sees no key. */
template <class C>
SM90_DEV void sm90_store_empty(const sm90_lane &w, const sm90_params &p, const sm90_tile &t)
{
  const int seq = p.items ? 0 : t.seq;
#pragma unroll 1
  for (int i = w.lane; i < 16 * 32; i += 32) {
    const int row = t.m0 + 64 * w.wg + 16 * w.warp + i / 32;
    if (row >= t.sq)
      break;
    uint16_t *o =
        (uint16_t *)p.o + seq * p.o_sb + (int64_t)(t.row0 + row) * p.o_ss + t.head * p.o_sh;
#pragma unroll 1
    for (int col = 8 * w.lane; col < p.dv; col += 256)
      *(uint4 *)(o + col) = make_uint4(0, 0, 0, 0);
    if (w.lane == 0)
      p.lse[seq * p.lse_sb + t.head * p.lse_sh + t.row0 + row] = -INFINITY;
  }
}

enum sm90_next { SM90_END, SM90_EMPTY, SM90_WORK };

/* Waits for the count-th tile: none, one without keys, or work. */
template <class C>
SM90_DEV enum sm90_next sm90_peek(const sm90_lane &w, const sm90_params &p, int count, sm90_walk &k)
{
  mbar_wait(w.smem + C::BOX_FULL + 8 * (count % SM90_BOXES), count / SM90_BOXES % 2);
  const sm90_tile t = sm90_read<C>(w.smem, count);
  if (sm90_uniform(t.m0) < 0)
    return SM90_END;
  k = sm90_start<C>(w, p, t);
  return k.lo < k.n ? SM90_WORK : SM90_EMPTY;
}

/* Goes to the next tile that has keys; those without are written on the way.  False: none left. */
template <class C>
SM90_DEV bool sm90_advance(const sm90_lane &w, const sm90_params &p, int &count, sm90_walk &k)
{
  for (;;) {
    const enum sm90_next next = sm90_peek<C>(w, p, ++count, k);
    if (next != SM90_EMPTY)
      return next == SM90_WORK;
    sm90_store_empty<C>(w, p, sm90_read<C>(w.smem, count));
    sm90_forget<C>(w, count);
  }
}

SM90_DEV sm90_rows sm90_fresh()
{
  return sm90_rows{{-INFINITY, -INFINITY}, {0.f, 0.f}};
}

/* The first step of a row block, whose S is under way: makes P. */
template <class C>
SM90_DEV void sm90_begin(const sm90_lane &w, const sm90_params &p, int count, const sm90_walk &k,
                         float (&S)[C::KN / 2], uint32_t (&P)[C::KN / 4], sm90_ring<C::STAGES> &r,
                         sm90_ring<C::QSTAGES> &qr, sm90_rows &s)
{
  sm90_step x;
  wgmma_wait<0>();
  pin(S);
  sm90_release(w, C::K_EMPTY + 8 * r.slot());
  if (k.n == k.lo)
    sm90_drop_q<C>(w, qr);
  s = sm90_fresh();
  sm90_softmax<C>(w, p, k, count, true, S, s, x);
  sm90_await_v<C>(w, p, r, x);
  s.l[0] = x.t[0];
  s.l[1] = x.t[1];
  r = r.next();
  sm90_pack<typename C::T>(P, S);
}

/* The row block's other steps.  Its last P V remains to be issued; the result is that one's add. */
template <class C>
SM90_DEV int sm90_steps(const sm90_lane &w, const sm90_params &p, int count, sm90_walk &k,
                        float (&S)[C::KN / 2], float (&O)[C::DV / 2], uint32_t (&P)[C::KN / 4],
                        const uint32_t (&Q)[C::D / 4], sm90_ring<C::STAGES> &r,
                        sm90_ring<C::QSTAGES> &qr, sm90_rows &s)
{
  int add = 0;
  while (k.n > k.lo) {
    sm90_step x;
    k.n--;
    sm90_qk<C>(w, S, Q, qr.slot(), r, true);
    sm90_pv<C>(w, O, P, r.before(), add);
    sm90_pass_turn<C>(w);
    wgmma_wait<1>();
    pin(S);
    sm90_release(w, C::K_EMPTY + 8 * r.slot());
    if (k.n == k.lo)
      sm90_drop_q<C>(w, qr);
    sm90_softmax<C>(w, p, k, count, false, S, s, x);
    sm90_await_v<C>(w, p, r, x);
    wgmma_wait<0>();
    pin(O);
    pin(P);
    sm90_release(w, C::V_EMPTY + 8 * r.before().slot());
    r = r.next();
    sm90_settle<C>(w, p, k, count, S, s, x);
    sm90_pack<typename C::T>(P, S);
    if (x.rescale)
      sm90_rescale(O, x.alpha);
    add = 1;
  }
  return add;
}

/* The pipeline stops at the end of each row block. */
template <class C>
SM90_DEV void sm90_consume_tiles(const sm90_lane &w, const sm90_params &p)
{
  float S[C::KN / 2], O[C::DV / 2], f[2];
  uint32_t P[C::KN / 4], Q[C::D / 4];
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  sm90_rows s;
  sm90_walk k;
  int count = -1;
  while (sm90_advance<C>(w, p, count, k)) {
    sm90_take_q<C>(w, qr, Q);
    k.n--;
    sm90_qk<C>(w, S, Q, qr.slot(), r, false);
    sm90_begin<C>(w, p, count, k, S, P, r, qr, s);
    undefine(O);
    const int add = sm90_steps<C>(w, p, count, k, S, O, P, Q, r, qr, s);
    sm90_pv<C>(w, O, P, r.before(), add);
    sm90_finish<C>(w, p, sm90_read<C>(w.smem, count), s, f);
    wgmma_wait<0>();
    pin(O);
    sm90_release(w, C::V_EMPTY + 8 * r.before().slot());
    sm90_rescale(O, f);
    sm90_store<C>(w, p, sm90_read<C>(w.smem, count), O);
    sm90_forget<C>(w, count);
  }
}

/* As sm90_consume_tiles, but the next row block's first Q K^T runs while O is written.  It stands
 * after the last P V without a branch between, else ptxas serialises the two (C7514). */
template <class C>
SM90_DEV void sm90_consume_early(const sm90_lane &w, const sm90_params &p)
{
  float S[C::KN / 2], O[C::DV / 2], f[2];
  uint32_t P[C::KN / 4], Q[C::D / 4];
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  sm90_rows s;
  sm90_walk k;
  sm90_tile t;
  int count = -1, add;
  if (!sm90_advance<C>(w, p, count, k))
    return;
  sm90_take_q<C>(w, qr, Q);
  k.n--;
  sm90_qk<C>(w, S, Q, qr.slot(), r, false);
  for (;;) {
    sm90_begin<C>(w, p, count, k, S, P, r, qr, s);
    undefine(O);
    add = sm90_steps<C>(w, p, count, k, S, O, P, Q, r, qr, s);
    t = sm90_read<C>(w.smem, count);
    sm90_forget<C>(w, count);
    if (!sm90_advance<C>(w, p, count, k))
      break;
    sm90_take_q<C>(w, qr, Q);
    k.n--;
    mbar_wait(w.smem + C::K_FULL + 8 * r.slot(), r.phase());
    sm90_pv<C>(w, O, P, r.before(), add);
    sm90_qk<C>(w, S, Q, qr.slot(), r, false, true);
    sm90_finish<C>(w, p, t, s, f);
    wgmma_wait<1>();
    pin(O);
    pin(P);
    sm90_release(w, C::V_EMPTY + 8 * r.before().slot());
    sm90_rescale(O, f);
    sm90_store<C>(w, p, t, O);
  }
  sm90_pv<C>(w, O, P, r.before(), add);
  sm90_finish<C>(w, p, t, s, f);
  wgmma_wait<0>();
  pin(O);
  sm90_rescale(O, f);
  sm90_store<C>(w, p, t, O);
}

/* Zeroes the panels of tiles that are never loaded. */
template <int THREADS, int ROWS, int W>
SM90_DEV void sm90_clear_panels(uint32_t tiles, int n, int width)
{
#pragma unroll 1
  for (int i = 0; i < n; i++)
#pragma unroll 1
    for (int at = sm90_panels<W>(width) * ROWS * 128 + 16 * threadIdx.x; at < ROWS * W * 2;
         at += 16 * THREADS)
      asm volatile("st.shared.v4.s32 [%0], {%1, %1, %1, %1};" ::"r"(tiles + i * ROWS * W * 2 + at),
                   "r"(0)
                   : "memory");
}

/* ---- kernel ---------------------------------------------------------------------------------- */

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_sm90(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
               const __grid_constant__ CUtensorMap mv, const __grid_constant__ sm90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  if (!C::TWICE && p.lost && *p.lost != p.token)
    return;
  const uint32_t smem = rederive(smem_addr(shared));
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::QSTAGES; i++) {
      mbar_init(smem + C::Q_FULL + 8 * i, 1);
      mbar_init(smem + C::Q_EMPTY + 8 * i, C::QREG ? 4 * C::WGS : C::WGS);
    }
    for (int i = 0; i < C::STAGES; i++) {
      mbar_init(smem + C::K_FULL + 8 * i, 1);
      mbar_init(smem + C::K_EMPTY + 8 * i, C::WGS);
      mbar_init(smem + C::V_FULL + 8 * i, 1);
      mbar_init(smem + C::V_EMPTY + 8 * i, C::WGS);
    }
    for (int i = 0; i < SM90_BOXES; i++) {
      mbar_init(smem + C::BOX_FULL + 8 * i, 1);
      mbar_init(smem + C::BOX_EMPTY + 8 * i, 4 * C::WGS + C::FEEDERS - 1);
    }
    mbar_init_fence();
  }
  sm90_clear_panels<C::THREADS, C::KM, C::D>(smem + C::Q0, C::QSTAGES, p.d);
  sm90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::K0, C::STAGES, p.d);
  sm90_clear_panels<C::THREADS, C::KN, C::DV>(smem + C::V0, C::STAGES, p.dv);
  fence_proxy_async();
  __syncthreads();
  const int wg = sm90_uniform(threadIdx.x / 128);
  if (wg == 0) {
    regs_give<C::PREGS>();
    if (threadIdx.x == 0) {
      tma_prefetch_map(&mq);
      tma_prefetch_map(&mk);
      tma_prefetch_map(&mv);
      sm90_produce<C>(smem, &mq, &mk, &mv, p);
    } else if (C::PAGED && threadIdx.x % 32 == 0) {
      sm90_feed<C>(smem, &mk, &mv, p, threadIdx.x / 32);
    }
  } else {
    regs_take<C::CREGS>();
    sm90_lane w;
    w.smem = smem;
    w.wg = wg - 1;
    w.warp = sm90_uniform(threadIdx.x / 32 % 4);
    w.lane = threadIdx.x % 32;
    w.row = 64 * w.wg + 16 * w.warp + w.lane / 4;
    w.elected = threadIdx.x % 128 == 0;
    if (w.wg == C::WGS - 1)
      sm90_pass_turn<C>(w);
    if (C::EARLY)
      sm90_consume_early<C>(w, p);
    else
      sm90_consume_tiles<C>(w, p);
  }
}

static constexpr enum attn_dtype sm90_dtype(__nv_bfloat16)
{
  return ATTN_BF16;
}

static constexpr enum attn_dtype sm90_dtype(__half)
{
  return ATTN_F16;
}

/* This variant's row in a table. */
template <class C>
static sm90_kernel sm90_row(const char *name, int most_sk = 0)
{
  sm90_kernel k = {};
  k.name = name;
  k.func = (const void *)flash_sm90<C>;
  k.dtype = sm90_dtype(typename C::T());
  k.score = C::SCORE;
  k.drop = C::DROP;
  k.paged = C::PAGED;
  k.d = C::D;
  k.dv = C::DV;
  k.km = C::KM;
  k.kn = C::KN;
  k.threads = C::THREADS;
  k.smem = C::SMEM;
  k.most_sk = most_sk;
  return k;
}

/* SM90_TWICE and what follows it. */
template <class C, class CAREFUL>
static sm90_kernel twice_row(const char *name)
{
  sm90_kernel k = sm90_row<C>(name);
  k.careful = (const void *)flash_sm90<CAREFUL>;
  return k;
}

#endif
