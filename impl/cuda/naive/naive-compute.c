/* SPDX-License-Identifier: Apache-2.0
 *
 * naive-compute.c - cuda/naive's matrix products, by cuBLAS, and their order (naive.c).
 */
#include "config.h"

#include "impl/cuda/naive/naive-stack.h"
#include "impl/cuda/naive/naive.h"
#include "impl/dropout.h"

/* One matrix of a product: row-major, ld elements from row to row, stride from one of the batch to
 * the next; seq and member: from sequence to sequence and from head to head of a group. */
struct operand {
  char *data;
  int64_t ld, stride, seq, member;
  bool sum; /* fp32 */
};

/* ---- products ------------------------------------------------------------------------------- */

static cudaDataType_t data_type(enum attn_dtype t)
{
  static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F};
  return types[t];
}

/* Element (g of the group, sequence s) of an operand's array of matrices. */
static char *at(const struct naive_stack *x, const struct operand *m, int64_t s, int64_t g)
{
  size_t size = m->sum ? 4 : attn_dtype_size(x->plan->p.dtype);
  return m->data + (s * m->seq + g * m->member) * (int64_t)size;
}

/* C (m x n) = alpha A B + beta C, all row-major, A or B transposed when asked; cuBLAS, being
 * column-major, is given C^T = B^T A^T. */
static int product(const struct naive_stack *x, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                   float alpha, const struct operand *a, const struct operand *b,
                   const struct operand *c, bool accumulate)
{
  cudaDataType_t type = data_type(x->plan->p.dtype), out = c->sum ? CUDA_R_32F : type;
  int64_t members = x->plan->p.hq / x->plan->p.hkv / x->fold;
  for (int64_t s = 0; s < x->outer; s++)
    for (int64_t g = 0; g < members; g++) {
      float beta = accumulate && g > 0;
      if (cublasGemmStridedBatchedEx(
              x->plan->blas, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
              (int)m, (int)k, &alpha, at(x, b, s, g), type, (int)b->ld, b->stride, at(x, a, s, g),
              type, (int)a->ld, a->stride, &beta, at(x, c, s, g), out, (int)c->ld, c->stride,
              (int)x->batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))
        return ATTN_EDEVICE;
    }
  return ATTN_OK;
}

/* ---- operands ------------------------------------------------------------------------------- */

static struct operand query_side(const struct naive_stack *x, const struct attn_tensor *t)
{
  int64_t group = x->plan->p.hq / x->plan->p.hkv;
  return (struct operand){t->data, t->ss, group * t->sh, t->sb, t->sh, false};
}

static struct operand key_side(const struct attn_tensor *t)
{
  return (struct operand){t->data, t->ss, t->sh, t->sb, 0, false};
}

static struct operand matrix(const struct naive_stack *x, char *data)
{
  int64_t head = x->sq * x->ld, hq = x->plan->p.hq;
  return (struct operand){data, x->ld, hq / x->plan->p.hkv * head, hq * head, head, false};
}

/* Where dK or dV is summed: in place when one product sums over the whole group. */
static struct operand gradient(const struct naive_stack *x, const struct attn_tensor *t, float *sum,
                               int64_t d)
{
  int64_t hkv = x->plan->p.hkv;
  if (x->plan->p.hq == hkv * x->fold)
    return key_side(t);
  return (struct operand){(char *)sum, d, x->sk * d, hkv * x->sk * d, 0, true};
}

/* ---- a stack of sequences -------------------------------------------------------------------- */

static struct naive_rows rows_of(const struct naive_stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  bool causal = p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_CAUSAL_TOPLEFT;
  bool window = p->mask == ATTN_MASK_WINDOW;
  bool bottom_right = window || p->mask == ATTN_MASK_CAUSAL;
  int64_t all = x->sq + x->sk;
  return (struct naive_rows){
      .s = x->s,
      .dp = x->dp,
      .count = x->count,
      .ld = x->ld,
      .hq = p->hq,
      .sq = x->sq,
      .sk = x->sk,
      .dv = p->dv,
      .seq0 = x->seq0,
      .lse = x->lse,
      .lse_seq = x->lse_seq,
      .lse_head = x->lse_head,
      .o = x->o,
      .dout = x->dout,
      .left = window && p->window_left >= 0 ? p->window_left : all,
      .right = causal                           ? 0
               : window && p->window_right >= 0 ? p->window_right
                                                : all,
      .diagonal = bottom_right ? x->sk - x->sq : 0,
      .softcap = p->softcap,
      .alibi = p->alibi,
      .drop_threshold = attn_dropout_threshold(p->dropout_p),
      .drop_seed = p->dropout_seed,
  };
}

static int forward(const struct naive_stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  struct operand q = query_side(x, &x->q), o = query_side(x, &x->o), s = matrix(x, x->s);
  struct operand k = key_side(&x->k), v = key_side(&x->v);
  struct naive_rows rows = rows_of(x);
  float scale = attn_problem_scale(p);
  int rc = ATTN_OK;
  if (x->sk)
    rc = product(x, false, true, x->rows, x->sk, p->d, scale, &q, &k, &s, false);
  if (!rc)
    rc = attn_naive_softmax(p->dtype, &rows, x->stream);
  if (rc)
    return rc;
  if (!x->sk)
    return attn_naive_store(p->dtype, &x->o, NULL, x->count, x->sq, p->hq, p->dv, x->stream);
  return product(x, false, false, x->rows, p->dv, x->sk, 1, &s, &v, &o, false);
}

static int gradients(const struct naive_stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  struct operand q = query_side(x, &x->q), dout = query_side(x, &x->dout);
  struct operand dq = query_side(x, &x->dq), s = matrix(x, x->s), ds = matrix(x, x->dp);
  struct operand k = key_side(&x->k), v = key_side(&x->v);
  struct operand dk = gradient(x, &x->dk, x->dk_sum, p->d);
  struct operand dv = gradient(x, &x->dv, x->dv_sum, p->dv);
  struct naive_rows rows = rows_of(x);
  float scale = attn_problem_scale(p);
  int rc = product(x, false, true, x->rows, x->sk, p->d, scale, &q, &k, &s, false);
  if (!rc)
    rc = product(x, false, true, x->rows, x->sk, p->dv, 1, &dout, &v, &ds, false);
  if (!rc)
    rc = attn_naive_gradient(p->dtype, &rows, x->stream);
  if (!rc)
    rc = product(x, true, false, x->sk, p->dv, x->rows, 1, &s, &dout, &dv, true);
  if (!rc)
    rc = product(x, false, false, x->rows, p->d, x->sk, scale, &ds, &k, &dq, false);
  if (!rc)
    rc = product(x, true, false, x->sk, p->d, x->rows, scale, &ds, &q, &dk, true);
  if (!rc && dv.sum)
    rc = attn_naive_store(p->dtype, &x->dv, x->dv_sum, x->count, x->sk, p->hkv, p->dv, x->stream);
  if (!rc && dk.sum)
    rc = attn_naive_store(p->dtype, &x->dk, x->dk_sum, x->count, x->sk, p->hkv, p->d, x->stream);
  return rc;
}

/* No queries: dK = dV = 0. No keys: dQ = 0. */
static int empty_gradients(const struct naive_stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  int rc = attn_naive_store(p->dtype, &x->dq, NULL, x->count, x->sq, p->hq, p->d, x->stream);
  if (!rc)
    rc = attn_naive_store(p->dtype, &x->dk, NULL, x->count, x->sk, p->hkv, p->d, x->stream);
  if (!rc)
    rc = attn_naive_store(p->dtype, &x->dv, NULL, x->count, x->sk, p->hkv, p->dv, x->stream);
  return rc;
}

int attn_naive_compute(const struct naive_stack *x)
{
  if (x->plan->p.op == ATTN_BWD)
    return x->sq && x->sk ? gradients(x) : empty_gradients(x);
  return x->sq ? forward(x) : ATTN_OK;
}
