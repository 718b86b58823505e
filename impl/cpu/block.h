/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h - the arithmetic on tiles in SRAM that all implementations on the cpu device share.
 *
 * Score tiles are stored transposed, (key j, query i) with the queries in the vector lanes: row
 * maxima and sums of the softmax are then elementwise, and a tile feeds both products that follow
 * as an operand that is broadcast.  In every tile rows are ld floats apart, ld is a multiple of 8,
 * and rows and columns up to the next multiples of 4 and 8 exist and may be overwritten.
 *
 * Results depend on the values alone, not on tile sizes: each element of a product is one chain of
 * multiply-adds in order of k.  Two implementations that call these functions on the same values in
 * the same order get the same bits.
 */
#ifndef IMPL_CPU_BLOCK_H
#define IMPL_CPU_BLOCK_H

#include "impl/attn.h"

/* SRAM words that hold indices. */
typedef int32_t attn_sram_int __attribute__((may_alias));

/* A matrix operand that is read element by element: (i, k) is at data[i*row + k*col]. */
struct attn_operand {
  const float *data;
  int64_t row, col;
};

/* What turns products into scores: scale, softcap, ALiBi, mask, in this order. */
struct attn_score {
  float scale;
  float softcap;                /* 0: none */
  float slope;                  /* ALiBi, 0: none */
  int32_t i0, j0;               /* query and key of the tile's corner */
  int32_t shift;                /* seqlen_k - seqlen_q */
  const attn_sram_int *lo, *hi; /* visible keys of each query lane; NULL: all are */
};

struct attn_keep {
  uint32_t key, high; /* of the generator: key of the head, upper half of the seed */
  uint32_t threshold;
  float scale;
  int64_t i0, j0; /* of the tile's corner; i0 is a multiple of 8 */
};

struct attn_block {
  const char *name; /* instruction set */
  /* n elements of storage type t to fp32 and back, as in convert.h */
  void (*widen)(enum attn_dtype t, const void *from, float *to, int64_t n);
  void (*narrow)(enum attn_dtype t, const float *from, void *to, int64_t n);
  /* to[c][r] = from[r][c]; columns of to up to the next multiple of 8 become 0 */
  void (*transpose)(const float *from, int64_t ld_from, int64_t rows, int64_t cols, float *to,
                    int64_t ld_to);
  /* c (m, n) = base + a (m, k) b (k, n) with base 0 if keep is NULL, else keep[0] * c, or
   * keep[i] * c[i] if each_row */
  void (*product)(int64_t m, int64_t n, int64_t k, struct attn_operand a, const float *b,
                  int64_t ldb, float *c, int64_t ldc, const float *keep, bool each_row);
  /* s (nj, ni): products to scores, -inf where masked; g, unless NULL, gets the derivative of the
   * softcap */
  void (*score)(float *s, int64_t ld, int64_t ni, int64_t nj, const struct attn_score *how,
                float *g);
  /* one step of the online softmax: s becomes exp(s - m); m, l (ni) are updated; alpha (ni) is the
   * factor that earlier sums and outputs are to be rescaled by */
  void (*online)(float *s, int64_t ld, int64_t ni, int64_t nj, float *m, float *l, float *alpha);
  /* s = exp(s - shift), 0 where s is -inf */
  void (*exponential)(float *s, int64_t ld, int64_t ni, int64_t nj, const float *shift);
  /* s = s / l, 0 where l is 0 */
  void (*normalize)(float *s, int64_t ld, int64_t ni, int64_t nj, const float *l);
  /* s = s * scale where kept, 0 where dropped */
  void (*dropout)(float *s, int64_t ld, int64_t ni, int64_t nj, const struct attn_keep *keep);
  /* dp = p * (dp - delta) * g, 0 where p is 0; g may be NULL */
  void (*gradient)(const float *p, float *dp, const float *g, int64_t ld, int64_t ni, int64_t nj,
                   const float *delta);
  /* x (rows, cols) *= factor */
  void (*scale)(float *x, int64_t ld, int64_t rows, int64_t cols, float factor);
  /* x (rows, cols) += y */
  void (*add)(float *x, const float *y, int64_t ld, int64_t rows, int64_t cols);
  /* x[r] (cols) /= l[r], 0 where l[r] is 0 */
  void (*divide)(float *x, int64_t ld, int64_t rows, int64_t cols, const float *l);
  /* out[r] = sum over c of x[r][c] * y[r][c] */
  void (*dot)(const float *x, const float *y, int64_t ld, int64_t rows, int64_t cols, float *out);
};

/* The best one for this processor, and all that it can run, NULL-ended, for tests. */
const struct attn_block *attn_block(void);
const struct attn_block *const *attn_block_all(void);

#endif
