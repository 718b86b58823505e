/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - the table of devices that this build knows.
 */
#include "config.h"

#include "harness/device/device.h"

#include <string.h>

static const struct device_ops *const devices[] = {
    &device_host,
#ifdef HAVE_CUDA
    &device_cuda,
#endif
    NULL,
};

const struct device_ops *const *device_all(void)
{
  return devices;
}

const struct device_ops *device_find(const char *name)
{
  for (const struct device_ops *const *d = devices; *d; d++)
    if (!strcmp((*d)->name, name))
      return *d;
  return NULL;
}
