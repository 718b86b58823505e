/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90.h - what the host half (flash-sm90.c, -variants.c, -plan.c, -launch.c), the schedule
 * of ragged batches and the kernels (flash-sm90-*.cu) share.
 */
#ifndef IMPL_CUDA_FLASH_SM90_H
#define IMPL_CUDA_FLASH_SM90_H

#include <cuda_runtime_api.h>

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Head of the workspace: the claim counter, the number of items, whether rows were lost.  The items
 * follow. */
#define SM90_WORKSPACE_HEAD 256

/* Beyond any length, and far enough from 2^31 that a length can be added. */
#define SM90_UNLIMITED (1 << 29)

/* A row block of a ragged batch: sequence, first row. */
struct sm90_item {
  int32_t seq, m0;
};

/* Everything a kernel needs besides its three tensor maps.  Lengths are in rows. */
struct sm90_params {
  void *o;
  const void *q, *k;
  float *lse;
  int64_t o_sb, o_ss, o_sh, lse_sb, lse_sh; /* elements */
  int64_t q_sb, q_ss, q_sh, k_sb, k_ss, k_sh;
  const int32_t *cu_q, *cu_k; /* ragged: b + 1 offsets; NULL: uniform */
  /* pages: the table, tokens in the cache of each sequence */
  const int32_t *block_table, *seqlens_k;
  int64_t table_stride;
  int32_t page, box;   /* tokens of a page; rows that TMA loads at once, of one page */
  uint32_t page_magic; /* key / page = (key >> 3) * page_magic >> page_shift */
  int32_t page_shift;
  int32_t feeders; /* warps that load boxes of K, and of V, a power of two */
  int32_t *lost;   /* becomes token if a row needs the careful kernel; NULL: none will follow */
  int32_t token;
  int32_t *counter; /* how many tiles beyond the grid were claimed; NULL: strided statically */
  int32_t *items;   /* ragged: how many row blocks; NULL: uniform */
  struct sm90_item *item; /* ragged: they, longest first */
  int32_t b, hq, group;   /* group: query heads on one K/V head */
  int32_t sq, sk, d, dv;  /* ragged: the longest sequence's */
  int32_t blocks;         /* uniform: row blocks of a sequence */
  int32_t section;     /* heads whose tiles are scheduled together, so that their K, V stay in L2 */
  int32_t topleft;     /* query i sits at key i, not at key i + sk - sq */
  int32_t left, right; /* keys visible before and after that */
  float c;             /* scale * log2(e); 1 if options make the scores */
  /* options */
  float cap, cap_scale; /* score = cap tanh(cap_scale q.k), in log2 units; or cap_scale q.k */
  float keep_scale;     /* of the weights that dropout keeps */
  uint32_t drop_threshold;
  uint64_t drop_seed;
  int32_t alibi;
};

/* One compiled variant. */
struct sm90_kernel {
  const char *name;
  const void *func;    /* of three CUtensorMap and one struct sm90_params */
  const void *careful; /* a kernel of the same shape that runs next, in case rows were lost; NULL */
  enum attn_dtype dtype;
  bool score, drop; /* with softcap and ALiBi; with dropout */
  bool paged;
  bool full;  /* for problems without a mask */
  bool few;   /* for problems whose row blocks run all at once, or in two turns under a mask */
  bool many;  /* for problems with eight times as many row blocks as run at once, or more */
  int d, dv;  /* the widest heads it takes */
  int km, kn; /* tile: query rows, keys */
  int threads, smem;
  int ctas;                 /* of an SM at a time */
  int stages;               /* tiles of K and V in flight */
  int step_smem, tile_smem; /* bytes of shared memory read and written for a step, a row block */
  int most_sk;              /* keys up to which it is the fastest, twice under a mask; 0: any */
  int least;                /* queries and keys from which on it is the fastest */
};

struct sm90_plan {
  const struct sm90_kernel *kernel;
  struct sm90_params params;
  enum attn_dtype dtype;
  int64_t d, hkv, total_q, total_k; /* ragged: rows of the packed tensors */
  int grid;
  int32_t token; /* of the last launch */
  bool ragged, dynamic;
};

/* Rows with func == NULL end a table; the first that fits is taken, unless another is wanted. */
extern const struct sm90_kernel attn_flash_sm90_d64[], attn_flash_sm90_d128[],
    attn_flash_sm90_d256[], attn_flash_sm90_d64_options[], attn_flash_sm90_d128_options[],
    attn_flash_sm90_d256_options[], attn_flash_sm90_d64_paged[], attn_flash_sm90_d128_paged[],
    attn_flash_sm90_d256_paged[];

/* The descriptor's name. */
#define SM90_NAME "cuda/flash-sm90"

/* The variant that a problem of forward gets; NULL if none takes it. */
const struct sm90_kernel *attn_flash_sm90_choose(const struct attn_problem *p,
                                                 const struct attn_device *dev);
/* As in struct attn_impl; of backward, too. */
int attn_flash_sm90_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                            struct attn_variant *v);

/* Fills what depends on the problem and the variant; false if the tiles exceed 32 bits. */
bool attn_flash_sm90_plan(const struct attn_problem *p, const struct attn_device *dev,
                          const struct sm90_kernel *k, struct sm90_plan *plan);
/* Row blocks of all heads. */
int64_t attn_flash_sm90_tiles(const struct attn_problem *p, const struct sm90_kernel *k);
size_t attn_flash_sm90_workspace(const struct attn_problem *p, const struct sm90_kernel *k);
int attn_flash_sm90_launch(struct sm90_plan *plan, const struct attn_args *args,
                           cudaStream_t stream);

/* Lists the row blocks of a ragged batch, longest first, and zeroes the counter. */
int attn_flash_sm90_schedule(const struct sm90_params *p, int km, int kn, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
