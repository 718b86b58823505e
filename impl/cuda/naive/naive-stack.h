/* SPDX-License-Identifier: Apache-2.0
 *
 * naive-stack.h - a stack of sequences that cuda/naive computes at once: where naive.c has put it,
 * and naive-compute.c finds it.
 */
#ifndef IMPL_CUDA_NAIVE_STACK_H
#define IMPL_CUDA_NAIVE_STACK_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "impl/attn.h"

struct naive_plan {
  struct attn_problem p;
  struct attn_device dev;
  cublasHandle_t blas;
};

/* Sequences of equal lengths: the whole of a uniform batch, one run of a ragged one. */
struct naive_stack {
  const struct naive_plan *plan;
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

/* Enqueues forward or backward of a stack. */
int attn_naive_compute(const struct naive_stack *x);

#endif
