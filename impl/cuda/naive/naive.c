/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.c - cuda/naive, the materialising baseline: cuBLAS products (naive-compute.c) around the
 * row kernels of naive-rows.cu.  All heads' score matrices lie in HBM in the problem's type,
 * softmax in place:
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

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "impl/cuda/naive/naive-stack.h"

#define CUBLAS_WORKSPACE (32u << 20)
#define MAX_DEVICES 64

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

/* ---- strides -------------------------------------------------------------------------------- */

/* The tensor from row `row` on, sequences of `len` rows behind each other. */
static struct attn_tensor packed_at(const struct naive_stack *x, struct attn_tensor t, int64_t row,
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

static void arrange(struct naive_stack *x)
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

static void place(struct naive_stack *x, int64_t q0, int64_t k0, char *scratch,
                  const struct attn_run *r)
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
  const struct naive_plan *pl = plan;
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
    struct naive_stack x = {.plan = pl,
                            .args = args,
                            .stream = stream,
                            .count = r[i].count,
                            .sq = r[i].sq,
                            .sk = r[i].sk,
                            .seq0 = seq};
    place(&x, q0, k0, scratch, &r[i]);
    arrange(&x);
    rc = attn_naive_compute(&x);
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
  struct naive_plan *pl = malloc(sizeof *pl);
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
