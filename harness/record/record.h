/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h - one line of JSON: what was run, on what, was it right, what was measured.
 * The names are documented in profiles/record.schema.json.  A NaN number is written as null.
 */
#ifndef HARNESS_RECORD_H
#define HARNESS_RECORD_H

#include <jansson.h>

#include "harness/device/device.h"
#include "harness/device/instrument.h"
#include "reference/law.h"

#define ZOO_SCHEMA "attnbench-zoo-1" /* of a line of the kill matrix: profiles/zoo.schema.json */
#define RECORD_SCHEMA 1
#define RECORD_KERNELS 16

enum record_status {
  STATUS_PASS,
  STATUS_FAIL,
  STATUS_INVALID,
  STATUS_UNSUPPORTED,
  STATUS_SKIP,
  STATUS_OOM,
  STATUS_TIMEOUT,
  STATUS_CRASH,
};

/* What the kill matrix is made of: 1 passes. */
struct record_rules {
  bool known, bound, lse, customary[3];
  uint64_t bits; /* hash of the outputs */
};

struct record {
  char run_id[40], suite[64], impl[64];
  struct attn_problem problem;
  uint64_t seed;            /* of the inputs */
  const char *distribution; /* the regime's name */
  enum record_status status;
  char reason[256], provenance[128];
  struct attn_variant variant; /* that the problem got */
  const char *variant_by;      /* "default", "table" or "forced": who chose; NULL: no variants */
  char variant_table[64];      /* file name of the device's table, or "" */

  bool verified;
  struct ref_verdict verdict;
  double err_vs_naive; /* rel_fro over naive's in the same types; NaN: no naive in the run */
  int rerun_bitwise;   /* 1 same bits twice, 0 not, -1 not tried */
  int guards_intact, inputs_unchanged; /* checks; -1 not tried */
  int same_bits;                       /* as its twin; -1 not compared */
  int8_t law[LAWS_MAX];                /* enum law_state of law i */
  char laws_left_out[96];              /* why some are LAW_UNTRIED */
  struct law_properties properties;
  struct record_rules rules;

  bool timed;
  enum device_cache cache;
  enum device_mode mode;
  const char *method; /* "hidden-events", "host-clock" */
  double median_s, ci_lo_s, ci_hi_s, min_s, sample_mhz;
  /* Of one run among DEVICE_ROW: in a CUDA graph, launched one by one, and of its kernels as
   * CUPTI's activity has them; NaN: not asked for. */
  double graph_s, row_s, activity_s;
  double rest_s; /* pause before a run; NaN: sustained mode */
  int n, processes;
  const size_t *process_start; /* processes+1 offsets into samples; NULL with one process */
  double *samples;             /* n seconds, the caller's; those of one process are contiguous */

  double tflops, gbps, of_matmul, of_copy;

  struct counters counters;
  double compulsory_bytes, model_bytes;

  double workspace_bytes, peak_bytes;

  struct kernel_info kernels[RECORD_KERNELS];
  int nkernels;

  struct device_state state;
  struct device_ceilings ceilings;

  json_t *serve; /* of a serving record, borrowed; or NULL */
};

const char *record_status_name(enum record_status s);
void record_init(struct record *r); /* everything unknown */
/* The record as JSON, with device, build and repro filled in; a new reference. */
json_t *record_to_json(const struct record *r, const struct device *dev, const char *repro);

#endif
