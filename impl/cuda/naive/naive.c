/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.c - cuda/naive, the materialising baseline: cuBLAS products around the row kernels of
 * naive-rows.cu.  All heads' score matrices lie in HBM in the problem's type, softmax in place:
 *
 *   forward    S = scale Q K^T;  P = softmax(S), in S;  O = P V
 *   backward   S = scale Q K^T;  dP = dO V^T;  P in S, dS in dP;
 *              dV = P^T dO;  dQ = scale dS K;  dK = scale dS^T Q
 *
 * Strided-batched products over KV heads; the query heads of a group are folded into the rows where
 * the layout lets one stride step over them (bhsd), else the group is a loop, whose sums for dK and
 * dV are kept in fp32. Sequences join the batch where the strides allow it. A ragged batch is a
 * loop over its runs of equal sequences.
 */
#include "config.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "impl/cuda/naive/naive.h"
#include "impl/dropout.h"

#define CUBLAS_WORKSPACE (32u << 20)
#define MAX_DEVICES 64

struct plan {
  struct attn_problem p;
  struct attn_device dev;
  cublasHandle_t blas;
};

/* Sequences of equal lengths: the whole of a uniform batch, one run of a ragged one. */
struct stack {
  const struct plan *plan;
  const struct attn_args *args;
  cudaStream_t stream;
  int64_t count, sq, sk, seq0;
  struct attn_tensor q, k, v, o, dout, dq, dk, dv; /* of the first sequence */
  float *lse;
  int64_t lse_seq, lse_head;
  char *s, *dp;           /* (count, hq, sq, ld) */
  float *dk_sum, *dv_sum; /* fp32 (count, hkv, sk, d|dv) */
  int64_t ld;
  int64_t fold, rows;   /* query heads of a group in one product, and its rows */
  int64_t outer, batch; /* loops over sequences, matrices of one product */
};

/* One matrix of a product: row-major, ld elements from row to row, stride from one of the batch to
 * the next; seq and member: from sequence to sequence and from head to head of a group. */
struct operand {
  char *data;
  int64_t ld, stride, seq, member;
  bool sum; /* fp32 */
};

/* ---- sizes ---------------------------------------------------------------------------------- */

static size_t aligned_up(size_t n)
{
  return (n + 1023) & ~(size_t)1023;
}

static int64_t row_elements(const struct attn_problem *p, int64_t sk)
{
  int64_t unit = 16 / (int64_t)attn_dtype_size(p->dtype);
  return (sk + unit - 1) / unit * unit;
}

static int runs_of(const struct attn_problem *p, struct attn_run *r)
{
  r[0] = (struct attn_run){p->b, p->sq, p->sk};
  for (int i = 0; i < p->nruns; i++)
    r[i] = p->runs[i];
  return p->nruns ? p->nruns : 1;
}

static size_t matrix_bytes(const struct attn_problem *p, const struct attn_run *r)
{
  size_t row = row_elements(p, r->sk) * attn_dtype_size(p->dtype);
  return aligned_up((size_t)r->count * p->hq * r->sq * row);
}

/* The fp32 sums of dK or dV, which only a loop over the group needs. */
static size_t sum_bytes(const struct attn_problem *p, const struct attn_run *r, int64_t d)
{
  bool needed = p->op == ATTN_BWD && p->hq > p->hkv;
  return needed ? aligned_up(4 * (size_t)r->count * p->hkv * r->sk * d) : 0;
}

static size_t run_bytes(const struct attn_problem *p, const struct attn_run *r)
{
  return matrix_bytes(p, r) * (p->op == ATTN_BWD ? 2 : 1) + sum_bytes(p, r, p->d) +
         sum_bytes(p, r, p->dv);
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  struct attn_run r[ATTN_MAX_RUNS];
  size_t total = CUBLAS_WORKSPACE;
  for (int i = 0, n = runs_of(p, r); i < n; i++)
    total += run_bytes(p, &r[i]);
  return total;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  static _Thread_local char reason[192];
  if (p->page)
    return "paged KV needs a paged kernel";
  if (p->sk > INT32_MAX - 64 || p->sq * (p->hq / p->hkv) > INT32_MAX ||
      (double)p->b * p->hq * p->sq > INT32_MAX)
    return "more than 2^31 - 1 rows";
  double gib = 1 << 30, head = (double)p->sq * p->sk * attn_dtype_size(p->dtype);
  double tensors = attn_problem_compulsory_read(p) + attn_problem_compulsory_write(p);
  double need = workspace(p, dev);
  if (need + tensors <= dev->memory_bytes)
    return NULL;
  snprintf(reason, sizeof reason,
           "one head's matrix takes %.4g GiB, all heads%s %.4g GiB; the card has %.4g GiB",
           head / gib, p->op == ATTN_BWD ? " (P and dS)" : "", need / gib, dev->memory_bytes / gib);
  return reason;
}

/* ---- products ------------------------------------------------------------------------------- */

static cudaDataType_t data_type(enum attn_dtype t)
{
  static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F};
  return types[t];
}

/* Element (g of the group, sequence s) of an operand's array of matrices. */
static char *at(const struct stack *x, const struct operand *m, int64_t s, int64_t g)
{
  size_t size = m->sum ? 4 : attn_dtype_size(x->plan->p.dtype);
  return m->data + (s * m->seq + g * m->member) * (int64_t)size;
}

/* C (m x n) = alpha A B + beta C, all row-major, A or B transposed when asked; cuBLAS, being
 * column-major, is given C^T = B^T A^T. */
static int product(const struct stack *x, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
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

static struct operand query_side(const struct stack *x, const struct attn_tensor *t)
{
  int64_t group = x->plan->p.hq / x->plan->p.hkv;
  return (struct operand){t->data, t->ss, group * t->sh, t->sb, t->sh, false};
}

static struct operand key_side(const struct attn_tensor *t)
{
  return (struct operand){t->data, t->ss, t->sh, t->sb, 0, false};
}

static struct operand matrix(const struct stack *x, char *data)
{
  int64_t head = x->sq * x->ld, hq = x->plan->p.hq;
  return (struct operand){data, x->ld, hq / x->plan->p.hkv * head, hq * head, head, false};
}

/* Where dK or dV is summed: in place when one product sums over the whole group. */
static struct operand gradient(const struct stack *x, const struct attn_tensor *t, float *sum,
                               int64_t d)
{
  int64_t hkv = x->plan->p.hkv;
  if (x->plan->p.hq == hkv * x->fold)
    return key_side(t);
  return (struct operand){(char *)sum, d, x->sk * d, hkv * x->sk * d, 0, true};
}

/* ---- a stack of sequences -------------------------------------------------------------------- */

static struct naive_rows rows_of(const struct stack *x)
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

static int forward(const struct stack *x)
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

static int gradients(const struct stack *x)
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
static int empty_gradients(const struct stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  int rc = attn_naive_store(p->dtype, &x->dq, NULL, x->count, x->sq, p->hq, p->d, x->stream);
  if (!rc)
    rc = attn_naive_store(p->dtype, &x->dk, NULL, x->count, x->sk, p->hkv, p->d, x->stream);
  if (!rc)
    rc = attn_naive_store(p->dtype, &x->dv, NULL, x->count, x->sk, p->hkv, p->dv, x->stream);
  return rc;
}

static int compute(const struct stack *x)
{
  if (x->plan->p.op == ATTN_BWD)
    return x->sq && x->sk ? gradients(x) : empty_gradients(x);
  return x->sq ? forward(x) : ATTN_OK;
}

/* ---- strides -------------------------------------------------------------------------------- */

/* The tensor from row `row` on, sequences of `len` rows behind each other. */
static struct attn_tensor packed_at(const struct stack *x, struct attn_tensor t, int64_t row,
                                    int64_t len)
{
  if (x->plan->p.nruns && t.data) {
    t.data = (char *)t.data + row * t.ss * (int64_t)attn_dtype_size(x->plan->p.dtype);
    t.sb = len * t.ss;
  }
  return t;
}

/* One stride steps from the last head of a sequence to the first of the next. */
static bool joins(const struct attn_tensor *t, int64_t heads)
{
  return !t->data || t->sb == heads * t->sh;
}

/* One stride steps from the last row of a head to the first of the next. */
static bool folds(const struct attn_tensor *t, int64_t rows)
{
  return !t->data || t->sh == rows * t->ss;
}

static void arrange(struct stack *x)
{
  const struct attn_problem *p = &x->plan->p;
  bool bwd = p->op == ATTN_BWD;
  const struct attn_tensor none = {0};
  const struct attn_tensor *qs[] = {&x->q, &x->o, bwd ? &x->dout : &none, bwd ? &x->dq : &none};
  const struct attn_tensor *ks[] = {&x->k, &x->v, bwd ? &x->dk : &none, bwd ? &x->dv : &none};
  bool join = true, fold = true;
  for (int i = 0; i < 4; i++) {
    join = join && joins(qs[i], p->hq) && joins(ks[i], p->hkv);
    fold = fold && folds(qs[i], x->sq);
  }
  x->fold = fold ? p->hq / p->hkv : 1;
  x->rows = x->fold * x->sq;
  x->outer = join ? 1 : x->count;
  x->batch = p->hkv * (join ? x->count : 1);
}

static void place(struct stack *x, int64_t q0, int64_t k0, char *scratch, const struct attn_run *r)
{
  const struct attn_problem *p = &x->plan->p;
  const struct attn_args *a = x->args;
  bool ragged = p->nruns > 0;
  x->q = packed_at(x, a->q, q0, r->sq);
  x->o = packed_at(x, a->o, q0, r->sq);
  x->dout = packed_at(x, a->dout, q0, r->sq);
  x->dq = packed_at(x, a->dq, q0, r->sq);
  x->k = packed_at(x, a->k, k0, r->sk);
  x->v = packed_at(x, a->v, k0, r->sk);
  x->dk = packed_at(x, a->dk, k0, r->sk);
  x->dv = packed_at(x, a->dv, k0, r->sk);
  x->lse = a->lse + (ragged ? q0 : 0);
  x->lse_seq = ragged ? r->sq : p->hq * r->sq;
  x->lse_head = ragged ? attn_problem_total_q(p) : r->sq;
  x->ld = row_elements(p, r->sk);
  x->s = scratch;
  x->dp = scratch + matrix_bytes(p, r);
  x->dk_sum = (float *)(x->dp + matrix_bytes(p, r));
  x->dv_sum = (float *)((char *)x->dk_sum + sum_bytes(p, r, p->d));
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  const struct plan *pl = plan;
  struct attn_run r[ATTN_MAX_RUNS];
  char *scratch = (char *)args->workspace + CUBLAS_WORKSPACE;
  int64_t seq = 0, q0 = 0, k0 = 0;
  int n = runs_of(&pl->p, r), rc = ATTN_OK;
  if (args->workspace_bytes < workspace(&pl->p, &pl->dev))
    return ATTN_EINVAL;
  /* in this order: setting the stream puts cuBLAS's own workspace back */
  if (cublasSetStream(pl->blas, stream) ||
      cublasSetWorkspace(pl->blas, args->workspace, CUBLAS_WORKSPACE))
    return ATTN_EDEVICE;
  for (int i = 0; i < n && !rc; i++) {
    struct stack x = {.plan = pl,
                      .args = args,
                      .stream = stream,
                      .count = r[i].count,
                      .sq = r[i].sq,
                      .sk = r[i].sk,
                      .seq0 = seq};
    place(&x, q0, k0, scratch, &r[i]);
    arrange(&x);
    rc = compute(&x);
    scratch += run_bytes(&pl->p, &r[i]);
    seq += r[i].count;
    q0 += r[i].count * r[i].sq;
    k0 += r[i].count * r[i].sk;
  }
  return rc;
}

/* ---- descriptor ----------------------------------------------------------------------------- */

/* Creating a handle takes long, so each device's is kept until the process ends. */
static int handle_of(int device, cublasHandle_t *blas)
{
  static cublasHandle_t handles[MAX_DEVICES];
  if (device < 0 || device >= MAX_DEVICES)
    return ATTN_EINVAL;
  if (!handles[device] && cublasCreate(&handles[device]))
    return ATTN_EDEVICE;
  *blas = handles[device];
  return ATTN_OK;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct plan *pl = malloc(sizeof *pl);
  if (!pl)
    return ATTN_ENOMEM;
  pl->p = *p;
  pl->dev = *dev;
  int rc = handle_of(dev->index, &pl->blas);
  if (rc) {
    free(pl);
    return rc;
  }
  *plan = pl;
  return ATTN_OK;
}

static void finish(void *plan)
{
  free(plan);
}

/* Forward: S written, read, P written, read. Backward: S and dP written and read, P and dS written,
 * P read once, dS twice. */
static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  struct attn_run r[ATTN_MAX_RUNS];
  double matrix = 0;
  for (int i = 0, n = runs_of(p, r); i < n; i++)
    matrix += matrix_bytes(p, &r[i]);
  t->read_bytes = attn_problem_compulsory_read(p) + matrix * (p->op == ATTN_BWD ? 5 : 2);
  t->write_bytes = attn_problem_compulsory_write(p) + matrix * (p->op == ATTN_BWD ? 4 : 2);
}

const struct attn_impl attn_cuda_naive = {
    .abi = ATTN_ABI,
    .name = "cuda/naive",
    .device = ATTN_CUDA,
    .summary = "materialises S and P in HBM: cuBLAS products around a row softmax",
    .provenance = "attnbench; cuBLAS",
    .numerics = {.score = ATTN_ROUND_STORAGE,
                 .prob = ATTN_ROUND_STORAGE,
                 .normalize_first = true,
                 .accum_truncates = true},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
};
