/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-schedule.h - the order in which the Hopper backward computes key blocks, and which
 * of them several blocks share.
 *
 * Heads go by sections, so that Q, dO and dQ stay in L2; under a mask the first key blocks of a
 * section are the longest.  At the end of few sections, or of small ones, most processors have
 * nothing left to do while the longest key blocks of the last section are computed.  So the last
 * section has more heads than the others if that ends sooner, all of them if they are few; and then
 * also key blocks are shared: by several blocks, of which each walks its part of the steps and
 * leaves its sums of dK and dV to the last.  What ends first is simulated on the host.
 *
 * Measured on an H200, bf16, causal, of cuDNN's speed, before and with this:
 *   heads   head_dim   batch  sequence 1k   2k          4k          8k
 *   32 / 8  128        1      0.70, 1.43    0.91, 1.30  0.86, 1.20  0.97, 1.10
 *   32 / 8  128        2      1.06, 1.33    0.96, 1.24
 *   16 / 16 128        1      1.03, 1.02    1.22, 1.45  1.05, 1.29  1.19, 1.19
 *   32 / 1  128        1                    0.14, 1.32
 *   32 / 8  64         1      0.83, 1.48    1.06, 1.50  1.08, 1.49
 *   16 / 4  256        1                    0.83, 1.33
 * Of 16k tokens a batch, sequence 2k: head_dim 128 1.134, 1.145, head_dim 256 1.166, 1.181.  Of
 * longer ones it simulates less than 0.5 %, and there is no difference.
 *
 * That lost: parts of a range of queries of every head of the group, 1.39 at 1k and 1.24 at 2k (32
 * / 8 heads), for they are less equal; shared key blocks at 4k, 1.07 to 1.15, and in the last of
 * several sections at 8k, 0.93, where whole ones in one section have 1.20 and 1.10; all heads of
 * 16k tokens in one section, 0.75 at 2k; and so that all key blocks are at the same dQ at the same
 * time, the query heads of a group one after another for each query block, from right to left: 32 /
 * 8 heads 1.27 beside 1.31 at 2k, 1.07 beside 1.22 at 4k, 16k tokens at 2k 1.120 beside 1.148.
 *
 * Left as it is: what has a deterministic dQ by turns, where nothing is shared and each unit has a
 * block of its own.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_SCHEDULE_H
#define IMPL_CUDA_FLASH_BWD_SM90_SCHEDULE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At most so many key blocks are shared by several blocks, by so many each, that leave so many sums
 * to others. */
#define BWD90_SHARED 1024
#define BWD90_PARTS 16
#define BWD90_SUMS 1024
#define BWD90_STRETCHES 32

/* Key blocks that follow one another and are shared by equally many blocks each. */
struct bwd90_stretch {
  int32_t unit, block;  /* the first of them */
  int32_t parts;        /* units of work each */
  int32_t shared, sums; /* of the stretches before: shared key blocks, sums of parts that are given
                         * to the last part */
};

/* Key blocks lie in sections of K/V heads: the first key blocks of all heads of the section, then
 * the second ones.  Stretches of them, in whatever order, are computed one after another. */
struct bwd90_schedule {
  int32_t section;      /* heads of a section */
  int32_t last;         /* first head of the last section, which has all that remain */
  int32_t units;        /* of work: key blocks, and parts of those that are shared */
  int32_t shared, sums; /* of all stretches */
  int32_t stretches;
  struct bwd90_stretch stretch[BWD90_STRETCHES];
};

/* What is scheduled. */
struct bwd90_jobs {
  const struct attn_problem *p;
  int64_t processors;
  int km, kn, d;  /* tile, padded head */
  int64_t blocks; /* key blocks of the longest sequence */
};

/* Every key block is a unit, in sections of so many heads. */
void attn_flash_bwd_sm90_schedule_plain(const struct bwd90_jobs *j, int64_t section,
                                        struct bwd90_schedule *s);

/* Key blocks of one length (no mask, not ragged) or of several, so that all processors are busy to
 * the end. */
void attn_flash_bwd_sm90_schedule(const struct bwd90_jobs *j, int64_t section,
                                  struct bwd90_schedule *s);

/* So many heads ahead of its work main zeroes accumulators: whole sections, or all there are. */
int32_t attn_flash_bwd_sm90_ahead(const struct bwd90_schedule *s, int64_t heads, int64_t blocks);

/* When the last of at most 512 processors is ready, in steps. */
double attn_flash_bwd_sm90_end(const struct bwd90_jobs *j, const struct bwd90_schedule *s);

#ifdef __cplusplus
}
#endif
#endif
