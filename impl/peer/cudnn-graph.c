/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-graph.c - see cudnn-graph.h. Arithmetic is fp32 throughout, as the engines for attention
 * demand; only the operands of matrix products are of the storage type.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/peer/cudnn-graph.h"

void attn_cg_init(struct attn_cg *g, const struct attn_cudnn_api *api)
{
  memset(g, 0, sizeof *g);
  g->api = api;
  g->next_uid = UID_END;
}

void attn_cg_destroy(struct attn_cg *g)
{
  while (g->nnodes > 0)
    g->api->destroy_descriptor(g->nodes[--g->nnodes]);
}

bool attn_cg_ok(struct attn_cg *g, cudnnStatus_t s, const char *what)
{
  char detail[160] = "";
  if (s == CUDNN_STATUS_SUCCESS)
    return !g->error[0];
  if (!g->error[0]) {
    g->api->last_error(detail, sizeof detail);
    detail[strcspn(detail, "\n")] = 0;
    snprintf(g->error, sizeof g->error, "cuDNN %s: %s: %s: %s", attn_cudnn_version(), what,
             g->api->error_string(s), detail);
  }
  return false;
}

cudnnBackendDescriptor_t attn_cg_node(struct attn_cg *g, cudnnBackendDescriptorType_t type)
{
  cudnnBackendDescriptor_t d = NULL;
  if (g->error[0])
    return NULL;
  if (g->nnodes == ATTN_CG_NODES) {
    snprintf(g->error, sizeof g->error, "cuDNN: a graph of more than %d descriptors",
             ATTN_CG_NODES);
    return NULL;
  }
  if (!attn_cg_ok(g, g->api->create_descriptor(type, &d), "create descriptor"))
    return NULL;
  g->nodes[g->nnodes++] = d;
  return d;
}

void attn_cg_set(struct attn_cg *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  char what[40];
  if (g->error[0])
    return;
  snprintf(what, sizeof what, "set attribute %d", (int)name);
  attn_cg_ok(g, g->api->set(d, name, type, count, values), what);
}

void attn_cg_finalize(struct attn_cg *g, cudnnBackendDescriptor_t d, const char *what)
{
  if (!g->error[0])
    attn_cg_ok(g, g->api->finalize(d), what);
}

static void set_desc(struct attn_cg *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
  if (value)
    attn_cg_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct attn_cg *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
  attn_cg_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* ---- tensors -------------------------------------------------------------------------------- */

enum tensor_kind { HAS_MEMORY, IS_VIRTUAL, IS_BY_VALUE };

static struct attn_cg_tensor tensor(struct attn_cg *g, int64_t uid, enum tensor_kind kind,
                                    cudnnDataType_t type, const int64_t dim[4],
                                    const int64_t stride[4], cudnnBackendDescriptor_t offset)
{
  const int64_t rows[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
  const int64_t alignment = 16;
  const bool yes = true;
  struct attn_cg_tensor t = {attn_cg_node(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR), {0}};
  memcpy(t.dim, dim, sizeof t.dim);
  set_type(g, t.desc, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
  attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride ? stride : rows);
  attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (kind == IS_VIRTUAL)
    attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  if (kind == IS_BY_VALUE)
    attn_cg_set(g, t.desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
  set_desc(g, t.desc, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offset);
  attn_cg_finalize(g, t.desc, "tensor");
  return t;
}

struct attn_cg_tensor attn_cg_bound(struct attn_cg *g, enum attn_cg_uid uid, cudnnDataType_t type,
                                    const int64_t dim[4], const int64_t stride[4],
                                    struct attn_cg_tensor offset)
{
  g->bound |= 1u << uid;
  return tensor(g, uid, HAS_MEMORY, type, dim, stride, offset.desc);
}

struct attn_cg_tensor attn_cg_virtual(struct attn_cg *g, cudnnDataType_t type, const int64_t dim[4],
                                      const int64_t stride[4], struct attn_cg_tensor offset)
{
  return tensor(g, g->next_uid++, IS_VIRTUAL, type, dim, stride, offset.desc);
}

static struct attn_cg_tensor scalar(struct attn_cg *g, cudnnDataType_t type,
                                    struct attn_cg_scalar value)
{
  static const int64_t one[4] = {1, 1, 1, 1};
  value.uid = g->next_uid++;
  if (g->nscalars == ATTN_CG_SCALARS)
    snprintf(g->error, sizeof g->error, "cuDNN: a graph of more than %d scalars", ATTN_CG_SCALARS);
  else
    g->scalars[g->nscalars++] = value;
  return tensor(g, value.uid, IS_BY_VALUE, type, one, one, NULL);
}

struct attn_cg_tensor attn_cg_float(struct attn_cg *g, float value)
{
  return scalar(g, CUDNN_DATA_FLOAT, (struct attn_cg_scalar){.value.f = value});
}

struct attn_cg_tensor attn_cg_int(struct attn_cg *g, int32_t value)
{
  return scalar(g, CUDNN_DATA_INT32, (struct attn_cg_scalar){.value.i = value});
}

/* ---- operations ----------------------------------------------------------------------------- */

static void add_op(struct attn_cg *g, cudnnBackendDescriptor_t op, const char *what)
{
  attn_cg_finalize(g, op, what);
  if (g->error[0])
    return;
  if (g->nops == ATTN_CG_OPS)
    snprintf(g->error, sizeof g->error, "cuDNN: a graph of more than %d operations", ATTN_CG_OPS);
  else
    g->ops[g->nops++] = op;
}

struct pointwise {
  cudnnPointwiseMode_t mode;
  cudnnDataType_t compute;
  int64_t axis; /* of CUDNN_POINTWISE_GEN_INDEX */
  struct attn_cg_tensor x, b, t, y;
};

static void pointwise(struct attn_cg *g, const struct pointwise *p)
{
  cudnnBackendDescriptor_t pw = attn_cg_node(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  cudnnBackendDescriptor_t op = attn_cg_node(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  char what[32];
  attn_cg_set(g, pw, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
  set_type(g, pw, CUDNN_ATTR_POINTWISE_MATH_PREC, p->compute);
  if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
    attn_cg_set(g, pw, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
  attn_cg_finalize(g, pw, "pointwise descriptor");
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pw);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y.desc);
  snprintf(what, sizeof what, "pointwise mode %d", (int)p->mode);
  add_op(g, op, what);
}

void attn_cg_pointwise(struct attn_cg *g, cudnnPointwiseMode_t mode, struct attn_cg_tensor x,
                       struct attn_cg_tensor b, struct attn_cg_tensor y)
{
  pointwise(g, &(struct pointwise){mode, CUDNN_DATA_FLOAT, 0, x, b, attn_cg_none, y});
}

void attn_cg_matmul(struct attn_cg *g, struct attn_cg_tensor a, struct attn_cg_tensor b,
                    struct attn_cg_tensor c, const struct attn_cg_lengths *lengths)
{
  cudnnBackendDescriptor_t mm = attn_cg_node(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  cudnnBackendDescriptor_t op = attn_cg_node(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_type(g, mm, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  attn_cg_finalize(g, mm, "matmul descriptor");
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, mm);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths->m.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths->n.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths->k.desc);
  add_op(g, op, "matmul");
}

void attn_cg_reduce(struct attn_cg *g, cudnnReduceTensorOp_t op, struct attn_cg_tensor x,
                    struct attn_cg_tensor y)
{
  cudnnBackendDescriptor_t rd = attn_cg_node(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  cudnnBackendDescriptor_t node = attn_cg_node(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  attn_cg_set(g, rd, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  set_type(g, rd, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  attn_cg_finalize(g, rd, "reduction descriptor");
  set_desc(g, node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, rd);
  set_desc(g, node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.desc);
  set_desc(g, node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.desc);
  add_op(g, node, "reduction");
}

void attn_cg_reshape(struct attn_cg *g, struct attn_cg_tensor x, struct attn_cg_tensor y)
{
  cudnnBackendDescriptor_t op = attn_cg_node(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.desc);
  set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.desc);
  add_op(g, op, "reshape");
}

static struct attn_cg_tensor typed(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                   cudnnDataType_t type, struct attn_cg_tensor x,
                                   struct attn_cg_tensor b)
{
  struct attn_cg_tensor y = attn_cg_virtual(g, type, x.dim, NULL, attn_cg_none);
  pointwise(g, &(struct pointwise){mode, type, 0, x, b, attn_cg_none, y});
  return y;
}

struct attn_cg_tensor attn_cg_f32(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                  struct attn_cg_tensor x, struct attn_cg_tensor b)
{
  return typed(g, mode, CUDNN_DATA_FLOAT, x, b);
}

struct attn_cg_tensor attn_cg_i32(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                  struct attn_cg_tensor x, struct attn_cg_tensor b)
{
  return typed(g, mode, CUDNN_DATA_INT32, x, b);
}

struct attn_cg_tensor attn_cg_bool(struct attn_cg *g, cudnnPointwiseMode_t mode,
                                   struct attn_cg_tensor x, struct attn_cg_tensor b)
{
  return typed(g, mode, CUDNN_DATA_BOOLEAN, x, b);
}

struct attn_cg_tensor attn_cg_index(struct attn_cg *g, struct attn_cg_tensor x, int64_t axis)
{
  struct attn_cg_tensor y = attn_cg_virtual(g, CUDNN_DATA_INT32, x.dim, NULL, attn_cg_none);
  pointwise(g, &(struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, x,
                                   attn_cg_none, attn_cg_none, y});
  return y;
}

struct attn_cg_tensor attn_cg_select(struct attn_cg *g, struct attn_cg_tensor mask,
                                     struct attn_cg_tensor x, float otherwise)
{
  struct attn_cg_tensor b = attn_cg_float(g, otherwise);
  struct attn_cg_tensor y = attn_cg_virtual(g, CUDNN_DATA_FLOAT, x.dim, NULL, attn_cg_none);
  pointwise(g,
            &(struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, x, b, mask, y});
  return y;
}
