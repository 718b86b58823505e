/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - the table of devices that this build knows.
 */
#include "config.h"

#include "harness/device/device.h"

#include <string.h>

#ifndef HAVE_CUDA
static const char *left_out(void)
{
  return "this build is without CUDA: configure it where a CUDA toolkit is found";
}

static int none(void)
{
  return 0;
}

/* Known by name, so that it can be said why it is not there. */
const struct device_ops device_cuda = {.name = "cuda", .absent = left_out, .count = none};
#endif

static const struct device_ops *const devices[] = {&device_host, &device_cuda, NULL};

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
