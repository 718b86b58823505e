/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-ceilings.c - what this GPU can do at best, in the mode that was asked for: copy 1 GiB, read
 * 1 GiB, multiply 8192 x 8192 bf16 matrices of normal numbers (zeros draw less power and so run
 * faster).  Medians; of two ways to do the same the faster.
 */
#include "config.h"

#include "harness/device/device-cuda.h"

#include "harness/base/clock.h"
#include "harness/gate/stats.h"

#include <cublas_v2.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SAMPLES 7
#define REST_S 0.05
#define WARM_S 3.0
#define GIB ((size_t)1 << 30)
#define ORDER 8192

struct buffers {
  struct device *dev;
  void *from, *to;
  size_t bytes;
};

struct product {
  cublasHandle_t handle;
  void *a, *b, *c;
  cublasOperation_t transpose_a;
};

static int copy_by_kernel(void *ctx, void *stream)
{
  const struct buffers *b = ctx;
  CUDA_TRY(b->dev,
           cuda_kernel_copy(b->to, b->from, b->bytes, b->dev->info.multiprocessors, stream));
  return ATTN_OK;
}

static int copy_by_driver(void *ctx, void *stream)
{
  const struct buffers *b = ctx;
  CUDA_TRY(b->dev, cudaMemcpyAsync(b->to, b->from, b->bytes, cudaMemcpyDeviceToDevice, stream));
  return ATTN_OK;
}

static int read_all(void *ctx, void *stream)
{
  const struct buffers *b = ctx;
  uint32_t *sink = ((struct cuda *)b->dev->self)->sink;
  CUDA_TRY(b->dev, cuda_kernel_read(b->from, b->bytes, sink, b->dev->info.multiprocessors, stream));
  return ATTN_OK;
}

static int multiply(void *ctx, void *stream)
{
  const struct product *p = ctx;
  const float one = 1, zero = 0;
  cublasStatus_t s = cublasGemmEx(p->handle, p->transpose_a, CUBLAS_OP_N, ORDER, ORDER, ORDER, &one,
                                  p->a, CUDA_R_16BF, ORDER, p->b, CUDA_R_16BF, ORDER, &zero, p->c,
                                  CUDA_R_16BF, ORDER, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return s == CUBLAS_STATUS_SUCCESS ? ATTN_OK : ATTN_EDEVICE;
}

/* work / median time, if that beats *rate */
static int raise_rate(struct device *dev, enum device_mode mode, device_launch launch, void *ctx,
                      double work, double *rate)
{
  const struct device_timing t = {CACHE_WARM, mode, REST_S};
  struct device_sample s;
  double seconds[SAMPLES], begin = clock_now();
  int status = launch(ctx, dev->ops->stream(dev)); /* loads the kernel */
  if (!status)
    status = cuda_sync(dev);
  while (!status && mode == MODE_SUSTAINED && clock_now() - begin < WARM_S)
    status = cuda_time(dev, &t, launch, ctx, &s);
  for (int i = 0; i < SAMPLES && !status; i++) {
    status = cuda_time(dev, &t, launch, ctx, &s);
    seconds[i] = s.seconds;
  }
  if (status)
    return status;
  *rate = fmax(*rate, work / stats_median(seconds, SAMPLES));
  return ATTN_OK;
}

static int memory(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  struct buffers b = {dev, NULL, NULL, GIB};
  struct cuda *c = dev->self;
  int status = dev->ops->alloc(dev, b.bytes, &b.from);
  if (!status)
    status = dev->ops->alloc(dev, b.bytes, &b.to);
  if (!status)
    status = cuda_status(dev, cuda_kernel_normal(b.from, b.bytes / 2, 1, c->stream),
                         "cuda_kernel_normal", __FILE__, __LINE__);
  double work = (double)b.bytes * 1e-9;
  if (!status)
    status = raise_rate(dev, mode, copy_by_kernel, &b, 2 * work, &out->copy_gbps);
  if (!status)
    status = raise_rate(dev, mode, copy_by_driver, &b, 2 * work, &out->copy_gbps);
  if (!status)
    status = raise_rate(dev, mode, read_all, &b, work, &out->read_gbps);
  dev->ops->free(dev, b.from);
  dev->ops->free(dev, b.to);
  return status;
}

/* Operands and handle of the product; whatever was made is in *p also on failure. */
static int prepare(struct device *dev, struct product *p)
{
  struct cuda *c = dev->self;
  const size_t n = (size_t)ORDER * ORDER;
  void **operand[] = {&p->a, &p->b, &p->c};
  for (int i = 0; i < 3; i++) {
    int status = dev->ops->alloc(dev, 2 * n, operand[i]);
    if (status)
      return status;
    CUDA_TRY(dev, cuda_kernel_normal(*operand[i], n, 2 + (uint64_t)i, c->stream));
  }
  if (cublasCreate(&p->handle) || cublasSetStream(p->handle, c->stream)) {
    snprintf(dev->error, sizeof dev->error, "cuBLAS does not start");
    return ATTN_EDEVICE;
  }
  return ATTN_OK;
}

static int product(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  struct product p = {0};
  double work = 2e-12 * ORDER * ORDER * ORDER;
  if (dev->info.sm < 80)
    return ATTN_OK; /* no bf16 */
  int status = prepare(dev, &p);
  for (int transposed = 0; transposed < 2 && !status; transposed++) {
    p.transpose_a = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    status = raise_rate(dev, mode, multiply, &p, work, &out->matmul_tflops);
  }
  if (p.handle)
    cublasDestroy(p.handle);
  dev->ops->free(dev, p.a);
  dev->ops->free(dev, p.b);
  dev->ops->free(dev, p.c);
  return status;
}

int cuda_ceilings(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  memset(out, 0, sizeof *out);
  int status = memory(dev, mode, out);
  return status ? status : product(dev, mode, out);
}
