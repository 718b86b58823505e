/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h - the two-level-memory machine: the I/O model of Aggarwal and Vitter as running code.
 *
 * HBM is the host's memory and unbounded; each core has a private SRAM of M bytes, in which every
 * tile lives that is computed on, in fp32.  Tiles move by counted loads and stores, and every byte
 * is counted in the size it has in HBM.  A tile set larger than M is refused.  On one machine only
 * one thread may start work at a time.
 *
 * The harness creates and reads machines; implementations use the inline calls below, which go
 * through the machine itself, so that a plugin needs nothing but headers.
 */
#ifndef IMPL_CPU_MACHINE_H
#define IMPL_CPU_MACHINE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_SRAM_DEFAULT ((size_t)227 * 1024) /* one Hopper SM's shared memory */

/* ncores worker threads (the caller is one of them), each with sram_bytes; 0: the default M, or all
 * online processors. NULL when memory or threads are exhausted. Threads do not survive fork. */
struct attn_machine *attn_machine_create(size_t sram_bytes, int ncores);
void attn_machine_destroy(struct attn_machine *m);

/* From now on *beats grows with every body that begins: what is long but goes on can be told from
 * what hangs. NULL: nobody looks. */
void attn_machine_watch(struct attn_machine *m, volatile uint64_t *beats);

/* Zeroes the counters. */
void attn_machine_reset(struct attn_machine *m);
/* Bytes moved since the last reset, all cores together, and the largest SRAM use of any core. Any
 * pointer may be NULL. */
void attn_machine_totals(const struct attn_machine *m, uint64_t *read, uint64_t *write,
                         size_t *sram_peak);

/* ---- for implementations, inside a body ------------------------------------------------------ */

static inline float *attn_tile_alloc(struct attn_core *core, int64_t floats)
{
  return core->machine->alloc(core, (size_t)floats);
}

static inline void attn_tile_load(struct attn_core *core, float *tile, int64_t ld,
                                  enum attn_dtype t, const void *hbm, int64_t stride, int64_t rows,
                                  int64_t cols)
{
  core->machine->load(core, tile, ld, t, hbm, stride, rows, cols);
}

static inline void attn_tile_store(struct attn_core *core, const float *tile, int64_t ld,
                                   enum attn_dtype t, void *hbm, int64_t stride, int64_t rows,
                                   int64_t cols)
{
  core->machine->store(core, tile, ld, t, hbm, stride, rows, cols);
}

/* One 32-bit index from HBM, counted. */
static inline int32_t attn_index_load(struct attn_core *core, const int32_t *hbm)
{
  core->hbm_read_bytes += sizeof *hbm;
  return *hbm;
}

#ifdef __cplusplus
}
#endif
#endif
