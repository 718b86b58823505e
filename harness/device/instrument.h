/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument.h - counters: how many bytes a run really moved, and which kernels ran.
 *
 * io-model reads the two-level machine's own counters; cupti uses the range profiler (user range,
 * one pass) and, in a run of its own, the activity API.  Counted runs are never timed runs.
 */
#ifndef HARNESS_INSTRUMENT_H
#define HARNESS_INSTRUMENT_H

#include "harness/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Missing is NaN, never 0. */
struct counters {
  const char *source; /* "cupti", "io-model", or NULL: nothing counted */
  char reason[160];   /* why nothing was counted */
  double dram_read_bytes, dram_write_bytes;
  double residue_bytes;   /* written bytes still in L2 at the end of the range */
  double l2_bytes;        /* L2 <-> SM */
  double tensor_flops;    /* executed on tensor pipes */
  double sm_cycles;       /* elapsed, max over SMs */
  double sram_peak_bytes; /* of any core of the two-level machine */
};

/* Nothing counted yet. */
struct counters counters_unknown(void);

struct kernel_info {
  char name[128];
  int calls, registers, shared_bytes, local_bytes;
  int threads;    /* of a block; 0: its calls differ */
  double blocks;  /* of a grid; 0: likewise */
  double seconds; /* activity duration; orientation only */
};

/* A launch to count, and what was counted. */
struct counted {
  device_launch launch;
  void *ctx;
  struct counters counters;
};

struct instrument_ops {
  const char *name;
  /* NULL if it can count on this device, or why not and how to mend it. */
  const char *(*denied)(struct device *dev);
  /* Counts each of n launches with a cold cache; several times, if not everything fits into one.
   * Together they are cheaper than one by one. The first that fails ends it, with its status. */
  int (*count)(struct device *dev, struct counted *c, int n);
  /* Lists the kernels of one launch: at most max, *n of them. */
  int (*kernels)(struct device *dev, device_launch launch, void *ctx, struct kernel_info *k,
                 int max, int *n);
  void (*close)(struct device *dev); /* what counting has left open */
};

extern const struct instrument_ops instrument_none, instrument_io_model, instrument_cupti;

/* The best one for the device: cupti on cuda, io-model on cpu, none where denied; why says so. */
const struct instrument_ops *instrument_for(struct device *dev, const char **why);

/* Before the device is closed; whether or not anything was counted. */
void instrument_close(struct device *dev);

/* Names of the counters asked for on a chip ("GH100"), and how many passes the bytes take (one, or
 * they are not counted): works without a GPU. 0: the chip or a metric is unknown, reason in err. */
int instrument_cupti_passes(const char *chip, const char **metrics, int max, int *n, char *err,
                            size_t errlen);

#ifdef __cplusplus
}
#endif
#endif
