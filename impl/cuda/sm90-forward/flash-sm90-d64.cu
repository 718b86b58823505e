/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-d64.cu - tile variants of the Hopper flash forward for head_dim up to 64.
 */
#include "config.h"

#include "impl/cuda/sm90-forward/flash-sm90.cuh"

/* Few keys: four groups of short steps hide more of what a row block begins and ends with.  Few row
 * blocks, too: the second launch shows. */
enum { SHORT_SK = 1024, FEW_SK = 512 };

template <class T, int FLAGS>
using cfg = sm90_cfg<T, 64, 64, 3, 128, 3, 2, 32, 160, FLAGS>;

template <class T, int FLAGS>
using tall = sm90_cfg<T, 64, 64, 4, 64, 5, 2, 32, 112, FLAGS>;

template <class C>
static sm90_kernel few_row(const char *name)
{
  sm90_kernel k = sm90_row<C>(name, FEW_SK);
  k.few = true;
  return k;
}

template <class T>
static sm90_kernel tall_row(const char *name)
{
  sm90_kernel k = twice_row<tall<T, SM90_TWICE>, tall<T, 0>>(name);
  k.most_sk = SHORT_SK;
  return k;
}

extern "C" const sm90_kernel attn_flash_sm90_d64[] = {
    few_row<cfg<__nv_bfloat16, 0>>("192x128-careful"),
    few_row<cfg<__half, 0>>("192x128-careful"),
    tall_row<__nv_bfloat16>("256x64"),
    tall_row<__half>("256x64"),
    twice_row<cfg<__nv_bfloat16, SM90_TWICE>, cfg<__nv_bfloat16, 0>>("192x128"),
    twice_row<cfg<__half, SM90_TWICE>, cfg<__half, 0>>("192x128"),
    {},
};
