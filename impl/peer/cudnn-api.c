/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-api.c - finds cuDNN at run time. Not thread-safe: the harness calls implementations from
 * one thread.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "impl/peer/cudnn-api.h"

#define HANDLES_MAX 64

static const char *const library_names[] = {
#ifdef CUDNN_LIBDIR
    CUDNN_LIBDIR "/libcudnn.so.9",
#endif
    "libcudnn.so.9",
    "libcudnn_graph.so.9",
};

/* Where each symbol of the table goes. */
static const struct {
  const char *symbol;
  size_t offset;
} symbols[] = {
    {"cudnnGetVersion", offsetof(struct attn_cudnn_api, version)},
    {"cudnnGetErrorString", offsetof(struct attn_cudnn_api, error_string)},
    {"cudnnGetLastErrorString", offsetof(struct attn_cudnn_api, last_error)},
    {"cudnnCreate", offsetof(struct attn_cudnn_api, create)},
    {"cudnnDestroy", offsetof(struct attn_cudnn_api, destroy)},
    {"cudnnSetStream", offsetof(struct attn_cudnn_api, set_stream)},
    {"cudnnBackendCreateDescriptor", offsetof(struct attn_cudnn_api, create_descriptor)},
    {"cudnnBackendDestroyDescriptor", offsetof(struct attn_cudnn_api, destroy_descriptor)},
    {"cudnnBackendFinalize", offsetof(struct attn_cudnn_api, finalize)},
    {"cudnnBackendSetAttribute", offsetof(struct attn_cudnn_api, set)},
    {"cudnnBackendGetAttribute", offsetof(struct attn_cudnn_api, get)},
    {"cudnnBackendExecute", offsetof(struct attn_cudnn_api, execute)},
};

static struct {
  bool tried, ok;
  struct attn_cudnn_api api;
  char version[24];
  char reason[256];
  cudnnHandle_t handles[HANDLES_MAX];
} cudnn;

static void *open_library(void)
{
  void *lib = NULL;
  for (size_t i = 0; !lib && i < sizeof library_names / sizeof *library_names; i++)
    lib = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
  if (!lib)
    snprintf(cudnn.reason, sizeof cudnn.reason,
             "libcudnn.so.9 is not installed: install cuDNN 9 (apt install libcudnn9-cuda-%d from "
             "NVIDIA's repository, or pip install nvidia-cudnn-cu%d) and name its folder in "
             "LD_LIBRARY_PATH",
             CUDART_VERSION / 1000, CUDART_VERSION / 1000);
  return lib;
}

static bool find_symbols(void *lib)
{
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *p = dlsym(lib, symbols[i].symbol);
    if (!p) {
      snprintf(cudnn.reason, sizeof cudnn.reason,
               "libcudnn.so.9 lacks %s: install cuDNN 9.10 or later", symbols[i].symbol);
      return false;
    }
    memcpy((char *)&cudnn.api + symbols[i].offset, &p, sizeof p);
  }
  return true;
}

const struct attn_cudnn_api *attn_cudnn_load(const char **reason)
{
  if (!cudnn.tried) {
    void *lib = open_library();
    cudnn.tried = true;
    if (lib && find_symbols(lib)) {
      size_t v = cudnn.api.version();
      snprintf(cudnn.version, sizeof cudnn.version, "%zu.%zu.%zu", v / 10000, v / 100 % 100,
               v % 100);
      cudnn.ok = v >= ATTN_CUDNN_OLDEST;
      if (!cudnn.ok)
        snprintf(cudnn.reason, sizeof cudnn.reason,
                 "cuDNN %s is too old: install cuDNN 9.10 or later", cudnn.version);
    }
  }
  *reason = cudnn.ok ? NULL : cudnn.reason;
  return cudnn.ok ? &cudnn.api : NULL;
}

const char *attn_cudnn_version(void)
{
  return cudnn.version;
}

int attn_cudnn_handle(int index, cudnnHandle_t *handle, char *reason, size_t reason_len)
{
  if (index < 0 || index >= HANDLES_MAX) {
    snprintf(reason, reason_len, "cuDNN: no device %d", index);
    return ATTN_EINVAL;
  }
  if (!cudnn.handles[index]) {
    cudnnStatus_t s = cudnn.api.create(&cudnn.handles[index]);
    if (s != CUDNN_STATUS_SUCCESS) {
      cudnn.handles[index] = NULL;
      snprintf(reason, reason_len, "cuDNN %s cannot use device %d: %s", cudnn.version, index,
               cudnn.api.error_string(s));
      return ATTN_EDEVICE;
    }
  }
  *handle = cudnn.handles[index];
  return ATTN_OK;
}
