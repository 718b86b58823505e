/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.h - attnbench serve: scenarios on real data structures and a real decoder's work, records
 * out.
 */
#ifndef HARNESS_SERVE_H
#define HARNESS_SERVE_H

#include "harness/device/device.h"

enum serve_prefix { PREFIX_BOTH, PREFIX_ON, PREFIX_OFF };

struct serve_options {
  const struct device_ops *device;
  struct device_options device_options;
  const char *trace;   /* file, or NULL: a made one */
  const char *models;  /* names, comma-separated, or NULL: the scenario's */
  const char *impl;    /* prefill[,decode], or NULL: the device's default */
  const char *rope;    /* NAME:FACTOR, or NULL: the model's own */
  const char *lengths; /* prompt lengths, comma-separated, or NULL: the scenario's */
  const char *shares;  /* of prefill, percent, or NULL: the scenario's */
  const char *out;     /* results file, or NULL */
  const char *choices; /* a table of choices of variants, "none", or NULL: the device's */
  const char *repro;
  int64_t requests, layers, page, context, budget, batch, repeat;
  double rate, kv_memory;
  uint64_t seed;
  enum serve_prefix prefix;
  bool contiguous, quiet, progress;
};

struct serve_summary {
  int records, failed; /* failed: a check of what was computed */
  bool interrupted;
};

void serve_defaults(struct serve_options *o);
/* NULL behind the last. */
const char *serve_scenario(int i, const char **summary);
/* An enum attn_status: ATTN_EINVAL for bad input; a line in err. Records are written as they come.
 */
int serve_run(const char *scenario, const struct serve_options *o, struct serve_summary *sum,
              char *err, size_t errlen);

#endif
