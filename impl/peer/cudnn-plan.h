/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-plan.h - from an operation graph to compiled code.
 */
#ifndef IMPL_PEER_CUDNN_PLAN_H
#define IMPL_PEER_CUDNN_PLAN_H

#include "impl/peer/cudnn-graph.h"

/* What a plan is built for: a device by its handle, or one described by cuDNN's JSON (a finalized
 * descriptor of device properties), which needs no GPU. The other member is NULL. */
struct attn_cudnn_target {
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t properties;
};

#define ATTN_CUDNN_ENGINES 16 /* candidates that are looked at */

/* The engines that take the graph, best first; they are destroyed with the graph.
 * ATTN_EUNSUPPORTED with a reason when there is none. */
int attn_cudnn_engines(struct attn_cg *g, const struct attn_cudnn_target *target,
                       cudnnBackendDescriptor_t configs[ATTN_CUDNN_ENGINES], int64_t *n,
                       char *reason, size_t reason_len);

/* The plan of the first engine that takes the graph and compiles. The plan outlives the graph; the
 * caller destroys it. */
int attn_cudnn_plan(struct attn_cg *g, const struct attn_cudnn_target *target,
                    cudnnBackendDescriptor_t *plan, char *reason, size_t reason_len);

#endif
