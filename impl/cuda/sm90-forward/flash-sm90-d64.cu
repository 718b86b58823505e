/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d64.cu - tile variants of the Hopper flash forward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

/* Few keys and a mask: most steps want the maximum, and the second launch shows. */
enum { SHORT_SK = 512 };

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 64, 64, 3, 128, 3, 2, 32, 160, SM90_TURNS | FLAGS>;

template <class C>
static sm90_kernel masked_row(const char *name)
{
  sm90_kernel k = sm90_row<C>(name, SHORT_SK);
  k.masked = true;
  return k;
}

extern "C" const sm90_kernel attn_flash_sm90_d64[] = {
    masked_row<cfg<__nv_bfloat16, 0>>("192x128-careful"),
    masked_row<cfg<__half, 0>>("192x128-careful"),
    twice_row<cfg<__nv_bfloat16, SM90_TWICE>, cfg<__nv_bfloat16, 0>>("192x128"),
    twice_row<cfg<__half, SM90_TWICE>, cfg<__half, 0>>("192x128"),
    {},
};
