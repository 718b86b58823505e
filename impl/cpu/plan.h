/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - what the implementations on the cpu device derive from a problem before they run: tile
 * sizes that fill the SRAM, grids of tasks, and where the rows of a head lie in HBM.
 */
#ifndef IMPL_CPU_PLAN_H
#define IMPL_CPU_PLAN_H

#include "impl/cpu/block.h"
#include "impl/cpu/machine.h"

/* One sequence: lengths, and what all sequences before it have together. */
struct attn_extent {
  int64_t sq, sk;
  int64_t q_first, k_first; /* rows */
  int64_t pairs_first;      /* sq * sk */
  int64_t steps_first;      /* sq times the steps of a stream over sk */
};

/* SRAM that a tile of so many rows takes, in floats: per_lane for each lane of a transposed tile
 * row, per_row for each row, and fixed. */
struct attn_footprint {
  int64_t per_lane, per_row, fixed;
};

/* Rows of queries or keys cut into tiles, for each sequence and head. */
struct attn_grid {
  bool keys;      /* rows are keys */
  int64_t heads;  /* of the sequences */
  int64_t rows;   /* at most so many to a tile; 0: parts is given */
  int64_t parts;  /* so many tiles to a sequence */
  int64_t from;   /* rows before it are in no tile */
  int64_t *first; /* b+1: tiles of one head of all sequences before */
};

enum {
  ATTN_GRID_Q,        /* queries that stay */
  ATTN_GRID_SPLIT,    /* keys of a split: tiles that stay, one after the other */
  ATTN_GRID_Q_STREAM, /* queries that stream, each tile a task */
  ATTN_GRID_K_GROUP,  /* keys of a KV head, as few */
  ATTN_GRIDS
};

#define ATTN_STREAM_MAX 16 /* rows of the tile that streams past the one that stays */

struct attn_tiling {
  int64_t rows;   /* of the tile that stays: as many as SRAM holds */
  int64_t stream; /* of the tile that streams past it: few */
  int64_t from;   /* first row that streams */
};

struct attn_plan {
  struct attn_problem p;
  float scale;
  int64_t group; /* query heads per KV head */
  int64_t total_q, total_k;
  struct attn_extent *seq; /* b+1: the last has the totals */
  struct attn_tiling q, k; /* queries stay and keys stream, and the other way round */
  struct attn_grid grid[ATTN_GRIDS];
};

/* A task of a grid. */
struct attn_task {
  const struct attn_extent *seq;
  int64_t b, h;           /* sequence, head of the grid */
  int64_t row, rows;      /* of the tile, counted in the sequence */
  int64_t tile;           /* its number in the sequence */
  int64_t q0, k0;         /* first row of the sequence in packed tensors */
  const int32_t *table;   /* its row of the block table; paged only */
  float k_scale, v_scale; /* of attn_task_scales */
};

/* Rows of one head of one sequence: stride elements apart, or in the slots of pages. */
struct attn_view {
  char *data;
  int64_t stride; /* elements */
  enum attn_dtype dtype;
  int64_t page, page_stride; /* rows, elements; page 0: not paged */
  const int32_t *table;
  float factor; /* of every element; 0: none */
};

/* Keys that some, and that all, queries of a tile see. */
struct attn_span {
  int64_t lo, hi, all_lo, all_hi;
};

static inline int64_t attn_round_up(int64_t n, int64_t to)
{
  return (n + to - 1) / to * to;
}

static inline int64_t attn_least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t attn_most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* Floats between the rows of a transposed tile of n lanes: an odd multiple of 8, since rows a power
 * of two apart would share the sets of the host's cache. */
static inline int64_t attn_lanes(int64_t n)
{
  return attn_round_up(n, 8) | 8;
}

/* ---- tile sizes ------------------------------------------------------------------------------ */

/* The most rows, a multiple of 8 and not beyond len, that sram_bytes hold; 0: not even 8. */
int64_t attn_fit(size_t sram_bytes, const struct attn_footprint *f, int64_t len);

/* Chooses the stream and the rows for a footprint that depends on the stream. rows 0: no tile set
 * fits. */
typedef struct attn_footprint attn_footprint_of(const struct attn_problem *p, int64_t stream);
struct attn_tiling attn_tile(const struct attn_problem *p, size_t sram_bytes, int64_t len,
                             attn_footprint_of *of);

/* Rows of each tile when len rows are cut into tiles of at most max, and how many tiles that makes.
 */
int64_t attn_tile_rows(int64_t len, int64_t max);
int64_t attn_tiles(int64_t len, int64_t max);

/* The batch as runs of equal sequences; a uniform batch is one run. */
int attn_run_count(const struct attn_problem *p);
struct attn_run attn_run_of(const struct attn_problem *p, int r);
/* t += n * x */
void attn_traffic_add(struct attn_traffic *t, const struct attn_traffic *x, int64_t n);

/* Entries of the block table that loads of keys lo .. hi take, step keys at a time. */
double attn_table_entries(const struct attn_problem *p, int64_t lo, int64_t hi, int64_t step);

/* The line that says that a tile set does not fit. */
const char *attn_sram_too_small(const struct attn_problem *p, const struct attn_device *dev,
                                attn_footprint_of *of);

/* ---- plans ----------------------------------------------------------------------------------- */

/* k with 0 rows, or 0 splits: no pass keeps keys. NULL when memory is exhausted. */
struct attn_plan *attn_plan_create(const struct attn_problem *p, struct attn_tiling q,
                                   struct attn_tiling k, int64_t splits);
void attn_plan_destroy(void *plan);

int64_t attn_grid_tasks(const struct attn_plan *plan, int which);
/* Rows of the tiles of a sequence. */
int64_t attn_grid_rows(const struct attn_grid *g, const struct attn_extent *seq);

/* Finds a task; reads where its sequence starts from HBM if the batch is ragged. */
struct attn_task attn_task_find(struct attn_core *core, const struct attn_plan *plan, int which,
                                int64_t i, const struct attn_args *args);
/* Head h of sequence b, all of it and no tile. */
struct attn_task attn_task_of(struct attn_core *core, const struct attn_plan *plan, int64_t b,
                              int64_t h, const struct attn_args *args);
/* Bytes that attn_task_find reads, and attn_task_of. */
double attn_task_bytes(const struct attn_problem *p);
/* Reads what the keys and values of key head h of an e4m3 cache are multiplied by; and its bytes.
 */
void attn_task_scales(struct attn_core *core, const struct attn_plan *plan,
                      const struct attn_args *args, int64_t h, struct attn_task *task);
double attn_scale_bytes(const struct attn_problem *p);
/* Bytes of one key and its value in HBM. */
double attn_key_bytes(const struct attn_problem *p);

/* Rows of head h of a tensor of queries or of keys. */
struct attn_view attn_view_q(const struct attn_plan *plan, const struct attn_tensor *t,
                             const struct attn_task *task, int64_t h);
struct attn_view attn_view_k(const struct attn_plan *plan, const struct attn_tensor *t,
                             const struct attn_task *task, int64_t h);
/* Of the keys and the values themselves, which may be e4m3; the task then has its scales. */
struct attn_view attn_view_keys(const struct attn_plan *plan, const struct attn_args *args,
                                const struct attn_task *task, int64_t h);
struct attn_view attn_view_values(const struct attn_plan *plan, const struct attn_args *args,
                                  const struct attn_task *task, int64_t h);
float *attn_lse_of(const struct attn_plan *plan, const struct attn_args *args,
                   const struct attn_task *task, int64_t h);

/* From a paged view, one load and one look into the table for each page. */
void attn_view_load(struct attn_core *core, struct attn_view v, int64_t row, int64_t rows,
                    int64_t cols, float *tile, int64_t ld);
void attn_view_store(struct attn_core *core, struct attn_view v, int64_t row, int64_t rows,
                     int64_t cols, const float *tile, int64_t ld);
/* Rows of a view as columns of tile, in strips through a staging tile of strip rows. */
void attn_view_load_transposed(struct attn_core *core, struct attn_view v, int64_t row,
                               int64_t rows, int64_t cols, float *tile, int64_t ld, float *staging,
                               int64_t strip);

/* Ends a tile of queries: O /= l, LSE = m + ln l, and both go to HBM. o (rows, dv); m is used up.
 */
void attn_finish_rows(struct attn_core *core, const struct attn_plan *plan,
                      const struct attn_args *args, const struct attn_task *task, float *o,
                      int64_t ldv, float *m, const float *l);

/* ---- scores ---------------------------------------------------------------------------------- */

/* Of queries i .. i + n. */
struct attn_span attn_span_of(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i,
                              int64_t n);
/* lo[], hi[] of queries i .. i + n, and nothing visible for the lanes up to the next multiple of 8.
 */
void attn_visible_lanes(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i, int64_t n,
                        attn_sram_int *lo, attn_sram_int *hi);
/* What to do with the tile at query i, key j, which is nj keys high; lo and hi of its lanes. */
struct attn_score attn_score_of(const struct attn_plan *plan, const struct attn_task *task,
                                int64_t h, int64_t i, int64_t j, int64_t nj, struct attn_span span,
                                const attn_sram_int *lo, const attn_sram_int *hi);
/* Drops from the tile at query i, key j what dropout drops; nothing without dropout. */
void attn_drop(const struct attn_plan *plan, const struct attn_task *task, int64_t h, int64_t i,
               int64_t j, float *s, int64_t ld, int64_t ni, int64_t nj);

#endif
