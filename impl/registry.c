/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c - the const table of built-in implementations.
 *
 * Adding one: declare it, add its row, and its line in impl/SOURCES. The order of the table is the
 * order of every listing; naive comes first, since others are compared with it.
 */
#include "config.h"

#include "impl/attn.h"
#include "impl/cpu/cpu.h"
#ifdef HAVE_CUDNN
#include "impl/peer/cudnn.h"
#endif

#ifdef HAVE_CUDA
extern const struct attn_impl attn_cuda_naive, attn_cuda_flash_sm80, attn_cuda_flash_sm90,
    attn_cuda_decode;
#endif

static const struct attn_impl *const builtins[] = {
    &attn_cpu_naive,
    &attn_cpu_flash,
    &attn_cpu_flash_materialised,
    &attn_cpu_split_decode,
#ifdef HAVE_CUDA
    &attn_cuda_naive,
    &attn_cuda_flash_sm80,
    &attn_cuda_flash_sm90,
    &attn_cuda_decode,
#endif
#ifdef HAVE_CUDNN
    &attn_peer_cudnn,
#endif
    NULL,
};

const struct attn_impl *const *attn_builtins(void)
{
  return builtins;
}
