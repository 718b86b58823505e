/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-cupti-range.c - the range profiler around launches: user ranges, user replay.
 *
 * The cache is emptied by reading; one range then holds a launch alone, and a second range only
 * another read of 2x L2, which evicts what the launch left dirty: the residue.  A pass holds such a
 * pair for every launch, since starting a pass takes 80 ms on an H200, more than most launches.
 * The profiler is enabled for the count and no longer; time is never taken from a counted run.
 */
#include "config.h"

#include "harness/device/device-cuda.h"
#include "harness/device/instrument-cupti.h"

#include <cuda.h>
#include <cupti_range_profiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The profiler while it is enabled. Failures leave a line in why. */
struct session {
  struct device *dev;
  const struct cupti_group *group;
  const struct counted *counted;
  int n;
  CUpti_RangeProfiler_Object *profiler;
  uint8_t *data;
  size_t bytes;
  int status; /* of the launch or the device */
  char *why;
  size_t len;
};

#define PARAMS(type, name, s)                                        \
  CUpti_RangeProfiler_##type##_Params name;                          \
  memset(&name, 0, sizeof name);                                     \
  name.structSize = CUpti_RangeProfiler_##type##_Params_STRUCT_SIZE; \
  name.pRangeProfilerObject = (s)->profiler

#define TRY(call, params, s) CUPTI_TRY(call, params, (s)->why, (s)->len)

int cupti_context(void **context, char *why, size_t len)
{
  enum cudaDriverEntryPointQueryResult found;
  void *get = NULL;
  CUcontext ctx = NULL;
  if (!cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &get, 12000, cudaEnableDefault,
                                        &found) &&
      get)
    ((CUresult(*)(CUcontext *))get)(&ctx);
  *context = ctx;
  if (ctx)
    return 0;
  snprintf(why, len, "no CUDA context: the device is not open");
  return -1;
}

static size_t ranges(const struct session *s)
{
  return (size_t)s->n * CUPTI_RANGES;
}

static int make_image(struct session *s)
{
  PARAMS(GetCounterDataSize, size, s);
  size.pMetricNames = (const char **)s->group->metrics;
  size.numMetrics = (size_t)s->group->n;
  size.maxNumOfRanges = size.maxNumRangeTreeNodes = ranges(s);
  TRY(cuptiRangeProfilerGetCounterDataSize, size, s);
  s->bytes = size.counterDataSize;
  s->data = calloc(1, s->bytes);
  if (!s->data) {
    snprintf(s->why, s->len, "no host memory");
    return -1;
  }
  PARAMS(CounterDataImage_Initialize, init, s);
  init.counterDataSize = s->bytes;
  init.pCounterData = s->data;
  TRY(cuptiRangeProfilerCounterDataImageInitialize, init, s);
  return 0;
}

static int enable(struct session *s)
{
  void *ctx;
  if (cupti_context(&ctx, s->why, s->len))
    return -1;
  PARAMS(Enable, on, s);
  on.ctx = ctx;
  TRY(cuptiRangeProfilerEnable, on, s);
  s->profiler = on.pRangeProfilerObject;
  if (make_image(s))
    return -1;
  PARAMS(SetConfig, set, s);
  set.configSize = s->group->config_bytes;
  set.pConfig = s->group->config;
  set.counterDataImageSize = s->bytes;
  set.pCounterDataImage = s->data;
  set.range = CUPTI_UserRange;
  set.replayMode = CUPTI_UserReplay;
  set.maxRangesPerPass = ranges(s);
  set.numNestingLevels = set.minNestingLevel = set.targetNestingLevel = 1;
  TRY(cuptiRangeProfilerSetConfig, set, s);
  return 0;
}

static void disable(struct session *s)
{
  PARAMS(Disable, off, s);
  if (s->profiler)
    cuptiRangeProfilerDisable(&off);
  free(s->data);
}

static int launch_flush(void *dev, void *stream)
{
  return cuda_flush(dev);
}

/* Named by the kind of range and by whose it is. */
static int range(struct session *s, int kind, int i, device_launch launch, void *ctx)
{
  char name[32];
  PARAMS(PushRange, push, s);
  PARAMS(PopRange, pop, s);
  snprintf(name, sizeof name, "%d %d", kind, i);
  push.pRangeName = name;
  TRY(cuptiRangeProfilerPushRange, push, s);
  s->status = launch(ctx, s->dev->ops->stream(s->dev));
  int ended = cuda_sync(s->dev);
  s->status = s->status ? s->status : ended;
  TRY(cuptiRangeProfilerPopRange, pop, s);
  return s->status ? -1 : 0;
}

static int ranges_of(struct session *s, int i)
{
  const struct counted *c = &s->counted[i];
  s->status = cuda_flush(s->dev);
  if (!s->status)
    s->status = cuda_sync(s->dev);
  if (s->status || range(s, CUPTI_LAUNCH, i, c->launch, c->ctx))
    return -1;
  return range(s, CUPTI_RESIDUE, i, launch_flush, s->dev);
}

/* One pass over all ranges. Flushes come after the start, whose own work would dirty the cache
 * again. */
static int pass(struct session *s, bool *last)
{
  PARAMS(Start, start, s);
  PARAMS(Stop, stop, s);
  int failed = 0;
  TRY(cuptiRangeProfilerStart, start, s);
  for (int i = 0; i < s->n && !failed; i++)
    failed = ranges_of(s, i);
  TRY(cuptiRangeProfilerStop, stop, s);
  *last = stop.isAllPassSubmitted;
  return failed;
}

static int all_passes(struct session *s)
{
  bool last = false;
  for (size_t n = 0; n < s->group->passes && !last; n++)
    if (pass(s, &last))
      return -1;
  PARAMS(DecodeData, decode, s);
  TRY(cuptiRangeProfilerDecodeData, decode, s);
  if (last && !decode.numOfRangeDropped)
    return 0;
  snprintf(s->why, s->len, "the profiler dropped %zu of %zu ranges, or wants more than %zu passes",
           decode.numOfRangeDropped, ranges(s), s->group->passes);
  return -1;
}

/* The values of range number r, whosever it is. */
static int read_range(struct session *s, size_t r, struct cupti_values *values)
{
  CUpti_RangeProfiler_CounterData_GetRangeInfo_Params info;
  int kind = -1, i = -1;
  memset(&info, 0, sizeof info);
  info.structSize = CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE;
  info.pCounterDataImage = s->data;
  info.counterDataImageSize = s->bytes;
  info.rangeIndex = r;
  info.rangeDelimiter = "/";
  TRY(cuptiRangeProfilerCounterDataGetRangeInfo, info, s);
  if (sscanf(info.rangeName, "%d %d", &kind, &i) != 2 || kind < 0 || kind >= CUPTI_RANGES ||
      i < 0 || i >= s->n) {
    snprintf(s->why, s->len, "the profiler returned a range of the name %.32s", info.rangeName);
    return -1;
  }
  int failed = cupti_group_values(s->group, s->data, s->bytes, r, values[i].of[kind]);
  if (failed)
    cupti_explain(failed, "cuptiProfilerHostEvaluateToGpuValues", s->why, s->len);
  return failed ? -1 : 0;
}

int cupti_collect(struct device *dev, const struct cupti_group *group, const struct counted *c,
                  int n, struct cupti_values *values, int *status, char *why, size_t len)
{
  struct session s = {.dev = dev, .group = group, .counted = c, .n = n, .why = why, .len = len};
  int failed = enable(&s);
  if (!failed)
    failed = all_passes(&s);
  for (size_t r = 0; r < ranges(&s) && !failed; r++)
    failed = read_range(&s, r, values);
  disable(&s);
  *status = s.status;
  if (s.status)
    snprintf(why, len, "the launch failed while it was counted");
  return failed;
}
