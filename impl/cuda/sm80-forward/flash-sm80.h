/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm80.h - what the host half (flash-sm80.c) and the kernels (flash-sm80-*.cu) share: the
 * kernel's argument block and the tables of compiled tile variants.
 */
#ifndef IMPL_CUDA_FLASH_SM80_H
#define IMPL_CUDA_FLASH_SM80_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lengths stay below this, so that row + offset never overflows 32 bits; also "unlimited". */
#define FLASH_SM80_LIMIT (1 << 29)

/* Tiles of a run of equal sequences: numbers [end of the run before, tile_end), `tiles` a head.
 * Heads (of all sequences together) are taken section by section, and within a section the tiles of
 * one rank of all its heads come before those of the next; in forward the first rank is the last
 * query tile, under a causal mask the longest. */
struct flash_sm80_run {
  int32_t tile_end, seq0, tiles, heads, section;
};

struct flash_sm80_args {
  struct attn_tensor q, k, v, o;
  float *lse;
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *seqlens_k, *block_table;
  int64_t table_stride;
  int64_t total_q;
  int64_t k_step, v_step, k_tile, v_tile; /* bytes: rows that one thread steps over, a tile */
  int32_t sq, sk, hq, group, d, dv, page;
  int32_t left, right;     /* query i sees keys i + diagonal - left ... i + diagonal + right */
  bool bottom_right;       /* diagonal = seqlen_k - seqlen_q, else 0 */
  float scale, scale_log2; /* softmax_scale, and times log2(e) */
  /* raw_scale is softmax_scale; options: the scores are made from raw ones first, scale is 1 */
  float raw_scale, softcap, inv_softcap;
  bool alibi;
  uint32_t drop_threshold; /* of 65536 */
  float keep_scale;
  uint64_t drop_seed;
  float threshold; /* raw scores; the row maximum moves when it grew by more */
  struct flash_sm80_run runs[ATTN_MAX_RUNS];
};

/* One compiled variant. */
struct flash_sm80_kernel {
  enum attn_dtype dtype;
  int d;        /* padded head dimension */
  int bm, bn;   /* query and key rows of a tile */
  int stages;   /* K and V tiles in flight */
  int blocks;   /* that the registers let an SM hold */
  bool options; /* softcap, ALiBi, dropout */
  bool paged;
  int threads;
  size_t smem;
  const void *func; /* of one argument, struct flash_sm80_args */
};

/* Rows with func == NULL end a table; of the variants whose blocks all fit an SM's shared memory
 * the first is taken, unless another is wanted. */
extern const struct flash_sm80_kernel attn_flash_sm80_d64[], attn_flash_sm80_d128[],
    attn_flash_sm80_d256[];

/* The descriptor's name. */
#define SM80_NAME "cuda/flash-sm80"

/* The variant that a problem of forward gets; NULL if none takes it. */
const struct flash_sm80_kernel *attn_flash_sm80_choose(const struct attn_problem *p,
                                                       const struct attn_device *dev);
/* As in struct attn_impl; of backward, too. */
int attn_flash_sm80_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                            struct attn_variant *v);

/* Fills what depends on the problem and the variant, all but the tensors; returns the number of
 * blocks, or 0 if it exceeds a grid. */
int64_t attn_flash_sm80_plan(const struct attn_problem *p, const struct attn_device *dev,
                             const struct flash_sm80_kernel *k, struct flash_sm80_args *a);

/* Fills the tensors and enqueues. */
int attn_flash_sm80_launch(const struct flash_sm80_kernel *k, int64_t blocks,
                           struct flash_sm80_args *a, const struct attn_args *args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
