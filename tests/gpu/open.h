/* SPDX-License-Identifier: Apache-2.0
 *
 * open.h - how a test of the GPU begins: with the GPU, or skipped with a reason.
 */
#ifndef TESTS_GPU_OPEN_H
#define TESTS_GPU_OPEN_H

#include <stdlib.h>

#include "harness/device/device.h"
#include "tests/tap.h"

static inline void open_gpu(struct device *dev)
{
  const struct device_options o = {0};
  const char *why = device_cuda.absent();
  if (why)
    skip_all(why);
  if (!device_cuda.open(dev, &o))
    return;
  ok(false, "the device opens: %s", dev->error);
  exit(done_testing());
}

#endif
