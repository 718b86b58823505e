/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90.h - the Hopper backward: what the descriptor cuda/flash-sm90 calls for op=bwd, and
 * what the host half (flash-bwd-sm90.c) and the kernels (flash-bwd-sm90-*.cu) share.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_H
#define IMPL_CUDA_FLASH_BWD_SM90_H

#include <cuda_runtime_api.h>

#include "impl/attn.h"
#include "impl/cuda/sm90-backward/flash-bwd-sm90-schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Beyond any length, and far enough from 2^31 that a length can be added. */
#define BWD90_UNLIMITED (1 << 29)
/* Turn counters of a query block: one for each writer of a part of its dQ. */
#define BWD90_TURNS 8
/* A part of a query block's dQ, if the first who comes stores it. */
enum { BWD90_UNTOUCHED, BWD90_CLAIMED, BWD90_STORED };
/* States of a query block behind those: of the first of so many query blocks, how often key blocks
 * have added to them, each of their writers counted; how many of 8 parts of its dQ main has made.
 */
enum { BWD90_ADDED = 4, BWD90_MADE };
#define BWD90_COUNTED 8

/* Everything the kernels need besides tensor maps.  A padded row is one of the workspace: every
 * sequence begins at a multiple of the query block. */
struct bwd90_params {
  struct attn_tensor o, dout, dq, dk, dv;
  const float *lse;
  float *lse2;  /* padded rows: log2(e) LSE; +inf past the end and in empty rows */
  float *dsum;  /* padded rows: dO.O */
  float *dqacc; /* padded rows x D: dQ / scale, a query block in the accumulators' order */
  /* query blocks x BWD90_TURNS: in main, the states of which the next lines tell */
  int32_t *states;
  int32_t *turns;  /* deterministic: query blocks x BWD90_TURNS; else NULL */
  int32_t *firsts; /* else so many states of dqacc, BWD90_UNTOUCHED at first; or NULL */
  /* Else main zeroes dqacc, some heads before it is needed: how many parts of a K/V head are zero,
   * where the turns of its first query block would be; or NULL. */
  int32_t *zeroed;
  int32_t ahead;   /* so many K/V heads before; the first so many are zeroed by pre */
  int32_t *joined; /* 2 a shared key block: parts of a warpgroup that are there */
  float *shared;   /* parts - 1 a shared key block: their dV, dK */
  struct bwd90_schedule schedule;
  int32_t *next;              /* the units that have been claimed; NULL: every block has one */
  int32_t *queue;             /* the query blocks that main makes dQ of; NULL: post does */
  int64_t lse_sb, lse_sh;     /* elements */
  const int32_t *cu_q, *cu_k; /* ragged: b + 1 offsets; NULL: uniform */
  int32_t acc_sb, acc_sh;     /* padded rows from sequence to sequence, from head to head */
  int32_t b, hq, hkv, group;  /* group: query heads on one K/V head */
  int32_t sq, sk, d, dv_cols; /* ragged: the longest sequence's lengths */
  int32_t qblocks, blocks;    /* of the longest sequence: query blocks, key blocks */
  int32_t backwards;          /* key blocks from right to left */
  int32_t rotate;  /* key blocks that start at different query blocks; 0: all start at the first */
  int32_t topleft; /* query i sits at key i, not at key i + sk - sq */
  int32_t left, right; /* keys visible before and after that */
  float c, scale;      /* c = scale * log2(e) */
  /* options: scores are cap * tanh(cap_scale * x), or cap_scale * x if cap is 0, in log2 units */
  float cap, cap_scale;
  float keep_scale; /* of the weights that dropout keeps */
  uint32_t drop_threshold;
  uint64_t drop_seed;
  int32_t alibi;
  uint32_t zero; /* 0, which the compiler does not know */
};

/* What decides which of several variants is the fastest; a problem is of one of these kinds. */
enum {
  BWD90_ROTATED = 1, /* deterministic, no mask: key blocks start at different query blocks */
  BWD90_ORDERED = 2, /* deterministic otherwise */
  BWD90_SHORT = 4,   /* a query sees so few keys that smaller tiles pay */
  BWD90_FEW = 8,     /* more keys, but few */
  BWD90_MANY = 16,
  BWD90_EQUAL_FEW = 32, /* the same where every query sees every key */
  BWD90_EQUAL_MANY = 64,
  BWD90_UNMASKED = BWD90_EQUAL_FEW | BWD90_EQUAL_MANY,
  BWD90_ALL = 127,
};

/* One compiled variant: three kernels, launched one after another. */
struct bwd90_kernel {
  const char *name;
  int uses;               /* kinds of problem that it is chosen for */
  const void *pre, *post; /* of one struct bwd90_params; a block a query block and head */
  const void *main;       /* of four CUtensorMap (Q, K, V, dO) and one struct bwd90_params */
  enum attn_dtype dtype;
  int d;      /* the widest head it takes */
  int km, kn; /* tile: query rows, keys */
  int threads, smem;
  int stages, step_smem; /* tiles of Q and dO in flight; bytes of shared memory that a step of all
                          * passes, km x kn, reads and writes */
  const void *dq; /* NULL: main adds dQ up for post; else there is no post, and this computes dQ */
  int dq_rows, dq_smem; /* a block of it has so many query rows */
  bool score, drop;     /* with softcap and ALiBi; with dropout */
  bool ahead;           /* main zeroes what it adds to, except by turns */
  bool firsts;          /* the first to add to a part of dQ stores it, where keys are few */
  bool only;            /* for those uses alone */
  bool spread;          /* then key blocks start at different query blocks */
  bool claims;          /* main may be of fewer blocks than there are units of work */
  bool makes;           /* main makes dQ where there is no mask */
};

/* Counters that begin at 0: two a shared key block, those of the units of work and of the query
 * blocks that main makes dQ of. */
#define BWD90_COUNTERS (2 * BWD90_SHARED + 4)

/* Rows with main == NULL end a table; the first that fits and has this use is taken. */
extern const struct bwd90_kernel attn_flash_bwd_sm90_d64[], attn_flash_bwd_sm90_d128[],
    attn_flash_bwd_sm90_d256[], attn_flash_bwd_sm90_d256_twopass[],
    attn_flash_bwd_sm90_d64_options[], attn_flash_bwd_sm90_d128_options[],
    attn_flash_bwd_sm90_d256_options[];

struct bwd90_plan {
  const struct bwd90_kernel *kernel;
  struct bwd90_params params;
  int64_t grid;             /* blocks of main */
  int64_t total_q, total_k; /* rows of Q and K, all sequences */
  int64_t padded;           /* padded rows, all heads */
  bool ragged, turns, firsts, zeroes, makes;
};

/* Does a query see so few keys that the first to add to a part of dQ had better store it? */
bool attn_flash_bwd_sm90_few_keys(const struct attn_problem *p);

/* The kernel that a problem gets; NULL if none takes it. */
const struct bwd90_kernel *attn_flash_bwd_sm90_choose(const struct attn_problem *p,
                                                      const struct attn_device *dev);

int attn_flash_bwd_sm90_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                                struct attn_variant *v);

/* As in struct attn_impl; plan is prepare, without its allocation. */
const char *attn_flash_bwd_sm90_unsupported(const struct attn_problem *p,
                                            const struct attn_device *dev);
size_t attn_flash_bwd_sm90_workspace(const struct attn_problem *p, const struct attn_device *dev);
int attn_flash_bwd_sm90_plan(const struct attn_problem *p, const struct attn_device *dev,
                             const struct bwd90_kernel *k, struct bwd90_plan *plan);
int attn_flash_bwd_sm90_run(const struct bwd90_plan *plan, const struct attn_args *args,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
