/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.h - what cuda/naive's host half (naive-compute.c: the matrix products) and its kernels
 * (naive-rows.cu: everything between the products) share.
 */
#ifndef IMPL_CUDA_NAIVE_H
#define IMPL_CUDA_NAIVE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stack of score matrices (count, hq, sq, sk), rows ld elements apart and 16-byte aligned, of
 * sequences of equal lengths. */
struct naive_rows {
  void *s;  /* in: scaled scores Q K^T; out: weights */
  void *dp; /* backward, in: dO V^T; out: dS */
  int64_t count, ld;
  int32_t hq, sq, sk, dv;
  int32_t seq0; /* number of the first sequence in the batch */
  float *lse;   /* of row 0 */
  int64_t lse_seq, lse_head;
  struct attn_tensor o, dout; /* backward */
  int64_t left, right;        /* query i sees keys i + diagonal - left ... i + diagonal + right */
  int64_t diagonal;
  float softcap;
  bool alibi;
  uint32_t drop_threshold; /* of 65536 */
  uint64_t drop_seed;
};

/* s becomes softmax(mask(s)), and lse is written. */
int attn_naive_softmax(enum attn_dtype t, const struct naive_rows *a, void *stream);

/* s becomes the weights that lse implies, dp becomes dS. */
int attn_naive_gradient(enum attn_dtype t, const struct naive_rows *a, void *stream);

/* to (count, rows, heads, d) becomes `from`, dense fp32 (count, heads, rows, d), or 0 if NULL. */
int attn_naive_store(enum attn_dtype t, const struct attn_tensor *to, const float *from,
                     int64_t count, int64_t rows, int64_t heads, int64_t d, void *stream);

#ifdef __cplusplus
}
#endif
#endif
