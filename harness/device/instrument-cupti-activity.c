/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-cupti-activity.c - which kernels one launch runs, with registers, shared and local
 * memory, from the activity API.  Tracing slows kernels (1.4 % was seen), so its durations are for
 * orientation and its runs are never timed ones.
 */
#include "config.h"

#include "harness/device/device-cuda.h"
#include "harness/device/instrument-cupti.h"

#include <cupti.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)1 << 20)

/* What the callbacks, which run on CUPTI's thread, collect into; NULL outside of a trace. */
static struct {
  pthread_mutex_t lock;
  bool registered;
  struct kernel_info *kernels;
  int max, n;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
  *buffer = aligned_alloc(8, BUFFER_BYTES);
  *bytes = *buffer ? BUFFER_BYTES : 0;
  *max_records = 0;
}

/* Launches of one kernel with the same resources are one row. */
static void add_kernel(const CUpti_ActivityKernel9 *a)
{
  struct kernel_info k = {.calls = 1,
                          .registers = a->registersPerThread,
                          .shared_bytes = a->staticSharedMemory + a->dynamicSharedMemory,
                          .local_bytes = (int)a->localMemoryPerThread,
                          .threads = a->blockX * a->blockY * a->blockZ,
                          .blocks = (double)a->gridX * a->gridY * a->gridZ,
                          .seconds = 1e-9 * (double)(a->end - a->start)};
  cupti_demangle(a->name ? a->name : "?", k.name, sizeof k.name);
  for (int i = 0; i < trace.n; i++) {
    struct kernel_info *have = &trace.kernels[i];
    if (!strcmp(have->name, k.name) && have->registers == k.registers &&
        have->shared_bytes == k.shared_bytes) {
      have->calls++;
      have->seconds += k.seconds;
      have->threads = have->threads == k.threads ? k.threads : 0;
      have->blocks = have->blocks == k.blocks ? k.blocks : 0;
      return;
    }
  }
  if (trace.n < trace.max)
    trace.kernels[trace.n++] = k;
}

static void CUPTIAPI take_buffer(CUcontext ctx, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
  CUpti_Activity *record = NULL;
  pthread_mutex_lock(&trace.lock);
  while (trace.kernels && valid && !cuptiActivityGetNextRecord(buffer, valid, &record))
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      add_kernel((const CUpti_ActivityKernel9 *)record);
  pthread_mutex_unlock(&trace.lock);
  free(buffer);
}

static void collect_into(struct kernel_info *k, int max)
{
  pthread_mutex_lock(&trace.lock);
  trace.kernels = k;
  trace.max = max;
  trace.n = 0;
  pthread_mutex_unlock(&trace.lock);
}

/* Without permission to trace there are no kernels to list, which is no error of the launch. */
int cupti_kernels(struct device *dev, device_launch launch, void *ctx, struct kernel_info *k,
                  int max, int *n)
{
  *n = 0;
  if (!trace.registered && cuptiActivityRegisterCallbacks(give_buffer, take_buffer))
    return ATTN_OK;
  trace.registered = true;
  int status = cuda_sync(dev);
  if (status || cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL))
    return status;
  collect_into(k, max);
  status = launch(ctx, dev->ops->stream(dev));
  int ended = cuda_sync(dev);
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  *n = trace.n;
  collect_into(NULL, 0);
  return status ? status : ended;
}
