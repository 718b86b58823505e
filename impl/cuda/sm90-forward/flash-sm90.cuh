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

#include "impl/cuda/sm90-forward/flash-sm90-consume.cuh"
#include "impl/cuda/sm90-forward/flash-sm90-produce.cuh"

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

template <class C>
SM90_DEV void sm90_init_barriers(uint32_t smem)
{
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

/* A thread of the producer warpgroup. */
template <class C>
SM90_DEV void sm90_be_producer(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *mk,
                               const CUtensorMap *mv, const sm90_params &p)
{
  if (threadIdx.x == 0) {
    tma_prefetch_map(mq);
    tma_prefetch_map(mk);
    tma_prefetch_map(mv);
    sm90_produce<C>(smem, mq, mk, mv, p);
  } else if (C::PAGED && threadIdx.x % 32 == 0) {
    sm90_feed<C>(smem, mk, mv, p, threadIdx.x / 32);
  }
}

/* A thread of consumer warpgroup wg. */
template <class C>
SM90_DEV void sm90_be_consumer(uint32_t smem, const sm90_params &p, int wg)
{
  sm90_lane w;
  w.smem = smem;
  w.wg = wg;
  w.warp = sm90_uniform(threadIdx.x / 32 % 4);
  w.lane = threadIdx.x % 32;
  w.row = 64 * w.wg + 16 * w.warp + w.lane / 4;
  w.elected = threadIdx.x % 128 == 0;
  if (w.wg == C::WGS - 1)
    sm90_pass_turn<C>(w);
  sm90_consume<C>(w, p);
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_sm90(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
               const __grid_constant__ CUtensorMap mv, const __grid_constant__ sm90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  if (!C::TWICE && p.lost && *p.lost != p.token)
    return;
  const uint32_t smem = rederive(smem_addr(shared));
  if (threadIdx.x == 0)
    sm90_init_barriers<C>(smem);
  sm90_clear_panels<C::THREADS, C::KM, C::D>(smem + C::Q0, C::QSTAGES, p.d);
  sm90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::K0, C::STAGES, p.d);
  sm90_clear_panels<C::THREADS, C::KN, C::DV>(smem + C::V0, C::STAGES, p.dv);
  fence_proxy_async();
  __syncthreads();
  const int wg = sm90_uniform(threadIdx.x / 128);
  if (wg == 0) {
    regs_give<C::PREGS>();
    sm90_be_producer<C>(smem, &mq, &mk, &mv, p);
  } else {
    regs_take<C::CREGS>();
    sm90_be_consumer<C>(smem, p, wg - 1);
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
  k.stages = C::STAGES;
  /* Each warpgroup reads all of K and V, and its rows of Q unless it holds them; TMA writes. */
  k.step_smem = (C::WGS + 1) * (C::K_BYTES + C::V_BYTES) + (C::QREG ? 0 : C::Q_BYTES);
  k.tile_smem = (C::QREG ? 2 : 1) * C::Q_BYTES;
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
