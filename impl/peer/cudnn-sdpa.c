/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-sdpa.c - attention as the operation graphs that cuDNN recognises and fuses.
 *
 * The engines match these patterns literally: an operation left out, another type of an
 * intermediate, or a virtual tensor in place of one with memory, and either no engine is offered or
 * only a slow one. Hence the oddities: K (backward: V too) is described transposed, P must be of
 * the storage type, softmax_sum is multiplied by 1 and has memory, and so has the fp32 dQ.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "impl/peer/cudnn-sdpa.h"

/* ---- the problem ---------------------------------------------------------------------------- */

static void canonical_strides(int64_t stride[4], enum attn_layout layout, int64_t h, int64_t seq,
                              int64_t d)
{
  const int64_t bhsd[4] = {h * seq * d, seq * d, d, 1};
  const int64_t bshd[4] = {seq * h * d, d, h * d, 1};
  memcpy(stride, layout == ATTN_BHSD ? bhsd : bshd, sizeof bhsd);
}

static bool square(const struct attn_problem *p)
{
  for (int64_t i = 0; i < p->b; i++) {
    int64_t sq, sk;
    attn_problem_seq(p, i, &sq, &sk);
    if (sq != sk)
      return false;
  }
  return true;
}

static enum attn_cudnn_diagonal diagonal(const struct attn_problem *p)
{
  if (p->mask == ATTN_MASK_NONE || (p->mask == ATTN_MASK_WINDOW && p->window_right < 0))
    return DIAGONAL_NONE;
  if (p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    return DIAGONAL_TOP_LEFT;
  /* The only query sees the last key, and the split-KV kernel is not offered for a mask. */
  if (p->sq == 1)
    return DIAGONAL_NONE;
  return square(p) ? DIAGONAL_TOP_LEFT : DIAGONAL_BOTTOM_RIGHT;
}

void attn_cudnn_spec(const struct attn_problem *p, struct attn_cudnn_spec *s)
{
  *s = (struct attn_cudnn_spec){
      .io = p->dtype == ATTN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
      .backward = p->op == ATTN_BWD,
      .deterministic = p->deterministic,
      .ragged = p->layout == ATTN_PACKED,
      .b = p->b,
      .hq = p->hq,
      .hkv = p->hkv,
      .sq = p->sq,
      .sk = p->sk,
      .d = p->d,
      .dv = p->dv,
      .total_q = attn_problem_total_q(p),
      .scale = (float)attn_problem_scale(p),
      .diagonal = diagonal(p),
      .right = p->mask == ATTN_MASK_WINDOW && p->window_right > 0 ? p->window_right : 0,
      .window = p->mask == ATTN_MASK_WINDOW && p->window_left >= 0 ? p->window_left + 1 : 0,
  };
  canonical_strides(s->stride_q, p->layout, p->hq, p->sq, p->d);
  canonical_strides(s->stride_k, p->layout, p->hkv, p->sk, p->d);
  canonical_strides(s->stride_v, p->layout, p->hkv, p->sk, p->dv);
  canonical_strides(s->stride_o, p->layout, p->hq, p->sq, p->dv);
}

/* ---- tensors -------------------------------------------------------------------------------- */

struct shape {
  int64_t n[4];
};

static struct shape shape(int64_t b, int64_t h, int64_t s, int64_t d)
{
  return (struct shape){{b, h, s, d}};
}

static struct shape transposed(const int64_t n[4])
{
  return (struct shape){{n[0], n[1], n[3], n[2]}};
}

/* Lengths and ragged offsets; all absent in a uniform batch. */
struct raggedness {
  struct attn_cg_tensor seqlen_q, seqlen_k, q, k, v, o;
};

static struct attn_cg_tensor index_tensor(struct attn_cg *g, enum attn_cg_uid uid,
                                          cudnnDataType_t type, int64_t n)
{
  return attn_cg_bound(g, uid, type, shape(n, 1, 1, 1).n, NULL, attn_cg_none);
}

static struct raggedness raggedness(struct attn_cg *g, const struct attn_cudnn_spec *s)
{
  struct raggedness r = {0};
  if (!s->ragged)
    return r;
  r.seqlen_q = index_tensor(g, UID_SEQLEN_Q, CUDNN_DATA_INT32, s->b);
  r.seqlen_k = index_tensor(g, UID_SEQLEN_K, CUDNN_DATA_INT32, s->b);
  r.q = index_tensor(g, UID_OFFSET_Q, CUDNN_DATA_INT64, s->b + 1);
  r.k = index_tensor(g, UID_OFFSET_K, CUDNN_DATA_INT64, s->b + 1);
  r.v = index_tensor(g, UID_OFFSET_V, CUDNN_DATA_INT64, s->b + 1);
  r.o = index_tensor(g, UID_OFFSET_O, CUDNN_DATA_INT64, s->b + 1);
  return r;
}

/* K or V as the right operand of X K^T: described transposed, stored as it is. */
static struct attn_cg_tensor bound_transposed(struct attn_cg *g, enum attn_cg_uid uid,
                                              cudnnDataType_t io, struct shape n,
                                              const int64_t stride[4], struct attn_cg_tensor offset)
{
  return attn_cg_bound(g, uid, io, transposed(n.n).n, transposed(stride).n, offset);
}

static struct attn_cg_tensor bound_stats(struct attn_cg *g, const struct attn_cudnn_spec *s)
{
  return attn_cg_bound(g, UID_STATS, CUDNN_DATA_FLOAT, shape(s->b, s->hq, s->sq, 1).n, NULL,
                       attn_cg_none);
}

static struct attn_cg_tensor virtual_f32(struct attn_cg *g, struct shape n)
{
  return attn_cg_virtual(g, CUDNN_DATA_FLOAT, n.n, NULL, attn_cg_none);
}

/* ---- masks ---------------------------------------------------------------------------------- */

static struct attn_cg_tensor mask_padding(struct attn_cg *g, const struct raggedness *r,
                                          struct attn_cg_tensor x)
{
  if (!r->seqlen_q.desc)
    return x;
  struct attn_cg_tensor row = attn_cg_index(g, x, 2), col = attn_cg_index(g, x, 3);
  row = attn_cg_bool(g, CUDNN_POINTWISE_CMP_LT, row, r->seqlen_q);
  col = attn_cg_bool(g, CUDNN_POINTWISE_CMP_LT, col, r->seqlen_k);
  return attn_cg_select(g, attn_cg_bool(g, CUDNN_POINTWISE_LOGICAL_AND, row, col), x, -INFINITY);
}

/* Query i sees key j if j <= i + right, bottom-right j <= i + seqlen_k - seqlen_q + right. */
static struct attn_cg_tensor mask_right(struct attn_cg *g, const struct attn_cudnn_spec *s,
                                        const struct raggedness *r, struct attn_cg_tensor x)
{
  if (s->diagonal == DIAGONAL_NONE)
    return x;
  struct attn_cg_tensor row = attn_cg_index(g, x, 2), col = attn_cg_index(g, x, 3);
  if (s->diagonal == DIAGONAL_BOTTOM_RIGHT) {
    struct attn_cg_tensor sk = s->ragged ? r->seqlen_k : attn_cg_int(g, (int32_t)s->sk);
    struct attn_cg_tensor sq = s->ragged ? r->seqlen_q : attn_cg_int(g, (int32_t)s->sq);
    row = attn_cg_i32(g, CUDNN_POINTWISE_ADD, row, sk);
    row = attn_cg_i32(g, CUDNN_POINTWISE_SUB, row, sq);
  }
  if (s->right)
    row = attn_cg_i32(g, CUDNN_POINTWISE_ADD, row, attn_cg_int(g, (int32_t)s->right));
  return attn_cg_select(g, attn_cg_bool(g, CUDNN_POINTWISE_CMP_GE, row, col), x, -INFINITY);
}

/* ... and if j + window > i, bottom-right j + window - seqlen_k + seqlen_q > i. */
static struct attn_cg_tensor mask_left(struct attn_cg *g, const struct attn_cudnn_spec *s,
                                       const struct raggedness *r, struct attn_cg_tensor x)
{
  if (!s->window)
    return x;
  struct attn_cg_tensor row = attn_cg_index(g, x, 2), col = attn_cg_index(g, x, 3);
  if (s->ragged && s->diagonal != DIAGONAL_TOP_LEFT) {
    col = attn_cg_i32(g, CUDNN_POINTWISE_ADD, col, attn_cg_int(g, (int32_t)s->window));
    col = attn_cg_i32(g, CUDNN_POINTWISE_SUB, col, r->seqlen_k);
    col = attn_cg_i32(g, CUDNN_POINTWISE_ADD, col, r->seqlen_q);
  } else {
    int64_t shift = s->diagonal == DIAGONAL_TOP_LEFT ? 0 : s->sk - s->sq;
    col = attn_cg_f32(g, CUDNN_POINTWISE_ADD, col, attn_cg_float(g, (float)(s->window - shift)));
  }
  return attn_cg_select(g, attn_cg_bool(g, CUDNN_POINTWISE_CMP_GT, col, row), x, -INFINITY);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Returns exp(x - max), with the row statistics in *max and *sum. */
static struct attn_cg_tensor exponentials(struct attn_cg *g, struct attn_cg_tensor x,
                                          struct attn_cg_tensor *max, struct attn_cg_tensor *sum)
{
  struct shape row = shape(x.dim[0], x.dim[1], x.dim[2], 1);
  *max = virtual_f32(g, row);
  attn_cg_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, *max);
  x = attn_cg_f32(g, CUDNN_POINTWISE_SUB, x, *max);
  x = attn_cg_f32(g, CUDNN_POINTWISE_EXP, x, attn_cg_none);
  *sum = virtual_f32(g, row);
  attn_cg_reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, *sum);
  return x;
}

void attn_cudnn_forward(struct attn_cg *g, const struct attn_cudnn_spec *s)
{
  struct raggedness r = raggedness(g, s);
  struct attn_cg_lengths qk = {.m = r.seqlen_q, .n = r.seqlen_k};
  struct attn_cg_lengths pv = {.m = r.seqlen_q, .k = r.seqlen_k};
  struct attn_cg_tensor q =
      attn_cg_bound(g, UID_Q, s->io, shape(s->b, s->hq, s->sq, s->d).n, s->stride_q, r.q);
  struct attn_cg_tensor kt =
      bound_transposed(g, UID_K, s->io, shape(s->b, s->hkv, s->sk, s->d), s->stride_k, r.k);
  struct attn_cg_tensor v =
      attn_cg_bound(g, UID_V, s->io, shape(s->b, s->hkv, s->sk, s->dv).n, s->stride_v, r.v);
  struct attn_cg_tensor o =
      attn_cg_bound(g, UID_O, s->io, shape(s->b, s->hq, s->sq, s->dv).n, s->stride_o, r.o);
  struct attn_cg_tensor stats = bound_stats(g, s), max, sum;
  struct attn_cg_tensor x = virtual_f32(g, shape(s->b, s->hq, s->sq, s->sk));

  attn_cg_matmul(g, q, kt, x, &qk);
  x = attn_cg_f32(g, CUDNN_POINTWISE_MUL, x, attn_cg_float(g, s->scale));
  x = mask_padding(g, &r, x);
  x = mask_right(g, s, &r, x);
  x = mask_left(g, s, &r, x);
  x = exponentials(g, x, &max, &sum);
  attn_cg_pointwise(g, CUDNN_POINTWISE_ADD, attn_cg_f32(g, CUDNN_POINTWISE_LOG, sum, attn_cg_none),
                    max, stats);
  struct attn_cg_tensor prob = attn_cg_virtual(g, s->io, x.dim, NULL, attn_cg_none);
  attn_cg_pointwise(g, CUDNN_POINTWISE_DIV, x, sum, prob);
  attn_cg_matmul(g, prob, v, o, &pv);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* rowsum(dO * O), times one. */
static struct attn_cg_tensor softmax_sum(struct attn_cg *g, const struct attn_cudnn_spec *s,
                                         struct attn_cg_tensor dout, struct attn_cg_tensor o)
{
  struct shape row = shape(s->b, s->hq, s->sq, 1);
  struct attn_cg_tensor product = attn_cg_f32(g, CUDNN_POINTWISE_MUL, dout, o);
  struct attn_cg_tensor sum = virtual_f32(g, row);
  struct attn_cg_tensor stored =
      attn_cg_bound(g, UID_SOFTMAX_SUM, CUDNN_DATA_FLOAT, row.n, NULL, attn_cg_none);
  attn_cg_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
  attn_cg_pointwise(g, CUDNN_POINTWISE_MUL, sum, attn_cg_float(g, 1.0f), stored);
  return stored;
}

/* x^T y into out, x (b, hq, sq, sk) in fp32; summed over the query heads of each KV head. */
static void transposed_product(struct attn_cg *g, const struct attn_cudnn_spec *s,
                               const struct raggedness *r, struct attn_cg_tensor x,
                               struct attn_cg_tensor y, struct attn_cg_tensor out)
{
  const struct attn_cg_lengths lengths = {.m = r->seqlen_k, .k = r->seqlen_q};
  const int64_t stride[4] = {s->hq * s->sq * s->sk, s->sq * s->sk, 1, s->sk};
  struct attn_cg_tensor xt = attn_cg_virtual(g, s->io, transposed(x.dim).n, stride, attn_cg_none);
  attn_cg_reshape(g, x, xt);
  if (s->hq == s->hkv) {
    attn_cg_matmul(g, xt, y, out, &lengths);
    return;
  }
  struct attn_cg_tensor heads =
      attn_cg_virtual(g, s->io, shape(s->b, s->hq, s->sk, y.dim[3]).n, NULL, attn_cg_none);
  attn_cg_matmul(g, xt, y, heads, &lengths);
  attn_cg_reduce(g, CUDNN_REDUCE_TENSOR_ADD, heads, out);
}

/* dQ = dS K: by way of an fp32 accumulator, or directly in the deterministic pattern. */
static void query_gradient(struct attn_cg *g, const struct attn_cudnn_spec *s,
                           const struct raggedness *r, struct attn_cg_tensor ds,
                           struct attn_cg_tensor kt)
{
  const struct attn_cg_lengths lengths = {.m = r->seqlen_q, .k = r->seqlen_k};
  struct shape n = shape(s->b, s->hq, s->sq, s->d);
  struct attn_cg_tensor k =
      attn_cg_virtual(g, s->io, shape(s->b, s->hkv, s->sk, s->d).n, s->stride_k, r->k);
  struct attn_cg_tensor dq = attn_cg_bound(g, UID_DQ, s->io, n.n, s->stride_q, r->q);
  attn_cg_reshape(g, kt, k);
  if (s->deterministic) {
    attn_cg_matmul(g, ds, k, dq, &lengths);
    return;
  }
  struct attn_cg_tensor accum =
      attn_cg_bound(g, UID_DQ_ACCUM, CUDNN_DATA_FLOAT, n.n, NULL, attn_cg_none);
  attn_cg_matmul(g, ds, k, accum, &lengths);
  attn_cg_pointwise(g, CUDNN_POINTWISE_IDENTITY, accum, attn_cg_none, dq);
}

struct backward_tensors {
  struct attn_cg_tensor q, kt, vt, o, dout, stats, dk, dv;
};

static struct backward_tensors backward_tensors(struct attn_cg *g, const struct attn_cudnn_spec *s,
                                                const struct raggedness *r)
{
  struct shape q = shape(s->b, s->hq, s->sq, s->d), o = shape(s->b, s->hq, s->sq, s->dv);
  struct shape k = shape(s->b, s->hkv, s->sk, s->d), v = shape(s->b, s->hkv, s->sk, s->dv);
  struct backward_tensors t;
  t.q = attn_cg_bound(g, UID_Q, s->io, q.n, s->stride_q, r->q);
  t.kt = bound_transposed(g, UID_K, s->io, k, s->stride_k, r->k);
  t.vt = bound_transposed(g, UID_V, s->io, v, s->stride_v, r->v);
  t.o = attn_cg_bound(g, UID_O, s->io, o.n, s->stride_o, r->o);
  t.dout = attn_cg_bound(g, UID_DOUT, s->io, o.n, s->stride_o, r->o);
  t.stats = bound_stats(g, s);
  t.dk = attn_cg_bound(g, UID_DK, s->io, k.n, s->stride_k, r->k);
  t.dv = attn_cg_bound(g, UID_DV, s->io, v.n, s->stride_v, r->v);
  return t;
}

void attn_cudnn_backward(struct attn_cg *g, const struct attn_cudnn_spec *s)
{
  struct raggedness r = raggedness(g, s);
  struct attn_cg_lengths lengths = {.m = r.seqlen_q, .n = r.seqlen_k};
  struct backward_tensors t = backward_tensors(g, s, &r);
  struct attn_cg_tensor scale = attn_cg_float(g, s->scale);
  struct attn_cg_tensor sum = softmax_sum(g, s, t.dout, t.o);
  struct attn_cg_tensor p = virtual_f32(g, shape(s->b, s->hq, s->sq, s->sk));
  struct attn_cg_tensor ds = virtual_f32(g, shape(s->b, s->hq, s->sq, s->sk));

  attn_cg_matmul(g, t.q, t.kt, p, &lengths);
  p = attn_cg_f32(g, CUDNN_POINTWISE_MUL, p, scale);
  p = mask_padding(g, &r, p);
  p = attn_cg_f32(g, CUDNN_POINTWISE_SUB, p, t.stats);
  p = mask_right(g, s, &r, p);
  p = mask_left(g, s, &r, p);
  p = attn_cg_f32(g, CUDNN_POINTWISE_EXP, p, attn_cg_none);
  transposed_product(g, s, &r, p, t.dout, t.dv);

  attn_cg_matmul(g, t.dout, t.vt, ds, &lengths);
  ds = attn_cg_f32(g, CUDNN_POINTWISE_SUB, ds, sum);
  ds = attn_cg_f32(g, CUDNN_POINTWISE_MUL, ds, p);
  ds = attn_cg_f32(g, CUDNN_POINTWISE_MUL, ds, scale);
  transposed_product(g, s, &r, ds, t.q, t.dk);
  query_gradient(g, s, &r, ds, t.kt);
}
