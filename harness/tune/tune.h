/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.h - every compiled variant of every implementation on a sweep of problems, measured like any
 * record, and the table of choices that follows.
 */
#ifndef HARNESS_TUNE_H
#define HARNESS_TUNE_H

#include "harness/run/run.h"
#include "harness/tune/choices.h"

/* Another variant than an implementation's own choice has to be faster by this part, and by more
 * than both intervals. */
#define TUNE_GAIN 0.005

struct trial {
  char variant[ATTN_VARIANT_NAME];
  enum record_status status;
  double median_s, ci_lo_s, ci_hi_s;
};

/* An implementation on a problem; its own choice is the first of its trials. */
struct tune_point {
  char impl[64];
  struct attn_problem problem;
  struct choice_key key;
  bool packed;
  struct trial trial[GROUP_CASES];
  int n, best; /* best: -1 where nothing passed */
};

struct tune_result {
  struct attn_device device;
  char driver[32];
  struct tune_point *point;
  int n, room;
  struct run_summary summary;
};

/* An enum attn_status and a line in err. show: called with each point when it is measured. */
int tune_sweep(const struct problem_list *list, const struct run_options *o,
               void (*show)(const struct tune_point *p), struct tune_result *t, char *err,
               size_t errlen);
void tune_free(struct tune_result *t);

/* The best of a point's trials: its own choice unless another is faster beyond doubt. */
int tune_best(const struct trial *trial, int n);

/* Where the table goes unless somebody says so: the device's own in the profiles folder, or in the
 * working folder where that cannot be written. */
void tune_path(const struct attn_device *dev, char *path, size_t len);
/* Sorts the points, and writes the table. -1 and a line in err. */
int tune_write(struct tune_result *t, const char *path, const char *how, char *err, size_t errlen);

#endif
