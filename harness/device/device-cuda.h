/* SPDX-License-Identifier: Apache-2.0
 *
 * device-cuda.h - the cuda device's state, shared by its files and by the CUPTI instrument.
 */
#ifndef HARNESS_DEVICE_CUDA_H
#define HARNESS_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "harness/device/cuda-kernels.h"
#include "harness/device/device.h"

struct cuda_block {
  struct cuda_block *next;
  void *base, *user;
};

struct cuda {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  struct cuda_gate *gate;    /* mapped host memory */
  struct cuda_clock *clocks; /* mapped host memory: before and after, each per SM */
  void *scratch;             /* 2x L2, read to empty it; allocated at first use */
  uint32_t *sink;
  uint64_t *digest;
  double empty_s; /* hidden pair around an empty kernel; NaN until measured */
  struct cuda_block *blocks;
  char pci[32];
  struct nvml_poll *poll;
  bool nvml; /* held */
};

/* Relays a CUDA error upward as an attn_status, with the call and the place in dev->error. */
int cuda_status(struct device *dev, cudaError_t e, const char *call, const char *file, int line);
#define CUDA_TRY(dev, call)                                           \
  do {                                                                \
    int cuda_try = cuda_status(dev, call, #call, __FILE__, __LINE__); \
    if (cuda_try)                                                     \
      return cuda_try;                                                \
  } while (0)

/* cuda-presence.c: no side effect. */
const char *cuda_absent(void);
int cuda_count(void);

/* cuda-timing.c */
int cuda_time(struct device *dev, const struct device_timing *t, device_launch launch, void *ctx,
              struct device_sample *out);
/* Enqueues a read of 2x L2 of scratch: leaves the cache full of clean lines nobody wants. */
int cuda_flush(struct device *dev);

/* cuda-graph.c */
int cuda_graph(struct device *dev, device_launch launch, void *ctx, double *graph_s, double *row_s);

/* cuda-ceilings.c */
int cuda_ceilings(struct device *dev, enum device_mode mode, struct device_ceilings *out);

/* device-cuda.c */
int cuda_sync(struct device *dev);

#endif
