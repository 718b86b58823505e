/* SPDX-License-Identifier: Apache-2.0
 *
 * device-host.h - the cpu device's state, shared by its files; nobody else includes it.
 */
#ifndef HARNESS_DEVICE_HOST_H
#define HARNESS_DEVICE_HOST_H

#include "harness/device/device.h"

struct host {
  struct attn_machine *machine;
  char *scratch; /* read to empty the caches; allocated at the first cold timing */
  size_t scratch_bytes;
  size_t room; /* bytes that the system had when it was last asked, less what was taken since */
};

int host_ceilings(struct device *dev, enum device_mode mode, struct device_ceilings *out);

#endif
