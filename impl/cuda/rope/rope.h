/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.h - cuda/rope between its host side (rope.c) and its kernels (rope-kernels.cu).
 */
#ifndef IMPL_CUDA_ROPE_H
#define IMPL_CUDA_ROPE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROPE_THREADS 256
#define ROPE_PAIRS 1024 /* angles that a block keeps in shared memory */
#define ROPE_TOKENS 2   /* of a block at most: few, so that the last wave is full, too */
#define ROPE_FEW 128    /* frequencies that go with the launch */

struct rope_args {
  struct attn_tensor q, k_new, v_new, o, k, v;
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *seqlens_k, *block_table;
  int64_t table_stride;
  const uint64_t *turns; /* (tables, rotary / 2): frequencies as fractions of a turn; NULL: few */
  uint64_t few[ROPE_FEW];
  double attention; /* factor of cosine and sine */
  int32_t b, hq, hkv, sq, sk, d, dv, page, rotary;
  int32_t tokens; /* of a block */
  int32_t tiles;  /* blocks of the longest sequence */
  bool interleaved;
  int32_t tables;                 /* 1, or one a run of equal sequences */
  int32_t run_end[ATTN_MAX_RUNS]; /* sequences of the runs up to this one */
};

/* One compiled variant. */
struct rope_kernel {
  enum attn_dtype dtype;
  int vector;       /* elements that a thread moves at once */
  bool aligned;     /* to a vector: 16 bytes */
  const void *func; /* of one argument, struct rope_args */
};

/* Widest vectors first; ends with func == NULL. */
extern const struct rope_kernel attn_rope_kernels[];

#ifdef __cplusplus
}
#endif
#endif
