/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-cupti.c - bytes, sectors, cycles and tensor operations of one launch, from CUPTI's
 * range profiler.
 *
 * Here: whether counting is possible and, if not, what to do; and what the values mean.  The ranges
 * themselves are in instrument-cupti-range.c.
 */
#include "config.h"

#include "harness/device/device-cuda.h"
#include "harness/device/instrument-cupti.h"

#include <cupti_profiler_target.h>
#include <cupti_result.h>
#include <cupti_target.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BYTES 32

/* One GPU at a time; probed once. */
static struct {
  bool probed;
  int index;
  char denied[sizeof((struct counters){0}.reason)];
  struct cupti_group group[CUPTI_GROUPS];
} cupti;

static const struct {
  int error;
  const char *mend;
} reasons[] = {
    {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES,
     "counters are denied to this user: run as root (container: --cap-add SYS_ADMIN), or load "
     "nvidia with NVreg_RestrictProfilingToAdminUsers=0"},
    {CUPTI_ERROR_HARDWARE_BUSY,
     "another process holds the counters (a profiler, DCGM): stop it and try again"},
    {CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
     "another CUPTI client is in this process: run outside of Nsight, cuda-gdb and the like"},
    {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED,
     "this MIG slice has no counters: use a whole GPU or an isolated instance"},
    {CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED,
     "no counters under confidential computing: turn it off"},
    {CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED,
     "this virtual GPU has no counters: use a whole GPU"},
    {CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES,
     "profiling is off for this virtual GPU: its host must enable it"},
    {CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED,
     "no counters under WSL: use Linux on the machine itself"},
    {CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED, "no counters with SLI: turn it off"},
    {CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED, "mining cards have no counters"},
    {CUPTI_ERROR_INVALID_CHIP_NAME, "this CUPTI is older than the GPU: build with a newer toolkit"},
};

void cupti_explain(int error, const char *call, char *out, size_t len)
{
  const char *text = "unknown error";
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    if (reasons[i].error == error) {
      snprintf(out, len, "%s", reasons[i].mend);
      return;
    }
  cuptiGetErrorMessage((CUptiResult)error, &text);
  snprintf(out, len, "%s says %d: %s", call, error, text);
}

static int supported(int index, char *why, size_t len)
{
  CUpti_Profiler_DeviceSupported_Params p = {.structSize =
                                                 CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE};
  p.cuDevice = index;
  p.api = CUPTI_PROFILER_RANGE_PROFILING;
  CUPTI_TRY(cuptiProfilerDeviceSupported, p, why, len);
  if (p.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
    return 0;
  const struct {
    CUpti_Profiler_Support_Level level;
    CUptiResult as;
  } part[] = {
      {p.sli, CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED},
      {p.vGpu, p.vGpu == CUPTI_PROFILER_CONFIGURATION_DISABLED
                   ? CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
                   : CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED},
      {p.confidentialCompute, CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED},
      {p.cmp, CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED},
      {p.wsl, CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED},
  };
  snprintf(why, len, "the range profiler needs compute capability 7.5 or later");
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    if (part[i].level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
      cupti_explain(part[i].as, "cuptiProfilerDeviceSupported", why, len);
  return -1;
}

/* What this process may count here; this is where a busy or forbidden GPU says so. */
static int availability(void *ctx, uint8_t **image, char *why, size_t len)
{
  CUpti_Profiler_GetCounterAvailability_Params p = {
      .structSize = CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE};
  p.ctx = ctx;
  CUPTI_TRY(cuptiProfilerGetCounterAvailability, p, why, len);
  *image = calloc(1, p.counterAvailabilityImageSize);
  if (!*image) {
    snprintf(why, len, "no host memory");
    return -1;
  }
  p.pCounterAvailabilityImage = *image;
  CUPTI_TRY(cuptiProfilerGetCounterAvailability, p, why, len);
  return 0;
}

static int probe(int index, char *why, size_t len)
{
  CUpti_Profiler_Initialize_Params init = {.structSize =
                                               CUpti_Profiler_Initialize_Params_STRUCT_SIZE};
  CUpti_Device_GetChipName_Params chip = {.structSize =
                                              CUpti_Device_GetChipName_Params_STRUCT_SIZE};
  void *ctx;
  uint8_t *image = NULL;
  CUPTI_TRY(cuptiProfilerInitialize, init, why, len);
  if (cupti_context(&ctx, why, len) || supported(index, why, len))
    return -1;
  chip.deviceIndex = (size_t)index;
  CUPTI_TRY(cuptiDeviceGetChipName, chip, why, len);
  int failed = availability(ctx, &image, why, len);
  if (!failed)
    failed = cupti_groups_open(cupti.group, chip.pChipName, image, why, len);
  free(image);
  if (failed || cupti.group[CUPTI_BYTES].passes == 1)
    return failed;
  snprintf(why, len, "%s: the byte counters take %zu passes, not one", chip.pChipName,
           cupti.group[CUPTI_BYTES].passes);
  return -1;
}

static void cupti_close(struct device *dev)
{
  cupti_groups_close(cupti.group);
  cupti.probed = false;
}

static const char *cupti_denied(struct device *dev)
{
  if (dev->info.kind != ATTN_CUDA)
    return "CUPTI counts on the cuda device alone";
  if (cupti.probed && cupti.index != dev->info.index)
    cupti_close(dev);
  if (!cupti.probed) {
    cupti.probed = true;
    cupti.index = dev->info.index;
    cupti.denied[0] = 0;
    if (probe(dev->info.index, cupti.denied, sizeof cupti.denied) && !cupti.denied[0])
      snprintf(cupti.denied, sizeof cupti.denied, "CUPTI gave no reason");
  }
  return cupti.denied[0] ? cupti.denied : NULL;
}

/* Sum of the tensor operations in a group's values. */
static double operations(const struct cupti_group *g, int from, const double *values)
{
  double sum = 0;
  for (int i = from; i < g->n; i++)
    sum += values[i];
  return sum;
}

static void take_bytes(struct counters *out, const struct cupti_values *x)
{
  const double *v = x->of[CUPTI_LAUNCH];
  out->source = "cupti";
  out->dram_read_bytes = v[CUPTI_DRAM_READ];
  out->dram_write_bytes = v[CUPTI_DRAM_WRITE];
  out->residue_bytes = x->of[CUPTI_RESIDUE][CUPTI_DRAM_WRITE];
  out->l2_bytes = SECTOR_BYTES * v[CUPTI_L2_SECTORS];
  out->sm_cycles = v[CUPTI_SM_CYCLES];
}

static void take_operations(struct counters *out, const struct cupti_values *bytes,
                            const struct cupti_values *tensor)
{
  const struct cupti_group *g = cupti.group;
  if (g[CUPTI_BYTES].n + g[CUPTI_TENSOR].n > CUPTI_OPS)
    out->tensor_flops = operations(&g[CUPTI_BYTES], CUPTI_OPS, bytes->of[CUPTI_LAUNCH]) +
                        operations(&g[CUPTI_TENSOR], 0, tensor->of[CUPTI_LAUNCH]);
}

static int collect(struct device *dev, struct counted *c, int n, struct cupti_values *bytes,
                   struct cupti_values *tensor, char *why, size_t len)
{
  const struct cupti_group *g = cupti.group;
  int status = ATTN_OK;
  if (cupti_collect(dev, &g[CUPTI_BYTES], c, n, bytes, &status, why, len))
    return status;
  for (int i = 0; i < n; i++)
    take_bytes(&c[i].counters, &bytes[i]);
  if (g[CUPTI_TENSOR].n && cupti_collect(dev, &g[CUPTI_TENSOR], c, n, tensor, &status, why, len))
    return status;
  for (int i = 0; i < n; i++)
    take_operations(&c[i].counters, &bytes[i], &tensor[i]);
  why[0] = 0;
  return ATTN_OK;
}

static int cupti_count(struct device *dev, struct counted *c, int n)
{
  const char *denied = cupti_denied(dev);
  struct cupti_values *values = calloc(2 * (size_t)n + 1, sizeof *values);
  char why[sizeof c->counters.reason] = "no host memory";
  int status = ATTN_OK;
  for (int i = 0; i < n; i++)
    c[i].counters = counters_unknown();
  if (denied)
    snprintf(why, sizeof why, "%s", denied);
  else if (values)
    status = collect(dev, c, n, values, values + n, why, sizeof why);
  for (int i = 0; i < n; i++)
    snprintf(c[i].counters.reason, sizeof c[i].counters.reason, "%s", why);
  free(values);
  return status;
}

const struct instrument_ops instrument_cupti = {"cupti", cupti_denied, cupti_count, cupti_kernels,
                                                cupti_close};
