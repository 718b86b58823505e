/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm80.h - the portable flash backward: what cuda/flash-sm80 calls for op=bwd, and what
 * the host half (flash-bwd-sm80.c) and the kernels (flash-bwd-sm80-*.cu) share.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM80_H
#define IMPL_CUDA_FLASH_BWD_SM80_H

#include "impl/cuda/sm80-forward/flash-sm80.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A padded row is one of the workspace: every head of every sequence begins at a multiple of the
 * query tile. */
struct flash_bwd_sm80_args {
  struct flash_sm80_args f; /* as forward's, runs of query tiles */
  struct attn_tensor dout, dq, dk, dv;
  float *acc;                /* padded rows x padded head dim: dQ / scale, in fragment order */
  float *lse2, *dsum;        /* padded rows: log2(e) LSE, +inf where nothing is seen; dO.O */
  int32_t *turns;            /* deterministic: of each query tile, contributions so far; or NULL */
  int32_t *ticket;           /* deterministic: key tiles that have begun */
  int64_t acc_seq, acc_head; /* padded rows from sequence to sequence (uniform), head to head */
  int32_t hkv, wave;         /* wave: key tiles that walk in rotation; 0: all start at the first */
  bool descending;           /* key tiles from the last to the first */
  struct flash_sm80_run runs[ATTN_MAX_RUNS]; /* of key tiles */
};

/* One compiled variant: three kernels of one argument, struct flash_bwd_sm80_args. */
struct flash_bwd_sm80_kernel {
  enum attn_dtype dtype;
  int d;      /* padded head dimension */
  int bm, bn; /* query and key rows of a tile */
  int stages; /* Q and dO tiles in flight */
  bool options;
  int threads;
  size_t smem;   /* of main */
  int step_smem; /* bytes of shared memory that a step of it reads and writes */
  const void *pre, *main, *post;
};

/* Rows with main == NULL end a table; the first that fits the device is taken, unless another is
 * wanted. */
extern const struct flash_bwd_sm80_kernel attn_flash_bwd_sm80_d64[], attn_flash_bwd_sm80_d128[],
    attn_flash_bwd_sm80_d256[];

struct flash_bwd_sm80_plan {
  const struct flash_bwd_sm80_kernel *kernel;
  int64_t q_tiles, k_tiles; /* blocks of pre and post, of main */
  int64_t rows;             /* padded, all heads */
  bool deterministic;
  struct flash_bwd_sm80_args args;
};

/* The variant that a problem gets; NULL if none takes it. */
const struct flash_bwd_sm80_kernel *attn_flash_bwd_sm80_choose(const struct attn_problem *p,
                                                               const struct attn_device *dev);
int attn_flash_bwd_sm80_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                                struct attn_variant *v);

/* As in struct attn_impl; plan is prepare without its allocation. */
const char *attn_flash_bwd_sm80_unsupported(const struct attn_problem *p,
                                            const struct attn_device *dev);
size_t attn_flash_bwd_sm80_workspace(const struct attn_problem *p, const struct attn_device *dev);
int attn_flash_bwd_sm80_plan(const struct attn_problem *p, const struct attn_device *dev,
                             struct flash_bwd_sm80_plan *plan);
/* The same for a given variant. */
int attn_flash_bwd_sm80_plan_of(const struct attn_problem *p, const struct attn_device *dev,
                                const struct flash_bwd_sm80_kernel *k,
                                struct flash_bwd_sm80_plan *plan);
int attn_flash_bwd_sm80_run(const struct flash_bwd_sm80_plan *plan, const struct attn_args *args,
                            void *stream);
void attn_flash_bwd_sm80_traffic(const struct attn_problem *p, const struct attn_device *dev,
                                 struct attn_traffic *t);

#ifdef __cplusplus
}
#endif
#endif
