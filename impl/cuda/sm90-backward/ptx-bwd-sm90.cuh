/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx-bwd-sm90.cuh - the instructions that the Hopper backward needs beside ptx-sm90.cuh: wgmma
 * with either operand transposed, bulk copies without a tensor map, reductions to global memory,
 * stmatrix, order between blocks and kernels.
 */
#ifndef IMPL_CUDA_PTX_BWD_SM90_CUH
#define IMPL_CUDA_PTX_BWD_SM90_CUH

#include "impl/cuda/ptx-sm90.cuh"

/* As createpolicy makes it. */
#define SM90_EVICT_FIRST 0x12F0000000000000ull

/* Read where it is used: no register keeps it. */
SM90_DEV int laneid()
{
  int x;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));
  return x;
}

/* Has the phase of the given parity completed? */
SM90_DEV bool mbar_test(uint32_t bar, uint32_t parity)
{
  uint32_t x;
  asm volatile("{\n"
               ".reg .pred p;\n"
               "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
               "selp.u32 %0, 1, 0, p;\n"
               "}"
               : "=r"(x)
               : "r"(bar), "r"(parity)
               : "memory");
  return x;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* As tma_load_4d, of what is read once: it is the first to leave L2. */
SM90_DEV void tma_load_once_4d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1,
                               int c2, int c3)
{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(dst),
               "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(SM90_EVICT_FIRST)
               : "memory");
}

/* bytes is a multiple of 16, as are both addresses. */
SM90_DEV void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(bar)
               : "memory");
}

/* dst[] = src[] */
SM90_DEV void bulk_store(float *dst, uint32_t src, uint32_t bytes)
{
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
               "r"(bytes)
               : "memory");
}

/* dst[] += src[] in fp32 */
SM90_DEV void bulk_add(float *dst, uint32_t src, uint32_t bytes)
{
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
      "r"(src), "r"(bytes)
      : "memory");
}

SM90_DEV void bulk_commit()
{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The sources of all groups but the last N may be overwritten. */
template <int N>
SM90_DEV void bulk_wait_read()
{
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* All groups but the last N have written. */
template <int N>
SM90_DEV void bulk_wait()
{
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

SM90_DEV void red_add_v4(float *dst, float a, float b, float c, float d)
{
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(dst), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}

/* What is read once more at most, if at all: the first to leave L2. */
SM90_DEV void store_once(void *at, const uint32_t (&x)[4])
{
  __stcs((uint4 *)at, make_uint4(x[0], x[1], x[2], x[3]));
}

/* The 128 bytes are no longer needed: they are not written back. */
SM90_DEV void discard_line(const void *at)
{
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(at) : "memory");
}

/* ---- order between blocks -------------------------------------------------------------------- */

SM90_DEV int ld_acquire(const int *at)
{
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
  return x;
}

SM90_DEV void st_release(int *at, int x)
{
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

/* What was there; x comes there if that was 0. */
SM90_DEV int claim(int *at, int x)
{
  int y;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, %2;"
               : "=r"(y)
               : "l"(at), "r"(x)
               : "memory");
  return y;
}

SM90_DEV void red_release(int *at, int x)
{
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

/* The kernel that this one may overlap has finished, and what it wrote is visible. */
SM90_DEV void await_kernel_before()
{
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Once all blocks have come here, those of the next kernel may start, if it is launched so. */
SM90_DEV void admit_next_kernel()
{
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Orders this thread's ordinary and asynchronous accesses, to global memory too. */
SM90_DEV void fence_proxy_async_all()
{
  asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- shared memory --------------------------------------------------------------------------- */

SM90_DEV float2 lds_v2(uint32_t at)
{
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
  return x;
}

SM90_DEV float4 lds_v4(uint32_t at)
{
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(at));
  return x;
}

SM90_DEV void sts_v4(uint32_t at, float a, float b, float c, float d)
{
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

SM90_DEV void stmatrix_x4_trans(uint32_t at, const uint32_t *r)
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

/* ---- wgmma ----------------------------------------------------------------------------------- */

/* d[64 x N] (+)= A[64 x 16] B[16 x N], both in shared memory; TA, TB: 1 for an MN-major operand. */
template <class T, int N>
struct wgmma_tt;

#define SM90_WGMMA_TT(T, TY, N, C, o0, o1, o2, o3, o4)                                        \
  template <>                                                                                 \
  struct wgmma_tt<T, N> {                                                                     \
    template <int TA, int TB>                                                                 \
    SM90_DEV void ss(float (&d)[C], uint64_t a, uint64_t b, int scale)                        \
    {                                                                                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o2 ", 0;\n"                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TY "." TY " {" SM90_R##C \
                   "}, %" #o0 ", %" #o1 ", p, 1, 1, %" #o3 ", %" #o4 ";\n}"                   \
                   : SM90_F##C                                                                \
                   : "l"(a), "l"(b), "r"(scale), "n"(TA), "n"(TB));                           \
    }                                                                                         \
  };

#define SM90_R16 SM90_R0 "," SM90_R1
#define SM90_F16 SM90_F8(0), SM90_F8(8)
#define SM90_WGMMA_TT_ALL(T, TY)                   \
  SM90_WGMMA_TT(T, TY, 32, 16, 16, 17, 18, 19, 20) \
  SM90_WGMMA_TT(T, TY, 64, 32, 32, 33, 34, 35, 36) \
  SM90_WGMMA_TT(T, TY, 80, 40, 40, 41, 42, 43, 44) \
  SM90_WGMMA_TT(T, TY, 128, 64, 64, 65, 66, 67, 68)

SM90_WGMMA_TT_ALL(__nv_bfloat16, "bf16")
SM90_WGMMA_TT_ALL(__half, "f16")

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Lane 4i + j holds elements 2j, 2j + 1 of row i; afterwards of column i. */
SM90_DEV uint32_t transpose_8x8(uint32_t x)
{
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/* x[i] of lane j of a quad changes places with x[j] of lane i. */
SM90_DEV void quad_swap(uint32_t (&x)[4], int lane)
{
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool up = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit)
        continue;
      const uint32_t get = __shfl_xor_sync(~0u, up ? x[i] : x[i | bit], bit);
      x[i] = up ? get : x[i];
      x[i | bit] = up ? x[i | bit] : get;
    }
  }
}

#endif
