/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-ragged.h - what cuDNN wants to know of a packed batch, from cu_seqlens, on the device.
 */
#ifndef IMPL_PEER_CUDNN_RAGGED_H
#define IMPL_PEER_CUDNN_RAGGED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attn_cudnn_ragged {
  int32_t b;
  const int32_t *cu_seqlens_q, *cu_seqlens_k;         /* (b + 1) */
  int32_t *seqlen_q, *seqlen_k;                       /* (b) */
  int64_t *offset_q, *offset_k, *offset_v, *offset_o; /* (b + 1), in elements */
  int64_t row_q, row_k, row_v, row_o;                 /* elements of one token */
};

/* lse as cuDNN keeps it, (b, hq, sq) dense, and as we do, (hq, total_q). */
struct attn_cudnn_stats {
  int32_t b, hq, sq;
  int64_t total_q;
  const int32_t *cu_seqlens_q;
  float *dense, *packed;
};

/* Enqueue on stream; 0, or a cudaError_t. */
int attn_cudnn_ragged_index(const struct attn_cudnn_ragged *r, void *stream);
int attn_cudnn_stats_pack(const struct attn_cudnn_stats *s, void *stream);
int attn_cudnn_stats_unpack(const struct attn_cudnn_stats *s, void *stream);

#ifdef __cplusplus
}
#endif
#endif
