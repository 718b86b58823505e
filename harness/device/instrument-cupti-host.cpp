/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-cupti-host.cpp - CUPTI's host side: which counters a chip has under which names, the
 * config images, and the evaluation.  Needs no GPU, so tests check every chip anywhere.
 * C++ only because cupti_profiler_host.h includes <string>.
 */
#include "config.h"

#include "harness/device/instrument-cupti.h"

#include <cupti_profiler_host.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

/* A metric by the names it has on different chips. */
struct metric {
  const char *names[2];
};

static const metric bytes_and_cycles[] = {
    {{"dram__bytes_read.sum", "dram__bytes_op_read.sum"}},
    {{"dram__bytes_write.sum", "dram__bytes_op_write.sum"}},
    {{"lts__t_sectors_srcunit_tex.sum", nullptr}},
    {{"sm__cycles_elapsed.max", nullptr}},
};

/* Operations, two for each multiply-add. */
static const metric tensor[] = {
    {{"sm__ops_path_tensor_src_bf16_dst_fp32.sum", nullptr}},
    {{"sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_fp16.sum"}},
    {{"sm__ops_path_tensor_src_tf32_dst_fp32.sum", nullptr}},
};

static_assert(sizeof bytes_and_cycles / sizeof *bytes_and_cycles == CUPTI_OPS, "positions");

static int complain(char *err, size_t errlen, const char *chip, const char *call, CUptiResult r)
{
  const char *text = "unknown error";
  cuptiGetErrorMessage(r, &text);
  snprintf(err, errlen, "%s: %s says %d: %s", chip, call, (int)r, text);
  return -1;
}

#define HOST_TRY(call, params)                             \
  do {                                                     \
    CUptiResult host_try = call(&params);                  \
    if (host_try != CUPTI_SUCCESS)                         \
      return complain(err, errlen, chip, #call, host_try); \
  } while (0)

#define CUPTI_PARAMS(type, name) \
  type name = {};                \
  name.structSize = type##_STRUCT_SIZE

static const char *name_on_chip(CUpti_Profiler_Host_Object *host, const metric *m)
{
  for (const char *name : m->names) {
    CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, p);
    p.pHostObject = host;
    p.pMetricName = name;
    if (name && cuptiProfilerHostGetMetricProperties(&p) == CUPTI_SUCCESS)
      return name;
  }
  return nullptr;
}

/* Appends a metric if the chip has it. */
static bool add_metric(cupti_group *g, const metric *m)
{
  const char *name = name_on_chip((CUpti_Profiler_Host_Object *)g->host, m);
  if (name)
    g->metrics[g->n++] = name;
  return name;
}

static int make_config(cupti_group *g, const char *chip, char *err, size_t errlen)
{
  auto host = (CUpti_Profiler_Host_Object *)g->host;
  CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
  add.pHostObject = host;
  add.ppMetricNames = g->metrics;
  add.numMetrics = (size_t)g->n;
  HOST_TRY(cuptiProfilerHostConfigAddMetrics, add);
  CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = host;
  HOST_TRY(cuptiProfilerHostGetConfigImageSize, size);
  g->config_bytes = size.configImageSize;
  g->config = (uint8_t *)calloc(1, g->config_bytes);
  if (!g->config)
    return complain(err, errlen, chip, "calloc", CUPTI_ERROR_OUT_OF_MEMORY);
  CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
  image.pHostObject = host;
  image.configImageSize = g->config_bytes;
  image.pConfigImage = g->config;
  HOST_TRY(cuptiProfilerHostGetConfigImage, image);
  CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
  passes.configImageSize = g->config_bytes;
  passes.pConfigImage = g->config;
  HOST_TRY(cuptiProfilerHostGetNumOfPasses, passes);
  g->passes = passes.numOfPasses;
  return 0;
}

static int open_host(cupti_group *g, const char *chip, const uint8_t *availability, char *err,
                     size_t errlen)
{
  CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, init);
  init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  init.pChipName = chip;
  init.pCounterAvailabilityImage = availability;
  *g = {};
  HOST_TRY(cuptiProfilerHostInitialize, init);
  g->host = init.pHostObject;
  return 0;
}

static void close_host(cupti_group *g)
{
  CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, p);
  p.pHostObject = (CUpti_Profiler_Host_Object *)g->host;
  if (p.pHostObject)
    cuptiProfilerHostDeinitialize(&p);
  free(g->config);
  *g = {};
}

/* Bytes, cycles and the first nops kinds of tensor operations. */
static int open_bytes(cupti_group *g, size_t nops, const char *chip, const uint8_t *availability,
                      char *err, size_t errlen)
{
  if (open_host(g, chip, availability, err, errlen))
    return -1;
  for (const metric &m : bytes_and_cycles)
    if (!add_metric(g, &m)) {
      snprintf(err, errlen, "%s: no counter named %s", chip, m.names[0]);
      return -1;
    }
  for (size_t i = 0; i < nops; i++)
    add_metric(g, &tensor[i]);
  return make_config(g, chip, err, errlen);
}

static int open_tensor(cupti_group *g, size_t from, const char *chip, const uint8_t *availability,
                       char *err, size_t errlen)
{
  if (open_host(g, chip, availability, err, errlen))
    return -1;
  for (size_t i = from; i < sizeof tensor / sizeof *tensor; i++)
    add_metric(g, &tensor[i]);
  return g->n ? make_config(g, chip, err, errlen) : 0;
}

int cupti_groups_open(struct cupti_group g[CUPTI_GROUPS], const char *chip,
                      const uint8_t *availability, char *err, size_t errlen)
{
  size_t nops = 1;
  memset(g, 0, CUPTI_GROUPS * sizeof *g);
  int failed = open_bytes(&g[CUPTI_BYTES], nops, chip, availability, err, errlen);
  if (!failed && g[CUPTI_BYTES].passes > 1) {
    close_host(&g[CUPTI_BYTES]);
    nops = 0;
    failed = open_bytes(&g[CUPTI_BYTES], nops, chip, availability, err, errlen);
  }
  if (!failed)
    failed = open_tensor(&g[CUPTI_TENSOR], nops, chip, availability, err, errlen);
  if (failed)
    cupti_groups_close(g);
  return failed;
}

void cupti_groups_close(struct cupti_group g[CUPTI_GROUPS])
{
  for (int i = 0; i < CUPTI_GROUPS; i++)
    close_host(&g[i]);
}

int cupti_group_values(const struct cupti_group *g, const uint8_t *data, size_t bytes, size_t range,
                       double *values)
{
  CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, p);
  p.pHostObject = (CUpti_Profiler_Host_Object *)g->host;
  p.pCounterDataImage = data;
  p.counterDataImageSize = bytes;
  p.rangeIndex = range;
  p.ppMetricNames = (const char **)g->metrics;
  p.numMetrics = (size_t)g->n;
  p.pMetricValues = values;
  return cuptiProfilerHostEvaluateToGpuValues(&p);
}

int instrument_cupti_passes(const char *chip, const char **metrics, int max, int *n, char *err,
                            size_t errlen)
{
  cupti_group g[CUPTI_GROUPS];
  *n = 0;
  if (cupti_groups_open(g, chip, nullptr, err, errlen))
    return 0;
  for (const cupti_group &group : g)
    for (int k = 0; k < group.n && *n < max; k++)
      metrics[(*n)++] = group.metrics[k];
  int passes = (int)g[CUPTI_BYTES].passes;
  cupti_groups_close(g);
  return passes;
}

void cupti_demangle(const char *name, char *out, size_t len)
{
  int status = 0;
  char *readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  snprintf(out, len, "%s", readable && !status ? readable : name);
  free(readable);
}
