/* SPDX-License-Identifier: Apache-2.0
 *
 * rng.h - SplitMix64 (Steele, Lea, Flood 2014): a counter-based stream, so that element i of seed s
 * is the same in any order and on any number of threads.
 */
#ifndef HARNESS_RNG_H
#define HARNESS_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define RNG_FN static inline __host__ __device__
#else
#define RNG_FN static inline
#endif

RNG_FN uint64_t rng_at(uint64_t seed, uint64_t i)
{
  uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* A digest of words is the sum of its terms modulo 2^64, in any order: word i of them. */
RNG_FN uint64_t rng_digest_term(uint64_t i, uint64_t word)
{
  return rng_at(rng_at(word, i), word);
}

/* Uniform in [0, n), n < 2^32. */
RNG_FN uint32_t rng_below(uint64_t seed, uint64_t i, uint32_t n)
{
  return (uint32_t)((rng_at(seed, i) >> 32) * n >> 32);
}

#endif
