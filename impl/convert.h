/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h - storage formats on the host: bf16, fp16 and e4m3 to fp32 (exact) and back (round to
 * nearest even; NaN stays NaN, overflow goes to infinity, or to 448 where there is none).
 */
#ifndef IMPL_CONVERT_H
#define IMPL_CONVERT_H

#include <math.h>
#include <string.h>

#include "impl/attn.h"

static inline uint32_t attn_bits(float x)
{
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

static inline float attn_float(uint32_t u)
{
  float x;
  memcpy(&x, &u, 4);
  return x;
}

static inline float attn_from_bf16(uint16_t h)
{
  return attn_float((uint32_t)h << 16);
}

static inline uint16_t attn_to_bf16(float x)
{
  uint32_t u = attn_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float attn_from_f16(uint16_t h)
{
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31, man = h & 0x3ffu;
  if (exp == 31)
    return attn_float(sign | 0x7f800000u | man << 13);
  float mag = exp ? attn_float((exp + 112) << 23 | man << 13) : (float)man * 0x1p-24f;
  return sign ? -mag : mag;
}

static inline uint16_t attn_to_f16(float x)
{
  uint32_t u = attn_bits(x), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
  if (mag >= 0x477ff000u) /* 65520 and beyond round to infinity */
    return (uint16_t)(sign | 0x7c00u);
  if (mag < 0x38800000u) /* subnormal: let fp32 addition do the rounding */
    return (uint16_t)(sign | (attn_bits(attn_float(mag) + 0.5f) - 0x3f000000u));
  return (uint16_t)(sign | ((mag - 0x38000000u + 0xfffu + (mag >> 13 & 1)) >> 13));
}

static inline float attn_from_e4m3(uint8_t h)
{
  uint32_t sign = (uint32_t)(h & 0x80u) << 24, exp = h >> 3 & 15, man = h & 7u;
  if (exp == 15 && man == 7)
    return attn_float(sign | 0x7fc00000u);
  float mag = exp ? attn_float((exp + 120) << 23 | man << 20) : (float)man * 0x1p-9f;
  return sign ? -mag : mag;
}

static inline uint8_t attn_to_e4m3(float x)
{
  uint32_t u = attn_bits(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u)
    return (uint8_t)(sign | 0x7fu);
  if (mag >= 0x43e00000u) /* 448 and beyond, infinity too */
    return (uint8_t)(sign | 0x7eu);
  if (mag < 0x3c800000u) /* subnormal: let fp32 addition do the rounding */
    return (uint8_t)(sign | (attn_bits(attn_float(mag) + 0x1p14f) - 0x46800000u));
  return (uint8_t)(sign | ((mag - 0x3c000000u + 0x7ffffu + (mag >> 20 & 1)) >> 20));
}

/* element i of an array of type t */
static inline float attn_load(enum attn_dtype t, const void *a, int64_t i)
{
  if (t == ATTN_F32)
    return ((const float *)a)[i];
  if (t == ATTN_E4M3)
    return attn_from_e4m3(((const uint8_t *)a)[i]);
  uint16_t h = ((const uint16_t *)a)[i];
  return t == ATTN_BF16 ? attn_from_bf16(h) : attn_from_f16(h);
}

static inline void attn_store(enum attn_dtype t, void *a, int64_t i, float x)
{
  if (t == ATTN_F32)
    ((float *)a)[i] = x;
  else if (t == ATTN_E4M3)
    ((uint8_t *)a)[i] = attn_to_e4m3(x);
  else
    ((uint16_t *)a)[i] = t == ATTN_BF16 ? attn_to_bf16(x) : attn_to_f16(x);
}

#endif
