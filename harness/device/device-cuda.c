/* SPDX-License-Identifier: Apache-2.0
 *
 * device-cuda.c - the cuda device: one GPU through the CUDA runtime, one non-blocking stream.
 */
#include "config.h"

#include "harness/device/device-cuda.h"

#include "harness/device/nvml.h"
#include "harness/base/path.h"
#include "harness/base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 1024

int cuda_status(struct device *dev, cudaError_t e, const char *call, const char *file, int line)
{
  if (e == cudaSuccess)
    return ATTN_OK;
  snprintf(dev->error, sizeof dev->error, "%s (%s) at %s:%d: %.60s", cudaGetErrorString(e),
           cudaGetErrorName(e), path_base(file), line, call);
  cudaGetLastError(); /* clears what is not sticky */
  return e == cudaErrorMemoryAllocation ? ATTN_ENOMEM : ATTN_EDEVICE;
}

static void hash_uuid(const struct cudaDeviceProp *prop, char hash[17])
{
  char hex[65];
  sha256_hex(prop->uuid.bytes, sizeof prop->uuid.bytes, hex);
  snprintf(hash, 17, "%.16s", hex);
}

static int describe(struct device *dev, int index)
{
  struct cuda *c = dev->self;
  struct cudaDeviceProp prop;
  int runtime = 0;
  CUDA_TRY(dev, cudaGetDeviceProperties(&prop, index));
  CUDA_TRY(dev, cudaRuntimeGetVersion(&runtime));
  CUDA_TRY(dev, cudaDeviceGetPCIBusId(c->pci, sizeof c->pci, index));
  dev->info = (struct attn_device){.kind = ATTN_CUDA,
                                   .index = index,
                                   .sm = prop.major * 10 + prop.minor,
                                   .multiprocessors = prop.multiProcessorCount,
                                   .memory_bytes = prop.totalGlobalMem,
                                   .sram_bytes = prop.sharedMemPerBlockOptin,
                                   .l2_bytes = (size_t)prop.l2CacheSize};
  snprintf(dev->info.name, sizeof dev->info.name, "%.127s", prop.name);
  snprintf(dev->runtime, sizeof dev->runtime, "%d.%d", runtime / 1000, runtime % 1000 / 10);
  nvml_driver_version(dev->driver, sizeof dev->driver);
  hash_uuid(&prop, dev->uuid_hash);
  return ATTN_OK;
}

/* Kernels are loaded at their first launch, which would wait for the gate forever: each runs once
 * before any gate is closed. */
static int load_kernels(struct device *dev)
{
  struct cuda *c = dev->self;
  int sms = dev->info.multiprocessors;
  c->gate->open = 1;
  CUDA_TRY(dev, cuda_kernel_gate(c->gate, 0, c->stream));
  CUDA_TRY(dev, cuda_kernel_empty(c->stream));
  CUDA_TRY(dev, cuda_kernel_clocks(c->clocks, sms, c->stream));
  CUDA_TRY(dev, cuda_kernel_fill(c->sink, 0, 1024, c->stream));
  CUDA_TRY(dev, cuda_kernel_flip(c->sink, 2, 512, 1, c->stream));
  CUDA_TRY(dev, cuda_kernel_digest(c->sink, 1024, c->digest, c->stream));
  CUDA_TRY(dev, cuda_kernel_read(c->sink, 1024, c->sink, sms, c->stream));
  CUDA_TRY(dev, cudaEventRecord(c->start, c->stream));
  CUDA_TRY(dev, cudaEventRecord(c->stop, c->stream));
  CUDA_TRY(dev, cudaStreamSynchronize(c->stream));
  return ATTN_OK;
}

static int set_up(struct device *dev, int index)
{
  struct cuda *c = dev->self;
  const unsigned mapped = cudaHostAllocMapped | cudaHostAllocPortable;
  size_t clocks = 2 * sizeof *c->clocks;
  CUDA_TRY(dev, cudaSetDevice(index));
  int status = describe(dev, index);
  if (status)
    return status;
  clocks *= (size_t)dev->info.multiprocessors;
  CUDA_TRY(dev, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
  CUDA_TRY(dev, cudaEventCreate(&c->start));
  CUDA_TRY(dev, cudaEventCreate(&c->stop));
  CUDA_TRY(dev, cudaHostAlloc((void **)&c->gate, sizeof *c->gate, mapped));
  CUDA_TRY(dev, cudaHostAlloc((void **)&c->clocks, clocks, mapped));
  CUDA_TRY(dev, cudaMalloc((void **)&c->sink, 1024));
  CUDA_TRY(dev, cudaMalloc((void **)&c->digest, sizeof *c->digest));
  return load_kernels(dev);
}

static void cuda_close(struct device *dev)
{
  struct cuda *c = dev->self;
  struct device_state ignored;
  if (!c)
    return;
  nvml_poll_stop(c->poll, &ignored);
  nvml_drop(c->nvml);
  cudaFree(c->scratch);
  cudaFree(c->sink);
  cudaFree(c->digest);
  cudaFreeHost(c->gate);
  cudaFreeHost(c->clocks);
  if (c->start)
    cudaEventDestroy(c->start);
  if (c->stop)
    cudaEventDestroy(c->stop);
  if (c->stream)
    cudaStreamDestroy(c->stream);
  while (c->blocks) {
    struct cuda_block *b = c->blocks;
    c->blocks = b->next;
    cudaFree(b->base);
    free(b);
  }
  free(c);
  dev->self = NULL;
}

static int cuda_open(struct device *dev, const struct device_options *o)
{
  memset(dev, 0, sizeof *dev);
  dev->ops = &device_cuda;
  struct cuda *c = calloc(1, sizeof *c);
  if (!c) {
    snprintf(dev->error, sizeof dev->error, "cuda: no host memory");
    return ATTN_ENOMEM;
  }
  c->empty_s = NAN;
  dev->self = c;
  c->nvml = nvml_hold();
  int status = set_up(dev, o->index);
  if (status)
    cuda_close(dev);
  return status;
}

static int cuda_available(struct device *dev, size_t *bytes)
{
  size_t total;
  CUDA_TRY(dev, cudaMemGetInfo(bytes, &total));
  return ATTN_OK;
}

static int refuse(struct device *dev, size_t bytes)
{
  size_t room = 0;
  cudaGetLastError();
  cuda_available(dev, &room);
  snprintf(dev->error, sizeof dev->error, "%.3f GiB of GPU memory asked for, %.3f GiB free of %.3f",
           (double)bytes / 0x1p30, (double)room / 0x1p30, (double)dev->info.memory_bytes / 0x1p30);
  return ATTN_ENOMEM;
}

/* cudaMalloc aligns to 256 bytes at least; the contract says 1024. */
static int cuda_alloc(struct device *dev, size_t bytes, void **p)
{
  struct cuda *c = dev->self;
  struct cuda_block *b = malloc(sizeof *b);
  *p = NULL;
  if (!b || bytes > SIZE_MAX - ALIGNMENT) {
    free(b);
    return refuse(dev, bytes);
  }
  cudaError_t e = cudaMalloc(&b->base, bytes + ALIGNMENT);
  if (e != cudaSuccess) {
    free(b);
    return e == cudaErrorMemoryAllocation ? refuse(dev, bytes)
                                          : cuda_status(dev, e, "cudaMalloc", __FILE__, __LINE__);
  }
  uintptr_t at = ((uintptr_t)b->base + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  b->user = (char *)b->base + (at - (uintptr_t)b->base);
  b->next = c->blocks;
  c->blocks = b;
  *p = b->user;
  return ATTN_OK;
}

static void cuda_free(struct device *dev, void *p)
{
  struct cuda_block **link = &((struct cuda *)dev->self)->blocks;
  while (*link && (*link)->user != p)
    link = &(*link)->next;
  struct cuda_block *b = *link;
  if (!p || !b)
    return;
  *link = b->next;
  cudaFree(b->base);
  free(b);
}

static int copy(struct device *dev, void *to, const void *from, size_t bytes,
                enum cudaMemcpyKind kind)
{
  cudaStream_t stream = ((struct cuda *)dev->self)->stream;
  CUDA_TRY(dev, cudaMemcpyAsync(to, from, bytes, kind, stream));
  CUDA_TRY(dev, cudaStreamSynchronize(stream));
  return ATTN_OK;
}

static int cuda_upload(struct device *dev, void *to, const void *from, size_t bytes)
{
  return copy(dev, to, from, bytes, cudaMemcpyHostToDevice);
}

static int cuda_download(struct device *dev, void *to, const void *from, size_t bytes)
{
  return copy(dev, to, from, bytes, cudaMemcpyDeviceToHost);
}

static int cuda_fill(struct device *dev, void *to, uint32_t pattern, size_t bytes)
{
  struct cuda *c = dev->self;
  CUDA_TRY(dev, cuda_kernel_fill(to, pattern, bytes, c->stream));
  return ATTN_OK;
}

static int cuda_flip(struct device *dev, void *data, size_t width, size_t n, uint64_t key)
{
  struct cuda *c = dev->self;
  CUDA_TRY(dev, cuda_kernel_flip(data, width, n, key, c->stream));
  return ATTN_OK;
}

static int cuda_move(struct device *dev, void *to, const void *from, size_t bytes)
{
  struct cuda *c = dev->self;
  CUDA_TRY(dev, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream));
  return ATTN_OK;
}

static int cuda_digest(struct device *dev, const void *data, size_t bytes, uint64_t *out)
{
  struct cuda *c = dev->self;
  CUDA_TRY(dev, cuda_kernel_digest(data, bytes, c->digest, c->stream));
  return copy(dev, out, c->digest, sizeof *out, cudaMemcpyDeviceToHost);
}

int cuda_sync(struct device *dev)
{
  CUDA_TRY(dev, cudaDeviceSynchronize());
  CUDA_TRY(dev, cudaGetLastError());
  return ATTN_OK;
}

static void *cuda_stream(struct device *dev)
{
  return ((struct cuda *)dev->self)->stream;
}

static int cuda_state_begin(struct device *dev)
{
  struct cuda *c = dev->self;
  c->poll = nvml_poll_start(c->pci);
  return ATTN_OK;
}

static int cuda_state_end(struct device *dev, struct device_state *out)
{
  struct cuda *c = dev->self;
  nvml_poll_stop(c->poll, out);
  c->poll = NULL;
  return ATTN_OK;
}

const struct device_ops device_cuda = {
    .name = "cuda",
    .absent = cuda_absent,
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .available = cuda_available,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .flip = cuda_flip,
    .move = cuda_move,
    .digest = cuda_digest,
    .sync = cuda_sync,
    .stream = cuda_stream,
    .time = cuda_time,
    .graph = cuda_graph,
    .ceilings = cuda_ceilings,
    .state_begin = cuda_state_begin,
    .state_end = cuda_state_end,
};
