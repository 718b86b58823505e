/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h - what is here, what is missing, how to mend it.
 */
#ifndef HARNESS_DOCTOR_H
#define HARNESS_DOCTOR_H

#include <stdio.h>

/* One line a subject: its name, "ok", "missing" or "untried", and what was found or what to do.
 * Initialises CUDA where there is a GPU. Returns how many are missing. */
int doctor_report(FILE *out);

#endif
