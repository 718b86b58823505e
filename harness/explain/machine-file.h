/* SPDX-License-Identifier: Apache-2.0
 *
 * machine-file.h - known GPUs: profiles/machines/NAME.machine, "key = value" lines with # comments.
 */
#ifndef HARNESS_MACHINE_FILE_H
#define HARNESS_MACHINE_FILE_H

#include "harness/explain/limits.h"

/* -1 and a line in err: no such file, an unknown key, or one that is missing. */
int machine_read(const char *name, struct machine_limits *m, char *err, size_t errlen);

#endif
