/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d128.cu - tile variants of the Hopper flash forward for head_dim 65 to 128.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

/* Turns gain where row blocks are short, and cost a little where they are long. */
enum { SHORT_SK = 1024 };

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 128, 128, 2, 128, 3, 1, 40, 232, SM90_QREG | SM90_GUARD | FLAGS>;

/* Two CTAs an SM: row blocks half as large share the SMs out better, where there are few. */
template <class T>
using small = sm90_cfg<T, 128, 128, 1, 64, 3, 1, 40, 216, SM90_QREG | SM90_GUARD, 2>;

template <class C>
static sm90_kernel few_row(const char *name)
{
  sm90_kernel k = sm90_row<C>(name, SHORT_SK);
  k.few = true;
  return k;
}

extern "C" const sm90_kernel attn_flash_sm90_d128[] = {
    few_row<small<__nv_bfloat16>>("64x64"),
    few_row<small<__half>>("64x64"),
    sm90_row<cfg<__nv_bfloat16, SM90_TURNS>>("128x128-turns", SHORT_SK),
    sm90_row<cfg<__half, SM90_TURNS>>("128x128-turns", SHORT_SK),
    sm90_row<cfg<__nv_bfloat16, 0>>("128x128"),
    sm90_row<cfg<__half, 0>>("128x128"),
    {},
};
