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
#define DECODE_TOLL 2      /* tiles that the beginning and the end of a head cost a block */

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
  struct decode_cut cut; /* and tiles of each sequence on the line; 0: lengths are on the device */
  int32_t each;
  int32_t gang;        /* neighbouring heads that as many blocks read side by side */
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
};

/* Each ends with func == NULL. */
extern const struct decode_kernel attn_decode_d64[], attn_decode_d128[], attn_decode_d256[],
    attn_decode_e4m3[];

#ifdef __cplusplus
}
#endif
#endif
