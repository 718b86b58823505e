/* SPDX-License-Identifier: Apache-2.0
 *
 * instrument-cupti.h - shared by the files of the CUPTI instrument; nobody else includes it.
 *
 * A group is a set of metrics that are collected together.  The first, CUPTI_BYTES, holds what must
 * come from one pass, that is from one launch with a cold cache.  The second, CUPTI_TENSOR, holds
 * the kinds of tensor operations that did not fit into that pass; it takes a launch for each of its
 * passes, which is right because how many operations a launch executes does not vary.
 */
#ifndef HARNESS_INSTRUMENT_CUPTI_H
#define HARNESS_INSTRUMENT_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#include "harness/device/instrument.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUPTI_BYTES, CUPTI_TENSOR, CUPTI_GROUPS };
/* Positions in CUPTI_BYTES; from CUPTI_OPS on, and in all of CUPTI_TENSOR, tensor operations. */
enum { CUPTI_DRAM_READ, CUPTI_DRAM_WRITE, CUPTI_L2_SECTORS, CUPTI_SM_CYCLES, CUPTI_OPS };
#define CUPTI_GROUP_METRICS 8
enum { CUPTI_LAUNCH, CUPTI_RESIDUE, CUPTI_RANGES };

struct cupti_group {
  const char *metrics[CUPTI_GROUP_METRICS]; /* names that this chip knows */
  int n;                                    /* 0: the group is empty */
  void *host;                               /* CUPTI's host object */
  uint8_t *config;
  size_t config_bytes;
  size_t passes;
};

/* Chooses the metrics of both groups by their names on the chip and makes the config images.
 * availability may be NULL: what the chip has in principle. -1: the reason is in err. */
int cupti_groups_open(struct cupti_group g[CUPTI_GROUPS], const char *chip,
                      const uint8_t *availability, char *err, size_t errlen);
void cupti_groups_close(struct cupti_group g[CUPTI_GROUPS]);
/* Values of the group's metrics in one range of collected data; 0 if it worked, or CUPTI's error.
 */
int cupti_group_values(const struct cupti_group *g, const uint8_t *data, size_t bytes, size_t range,
                       double *values);

/* One line for a CUPTI error: what to do about it, or what it is. */
void cupti_explain(int error, const char *call, char *out, size_t len);

/* Relays a CUPTI error as -1 with one line in why. */
#define CUPTI_TRY(call, params, why, len)        \
  do {                                           \
    int cupti_try = call(&(params));             \
    if (cupti_try) {                             \
      cupti_explain(cupti_try, #call, why, len); \
      return -1;                                 \
    }                                            \
  } while (0)

/* instrument-cupti-range.c */
/* The current CUcontext. -1: there is none. */
int cupti_context(void **context, char *why, size_t len);
/* The metrics of one launch, in its own range and in that of its residue. */
struct cupti_values {
  double of[CUPTI_RANGES][CUPTI_GROUP_METRICS];
};

/* Values of a group's metrics for each of n launches. -1: not counted, why says so; *status is then
 * the launch's if that was the reason. */
int cupti_collect(struct device *dev, const struct cupti_group *group, const struct counted *c,
                  int n, struct cupti_values *values, int *status, char *why, size_t len);

/* A readable C++ name; the name itself if it is none. */
void cupti_demangle(const char *name, char *out, size_t len);

/* instrument-cupti-activity.c */
int cupti_kernels(struct device *dev, device_launch launch, void *ctx, struct kernel_info *k,
                  int max, int *n);

#ifdef __cplusplus
}
#endif
#endif
