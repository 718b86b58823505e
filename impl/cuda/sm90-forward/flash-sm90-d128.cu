/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d128.cu - tile variants of the Hopper flash forward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

enum { SHORT_SK = 512, LONG = 4096 };

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 128, 128, 2, 128, 3, 1, 40, 232, SM90_QREG | SM90_GUARD | FLAGS>;

/* Two CTAs an SM: row blocks half as large share the SMs out better, where there are few. */
template <class T>
using small = sm90_cfg<T, 128, 128, 1, 64, 3, 1, 40, 216, SM90_QREG | SM90_GUARD, 2>;

/* Three groups: less to load for a row, and more of them at a time. */
template <class T, int FLAGS>
using tall = sm90_cfg<T, 128, 128, 3, 80, 4, 1, 32, 160, FLAGS>;

template <class T>
static sm90_kernel few_row(const char *name)
{
  sm90_kernel k = sm90_row<small<T>>(name, SHORT_SK);
  k.few = true;
  return k;
}

template <class T>
static sm90_kernel long_row(const char *name)
{
  sm90_kernel k = twice_row<tall<T, SM90_TWICE>, tall<T, 0>>(name);
  k.least = LONG;
  k.many = true;
  return k;
}

/* Without a mask: 6 to 13 % faster where a CTA has two to four row blocks, as fast where more. */
template <class T>
static sm90_kernel full_row(const char *name)
{
  sm90_kernel k = sm90_row<cfg<T, SM90_TURNS>>(name);
  k.full = true;
  return k;
}

extern "C" const sm90_kernel attn_flash_sm90_d128[] = {
    few_row<__nv_bfloat16>("64x64"),
    few_row<__half>("64x64"),
    long_row<__nv_bfloat16>("192x80"),
    long_row<__half>("192x80"),
    full_row<__nv_bfloat16>("128x128-turns"),
    full_row<__half>("128x128-turns"),
    sm90_row<cfg<__nv_bfloat16, 0>>("128x128"),
    sm90_row<cfg<__half, 0>>("128x128"),
    {},
};
