/* SPDX-License-Identifier: Apache-2.0
 *
 * flash.h - what flash and its materialising twin have in common: tile sizes, so that both
 * reduce in the same order.
 */
#ifndef IMPL_CPU_FLASH_H
#define IMPL_CPU_FLASH_H

#include "impl/cpu/plan.h"

/* Forward: queries stay, keys stream. */
attn_footprint_of attn_flash_forward_footprint;
/* Backward: keys stay, queries stream. */
attn_footprint_of attn_flash_backward_footprint;

struct attn_tiling attn_flash_tiling_q(const struct attn_problem *p, const struct attn_device *dev);
struct attn_tiling attn_flash_tiling_k(const struct attn_problem *p, const struct attn_device *dev);

int attn_flash_backward(struct attn_plan *plan, const struct attn_args *args,
                        struct attn_machine *m);
size_t attn_flash_backward_workspace(const struct attn_problem *p);
void attn_flash_backward_traffic(const struct attn_problem *p, const struct attn_device *dev,
                                 struct attn_traffic *t);

#endif
