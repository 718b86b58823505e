/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-timing.c - one honest timing of a launch on a GPU ("hidden-events").
 *
 * The stream is held by a gate kernel that spins on a host flag; behind it are queued the flush (if
 * cold), a clock reading, an event, the launch, an event, a clock reading (and what the caller
 * wants around it).  Only then is the gate opened, so neither the host's launch cost nor its jitter
 * lies between the events.  From the pair is taken what the same pair shows around an empty kernel.
 *
 * Rested mode pauses first.  Sustained mode does not: the caller warms up by timing, without
 * pauses, for three seconds or more, and throws those samples away.
 */
#include "config.h"

#include "harness/device/device-cuda.h"

#include "harness/base/clock.h"
#include "harness/gate/stats.h"

#include <math.h>
#include <stdio.h>

#define GATE_TIMEOUT_NS 1000000000u
#define EMPTY_REPEATS 31
#define CLOCK_STEP_NS 64 /* the nanosecond clock may jump by this much */

int cuda_flush(struct device *dev)
{
  struct cuda *c = dev->self;
  size_t bytes = 2 * dev->info.l2_bytes / 16 * 16;
  if (!c->scratch) {
    CUDA_TRY(dev, cudaMalloc(&c->scratch, bytes));
    CUDA_TRY(dev, cudaMemsetAsync(c->scratch, 0, bytes, c->stream));
  }
  CUDA_TRY(dev, cuda_kernel_read(c->scratch, bytes, c->sink, dev->info.multiprocessors, c->stream));
  return ATTN_OK;
}

/* Median over the SMs of cycles per microsecond; NaN where the clock's step is over 1 % of what
 * passed. */
static double megahertz(const struct cuda_clock *clocks, int sms)
{
  double mhz[512];
  size_t n = 0;
  for (int i = 0; i < sms && n < sizeof mhz / sizeof *mhz; i++) {
    const struct cuda_clock *a = &clocks[i], *b = &clocks[sms + i];
    if (a->nanoseconds && b->nanoseconds > a->nanoseconds + 100 * CLOCK_STEP_NS)
      mhz[n++] = 1e3 * (double)(b->cycles - a->cycles) / (double)(b->nanoseconds - a->nanoseconds);
  }
  return n ? stats_median(mhz, n) : NAN;
}

/* Everything between closing and opening the gate. */
static int enqueue(struct device *dev, const struct device_timing *t, device_launch launch,
                   void *ctx)
{
  struct cuda *c = dev->self;
  const struct device_around *around = dev->around;
  int sms = dev->info.multiprocessors;
  int status = around ? around->before(around->ctx, c->stream) : ATTN_OK;
  if (!status && t->cache == CACHE_COLD)
    status = cuda_flush(dev);
  if (status)
    return status;
  CUDA_TRY(dev, cuda_kernel_clocks(c->clocks, sms, c->stream));
  CUDA_TRY(dev, cudaEventRecord(c->start, c->stream));
  status = launch(ctx, c->stream);
  if (status)
    return status;
  CUDA_TRY(dev, cudaEventRecord(c->stop, c->stream));
  CUDA_TRY(dev, cuda_kernel_clocks(c->clocks + sms, sms, c->stream));
  return around ? around->after(around->ctx, c->stream) : ATTN_OK;
}

/* The event pair, in seconds. */
static int hidden_pair(struct device *dev, const struct device_timing *t, device_launch launch,
                       void *ctx, double *seconds, bool *late)
{
  struct cuda *c = dev->self;
  float ms = 0;
  for (int i = 0; i < 2 * dev->info.multiprocessors; i++)
    c->clocks[i] = (struct cuda_clock){0, 0};
  *c->gate = (struct cuda_gate){0, 0};
  CUDA_TRY(dev, cuda_kernel_gate(c->gate, GATE_TIMEOUT_NS, c->stream));
  int status = enqueue(dev, t, launch, ctx);
  __atomic_store_n(&c->gate->open, 1, __ATOMIC_SEQ_CST);
  int ended = cuda_sync(dev);
  if (status || ended)
    return status ? status : ended;
  *late = __atomic_load_n(&c->gate->timed_out, __ATOMIC_SEQ_CST) != 0;
  CUDA_TRY(dev, cudaEventElapsedTime(&ms, c->start, c->stop));
  *seconds = 1e-3 * ms;
  return ATTN_OK;
}

static int launch_empty(void *ctx, void *stream)
{
  return cuda_kernel_empty(stream) == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

/* Median of the pair around an empty kernel, once per device. */
static int measure_empty(struct device *dev)
{
  struct cuda *c = dev->self;
  const struct device_timing warm = {CACHE_WARM, MODE_SUSTAINED, 0};
  const struct device_around *around = dev->around;
  double pair[EMPTY_REPEATS];
  bool late;
  int status = ATTN_OK;
  if (!isnan(c->empty_s))
    return ATTN_OK;
  dev->around = NULL;
  for (int i = -5; i < EMPTY_REPEATS && !status; i++)
    status = hidden_pair(dev, &warm, launch_empty, NULL, &pair[i < 0 ? 0 : i], &late);
  dev->around = around;
  if (status)
    return status;
  c->empty_s = stats_median(pair, EMPTY_REPEATS);
  return ATTN_OK;
}

int cuda_time(struct device *dev, const struct device_timing *t, device_launch launch, void *ctx,
              struct device_sample *out)
{
  struct cuda *c = dev->self;
  double pair = NAN;
  bool late = true;
  int status = measure_empty(dev);
  /* A kernel's first launch loads it, which waits for the gate: one second chance. */
  for (int tries = 0; tries < 2 && late && !status; tries++) {
    clock_pause(t->mode == MODE_RESTED ? t->rest_s : 0);
    status = hidden_pair(dev, t, launch, ctx, &pair, &late);
  }
  if (status)
    return status;
  if (late) {
    snprintf(dev->error, sizeof dev->error,
             "the launch did not return in 1 s while its stream was held: it synchronises, or "
             "enqueues more than the queue holds (about 1000 kernels)");
    return ATTN_EDEVICE;
  }
  out->seconds = pair - c->empty_s;
  out->mhz = megahertz(c->clocks, dev->info.multiprocessors);
  return ATTN_OK;
}
