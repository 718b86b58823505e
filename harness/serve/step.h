/* SPDX-License-Identifier: Apache-2.0
 *
 * step.h - one step of continuous batching, as the scheduler asks it of a model: some tokens of
 * some sequences, each with its block table. A model is the decoder (decoder.h), or a fake of known
 * speed in tests.
 */
#ifndef HARNESS_SERVE_STEP_H
#define HARNESS_SERVE_STEP_H

#include "harness/serve/kv.h"

/* n tokens of one sequence at positions first .. first + n - 1, behind what its pages hold. */
struct step_item {
  const int32_t *token;
  int64_t first, n;
  const int32_t *table;
  int64_t npages;
  bool sample; /* the token behind the last one is wanted */
};

struct step {
  struct step_item *item;
  int64_t nitems, tokens;
  const struct kv_copy *copy; /* to be made before anything is written */
  int64_t ncopies;
};

/* Seconds of a step's parts; what does not exist on a device is NaN. */
enum step_part {
  PART_GEMM,
  PART_ATTENTION,
  PART_OTHER,
  STEP_PARTS,
  PART_LAYERS = STEP_PARTS /* more layers, of all parts (compute.h) */
};

struct step_times {
  double part[STEP_PARTS];
  bool launches; /* parts are between the device's first and last work; the rest is the host's */
};

struct step_model {
  /* Runs the step to its end; sampled has a place an item. An enum attn_status; the reason is in
   * err. */
  int (*run)(void *self, const struct step *step, int32_t *sampled, struct step_times *times,
             char *err, size_t errlen);
  void *self;
};

#endif
