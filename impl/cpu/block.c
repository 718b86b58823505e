/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c - the tile arithmetic compiled for each instruction set, and the choice at run time.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "impl/convert.h"
#include "impl/cpu/block.h"
#include "impl/dropout.h"

#ifdef __clang__
#define BEGIN_AVX2 \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define END_AVX2 _Pragma("clang attribute pop")
#else
#define BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define END_AVX2 _Pragma("GCC pop_options")
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

#define LANES 4
#define NAME(x) x##_base
#define ISA "base"
#include "impl/cpu/block-kernels.h"
#undef LANES
#undef NAME
#undef ISA

#ifdef __x86_64__
BEGIN_AVX2
#define LANES 8
#define NAME(x) x##_avx2
#define ISA "avx2"
#include "impl/cpu/block-kernels.h"
#undef LANES
#undef NAME
#undef ISA
END_AVX2
#endif

#ifndef __clang__
#pragma GCC pop_options
#endif

const struct attn_block *const *attn_block_all(void)
{
#ifdef __x86_64__
  static const struct attn_block *const all[] = {&block_avx2, &block_base, NULL};
  bool fits = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return fits ? all : all + 1;
#else
  static const struct attn_block *const all[] = {&block_base, NULL};
  return all;
#endif
}

const struct attn_block *attn_block(void)
{
  return attn_block_all()[0];
}
