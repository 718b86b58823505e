/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-doctor.c - attnbench doctor: what is here, what is missing, how to mend it.
 */
#include "config.h"

#include <stdio.h>

#include "harness/cli/doctor.h"
#include "harness/cli/options.h"

static int doctor(struct options *o)
{
  if (o->nwords)
    return complain(EXIT_USAGE, "doctor takes no problem; attnbench doctor --help");
  doctor_report(stdout);
  return EXIT_OK;
}

const struct command cmd_doctor = {
    "doctor", "",
    "Says which devices, driver, toolkit, libraries, counters and permissions were found, and how\n"
    "to mend what is missing.\nExit: 0.",
    0, doctor};
