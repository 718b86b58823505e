/* SPDX-License-Identifier: Apache-2.0
 *
 * compute.c - the table of devices that a decoder runs on.
 */
#include "config.h"

#include <string.h>

#include "harness/serve/compute.h"

static const struct compute_ops *const all[] = {
    &compute_cpu,
#ifdef HAVE_CUDA
    &compute_cuda,
#endif
};

const struct compute_ops *compute_find(const struct device *dev)
{
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i]->device, dev->ops->name))
      return all[i];
  return NULL;
}
