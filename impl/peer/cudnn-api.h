/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-api.h - cuDNN's backend (graph) API as a table of functions found at run time.
 *
 * attnbench is built against cuDNN's headers only: a machine without the library still runs
 * everything else, and the library of the day is measured, not the one of the build.
 */
#ifndef IMPL_PEER_CUDNN_API_H
#define IMPL_PEER_CUDNN_API_H

#include <cudnn_graph.h>

#include "impl/attn.h"

/* Older libraries want another masking value and lack the engines that this wrapper was tried on.
 */
#define ATTN_CUDNN_OLDEST 91000

struct attn_cudnn_api {
  size_t (*version)(void);
  const char *(*error_string)(cudnnStatus_t status);
  void (*last_error)(char *message, size_t size);
  cudnnStatus_t (*create)(cudnnHandle_t *handle);
  cudnnStatus_t (*destroy)(cudnnHandle_t handle);
  cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
  cudnnStatus_t (*create_descriptor)(cudnnBackendDescriptorType_t type,
                                     cudnnBackendDescriptor_t *d);
  cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t d);
  cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t d);
  cudnnStatus_t (*set)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void *values);
  cudnnStatus_t (*get)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count,
                       void *values);
  cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                           cudnnBackendDescriptor_t pack);
};

/* The table, loaded once per process; or NULL and in *reason why not and what to do. */
const struct attn_cudnn_api *attn_cudnn_load(const char **reason);

/* "9.19.0", of the loaded library; "" before that. */
const char *attn_cudnn_version(void);

/* The handle of device index, made once per process on the current device. */
int attn_cudnn_handle(int index, cudnnHandle_t *handle, char *reason, size_t reason_len);

#endif
