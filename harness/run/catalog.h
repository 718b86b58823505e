/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.h - what there is to run: implementations (built in and from plugins), suites, data
 * files.
 */
#ifndef HARNESS_CATALOG_H
#define HARNESS_CATALOG_H

#include "harness/device/device.h"

/* ---- implementations --------------------------------------------------------------------------
 */

/* Loads FILE.so and appends its implementations. -1 and a line in err: not loadable, no symbol
 * "attn_plugin", another ABI, a descriptor without a name or a run function, a name taken. */
int catalog_plugin(const char *file, char *err, size_t errlen);

/* Built-ins, then plugins; NULL behind the last. */
const struct attn_impl *catalog_impl(int i);
/* The one of this name, or NULL. */
const struct attn_impl *catalog_named(const char *name);

/* Those of a device kind (enum attn_device_kind, or any) whose names match one of the
 * comma-separated shell patterns (NULL: all), at most max, in order. -1 and a line in err if a
 * pattern matches nothing. */
#define CATALOG_ANY_DEVICE (-1)
int catalog_select(int kind, const char *patterns, const struct attn_impl **list, int max,
                   char *err, size_t errlen);

/* ---- problems ---------------------------------------------------------------------------------
 */

struct problem_list {
  struct attn_problem *item;
  int n, room;
};

/* Appends the expansion of one problem string with sweeps. */
int catalog_problems(struct problem_list *list, const char *text, char *err, size_t errlen);
/* Appends a suite: a name (profiles/suites/NAME.suite) or a path. */
int catalog_suite(struct problem_list *list, const char *name, char *err, size_t errlen);
void catalog_problems_free(struct problem_list *list);

/* ---- data files -------------------------------------------------------------------------------
 */

/* The profiles folder: $ATTNBENCH_DATADIR/profiles, the installed one, or the source tree's; NULL.
 */
const char *catalog_profiles(void);
/* Calls each with the base name of every profiles/FOLDER/NAMEsuffix, sorted. */
int catalog_files(const char *folder, const char *suffix, void (*each)(const char *name, void *ctx),
                  void *ctx);

#endif
