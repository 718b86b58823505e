/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout.h - which weights dropout keeps: a counter-based generator, so that the answer depends on
 * the element alone and not on tiles, threads or direction.
 *
 * Philox-2x32 with 7 rounds (Salmon et al., SC'11).  One call decides the four elements
 * (i, j), (i, j+8), (i+8, j), (i+8, j+8) of a 16 x 16 block by the four 16-bit slices of its two
 * words.  An element is kept iff its slice >= threshold; kept weights are scaled by
 * 65536 / (65536 - threshold).  Plain C, also for device code.
 */
#ifndef IMPL_DROPOUT_H
#define IMPL_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ATTN_HOST_DEVICE __host__ __device__
#else
#define ATTN_HOST_DEVICE
#endif

#define ATTN_PHILOX_MULTIPLIER 0xD256D193u
#define ATTN_PHILOX_WEYL 0x9E3779B9u
#define ATTN_PHILOX_ROUNDS 7

/* Replaces the counter (*c0, *c1) by its two random words. */
ATTN_HOST_DEVICE static inline void attn_philox(uint32_t key, uint32_t *c0, uint32_t *c1)
{
  uint32_t x0 = *c0, x1 = *c1;
  for (int round = 0; round < ATTN_PHILOX_ROUNDS; round++) {
    uint64_t product = (uint64_t)ATTN_PHILOX_MULTIPLIER * x0;
    x0 = (uint32_t)(product >> 32) ^ key ^ x1;
    x1 = (uint32_t)product;
    key += ATTN_PHILOX_WEYL;
  }
  *c0 = x0;
  *c1 = x1;
}

/* Key of head h of hq in sequence b of the batch. */
ATTN_HOST_DEVICE static inline uint32_t attn_dropout_key(uint64_t seed, int64_t b, int64_t hq,
                                                         int64_t h)
{
  return (uint32_t)seed + (uint32_t)(b * hq + h) * ATTN_PHILOX_WEYL;
}

/* Coordinate of a row or column in the counter: rows x and x + 8 of a block of 16 share it. */
ATTN_HOST_DEVICE static inline uint32_t attn_dropout_coordinate(int64_t x)
{
  return (uint32_t)(x >> 4) * 8 + (uint32_t)(x & 7);
}

/* The two words that decide (i, j). */
ATTN_HOST_DEVICE static inline void attn_dropout_words(uint64_t seed, uint32_t key, int64_t i,
                                                       int64_t j, uint32_t *x0, uint32_t *x1)
{
  *x0 = attn_dropout_coordinate(i) ^ (uint32_t)(seed >> 32);
  *x1 = attn_dropout_coordinate(j);
  attn_philox(key, x0, x1);
}

/* The 16-bit slice of element (i, j). */
ATTN_HOST_DEVICE static inline uint32_t attn_dropout_slice(uint64_t seed, uint32_t key, int64_t i,
                                                           int64_t j)
{
  uint32_t x0, x1;
  attn_dropout_words(seed, key, i, j, &x0, &x1);
  uint32_t word = i >> 3 & 1 ? x1 : x0;
  return j >> 3 & 1 ? word >> 16 : word & 0xffffu;
}

/* Slices below it are dropped: round(p * 65536), 0 to 65536. */
ATTN_HOST_DEVICE static inline uint32_t attn_dropout_threshold(double p)
{
  double t = p * 65536 + 0.5;
  return t <= 0 ? 0 : t >= 65536 ? 65536 : (uint32_t)t;
}

/* Scale of the kept weights; 0 when none is kept. */
ATTN_HOST_DEVICE static inline float attn_dropout_scale(uint32_t threshold)
{
  return threshold < 65536 ? 65536.0f / (float)(65536 - threshold) : 0.0f;
}

#endif
