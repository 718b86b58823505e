/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-gemm-kernel.h - the body of the CPU's product; compute-gemm.c includes it once for each
 * instruction set, with LANES floats to a vector and NAME() to tell the copies apart.
 *
 * GEMM_ROWS x GEMM_COLUMNS sums in registers, one pass over the inner dimension, so that each sum
 * adds its terms in order whatever rows are beside it.
 */

#define VECTORS (GEMM_COLUMNS / LANES)
typedef float NAME(vf) __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));

static inline __attribute__((always_inline)) void NAME(block)(float *y, int64_t ldy, const float *x,
                                                              const float *w, int rows,
                                                              int64_t columns, int64_t in, bool add)
{
  NAME(vf) sum[GEMM_ROWS][VECTORS];
  float out[GEMM_COLUMNS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
      sum[r][v] = (NAME(vf)){0};
  for (int64_t k = 0; k < in; k++) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++)
        sum[r][v] += x[r * in + k] * *(const NAME(vf) *)(w + k * GEMM_COLUMNS + v * LANES);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    memcpy(out, sum[r], sizeof out);
    for (int64_t c = 0; c < columns; c++)
      y[r * ldy + c] = add ? y[r * ldy + c] + out[c] : out[c];
  }
}

static void NAME(panel)(float *y, int64_t ldy, const float *x, const float *w, int64_t rows,
                        int64_t columns, int64_t in, bool add)
{
  for (; rows >= GEMM_ROWS; rows -= GEMM_ROWS, x += GEMM_ROWS * in, y += GEMM_ROWS * ldy)
    NAME(block)(y, ldy, x, w, GEMM_ROWS, columns, in, add);
  for (; rows >= 2; rows -= 2, x += 2 * in, y += 2 * ldy)
    NAME(block)(y, ldy, x, w, 2, columns, in, add);
  if (rows)
    NAME(block)(y, ldy, x, w, 1, columns, in, add);
}

#undef VECTORS
