/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.h - the implementations on the two-level-memory machine, for the table.
 */
#ifndef IMPL_CPU_CPU_H
#define IMPL_CPU_CPU_H

#include "impl/attn.h"

extern const struct attn_impl attn_cpu_naive;
extern const struct attn_impl attn_cpu_flash;
extern const struct attn_impl attn_cpu_flash_materialised;
extern const struct attn_impl attn_cpu_split_decode;
extern const struct attn_impl attn_cpu_cascade;
extern const struct attn_impl attn_cpu_rope;
extern const struct attn_impl attn_cpu_rope_fp32;

#endif
