/* SPDX-License-Identifier: Apache-2.0
 *
 * cudnn-sdpa.h - attention as cuDNN operation graphs.
 */
#ifndef IMPL_PEER_CUDNN_SDPA_H
#define IMPL_PEER_CUDNN_SDPA_H

#include "impl/peer/cudnn-graph.h"

enum attn_cudnn_diagonal { DIAGONAL_NONE, DIAGONAL_TOP_LEFT, DIAGONAL_BOTTOM_RIGHT };

/* What the graphs depend on. Strides are in elements, in the order b, h, s, d. */
struct attn_cudnn_spec {
  cudnnDataType_t io;
  bool backward, deterministic;
  bool ragged; /* packed sequences: ragged offsets, lengths, a padding mask; dense stats */
  int64_t b, hq, hkv, sq, sk, d, dv, total_q;
  float scale;
  enum attn_cudnn_diagonal diagonal; /* keys right of it, plus right, are masked */
  int64_t right;
  int64_t window; /* keys seen up to the diagonal; 0: all */
  int64_t stride_q[4], stride_k[4], stride_v[4], stride_o[4];
};

void attn_cudnn_spec(const struct attn_problem *p, struct attn_cudnn_spec *s);

void attn_cudnn_forward(struct attn_cg *g, const struct attn_cudnn_spec *s);
void attn_cudnn_backward(struct attn_cg *g, const struct attn_cudnn_spec *s);

#endif
