/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of the CUPTI instrument, on launches whose bytes are known: a copy of S bytes reads S and
 * writes S, counting what it leaves in L2, within 1 %, whether S is below, at or above the cache's
 * size; it moves 2 S between L2 and the SMs; a read writes nothing; a second count is as cold as
 * the first; a matrix product executes 2 n^3 tensor operations in each type; cycles are those spun;
 * the kernels that ran are named; a launch that fails does not spoil the next count.
 */
#include "config.h"

#include "harness/device/device-cuda.h"
#include "harness/device/instrument.h"
#include "tests/gpu/open.h"
#include "tests/gpu/probe.h"
#include "tests/tap.h"

#include <cublas_v2.h>
#include <math.h>

static struct device dev;
static const struct instrument_ops *counting;

struct copy {
  void *to, *from;
  size_t bytes;
};

static int status_of(cudaError_t e)
{
  return e == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

static int launch_copy(void *ctx, void *stream)
{
  struct copy *c = ctx;
  return status_of(cuda_kernel_copy(c->to, c->from, c->bytes, dev.info.multiprocessors, stream));
}

static int launch_read(void *ctx, void *stream)
{
  struct copy *c = ctx;
  uint32_t *sink = ((struct cuda *)dev.self)->sink;
  return status_of(cuda_kernel_read(c->from, c->bytes, sink, dev.info.multiprocessors, stream));
}

static int launch_two(void *ctx, void *stream)
{
  int status = launch_copy(ctx, stream);
  return status ? status : launch_copy(ctx, stream);
}

static int launch_empty(void *ctx, void *stream)
{
  return status_of(cuda_kernel_empty(stream));
}

static int launch_spin(void *cycles, void *stream)
{
  return status_of(probe_spin_cycles(*(uint64_t *)cycles, stream));
}

static int launch_refuser(void *ctx, void *stream)
{
  return ATTN_EUNSUPPORTED;
}

/* Runs once uncounted, so that the kernel is loaded, then counts. */
static bool count(device_launch launch, void *ctx, struct counters *c)
{
  struct counted one = {.launch = launch, .ctx = ctx};
  bool counted = !launch(ctx, device_cuda.stream(&dev)) && !device_cuda.sync(&dev) &&
                 !counting->count(&dev, &one, 1) && one.counters.source;
  *c = one.counters;
  if (!counted)
    diag("not counted: %s %s", c->reason, dev.error);
  return counted;
}

/* What the card moves by itself in a range, and an empty launch may show. */
#define BACKGROUND (256 << 10)

static bool near(double got, double want, double part)
{
  return fabs(got - want) <= part * want;
}

/* As near as that, but for the background of a range of its own (the residue's). */
static bool near_background(double got, double want, double part)
{
  return got >= want * (1 - part) && got <= want * (1 + part) + BACKGROUND;
}

static void test_copy(double of_l2)
{
  size_t s = (size_t)(of_l2 * (double)dev.info.l2_bytes) / 4096 * 4096;
  struct copy c = {.bytes = s};
  struct counters k = {0}, again = {0};
  ok(!device_cuda.alloc(&dev, s, &c.from) && !device_cuda.alloc(&dev, s, &c.to) &&
         !device_cuda.fill(&dev, c.from, 1, s),
     "%.2f x L2 in and out", of_l2);
  ok(count(launch_copy, &c, &k), "a copy is counted");
  double size = (double)s, written = k.dram_write_bytes + k.residue_bytes;
  diag("copy %.2f x L2: read %.4f, write %.4f, residue %.4f, L2 %.4f of S; %.0f cycles", of_l2,
       k.dram_read_bytes / size, k.dram_write_bytes / size, k.residue_bytes / size,
       k.l2_bytes / size, k.sm_cycles);
  ok(near(k.dram_read_bytes, size, 0.01), "it reads S from DRAM");
  ok(near_background(written, size, 0.01), "it writes S to DRAM, residue included");
  ok(near(k.l2_bytes, 2 * size, 0.01), "it moves 2 S between L2 and the SMs");
  ok(k.tensor_flops == 0, "it does no tensor operations");
  ok(count(launch_copy, &c, &again) && near(again.dram_read_bytes, k.dram_read_bytes, 0.005),
     "a second count reads as much: the cache is cold again");
  ok(count(launch_read, &c, &k), "a read is counted");
  ok(near(k.dram_read_bytes, size, 0.01), "it reads S");
  ok(k.dram_write_bytes + k.residue_bytes < 0.01 * size, "and writes nothing");
  device_cuda.free(&dev, c.from);
  device_cuda.free(&dev, c.to);
}

/* Counted together, each has what it has alone, whatever the others move. */
static void test_together(void)
{
  size_t small = dev.info.l2_bytes / 4 / 4096 * 4096, large = 4 * small;
  struct copy a = {.bytes = small}, b = {.bytes = large};
  ok(!device_cuda.alloc(&dev, small, &a.from) && !device_cuda.alloc(&dev, small, &a.to) &&
         !device_cuda.alloc(&dev, large, &b.from) && !device_cuda.alloc(&dev, large, &b.to) &&
         !device_cuda.fill(&dev, a.from, 1, small) && !device_cuda.fill(&dev, b.from, 1, large),
     "two copies, one of 4 times the other");
  struct counted all[] = {{launch_copy, &b, {0}},
                          {launch_empty, NULL, {0}},
                          {launch_copy, &a, {0}},
                          {launch_read, &b, {0}}};
  const double read[] = {(double)large, 0, (double)small, (double)large};
  const double written[] = {(double)large, 0, (double)small, 0};
  ok(!counting->count(&dev, all, 4), "they, an empty kernel and a read are counted together");
  for (int i = 0; i < 4; i++) {
    const struct counters *c = &all[i].counters;
    double w = c->dram_write_bytes + c->residue_bytes;
    diag("%d: read %.0f, written %.0f %s", i, c->dram_read_bytes, w, c->reason);
    ok(c->source && near_background(c->dram_read_bytes, read[i], 0.01) &&
           near_background(w, written[i], 0.01),
       "launch %d of them has its own bytes", i);
  }
  device_cuda.free(&dev, a.from);
  device_cuda.free(&dev, a.to);
  device_cuda.free(&dev, b.from);
  device_cuda.free(&dev, b.to);
}

static void test_empty_and_cycles(void)
{
  struct counters k = {0};
  ok(count(launch_empty, NULL, &k), "an empty kernel is counted");
  diag("empty: read %.0f, write %.0f, residue %.0f", k.dram_read_bytes, k.dram_write_bytes,
       k.residue_bytes);
  ok(k.dram_read_bytes < BACKGROUND && k.dram_write_bytes < BACKGROUND &&
         k.residue_bytes < BACKGROUND,
     "it moves less than 256 KiB");
  uint64_t cycles = 20000000;
  ok(count(launch_spin, &cycles, &k), "2e7 cycles are counted");
  ok(k.sm_cycles >= 2e7 && k.sm_cycles < 2.4e7, "as %.4g", k.sm_cycles);
}

enum { ORDER = 4096 };
struct product {
  cublasHandle_t handle;
  void *a, *b, *c;
  cudaDataType_t type;
};

static int launch_product(void *ctx, void *stream)
{
  struct product *p = ctx;
  const float one = 1, zero = 0;
  return cublasGemmEx(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, ORDER, ORDER, ORDER, &one, p->a, p->type,
                      ORDER, p->b, p->type, ORDER, &zero, p->c, p->type, ORDER, CUBLAS_COMPUTE_32F,
                      CUBLAS_GEMM_DEFAULT)
             ? ATTN_EDEVICE
             : ATTN_OK;
}

static void test_tensor(void)
{
  static const struct {
    cudaDataType_t type;
    const char *name;
  } types[] = {{CUDA_R_16BF, "bf16"}, {CUDA_R_16F, "fp16"}};
  const size_t bytes = (size_t)2 * ORDER * ORDER;
  const double want = 2.0 * ORDER * ORDER * ORDER;
  struct product p = {0};
  struct counters k = {0};
  ok(!device_cuda.alloc(&dev, bytes, &p.a) && !device_cuda.alloc(&dev, bytes, &p.b) &&
         !device_cuda.alloc(&dev, bytes, &p.c) && !device_cuda.fill(&dev, p.a, 0, bytes) &&
         !device_cuda.fill(&dev, p.b, 0, bytes) && !cublasCreate(&p.handle) &&
         !cublasSetStream(p.handle, device_cuda.stream(&dev)),
     "operands of a product");
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    p.type = types[i].type;
    ok(count(launch_product, &p, &k), "a product in %s is counted", types[i].name);
    ok(near(k.tensor_flops, want, 0.01), "it executes 2 n^3 operations: %.5f",
       k.tensor_flops / want);
    ok(near(k.dram_write_bytes + k.residue_bytes, (double)bytes, 0.02), "and writes its result");
  }
  cublasDestroy(p.handle);
  device_cuda.free(&dev, p.a);
  device_cuda.free(&dev, p.b);
  device_cuda.free(&dev, p.c);
}

static void test_kernels(void)
{
  struct kernel_info k[4];
  struct copy c = {.bytes = 1 << 20};
  int n = -1;
  ok(!device_cuda.alloc(&dev, c.bytes, &c.from) && !device_cuda.alloc(&dev, c.bytes, &c.to),
     "1 MiB");
  ok(!counting->kernels(&dev, launch_two, &c, k, 4, &n) && n == 1, "two copies are one kernel");
  if (n == 1) {
    diag("%s: %d calls, %d registers, %d shared, %d local, %.2f us", k[0].name, k[0].calls,
         k[0].registers, k[0].shared_bytes, k[0].local_bytes, 1e6 * k[0].seconds);
    ok(strstr(k[0].name, "copy_kernel(") != NULL, "by its readable name");
    ok(k[0].calls == 2 && k[0].registers > 0 && k[0].shared_bytes == 0 && k[0].local_bytes == 0,
       "called twice, with registers and nothing else");
    ok(k[0].seconds > 0 && k[0].seconds < 1e-3, "for microseconds");
  }
  ok(!counting->kernels(&dev, launch_empty, NULL, k, 4, &n) && n == 1 &&
         strstr(k[0].name, "empty_kernel"),
     "a second trace holds only its own kernels");
  ok(!counting->kernels(&dev, launch_two, &c, k, 0, &n) && n == 0, "no more than were asked for");
  device_cuda.free(&dev, c.from);
  device_cuda.free(&dev, c.to);
}

static void test_failure(void)
{
  struct counters k = {0};
  struct counted refused = {.launch = launch_refuser};
  ok(counting->count(&dev, &refused, 1) == ATTN_EUNSUPPORTED && !refused.counters.source &&
         isnan(refused.counters.dram_read_bytes),
     "a launch that fails is not counted, and its status returns");
  diag("%s", refused.counters.reason);
  ok(count(launch_empty, NULL, &k), "the next launch is counted");
}

int main(void)
{
  const char *why = NULL;
  open_gpu(&dev);
  counting = instrument_for(&dev, &why);
  if (why)
    skip_all(why);
  test_empty_and_cycles();
  test_copy(0.25);
  test_copy(1);
  test_copy(4);
  test_together();
  test_tensor();
  test_kernels();
  test_failure();
  counting->close(&dev);
  device_cuda.close(&dev);
  return done_testing();
}
