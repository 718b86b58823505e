/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-backward.c - cpu/flash, gradients: P is recomputed tile by tile from Q, K and LSE.
 *
 * A tile of keys and values stays in SRAM with the accumulators of dK and dV while queries and dO
 * stream past, once; dQ is summed in fp32 in HBM, by one task at a time and in order of the keys,
 * so that the bits are the same in every run.  Workspace is linear: D, and the dQ sums.
 */
#include "config.h"

#include <string.h>

#include "impl/cpu/flash.h"
#include "impl/cpu/gradient.h"

/* shapes: k, dk (rows, d)  v, dv (rows, dv)  p, dp, g (rows, stream)  q (stream, d)  dout (stream,
 * dv)  qt (d, stream)  doutt (dv, stream)  the rest (stream) */
struct tiles {
  int64_t ld, ldk, ldv;
  float *k, *v, *dk, *dv, *p, *dp, *g, *q, *dout, *qt, *doutt, *lse, *delta;
  attn_sram_int *lo, *hi;
};

struct attn_footprint attn_flash_backward_footprint(const struct attn_problem *p, int64_t stream)
{
  int64_t wide = attn_round_up(p->d, 8) + attn_round_up(p->dv, 8);
  int64_t squares = p->softcap > 0 ? 3 : 2;
  return (struct attn_footprint){0, 2 * wide + squares * stream,
                                 stream * (wide + p->d + p->dv + 4)};
}

struct attn_tiling attn_flash_tiling_k(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op != ATTN_BWD)
    return (struct attn_tiling){0, 0, 0};
  return attn_tile(p, dev->sram_bytes, p->sk, attn_flash_backward_footprint);
}

static int tiles_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                       struct tiles *t)
{
  const struct attn_problem *p = &plan->p;
  int64_t stream = plan->k.stream;
  t->ld = stream;
  t->ldk = attn_round_up(p->d, 8);
  t->ldv = attn_round_up(p->dv, 8);
  rows = attn_round_up(rows, 8);
  t->k = attn_tile_alloc(core, rows * t->ldk);
  t->v = attn_tile_alloc(core, rows * t->ldv);
  t->dk = attn_tile_alloc(core, rows * t->ldk);
  t->dv = attn_tile_alloc(core, rows * t->ldv);
  t->p = attn_tile_alloc(core, rows * stream);
  t->dp = attn_tile_alloc(core, rows * stream);
  t->g = p->softcap > 0 ? attn_tile_alloc(core, rows * stream) : NULL;
  t->q = attn_tile_alloc(core, stream * t->ldk);
  t->dout = attn_tile_alloc(core, stream * t->ldv);
  t->qt = attn_tile_alloc(core, p->d * stream);
  t->doutt = attn_tile_alloc(core, p->dv * stream);
  t->lse = attn_tile_alloc(core, stream);
  t->delta = attn_tile_alloc(core, stream);
  t->lo = (attn_sram_int *)attn_tile_alloc(core, stream);
  t->hi = (attn_sram_int *)attn_tile_alloc(core, stream);
  return t->hi ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* Queries i .. i + ni and what goes with them. */
static void load_queries(struct attn_core *core, const struct attn_gradient *g,
                         const struct attn_task *task, struct tiles *t, int64_t i, int64_t ni)
{
  const struct attn_plan *plan = g->plan;
  const struct attn_problem *p = &plan->p;
  const struct attn_block *block = attn_block();
  attn_view_load(core, attn_view_q(plan, &g->args->q, task, task->h), i, ni, p->d, t->q, t->ldk);
  block->transpose(t->q, t->ldk, ni, p->d, t->qt, t->ld);
  attn_view_load(core, attn_view_q(plan, &g->args->dout, task, task->h), i, ni, p->dv, t->dout,
                 t->ldv);
  block->transpose(t->dout, t->ldv, ni, p->dv, t->doutt, t->ld);
  attn_tile_load(core, t->lse, t->ld, ATTN_F32, attn_lse_of(plan, g->args, task, task->h) + i, ni,
                 1, ni);
  attn_tile_load(core, t->delta, t->ld, ATTN_F32, attn_delta_of(g, task) + i, ni, 1, ni);
  attn_visible_lanes(p, task->seq->sq, task->seq->sk, i, ni, t->lo, t->hi);
}

/* P and dS of queries i .. i + ni and keys j .. j + nj: t->p and t->dp. */
static void gradient_tile(const struct attn_gradient *g, const struct attn_task *task,
                          struct tiles *t, struct attn_span span, int64_t i, int64_t ni, int64_t j,
                          int64_t nj)
{
  const struct attn_plan *plan = g->plan;
  const struct attn_block *block = attn_block();
  int64_t h = task->h;
  block->product(nj, ni, plan->p.d, (struct attn_operand){t->k, t->ldk, 1}, t->qt, t->ld, t->p,
                 t->ld, NULL, false);
  struct attn_score how = attn_score_of(plan, task, h, i, j, nj, span, t->lo, t->hi);
  block->score(t->p, t->ld, ni, nj, &how, t->g);
  block->exponential(t->p, t->ld, ni, nj, t->lse);
  block->product(nj, ni, plan->p.dv, (struct attn_operand){t->v, t->ldv, 1}, t->doutt, t->ld, t->dp,
                 t->ld, NULL, false);
  attn_drop(plan, task, h, i, j, t->dp, t->ld, ni, nj);
  block->gradient(t->p, t->dp, t->g, t->ld, ni, nj, t->delta);
  attn_drop(plan, task, h, i, j, t->p, t->ld, ni, nj);
}

/* Keys j .. j + nj meet queries i .. i + ni. */
static void step(struct attn_core *core, const struct attn_gradient *g,
                 const struct attn_task *task, struct tiles *t, struct attn_span span, int64_t i,
                 int64_t ni, int64_t j, int64_t nj)
{
  const struct attn_block *block = attn_block();
  const float one = 1;
  int64_t d = g->plan->p.d, dv = g->plan->p.dv;
  load_queries(core, g, task, t, i, ni);
  gradient_tile(g, task, t, span, i, ni, j, nj);
  block->product(nj, dv, ni, (struct attn_operand){t->p, t->ld, 1}, t->dout, t->ldv, t->dv, t->ldv,
                 &one, false);
  block->product(nj, d, ni, (struct attn_operand){t->dp, t->ld, 1}, t->q, t->ldk, t->dk, t->ldk,
                 &one, false);
  struct attn_view sum = attn_dq_sum_of(g, task, task->tile);
  attn_view_load(core, sum, i, ni, d, t->q, t->ldk);
  block->product(ni, d, nj, (struct attn_operand){t->dp, 1, t->ld}, t->k, t->ldk, t->q, t->ldk,
                 &one, false);
  attn_view_store(core, sum, i, ni, d, t->q, t->ldk);
}

static void keys_tile(struct attn_core *core, const struct attn_gradient *g,
                      const struct attn_task *task, struct tiles *t, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = g->plan;
  int64_t sq = task->seq->sq, sk = task->seq->sk, stream = plan->k.stream,
          hkv = task->h / plan->group;
  attn_view_load(core, attn_view_k(plan, &g->args->k, task, hkv), j, nj, plan->p.d, t->k, t->ldk);
  attn_view_load(core, attn_view_k(plan, &g->args->v, task, hkv), j, nj, plan->p.dv, t->v, t->ldv);
  memset(t->dk, 0, (size_t)(attn_round_up(nj, 8) * t->ldk) * sizeof *t->dk);
  memset(t->dv, 0, (size_t)(attn_round_up(nj, 8) * t->ldv) * sizeof *t->dv);
  for (int64_t i = 0; i < sq; i += stream) {
    int64_t ni = attn_least(stream, sq - i);
    struct attn_span span = attn_span_of(&plan->p, sq, sk, i, ni);
    if (span.lo < j + nj && span.hi > j)
      step(core, g, task, t, span, i, ni, j, nj);
  }
  attn_gradient_keys(core, g, task, j, nj, t->dk, t->dv);
}

static int backward(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_gradient *g = ctx;
  struct attn_task task = attn_task_find(core, g->plan, ATTN_GRID_SPLIT, i, g->args);
  int64_t rows = attn_tile_rows(task.rows, g->plan->k.rows), end = task.row + task.rows;
  struct tiles t;
  if (tiles_alloc(core, g->plan, rows, &t))
    return ATTN_ENOMEM;
  for (int64_t j = task.row; j < end; j += rows)
    keys_tile(core, g, &task, &t, j, attn_least(rows, end - j));
  return ATTN_OK;
}

size_t attn_flash_backward_workspace(const struct attn_problem *p)
{
  return attn_gradient_floats(p, attn_gradient_splits(p)) * sizeof(float);
}

int attn_flash_backward(struct attn_plan *plan, const struct attn_args *args,
                        struct attn_machine *m)
{
  struct attn_gradient g = {.plan = plan, .args = args};
  attn_gradient_layout(&g, attn_gradient_splits(&plan->p), args->workspace);
  int status = attn_gradient_begin(&g, m);
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_SPLIT), backward, &g);
  return status ? status : attn_gradient_end(&g, m);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A tile of keys of one head: the queries that see some of it stream past. */
static void tile_traffic(const struct attn_problem *p, const struct attn_run *run, int64_t stream,
                         int64_t j, int64_t nj, struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype), wide = (double)(p->d + p->dv) * size;
  t->read_bytes += (double)nj * wide;
  t->write_bytes += (double)nj * attn_gradient_key_bytes(p);
  for (int64_t i = 0; i < run->sq; i += stream) {
    int64_t ni = attn_least(stream, run->sq - i);
    struct attn_span span = attn_span_of(p, run->sq, run->sk, i, ni);
    if (span.lo >= j + nj || span.hi <= j)
      continue;
    t->read_bytes += (double)ni * (wide + 8 + 4 * (double)p->d);
    t->write_bytes += (double)ni * 4 * (double)p->d;
  }
}

void attn_flash_backward_traffic(const struct attn_problem *p, const struct attn_device *dev,
                                 struct attn_traffic *t)
{
  struct attn_tiling k = attn_flash_tiling_k(p, dev);
  struct attn_grid grid = {.keys = true, .parts = attn_gradient_splits(p)};
  *t = (struct attn_traffic){0, 0};
  attn_gradient_traffic(p, grid.parts, k.stream, t);
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    int64_t part = attn_grid_rows(&grid, &(struct attn_extent){.sk = run.sk});
    for (int64_t from = 0; from < run.sk; from += part) {
      int64_t end = attn_least(run.sk, from + part), rows = attn_tile_rows(end - from, k.rows);
      head.read_bytes += attn_task_bytes(p);
      for (int64_t j = from; j < end; j += rows)
        tile_traffic(p, &run, k.stream, j, attn_least(rows, end - j), &head);
    }
    attn_traffic_add(t, &head, run.count * p->hq);
  }
}
