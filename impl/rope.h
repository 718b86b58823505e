/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.h - what turns positions into angles, for implementations of op=rope on any device: the
 * frequency of a pair under every scaling (reference/SEMANTICS, section 8), on the host.
 *
 * Every scaling divides the plain frequency theta^(-2i/rotary).  Angles are exact in fixed point: a
 * frequency in turns per position is a 64-bit fraction, and position times fraction modulo 2^64 is
 * the angle, whatever the position.
 */
#ifndef IMPL_ROPE_H
#define IMPL_ROPE_H

#include <math.h>

#include "impl/attn.h"

#define ATTN_TWO_PI 6.283185307179586476925286766559

/* Radians per position before scaling. */
static inline double attn_rope_plain(const struct attn_rope *r, int64_t i)
{
  return pow(r->theta, -2 * (double)i / (double)r->rotary);
}

/* How much of a pair is interpolated, 0 ... 1, by the turns that it makes over the trained length.
 */
static inline double attn_rope_blend(const struct attn_rope *r, double plain)
{
  double turns = (double)r->trained * plain / ATTN_TWO_PI;
  double x = (r->band_high - turns) / (r->band_high - r->band_low);
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* The index, not whole, of the pair that makes so many turns over the trained length. */
static inline double attn_rope_index(const struct attn_rope *r, double turns)
{
  return (double)r->rotary * log((double)r->trained / (turns * ATTN_TWO_PI)) / (2 * log(r->theta));
}

/* Likewise by its index: linear between those whose turns are the ends of the band, rounded
 * outwards. */
static inline double attn_rope_blend_by_index(const struct attn_rope *r, int64_t i)
{
  double low = floor(attn_rope_index(r, r->band_high)),
         high = ceil(attn_rope_index(r, r->band_low));
  low = low < 0 ? 0 : low;
  high = high > (double)(r->rotary - 1) ? (double)(r->rotary - 1) : high;
  double x = ((double)i - low) / (high == low ? 0.001 : high - low);
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* The factor by which a longer base divides pair i: 1 for the first, all of it for the last. */
static inline double attn_rope_base_change(const struct attn_rope *r, double factor, int64_t i)
{
  return i ? pow(factor, 2 * (double)i / (double)(r->rotary - 2)) : 1;
}

/* Radians per position of pair i in a sequence whose cache holds sk tokens. */
static inline double attn_rope_frequency(const struct attn_rope *r, int64_t sk, int64_t i)
{
  double plain = attn_rope_plain(r, i), blend, stretch;
  switch (r->scaling) {
  case ATTN_ROPE_NONE: return plain;
  case ATTN_ROPE_LINEAR: return plain / r->factor;
  case ATTN_ROPE_NTK: return plain / attn_rope_base_change(r, r->factor, i);
  case ATTN_ROPE_DYNAMIC:
    stretch = r->factor * (double)sk / (double)r->trained - (r->factor - 1);
    return plain / attn_rope_base_change(r, sk > r->trained ? stretch : 1, i);
  case ATTN_ROPE_YARN:
  case ATTN_ROPE_LLAMA3:
    blend = r->ramp_by_index ? attn_rope_blend_by_index(r, i) : attn_rope_blend(r, plain);
    return plain * (1 - blend) + plain / r->factor * blend;
  }
  return NAN;
}

/* The same in turns, as a fraction of 2^64: below half a turn, since frequencies are at most 1. */
static inline uint64_t attn_rope_turns(double frequency)
{
  return (uint64_t)(frequency / ATTN_TWO_PI * 0x1p64);
}

/* The angle at a position, in radians from -pi to pi. */
static inline double attn_rope_angle(uint64_t turns, int64_t position)
{
  return (double)(int64_t)((uint64_t)position * turns) * (ATTN_TWO_PI * 0x1p-64);
}

/* Elements of pair i. */
static inline int64_t attn_rope_first(const struct attn_rope *r, int64_t i)
{
  return r->interleaved ? 2 * i : i;
}

static inline int64_t attn_rope_second(const struct attn_rope *r, int64_t i)
{
  return r->interleaved ? 2 * i + 1 : i + r->rotary / 2;
}

#endif
