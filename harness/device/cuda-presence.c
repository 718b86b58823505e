/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-presence.c - is there a GPU, and how many, without initialising CUDA: a process that has
 * must not fork workers.  Looks at device nodes and at the driver library's version, which needs no
 * initialisation.
 */
#include "config.h"

#include "harness/device/device-cuda.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int matches(const char *pattern)
{
  glob_t g;
  int n = glob(pattern, GLOB_NOSORT, NULL, &g) ? 0 : (int)g.gl_pathc;
  if (n)
    globfree(&g);
  return n;
}

/* GPUs of the machine; under WSL they have no nodes of their own, and one is assumed. */
static int installed(void)
{
  int n = matches("/dev/nvidia[0-9]*");
  if (!n)
    n = matches("/proc/driver/nvidia/gpus/*");
  return n ? n : access("/dev/dxg", F_OK) == 0;
}

/* CUDA takes the list up to the first entry that names no device. */
static int visible(int n)
{
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  int shown = 0;
  if (!list)
    return n;
  while (*list && *list != '-' && strncmp(list, "NoDev", 5)) {
    shown++;
    list += strcspn(list, ",");
    list += *list == ',';
  }
  return shown < n ? shown : n;
}

int cuda_count(void)
{
  return visible(installed());
}

const char *cuda_absent(void)
{
  static char reason[160];
  int supported = 0;
  if (!installed())
    return "no NVIDIA GPU: /dev/nvidia0 is missing (load the driver; in a container pass the GPUs)";
  if (!cuda_count())
    return "CUDA_VISIBLE_DEVICES hides every GPU: unset it";
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib)
    return "libcuda.so.1 cannot be loaded: install the NVIDIA driver's user-space libraries";
  int (*version)(int *) = (int (*)(int *))dlsym(lib, "cuDriverGetVersion");
  if (version)
    version(&supported);
  dlclose(lib);
  if (supported / 1000 >= CUDART_VERSION / 1000)
    return NULL;
  snprintf(reason, sizeof reason, "the driver runs CUDA %d.%d, this build is for %d.%d: update it",
           supported / 1000, supported % 1000 / 10, CUDART_VERSION / 1000,
           CUDART_VERSION % 1000 / 10);
  return reason;
}
