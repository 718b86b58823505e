/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-materialised.h - what the host half (flash-materialised.c) and the kernels
 * (flash-materialised-kernels.cu) of the materialising twin of cuda/flash-sm80 share.
 */
#ifndef IMPL_CUDA_FLASH_MATERIALISED_H
#define IMPL_CUDA_FLASH_MATERIALISED_H

#include "impl/cuda/sm80-forward/flash-sm80.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What lies in HBM between the kernels. All lengths are those of the longest sequence, rounded up
 * to whole tiles: rows of queries, keys, steps of key tiles.
 *   s float, p 16 bit (b, hq, rows, keys)   alpha (b, hq, rows, steps)   m (b, hq, rows)
 *   l (b, hq, rows, 4): the share of each of the four lanes that own a row */
struct flash_materialised_args {
  struct flash_sm80_args flash;
  float *s, *alpha, *m, *l;
  char *p;
  int64_t rows, keys, steps;
};

/* Compiled for one type, padded head dimension and kind of options, in the order of work. */
struct flash_materialised_kernel {
  struct flash_sm80_kernel scores; /* its tile and shared memory are those of outputs, too */
  const void *softmax, *outputs;
};

/* Ends with a row without func. */
extern const struct flash_materialised_kernel attn_flash_materialised_kernels[];

#ifdef __cplusplus
}
#endif
#endif
