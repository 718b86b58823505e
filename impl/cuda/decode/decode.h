/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.h - what the host half (decode.c) and the kernels (decode-*.cu) of cuda/decode share.
 */
#ifndef IMPL_CUDA_DECODE_H
#define IMPL_CUDA_DECODE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lengths stay below this, so that row + offset never overflows 32 bits; also "unlimited". */
#define DECODE_LIMIT (1 << 29)
#define DECODE_MIN_TILE 64 /* keys of the smallest tile: the grain of the split */
#define DECODE_PIECE 16    /* keys of a unit that lie in one page, where pages are regular */
#define DECODE_TOLL 2      /* tiles that the beginning and the end of a head cost a block */
#define DECODE_GANG 8      /* heads side by side: 2 KB of bf16, as much as DRAM keeps open */
#define DECODE_QUERIES 16  /* of a sequence: speculative decoding */

/* The line of tiles in slices of `even`, the first `rest` of which have one more. The host sees to
 * it that 31 bits count the tiles. */
struct decode_cut {
  int32_t slices, even, rest;
};

struct decode_args {
  struct attn_tensor q, k, v, o;
  float *lse;
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *seqlens_k, *block_table;
  const float *k_scale, *v_scale; /* of an e4m3 cache */
  int64_t table_stride, total_q;
  int32_t b, sq, sk, hq, hkv, group, d, dv, page;
  struct decode_cut cut; /* where all sequences have sk keys, and tiles of each on the line; or 0 */
  int32_t each;
  uint32_t page_inverse; /* key / page is key * page_inverse >> page_shift */
  int32_t page_shift;
  int32_t toll;   /* tiles that the beginning and the end of a head count as: DECODE_TOLL or 0 */
  bool once;      /* no key is read again */
  int32_t gang;   /* neighbouring heads that as many blocks read side by side */
  int32_t skip;   /* keys at the start that another pass sees to */
  int32_t fold;   /* all queries are one sequence's, of so many each in the tensors; or 0 */
  int32_t folded; /* sequences then, and their lengths: cu_seqlens_q, or NULL, and seqlens_k */
  const int32_t *fold_q, *fold_k;
  float *prefix;       /* O (total_q, hq, dv), then LSE in log2 (total_q, hq); or NULL */
  bool stash;          /* results go there; else what lies there joins them */
  int32_t left, right; /* query i sees keys i + diagonal - left ... i + diagonal + right */
  bool bottom_right;   /* diagonal = seqlen_k - seqlen_q, else 0 */
  bool options;        /* softcap or ALiBi: the scores are made from raw ones first, scale is 1 */
  bool alibi;
  float scale_log2; /* softmax_scale times log2(e) */
  float raw_scale, softcap, inv_softcap;
  float threshold;  /* raw scores; the row maximum moves when it grew by more */
  float *partial;   /* O (blocks, 2, rows, dv), then LSE in log2 (blocks, 2, rows) */
  int32_t *arrived; /* (b, heads): parts of a head's result that are there; 0 between runs */
  int32_t heads;    /* of a sequence: KV heads times tiles of packed queries, at most */
};

/* What a variant may take for granted, so that its code is short: caches are cold when it starts.
 */
enum decode_form {
  DECODE_ANY,
  DECODE_EVEN,  /* a contiguous cache, equal lengths, neither softcap nor ALiBi, all keys */
  DECODE_PAGED, /* pages of whole pieces, neither softcap nor ALiBi, all keys */
};

/* One compiled variant. */
struct decode_kernel {
  enum attn_dtype dtype;
  enum attn_kv kv;
  int d;      /* padded head dimension */
  int rows;   /* packed query rows of a tile */
  int tile;   /* its keys */
  int blocks; /* that the registers let an SM hold */
  int threads;
  size_t smem;
  const void *func; /* of one argument, struct decode_args */
  enum decode_form form;
  bool wide; /* for many rows; of Hopper's own instructions */
};

/* Each ends with func == NULL. */
extern const struct decode_kernel attn_decode_d64[], attn_decode_d128[], attn_decode_d256[],
    attn_decode_e4m3[], attn_decode_sm90[];

/* ---- the host half, for cuda/cascade too (decode.c, decode-variants.c) ----------------------- */

enum decode_pass {
  DECODE_ALL,    /* of the keys */
  DECODE_PREFIX, /* the shared ones, for all queries as if they were one sequence's */
  DECODE_REST,   /* the others */
};

struct decode_plan {
  const struct decode_kernel *kernel;
  unsigned blocks;
  struct decode_args args;
};

/* Blocks of a variant that an SM holds. */
int64_t attn_decode_resident(const struct decode_kernel *k, const struct attn_device *dev);
/* Packed query rows of a KV head that are one sequence's to the kernel, at most. */
int64_t attn_decode_rows(const struct attn_problem *p, enum decode_pass pass);
/* What a pass gets; NULL if nothing takes the problem. */
const struct decode_kernel *attn_decode_choose(const struct attn_problem *p,
                                               const struct attn_device *dev,
                                               enum decode_pass pass);
/* As in struct attn_impl. */
int attn_decode_variant(const struct attn_problem *p, const struct attn_device *dev, int i,
                        struct attn_variant *v);
/* NULL, or why no kernel takes the problem. */
const char *attn_decode_unsupported(const struct attn_problem *p, const struct attn_device *dev);
size_t attn_decode_workspace(const struct attn_problem *p, const struct attn_device *dev,
                             enum decode_pass pass);
/* Of a plan that is all zeros; finish whatever it returns. */
int attn_decode_prepare(const struct attn_problem *p, const struct attn_device *dev,
                        enum decode_pass pass, struct decode_plan *q);
void attn_decode_finish(struct decode_plan *q);
/* prefix: of args->workspace, unused by a pass over all keys. */
int attn_decode_run(const struct decode_plan *q, const struct attn_args *args, float *prefix,
                    void *stream);
/* How often each key is read. */
int64_t attn_decode_reads(const struct attn_problem *p, const struct attn_device *dev,
                          enum decode_pass pass);

#ifdef __cplusplus
}
#endif
#endif
