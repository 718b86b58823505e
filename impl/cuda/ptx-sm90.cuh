/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx-sm90.cuh - Hopper's own instructions, one function each: mbarrier, TMA, wgmma, setmaxnreg.
 *
 * Shared-memory tiles are panels of [rows][64 elements] (128-byte rows) in TMA's 128-byte swizzle:
 * the 16-byte chunk index is XORed with row mod 8.  A tile of D columns is D/64 panels, each
 * rows*128 bytes, every base a multiple of 1024 bytes.  wgmma reads them through descriptors:
 *   K-major  (Q, K)  stride offset 1024; the next 16 columns are +32 bytes inside a panel
 *   MN-major (V)     stride offset 1024, leading offset = panel bytes; the next 16 rows are +2048
 */
#ifndef IMPL_CUDA_PTX_SM90_CUH
#define IMPL_CUDA_PTX_SM90_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define SM90_DEV static __device__ __forceinline__

/* ---- mbarrier -------------------------------------------------------------------------------- */

SM90_DEV uint32_t smem_addr(const void *p)
{
  return (uint32_t)__cvta_generic_to_shared(p);
}

SM90_DEV void mbar_init(uint32_t bar, uint32_t count)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}

SM90_DEV void mbar_init_fence()
{
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

SM90_DEV void mbar_arrive(uint32_t bar)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

SM90_DEV void mbar_expect(uint32_t bar, uint32_t bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}

/* Returns once the phase of the given parity has completed. */
SM90_DEV void mbar_wait(uint32_t bar, uint32_t parity)
{
  asm volatile("{\n"
               ".reg .pred p;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra done;\n"
               "bra again;\n"
               "done:\n"
               "}" ::"r"(bar),
               "r"(parity)
               : "memory");
}

/* Named barriers: n threads, those that wait and those that only arrive. */
SM90_DEV void named_sync(int id, int n)
{
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

SM90_DEV void named_arrive(int id, int n)
{
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

SM90_DEV void fence_proxy_async()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- TMA ------------------------------------------------------------------------------------- */

SM90_DEV void tma_prefetch_map(const CUtensorMap *map)
{
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

SM90_DEV void tma_load_4d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1,
                          int c2, int c3)
{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
               "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

SM90_DEV void tma_load_5d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1,
                          int c2, int c3, int c4)
{
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dst),
               "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Lets a kernel that was launched to overlap with this one's end be started. */
SM90_DEV void grid_launch_next()
{
  asm volatile("griddepcontrol.launch_dependents;");
}

/* Such a kernel waits here until the one before has ended, and its writes are seen. */
SM90_DEV void grid_await_previous()
{
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- registers ------------------------------------------------------------------------------- */

template <int N>
SM90_DEV void regs_give()
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
SM90_DEV void regs_take()
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Tells the compiler that wgmma wrote these registers: no use may move above this point. */
template <int N>
SM90_DEV void pin(float (&r)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    asm volatile("" : "+f"(r[i]));
}

template <int N>
SM90_DEV void pin(uint32_t (&r)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    asm volatile("" : "+r"(r[i]));
}

/* Tells the compiler that these registers hold nothing. */
template <int N>
SM90_DEV void undefine(float (&r)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    asm volatile("" : "=f"(r[i]));
}

SM90_DEV void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(addr)
               : "memory");
}

/* ---- wgmma ----------------------------------------------------------------------------------- */

SM90_DEV void wgmma_fence()
{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

SM90_DEV void wgmma_commit()
{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N>
SM90_DEV void wgmma_wait()
{
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* The low word of a descriptor; the high word never changes (stride 1024, 128-byte swizzle). */
SM90_DEV uint32_t desc_lo(uint32_t addr, uint32_t leading_bytes)
{
  return (addr >> 4) | (leading_bytes >> 4) << 16;
}

SM90_DEV uint64_t desc(uint32_t lo)
{
  return (uint64_t)0x40000040u << 32 | lo;
}

/* Hides where x came from: descriptors derived from it are computed where they are used, not kept
 * in registers across a loop. */
SM90_DEV uint32_t rederive(uint32_t x)
{
  asm volatile("" : "+r"(x));
  return x;
}

/* d[64 x N] (+)= A[64 x 16] B[16 x N].  ss: A and B K-major in shared memory.  rs: A in registers,
 * trans_b 0 for a K-major B, 1 for an MN-major one.  scale 0 overwrites d. */
template <class T, int N>
struct wgmma;

#define SM90_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SM90_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define SM90_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define SM90_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define SM90_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define SM90_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define SM90_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define SM90_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define SM90_R8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define SM90_R9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define SM90_R10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define SM90_R11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define SM90_R12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define SM90_R13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define SM90_R14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define SM90_R15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define SM90_R32 SM90_R0 "," SM90_R1 "," SM90_R2 "," SM90_R3
#define SM90_R40 SM90_R32 "," SM90_R4
#define SM90_R48 SM90_R40 "," SM90_R5
#define SM90_R64 SM90_R48 "," SM90_R6 "," SM90_R7
#define SM90_R72 SM90_R64 "," SM90_R8
#define SM90_R88 SM90_R72 "," SM90_R9 "," SM90_R10
#define SM90_R96 SM90_R88 "," SM90_R11
#define SM90_R128 SM90_R96 "," SM90_R12 "," SM90_R13 "," SM90_R14 "," SM90_R15

#define SM90_F8(i)                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SM90_F32 SM90_F8(0), SM90_F8(8), SM90_F8(16), SM90_F8(24)
#define SM90_F40 SM90_F32, SM90_F8(32)
#define SM90_F48 SM90_F40, SM90_F8(40)
#define SM90_F64 SM90_F48, SM90_F8(48), SM90_F8(56)
#define SM90_F72 SM90_F64, SM90_F8(64)
#define SM90_F88 SM90_F72, SM90_F8(72), SM90_F8(80)
#define SM90_F96 SM90_F88, SM90_F8(88)
#define SM90_F128 SM90_F96, SM90_F8(96), SM90_F8(104), SM90_F8(112), SM90_F8(120)

/* N columns, C = N/2 accumulators, o0..o5 the numbers of the operands after them */
#define SM90_WGMMA(T, TY, N, C, o0, o1, o2, o3, o4, o5)                                         \
  template <>                                                                                   \
  struct wgmma<T, N> {                                                                          \
    SM90_DEV void ss(float (&d)[C], uint64_t a, uint64_t b, int scale)                          \
    {                                                                                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o2 ", 0;\n"                            \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TY "." TY " {" SM90_R##C   \
                   "}, %" #o0 ", %" #o1 ", p, 1, 1, 0, 0;\n}"                                   \
                   : SM90_F##C                                                                  \
                   : "l"(a), "l"(b), "r"(scale));                                               \
    }                                                                                           \
    template <int TRANS_B>                                                                      \
    SM90_DEV void rs(float (&d)[C], const uint32_t *a, uint64_t b, int scale)                   \
    {                                                                                           \
      asm volatile(                                                                             \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #o5 ", 0;\n"                                     \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TY "." TY " {" SM90_R##C            \
          "}, {%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "}, %" #o4 ", p, 1, 1, %" SM90_NEXT_##C ";\n}" \
          : SM90_F##C                                                                           \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale), "n"(TRANS_B));      \
    }                                                                                           \
  };
#define SM90_NEXT_32 "38"
#define SM90_NEXT_40 "46"
#define SM90_NEXT_48 "54"
#define SM90_NEXT_64 "70"
#define SM90_NEXT_72 "78"
#define SM90_NEXT_88 "94"
#define SM90_NEXT_96 "102"
#define SM90_NEXT_128 "134"

#define SM90_WGMMA_ALL(T, TY)                          \
  SM90_WGMMA(T, TY, 64, 32, 32, 33, 34, 35, 36, 37)    \
  SM90_WGMMA(T, TY, 80, 40, 40, 41, 42, 43, 44, 45)    \
  SM90_WGMMA(T, TY, 96, 48, 48, 49, 50, 51, 52, 53)    \
  SM90_WGMMA(T, TY, 128, 64, 64, 65, 66, 67, 68, 69)   \
  SM90_WGMMA(T, TY, 144, 72, 72, 73, 74, 75, 76, 77)   \
  SM90_WGMMA(T, TY, 176, 88, 88, 89, 90, 91, 92, 93)   \
  SM90_WGMMA(T, TY, 192, 96, 96, 97, 98, 99, 100, 101) \
  SM90_WGMMA(T, TY, 256, 128, 128, 129, 130, 131, 132, 133)

SM90_WGMMA_ALL(__nv_bfloat16, "bf16")
SM90_WGMMA_ALL(__half, "f16")

/* ---- mma.sync -------------------------------------------------------------------------------- */

/* d[16 x 8] += a[16 x 16] b[16 x 8], one warp; the first argument only names the type */
SM90_DEV void mma_m16n8k16(__nv_bfloat16, float *d, const uint32_t (&a)[4], uint32_t b0,
                           uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

SM90_DEV void mma_m16n8k16(__half, float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* two neighbouring elements, 4-byte aligned */
SM90_DEV uint32_t ldg32(const uint16_t *p)
{
  return __ldg((const unsigned int *)p);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

SM90_DEV float ex2(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

SM90_DEV float lg2(float x)
{
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

SM90_DEV float rcp(float x)
{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* (1 - e) / (1 + e), e = 2^(-2 |x| log2 e): absolute error 1.2e-7 */
SM90_DEV float sm90_tanh(float x)
{
  const float e = ex2(fabsf(x) * -2.885390081777927f);
  return copysignf((1.f - e) * rcp(1.f + e), x);
}

/* two numbers in storage format, lo in the low half; the first argument only names the type */
SM90_DEV uint32_t pack2(__nv_bfloat16, float lo, float hi)
{
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

SM90_DEV uint32_t pack2(__half, float lo, float hi)
{
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

#endif
