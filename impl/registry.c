/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c - the const table of built-in implementations, and which problems one takes.
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
extern const struct attn_impl attn_cuda_naive, attn_cuda_flash_sm80,
    attn_cuda_flash_sm80_materialised, attn_cuda_flash_sm90, attn_cuda_decode, attn_cuda_cascade,
    attn_cuda_rope;
#endif

static const struct attn_impl *const builtins[] = {
    &attn_cpu_naive,
    &attn_cpu_flash,
    &attn_cpu_flash_materialised,
    &attn_cpu_split_decode,
    &attn_cpu_cascade,
    &attn_cpu_rope,
    &attn_cpu_rope_fp32,
#ifdef HAVE_CUDA
    &attn_cuda_naive,
    &attn_cuda_flash_sm80,
    &attn_cuda_flash_sm80_materialised,
    &attn_cuda_flash_sm90,
    &attn_cuda_decode,
    &attn_cuda_cascade,
    &attn_cuda_rope,
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

/* Options that a kernel takes only if it names them. */
static const char *untold(const struct attn_impl *impl, const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE && !(impl->takes & ATTN_TAKES_ROPE))
    return "no op=rope";
  if (p->kv == ATTN_KV_E4M3 && !(impl->takes & ATTN_TAKES_FP8_KV))
    return "no kv=e4m3";
  return NULL;
}

const char *attn_unsupported(const struct attn_impl *impl, const struct attn_problem *p,
                             const struct attn_device *dev)
{
  const char *no = untold(impl, p);
  return no ? no : impl->unsupported(p, dev);
}
