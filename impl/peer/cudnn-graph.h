/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-graph.h - builds an operation graph of cuDNN's backend API.
 *
 * The first failure sticks: it is noted in graph->error, and every later call does nothing, so that
 * a graph is written as a list of operations and judged once at its end.
 */
#ifndef IMPL_PEER_CUDNN_GRAPH_H
#define IMPL_PEER_CUDNN_GRAPH_H

#include "impl/peer/cudnn-api.h"

/* Tensors that have memory: their unique ids. Virtual tensors and scalars count on from UID_END. */
enum attn_cg_uid {
  UID_Q = 1,
  UID_K,
  UID_V,
  UID_O,
  UID_STATS,
  UID_DOUT,
  UID_DQ,
  UID_DK,
  UID_DV,
  UID_SOFTMAX_SUM,
  UID_DQ_ACCUM,
  UID_SEQLEN_Q,
  UID_SEQLEN_K,
  UID_OFFSET_Q,
  UID_OFFSET_K,
  UID_OFFSET_V,
  UID_OFFSET_O,
  UID_END
};

#define ATTN_CG_NODES 192  /* descriptors of one graph */
#define ATTN_CG_OPS 48     /* operations of one graph */
#define ATTN_CG_SCALARS 12 /* scalars of one graph */

/* Dimensions are b, h, s, d whatever the layout: that is in the strides. */
struct attn_cg_tensor {
  cudnnBackendDescriptor_t desc; /* NULL: no tensor */
  int64_t dim[4];
};

/* A scalar passed by value: cuDNN reads it on the host when a plan is executed. */
struct attn_cg_scalar {
  int64_t uid;
  union {
    float f;
    int32_t i;
  } value;
};

struct attn_cg {
  const struct attn_cudnn_api *api;
  cudnnBackendDescriptor_t nodes[ATTN_CG_NODES], ops[ATTN_CG_OPS];
  int nnodes, nops, nscalars;
  struct attn_cg_scalar scalars[ATTN_CG_SCALARS];
  int64_t next_uid;
  uint32_t bound; /* bit u: the tensor with memory UID u is part of the graph */
  char error[256];
};

/* A matmul's lengths in effect, where they differ from its tensors': padding. */
struct attn_cg_lengths {
  struct attn_cg_tensor m, n, k;
};

void attn_cg_init(struct attn_cg *g, const struct attn_cudnn_api *api);
void attn_cg_destroy(struct attn_cg *g);

/* Notes the failure of a call unless one is noted already; returns whether s is a success. */
bool attn_cg_ok(struct attn_cg *g, cudnnStatus_t s, const char *what);

/* A new descriptor, destroyed with the graph; NULL once the graph has failed. */
cudnnBackendDescriptor_t attn_cg_node(struct attn_cg *g, cudnnBackendDescriptorType_t type);
void attn_cg_set(struct attn_cg *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *values);
void attn_cg_finalize(struct attn_cg *g, cudnnBackendDescriptor_t d, const char *what);

/* Tensors. offset: ragged offsets in elements, or desc NULL. stride NULL: row-major. */
struct attn_cg_tensor attn_cg_bound(struct attn_cg *g, enum attn_cg_uid uid, cudnnDataType_t type,
                                    const int64_t dim[4], const int64_t stride[4],
                                    struct attn_cg_tensor offset);
struct attn_cg_tensor attn_cg_virtual(struct attn_cg *g, cudnnDataType_t type, const int64_t dim[4],
                                      const int64_t stride[4], struct attn_cg_tensor offset);
struct attn_cg_tensor attn_cg_float(struct attn_cg *g, float value);
struct attn_cg_tensor attn_cg_int(struct attn_cg *g, int32_t value);

/* Operations into a given tensor. */
void attn_cg_pointwise(struct attn_cg *g, cudnnPointwiseMode_t mode, struct attn_cg_tensor x,
                       struct attn_cg_tensor b, struct attn_cg_tensor y);
void attn_cg_matmul(struct attn_cg *g, struct attn_cg_tensor a, struct attn_cg_tensor b,
                    struct attn_cg_tensor c, const struct attn_cg_lengths *lengths);
void attn_cg_reduce(struct attn_cg *g, cudnnReduceTensorOp_t op, struct attn_cg_tensor x,
                    struct attn_cg_tensor y);
void attn_cg_reshape(struct attn_cg *g, struct attn_cg_tensor x, struct attn_cg_tensor y);

/* Operations into a new virtual tensor of x's shape; b may be absent. */
struct attn_cg_tensor attn_cg_f32(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                  struct attn_cg_tensor x, struct attn_cg_tensor b);
struct attn_cg_tensor attn_cg_i32(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                  struct attn_cg_tensor x, struct attn_cg_tensor b);
struct attn_cg_tensor attn_cg_bool(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                   struct attn_cg_tensor x, struct attn_cg_tensor b);
struct attn_cg_tensor attn_cg_index(struct attn_cg *g, struct attn_cg_tensor x, int64_t axis);
/* mask ? x : otherwise */
struct attn_cg_tensor attn_cg_select(struct attn_cg *g, struct attn_cg_tensor mask,
                                     struct attn_cg_tensor x, float otherwise);

static const struct attn_cg_tensor attn_cg_none = {0};

#endif
