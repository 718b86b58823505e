/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument.c - which instrument counts on which device, and the one that counts nothing.
 */
#include "config.h"

#include "harness/device/instrument.h"

#include <math.h>
#include <stdio.h>

struct counters counters_unknown(void)
{
  return (struct counters){.dram_read_bytes = NAN,
                           .dram_write_bytes = NAN,
                           .residue_bytes = NAN,
                           .l2_bytes = NAN,
                           .tensor_flops = NAN,
                           .sm_cycles = NAN,
                           .sram_peak_bytes = NAN};
}

static const char *none_denied(struct device *dev)
{
  return NULL;
}

static int none_count(struct device *dev, struct counted *c, int n)
{
  const char *why;
  instrument_for(dev, &why);
  for (int i = 0; i < n; i++) {
    c[i].counters = counters_unknown();
    snprintf(c[i].counters.reason, sizeof c[i].counters.reason, "%s",
             why ? why : "counting was not asked for");
  }
  return ATTN_OK;
}

static int none_kernels(struct device *dev, device_launch launch, void *ctx, struct kernel_info *k,
                        int max, int *n)
{
  *n = 0;
  return ATTN_OK;
}

static void none_close(struct device *dev)
{
}

const struct instrument_ops instrument_none = {"none", none_denied, none_count, none_kernels,
                                               none_close};

#ifdef HAVE_CUPTI
static const struct instrument_ops *const on_cuda = &instrument_cupti;
#else
static const struct instrument_ops *const on_cuda = NULL;

int instrument_cupti_passes(const char *chip, const char **metrics, int max, int *n, char *err,
                            size_t errlen)
{
  *n = 0;
  snprintf(err, errlen, "built without CUPTI: configure with --with-cupti=DIR");
  return 0;
}
#endif

const struct instrument_ops *instrument_for(struct device *dev, const char **why)
{
  const struct instrument_ops *best = dev->info.kind == ATTN_CPU ? &instrument_io_model : on_cuda;
  const char *reason =
      best ? best->denied(dev) : "built without CUPTI: configure with --with-cupti=DIR";
  if (why)
    *why = reason;
  return reason ? &instrument_none : best;
}

void instrument_close(struct device *dev)
{
  const struct instrument_ops *best = dev->info.kind == ATTN_CPU ? &instrument_io_model : on_cuda;
  if (best)
    best->close(dev);
}
