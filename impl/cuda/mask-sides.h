/* SPDX-License-Identifier: Apache-2.0
 *
 * mask-sides.h - how far a mask lets a query see, as kernels are told.
 */
#ifndef IMPL_CUDA_MASK_SIDES_H
#define IMPL_CUDA_MASK_SIDES_H

#include "impl/attn.h"

/* Keys to the left and to the right of a query's own place that it sees. */
struct mask_sides {
  int32_t left, right;
};

static inline int32_t mask_side(int64_t n, int32_t limit)
{
  return n < 0 || n > limit ? limit : (int32_t)n;
}

/* limit: as many as there are. */
static inline struct mask_sides mask_sides_of(const struct attn_problem *p, int32_t limit)
{
  switch (p->mask) {
  case ATTN_MASK_CAUSAL:
  case ATTN_MASK_CAUSAL_TOPLEFT: return (struct mask_sides){limit, 0};
  case ATTN_MASK_WINDOW:
    return (struct mask_sides){mask_side(p->window_left, limit), mask_side(p->window_right, limit)};
  default: return (struct mask_sides){limit, limit};
  }
}

#endif
