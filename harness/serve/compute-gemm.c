/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-gemm.c - the product of the CPU compiled for each instruction set, and the choice at run
 * time.
 */
#include "config.h"

#include <string.h>

#include "harness/serve/compute-gemm.h"

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
#include "harness/serve/compute-gemm-kernel.h"
#undef LANES
#undef NAME

#ifdef __x86_64__
BEGIN_AVX2
#define LANES 8
#define NAME(x) x##_avx2
#include "harness/serve/compute-gemm-kernel.h"
#undef LANES
#undef NAME
END_AVX2
#endif

#ifndef __clang__
#pragma GCC pop_options
#endif

void gemm_panel(float *y, int64_t ldy, const float *x, const float *w, int64_t rows,
                int64_t columns, int64_t in, bool add)
{
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    panel_avx2(y, ldy, x, w, rows, columns, in, add);
    return;
  }
#endif
  panel_base(y, ldy, x, w, rows, columns, in, add);
}
