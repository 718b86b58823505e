/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-cuda.c - a decoder's work on a GPU in bf16: products by cuBLAS with fp32 sums, rows by
 * compute-kernels.cu. Parts are times between events on the device's stream. cuBLAS chooses its
 * kernel by the shape, so the order of a sum may depend on how many rows a step has.
 */
#include "config.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/serve/compute-kernels.h"
#include "harness/serve/compute.h"

#define NORM_EPS 1e-5f
#define MARKED_LAYERS 4              /* an event takes 2 us, a layer has 8 */
#define WORKSPACE ((size_t)32 << 20) /* of cuBLAS */

struct mark {
  cudaEvent_t event;
  enum step_part part; /* of what follows */
};

struct cuda_compute {
  cublasHandle_t blas;
  void *workspace;
  struct mark *mark;
  int marks, room;
  cudaError_t error; /* the first of mark's */
};

static cudaStream_t stream_of(struct compute *c)
{
  return c->dev->ops->stream(c->dev);
}

static int told(struct compute *c, cudaError_t e)
{
  if (!e)
    return ATTN_OK;
  snprintf(c->dev->error, sizeof c->dev->error, "%s", cudaGetErrorString(e));
  return ATTN_EDEVICE;
}

static void gpu_close(struct compute *c)
{
  struct cuda_compute *self = c->self;
  if (!self)
    return;
  for (int i = 0; i < self->room; i++)
    cudaEventDestroy(self->mark[i].event);
  free(self->mark);
  if (self->blas)
    cublasDestroy(self->blas);
  c->dev->ops->free(c->dev, self->workspace);
  free(self);
  c->self = NULL;
}

static int gpu_open(struct compute *c)
{
  struct cuda_compute *self = calloc(1, sizeof *self);
  c->self = self;
  if (!self)
    return ATTN_ENOMEM;
  int status = c->dev->ops->alloc(c->dev, WORKSPACE, &self->workspace);
  if (!status && (cublasCreate(&self->blas) || cublasSetStream(self->blas, stream_of(c)) ||
                  cublasSetWorkspace(self->blas, self->workspace, WORKSPACE))) {
    snprintf(c->dev->error, sizeof c->dev->error, "cuBLAS cannot be opened");
    status = ATTN_EDEVICE;
  }
  if (status)
    gpu_close(c);
  return status;
}

/* ---- weights -------------------------------------------------------------------------------- */

static int gpu_plain(struct compute *c, void **w, int64_t rows, int64_t columns, uint64_t seed,
                     double mean, double scale)
{
  int status = c->dev->ops->alloc(c->dev, (size_t)(rows * columns) * 2, w);
  return status
             ? status
             : told(c, compute_kernel_normal(*w, rows * columns, seed, mean, scale, stream_of(c)));
}

static int gpu_weights(struct compute *c, void **w, int64_t out, int64_t in, uint64_t seed,
                       double scale)
{
  return gpu_plain(c, w, out, in, seed, 0, scale);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int gpu_gather(struct compute *c, void *y, const void *x, const int32_t *row, int64_t n,
                      int64_t columns)
{
  return told(c, compute_kernel_gather(y, x, row, n, columns, stream_of(c)));
}

static int gpu_norm(struct compute *c, void *y, const void *x, const void *gain, int64_t n,
                    int64_t hidden)
{
  return told(c, compute_kernel_norm(y, x, gain, n, hidden, NORM_EPS, stream_of(c)));
}

static int gpu_swiglu(struct compute *c, void *y, const void *gate_up, int64_t n, int64_t ffn)
{
  return told(c, compute_kernel_swiglu(y, gate_up, n, ffn, stream_of(c)));
}

static int gpu_argmax(struct compute *c, int32_t *token, const void *logits, int64_t n,
                      int64_t vocab)
{
  return told(c, compute_kernel_argmax(token, logits, n, vocab, stream_of(c)));
}

/* ---- products ------------------------------------------------------------------------------- */

/* cuBLAS counts columns first: y^T (out, n) = w (out, in) x^T. */
static int gpu_gemm(struct compute *c, void *y, const void *x, const void *w, int64_t n,
                    int64_t out, int64_t in, bool add)
{
  struct cuda_compute *self = c->self;
  const float one = 1, kept = add ? 1 : 0;
  if (!n)
    return ATTN_OK;
  if (!cublasGemmEx(self->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)out, (int)n, (int)in, &one, w,
                    CUDA_R_16BF, (int)in, x, CUDA_R_16BF, (int)in, &kept, y, CUDA_R_16BF, (int)out,
                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))
    return ATTN_OK;
  snprintf(c->dev->error, sizeof c->dev->error, "cuBLAS refuses a product of %lld x %lld x %lld",
           (long long)n, (long long)out, (long long)in);
  return ATTN_EDEVICE;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static bool more_marks(struct cuda_compute *self)
{
  int room = self->room ? 2 * self->room : 256;
  struct mark *mark = realloc(self->mark, (size_t)room * sizeof *mark);
  if (!mark)
    return false;
  self->mark = mark;
  while (self->room < room && !cudaEventCreate(&mark[self->room].event))
    self->room++;
  return self->marks < self->room;
}

static void gpu_mark(struct compute *c, enum step_part part)
{
  struct cuda_compute *self = c->self;
  if (self->marks == self->room && !more_marks(self)) {
    self->error = cudaErrorMemoryAllocation;
    return;
  }
  struct mark *m = &self->mark[self->marks++];
  m->part = part;
  cudaError_t e = cudaEventRecord(m->event, stream_of(c));
  self->error = self->error ? self->error : e;
}

/* Seconds of a part; those of more layers go to all parts, as those before them did. */
static void add_time(struct step_times *t, enum step_part part, double seconds)
{
  double sum = 0;
  if (part != PART_LAYERS) {
    t->part[part] += seconds;
    return;
  }
  for (int p = 0; p < STEP_PARTS; p++)
    sum += t->part[p];
  for (int p = 0; p < STEP_PARTS; p++)
    t->part[p] += sum > 0 ? seconds * t->part[p] / sum : 0;
}

static int gpu_times(struct compute *c, struct step_times *t)
{
  struct cuda_compute *self = c->self;
  *t = (struct step_times){.launches = true};
  gpu_mark(c, PART_OTHER);
  int status = c->dev->ops->sync(c->dev);
  for (int i = 0; i + 1 < self->marks && !self->error; i++) {
    float ms = 0;
    self->error = cudaEventElapsedTime(&ms, self->mark[i].event, self->mark[i + 1].event);
    add_time(t, self->mark[i].part, ms * 1e-3);
  }
  status = status ? status : told(c, self->error);
  self->error = cudaSuccess;
  self->marks = 0;
  return status;
}

const struct compute_ops compute_cuda = {
    .device = "cuda",
    .dtype = ATTN_BF16,
    .marked_layers = MARKED_LAYERS,
    .open = gpu_open,
    .close = gpu_close,
    .weights = gpu_weights,
    .plain = gpu_plain,
    .gather = gpu_gather,
    .norm = gpu_norm,
    .gemm = gpu_gemm,
    .swiglu = gpu_swiglu,
    .argmax = gpu_argmax,
    .mark = gpu_mark,
    .times = gpu_times,
};
