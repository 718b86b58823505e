/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90.cuh - the Hopper forward kernel: O = softmax(mask(scale Q K^T)) V and its LSE, in one
 * pass.  Q (b, sq, hq, d), K (b, sk, hkv, d), V (b, sk, hkv, dv), O like Q with dv; fp32 inside.
 *
 * A persistent CTA is one producer thread and WGS consumer warpgroups of 64 query rows each.
 *   producer   takes the next tile (row block x head), tells the consumers through a four-slot
 *              mailbox, and lets TMA fill shared memory: K0, Q, K1, V0, K2, V1 ...; K and V have
 *              rings of STAGES tiles with a full and an empty mbarrier a slot.  Of a paged cache,
 *              one or two warps load K, as many V (flash-sm90-pages.cuh)
 *   consumers  walk the keys from right to left.  Each step issues S = Q K^T for the next tile and
 *              O += P V for the present one back to back, does softmax on S while P V runs, and
 *              only then packs P and rescales O
 *
 * The running maximum is kept unless it grew by more than 8 in log2 units: P stays below 2^8, and
 * most steps need no rescaling of O.  Masks cost one uniform branch a step where there is none to
 * apply.  Tiles start at the right end with the longest rows first, in sections of heads whose K
 * and V stay in L2; without a mask row blocks that lack rows come last.  A warpgroup leaves out the
 * steps whose keys lie to the right of what its rows see, and rows behind the last one altogether
 * (sm90_skip).
 *
 * head_dim  tile     stages  registers  groups  shared memory  what else
 *      64   192x128    3     32 / 160     3        147,776     SM90_TWICE, two Q slots
 *           256x64     5     32 / 112     4        147,840     the same; few keys
 *     128   128x128    3     40 / 232     2        229,696     SM90_QREG, SM90_GUARD; SM90_TURNS
 *                                                              where there is no mask
 *           192x80     4     32 / 160     3        213,344     SM90_TWICE; long sequences
 *           64x64      3     40 / 216     1        115,008     SM90_QREG, SM90_GUARD, two CTAs
 *                                                              an SM; few row blocks
 *     256   128x80     2     40 / 232     2        229,664     SM90_GUARD; paged SM90_TWICE
 *           128x64     2     40 / 232     2        196,896     SM90_GUARD; few keys
 *
 * What the steps gained, H200, bf16, rested, medians, TFLOP/s full / causal (16,384 tokens, 2048
 * columns).  At 8192, from three runs:
 *                                                         d = 64       128        256
 *   wait for P V in front of softmax, as ptxas placed it  499 / 465  698 / 675  773 / 753
 *   softmax beside P V (sm90_await_v)                         -      707 / 687  829 / 788
 *   SM90_GUARD                                                -      752 / 733  833 / 790
 *   the pipeline runs on across row blocks                532 / 491  744 / 706  825 / 782
 *   EARLY, two stages, uniform descriptors                533 / 495  740 / 710      -
 *   EARLY, three stages, SM90_TURNS                       531 / 501      -          -
 *   cuDNN 9.14                                            556 / 502  677 / 621  741 / 623
 * At all lengths, lines between rules in one run (of several, entries take turns; who comes first
 * gains up to 1.5 %):
 *                                       512         2048         8192         16384
 *   d = 64   TURNS, EARLY               355 / 207    471 / 386    525 / 495    531 / 516
 *            maximum in four chains     362 / 209    488 / 397    544 / 511    546 / 533
 *            cuDNN                      345 / 208    502 / 383    552 / 499    562 / 531
 *            --
 *            TURNS, EARLY, TWICE        369 / 200    527 / 405    599 / 550    606 / 578
 *            TURNS, TWICE               369 / 201    524 / 402    592 / 544    598 / 574
 *            cuDNN                      377 / 213    500 / 390    552 / 503    563 / 529
 *   d = 128  two stages                 475 / 300    667 / 563    735 / 721    746 / 753
 *            three stages               508 / 310    691 / 579    752 / 726    761 / 757
 *            three stages, TURNS        511 / 315    684 / 572    742 / 713    751 / 744
 *            cuDNN                      491 / 302    627 / 502    677 / 613    683 / 637
 * With sm90_skip and the early launch of the careful kernel, in us (and speed against cuDNN, before
 * and after), 16,384 tokens:
 *                          512                 2048                8192               16384
 *   d = 64   causal  143 (.98, 1.14)     314 (1.04, 1.12)     980 (1.08, 1.12)         -
 *            full    185 (.97,  .98)     524 (1.04, 1.04)          -                   -
 *   d = 128  causal  107 (.98,  .98)     232 (1.12, 1.13)     733 (    , 1.19)         -
 *   d = 256  causal       -              219 (1.14, 1.16)     683 (1.22, 1.25)    1308 (1.23, 1.26)
 *            full         -              365 (1.09, 1.10)    1320 (1.11, 1.11)    2591 (1.11, 1.12)
 * The early launch alone is worth 1 us.  64x64 against 128x128 with turns, 512 tokens, speed
 * against cuDNN: 32 heads on 8 causal 1.08 and 1.00, full 1.02 and 1.00; 64 heads on 8 causal 1.15
 * and 1.07, full, where a second wave begins, .97 and 1.00; 32 sequences causal .88 and .98.
 *
 * Speed against cuDNN, full / causal, in one run, the first line in the one before; tiles of
 * unequal row blocks are claimed, but in "strided":
 *                                  512           2048          4096          8192         16384
 *   d = 64   TURNS, strided     .97 / 1.13   1.04 / 1.13        -       1.08 / 1.13   1.08 / 1.12
 *            TURNS, claimed    1.02 / 1.14   1.06 / 1.13  1.04 / 1.11   1.08 / 1.12   1.08 / 1.12
 *            no turns          1.02 / 1.16   1.06 / 1.13  1.04 / 1.11   1.08 / 1.13   1.09 / 1.13
 *            256x64            1.07 / 1.28   1.03 / 1.15  1.01 / 1.11   1.01 / 1.08   1.00 / 1.07
 *   d = 128  descriptors not
 *            in uniform regs.  1.01 /  .98   1.06 / 1.13  1.07 / 1.17   1.08 / 1.19   1.10 / 1.20
 *            128x128           1.03 /  .98   1.08 / 1.14  1.09 / 1.18   1.10 / 1.19   1.10 / 1.20
 *            TURNS             1.02 /  .97   1.08 / 1.12  1.10 / 1.16   1.10 / 1.17   1.11 / 1.18
 *            192x80             .91 /  .92   1.08 / 1.13  1.11 / 1.18   1.12 / 1.22   1.13 / 1.23
 *   d = 256  128x80             .99 /  .98   1.10 / 1.16  1.11 / 1.22   1.12 / 1.25   1.12 / 1.26
 *            128x64            1.02 / 1.01   1.08 / 1.17  1.09 / 1.22   1.09 / 1.24   1.09 / 1.24
 * Sections of two sequences, not of all that L2 holds, causal at 512, before and since: d = 128
 * .988 and 1.010, d = 256 1.027 and 1.045; of one, full at 2048, d = 64: 1.065 and 1.076.  At 1024,
 * causal, d = 128 1.066 and 1.083, d = 256 1.095 and 1.127.
 * K and V of the heads of a section, at most, and what DRAM moved of what must move, 8192, d = 128:
 *                            8 MB   16 MB   32 MB      speed against cuDNN
 *   16 heads, full           1.02    1.31    2.16      1.127 1.126 1.127
 *   32 heads on 8, full       .92    1.13    2.91      1.128 1.124 1.128
 *   16 heads, causal          .96     .96    1.01      1.166 1.202 1.216
 *   32 heads on 8, causal     .89     .90    1.34      1.217 1.225 1.224
 * One sequence, 32 heads on 8, d = 128, full, at 512, 1024, 2048: with turns .96, 1.02, 1.08,
 * without .88, .91, 1.01.
 *
 * What lost, at 8192 (reasons that were not measured have a question mark):
 *   d = 64, across row blocks with turns: 521 / 490; with three stages, too: 503 / 475
 *   d = 64, two groups: 128x192 with GUARD 495 / 471, 128x128 453 / 449
 *   d = 64, P through shared memory: 444 / 421, 192 keys 456 / 434 with spills
 *   d = 64, S twice, the next step's Q K^T before softmax: two groups of 128 keys 438 / 435, three
 *     of 80 445 / 424, three of 64 416 / 395
 *   d = 64 with GUARD: sm90_again spills 88 bytes or more at 160 registers, from shared memory, too
 *   d = 64, some exponentials by polynomial: 377 to 488 (more instructions to issue?)
 *   ex2.f16x2: 16 cycles a warp instruction, ex2.f32 8, so the rate is the same
 *   d = 128, 128x176 with Q in shared memory: 738 / 711; at 512 causal 260 against 308
 *   counters that the last CTA zeroes instead of a memset: 290 against 291 at 512 causal, d = 128
 *   EARLY (the next row block's first Q K^T beside the store of O): nothing once TWICE was there
 *   the next row block's mailbox slot and Q awaited beside the last P V, its Q K^T issued before O
 *     is stored, or with that P V: d = 128 1.09 to 1.11 of cuDNN at 2048 causal against 1.13, .94
 *     to .97 against .98 at 512
 *   S in halves, softmax of one beside Q K^T of the other: d = 64 1.01 of cuDNN against 1.08, d =
 *     128 1.05 against 1.11
 *   d = 64 with TWICE, every eighth exponential by a cubic: 4.5 % slower (d = 64 without the sums,
 *     wrong, is 4.3 % faster: instructions count)
 *   d = 128, causal, of cuDNN against 1.19: 128x64 1.07, 128x96 1.14, 128x112 1.16, 128x176 1.15,
 *     192x64 1.14; d = 64, 192x112 1.06 and 192x96 1.05 against 1.13
 *   the first tile decoded before the barriers are made: nothing, at 512 and one wave, too
 *
 * Where d = 64 spends its time, in cycles a step of a warpgroup, of roles alone in one SM: softmax
 * of one, two, three groups 776, 1106, 1594 (512 a group are the exponentials' bound), Q K^T and P
 * V 588, of three groups 1535 (their bound); one group's products beside two groups' softmax 700
 * and 1339.  Three groups that do all of it, without loads, masks and barriers: 2304 a round, in
 * turns or not, which at 1755 MHz were 632 TFLOP/s.
 *
 * Pages, against the same problem contiguous (32 heads on 8, 1024 queries on 8192 keys, causal), in
 * one run or two:
 *                                                8         16         64        128
 *   d = 128  one thread, divisions              .26        .44        .87        .94
 *            a thread of four warps each        .36        .59        .85        .85
 *            lanes own boxes, one warp          .47    .71, .74   .95, .97   .96, .97
 *            two warps                          .73    .89, .90   .96, .97   .96, .97
 *            four warps                         .91    .95, .96   .96, .97   .96, .97
 *   d = 64   one warp                           .67    .89, .90   .95, .98   .95, .99
 *            four warps                         .97    .95, .98   .95, .99   .95, .99
 *   d = 256  one warp                           .46    .70, .73   .71, .74   .71, .74
 *            four warps                         .89        .95        .95        .95
 * Since then the contiguous kernel has gained.  Against it, 1024 on 8192, 2048 on 32,768, 8192 on
 * 8192 (which takes 192x80 if contiguous), d = 128:
 *                                                8         16         64        128
 *   four warps for K and V, TWICE             -    .94 .95 .91  .95 .95 .92  .95  -  .92
 *   the same, GUARD                           -    .95 .95 .92  .96 .96 .93   -
 *   two for K, two for V, TWICE           .95      .96 .96 .94  .95 .95 .93  .96  -  .94
 *   the same, GUARD                       .95      .96 .96 .94  .96 .96 .94  .97  -  .95   ships
 *   192x80 with it                        .86      .85 .87 .90  .85 .87 .90  .85  -  .90
 * The last, 8192 on 8192, in another sitting: .93 .93 .94.  d = 256 with GUARD: .94, with TWICE .94
 * to .95.
 * With each lane waiting for itself several warps hung at d = 128 on 8192 queries: sm90_warp_wait.
 * TMA alone takes 322 cycles and 50 an instruction of one warp for a tile of 32 KB; with all SMs at
 * it, L2 gives one in 900 at best, which boxes of 8 rows reach with four warps, of 16 with two.
 * Why pages cost 3 to 5 %: not for want of keys.  Consumers run the same instructions, and wait
 * less for K and V than contiguous ones; but feeders issue, too (in pages of 16 23 % of all
 * instructions), and take turns at the schedulers from the softmax that a step waits for.  With the
 * contiguous producer, one thread, in the paged kernel 2.5 % are lost, without look-ups as much as
 * with them; 192x80 loses 6 % to the number of its boxes alone.  Fewer feeders than the four that
 * ship, against 128x128 contiguous, 8192 on 8192:
 *                                                          16         64        128
 *   a warp, operands in uniform registers (redux, elect)   .35        .77        .88
 *   a warp's first lane, pages by shuffle                  .39        .81        .90
 *   a warp, lanes own boxes                                .69        .90        .91
 *   a warp for K, one for V, lanes own boxes               .91        .91        .91
 *
 * Accumulator of a warpgroup: thread lane of warp w holds rows 16w + lane/4 and that + 8, columns
 * 8j + 2(lane%4) + {0,1}, at [4j + 2*half + {0,1}].
 */
#ifndef IMPL_CUDA_FLASH_SM90_CUH
#define IMPL_CUDA_FLASH_SM90_CUH

#include "impl/cuda/sm90-forward/flash-sm90-consume.cuh"
#include "impl/cuda/sm90-forward/flash-sm90-pages.cuh"

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
SM90_DEV void sm90_init_barriers(uint32_t smem, const sm90_params &p)
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
    mbar_init(smem + C::BOX_EMPTY + 8 * i, 4 * C::WGS + (C::PAGED ? 2 * p.feeders - 1 : 0));
  }
  mbar_init_fence();
}

/* A thread of the producer warpgroup. */
template <class C>
SM90_DEV void sm90_be_producer(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *mk,
                               const CUtensorMap *mv, const sm90_params &p)
{
  const int warp = sm90_uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    tma_prefetch_map(mq);
    tma_prefetch_map(mk);
    tma_prefetch_map(mv);
  }
  const sm90_feeder f = {warp / 2, (int)threadIdx.x % 32};
  if (C::PAGED && warp < 2 * p.feeders && warp % 2 == 0)
    sm90_feed<C, false>(smem, mq, mk, p, f);
  else if (C::PAGED && warp < 2 * p.feeders)
    sm90_feed<C, true>(smem, mq, mv, p, f);
  else if (!C::PAGED && threadIdx.x == 0)
    sm90_produce<C>(smem, mq, mk, mv, p);
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

/* Is there anything to do?  A careful kernel begins beside the end of the one whose lost rows it
 * would do again. */
template <class C>
SM90_DEV bool sm90_wanted(const sm90_params &p)
{
  if (C::TWICE)
    grid_launch_next();
  if (C::TWICE || !p.lost)
    return true;
  grid_await_previous();
  return *(volatile const int32_t *)p.lost == p.token;
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::CTAS)
    flash_sm90(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
               const __grid_constant__ CUtensorMap mv, const __grid_constant__ sm90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  if (!sm90_wanted<C>(p))
    return;
  const uint32_t smem = rederive(smem_addr(shared));
  if (threadIdx.x == 0)
    sm90_init_barriers<C>(smem, p);
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
  k.ctas = C::CTAS;
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
