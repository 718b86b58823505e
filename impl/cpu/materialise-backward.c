/* SPDX-License-Identifier: Apache-2.0
 *
 * materialise-backward.c - gradients by way of matrices in HBM: P and dP are written, dS takes the
 * place of dP, and the three products of backward read P and dS again.
 *
 * Each element of dQ, dK and dV is summed in the order of cpu/flash, tile by tile, so that the bits
 * are the same.
 */
#include "config.h"

#include <string.h>

#include "impl/cpu/materialise.h"

struct attn_footprint attn_materialised_backward_footprint_q(const struct attn_problem *p,
                                                             int64_t stream)
{
  int64_t wide = attn_round_up(attn_most(p->d, p->dv), 8);
  return (struct attn_footprint){2 * wide + 3 * stream, 3, stream * wide};
}

struct attn_footprint attn_materialised_backward_footprint_k(const struct attn_problem *p,
                                                             int64_t stream)
{
  int64_t dk = attn_round_up(p->d, 8), dv = attn_round_up(p->dv, 8);
  return (struct attn_footprint){0, dk + dv + stream, stream * attn_most(dk, dv)};
}

static void load_matrix(struct attn_core *core, const struct attn_matrices *x, float *matrix,
                        const struct attn_task *task, int64_t j, int64_t nj, int64_t i, int64_t ni,
                        float *tile, int64_t ld)
{
  attn_tile_load(core, tile, ld, ATTN_F32, attn_matrix_at(x->gradient.plan, matrix, task, j, i),
                 task->seq->sq, nj, ni);
}

static void store_matrix(struct attn_core *core, const struct attn_matrices *x, float *matrix,
                         const struct attn_task *task, int64_t j, int64_t nj, int64_t i, int64_t ni,
                         const float *tile, int64_t ld)
{
  attn_tile_store(core, tile, ld, ATTN_F32, attn_matrix_at(x->gradient.plan, matrix, task, j, i),
                  task->seq->sq, nj, ni);
}

/* ---- dS -------------------------------------------------------------------------------------- */

static int write_gradients(struct attn_core *core, int64_t index, void *ctx)
{
  const struct attn_matrices *x = ctx;
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_block *block = attn_block();
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, index, x->gradient.args);
  int64_t n = task.rows, row = task.row, ld = attn_lanes(n), stream = plan->q.stream, h = task.h;
  float *p = attn_tile_alloc(core, stream * ld), *dp = attn_tile_alloc(core, stream * ld);
  float *slope = x->slope ? attn_tile_alloc(core, stream * ld) : NULL;
  float *delta = attn_tile_alloc(core, attn_round_up(n, 8));
  if (!delta)
    return ATTN_ENOMEM;
  attn_tile_load(core, delta, attn_round_up(n, 8), ATTN_F32,
                 attn_delta_of(&x->gradient, &task) + row, n, 1, n);
  for (int64_t j = 0; j < task.seq->sk; j += stream) {
    int64_t nj = attn_least(stream, task.seq->sk - j);
    load_matrix(core, x, x->p, &task, j, nj, row, n, p, ld);
    load_matrix(core, x, x->dp, &task, j, nj, row, n, dp, ld);
    if (slope)
      load_matrix(core, x, x->slope, &task, j, nj, row, n, slope, ld);
    attn_drop(plan, &task, h, row, j, dp, ld, n, nj);
    block->gradient(p, dp, slope, ld, n, nj, delta);
    store_matrix(core, x, x->dp, &task, j, nj, row, n, dp, ld);
    if (plan->p.dropout_p > 0) {
      attn_drop(plan, &task, h, row, j, p, ld, n, nj);
      store_matrix(core, x, x->p, &task, j, nj, row, n, p, ld);
    }
  }
  return ATTN_OK;
}

/* ---- dK and dV ------------------------------------------------------------------------------- */

static bool visits(const struct attn_problem *p, bool skip, int64_t sq, int64_t sk, int64_t i,
                   int64_t ni, int64_t j, int64_t nj)
{
  struct attn_span span = attn_span_of(p, sq, sk, i, ni);
  return !skip || (span.lo < j + nj && span.hi > j);
}

/* shapes: dk (rows, d)  dv (rows, dv)  s (rows, stream)  q (stream, d|dv) */
struct tiles {
  int64_t ld, ldk, ldv;
  float *dk, *dv, *s, *q;
};

static int tiles_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                       struct tiles *t)
{
  rows = attn_round_up(rows, 8);
  t->ld = plan->k.stream;
  t->ldk = attn_round_up(plan->p.d, 8);
  t->ldv = attn_round_up(plan->p.dv, 8);
  t->dk = attn_tile_alloc(core, rows * t->ldk);
  t->dv = attn_tile_alloc(core, rows * t->ldv);
  t->s = attn_tile_alloc(core, rows * t->ld);
  t->q = attn_tile_alloc(core, t->ld * attn_most(t->ldk, t->ldv));
  return t->q ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* to (nj, width) += matrix (nj, ni) rows (ni, width) */
static void accumulate(struct attn_core *core, const struct attn_matrices *x, float *matrix,
                       const struct attn_task *task, const struct attn_tensor *rows, int64_t width,
                       struct tiles *t, int64_t j, int64_t nj, int64_t i, int64_t ni, float *to)
{
  const struct attn_plan *plan = x->gradient.plan;
  const float one = 1;
  int64_t ldw = attn_round_up(width, 8);
  load_matrix(core, x, matrix, task, j, nj, i, ni, t->s, t->ld);
  attn_view_load(core, attn_view_q(plan, rows, task, task->h), i, ni, width, t->q, ldw);
  attn_block()->product(nj, width, ni, (struct attn_operand){t->s, t->ld, 1}, t->q, ldw, to, ldw,
                        &one, false);
}

static void keys_tile(struct attn_core *core, const struct attn_matrices *x,
                      const struct attn_task *task, struct tiles *t, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_problem *p = &plan->p;
  const struct attn_args *args = x->gradient.args;
  int64_t sq = task->seq->sq, sk = task->seq->sk, rows = attn_round_up(nj, 8);
  memset(t->dk, 0, (size_t)(rows * t->ldk) * sizeof *t->dk);
  memset(t->dv, 0, (size_t)(rows * t->ldv) * sizeof *t->dv);
  for (int64_t i = 0; i < sq; i += plan->k.stream) {
    int64_t ni = attn_least(plan->k.stream, sq - i);
    if (!visits(p, x->skip, sq, sk, i, ni, j, nj))
      continue;
    accumulate(core, x, x->p, task, &args->dout, p->dv, t, j, nj, i, ni, t->dv);
    accumulate(core, x, x->dp, task, &args->q, p->d, t, j, nj, i, ni, t->dk);
  }
  attn_gradient_keys(core, &x->gradient, task, j, nj, t->dk, t->dv);
}

static int key_gradients(struct attn_core *core, int64_t index, void *ctx)
{
  const struct attn_matrices *x = ctx;
  const struct attn_plan *plan = x->gradient.plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_SPLIT, index, x->gradient.args);
  int64_t rows = attn_tile_rows(task.rows, plan->k.rows), end = task.row + task.rows;
  struct tiles t;
  if (tiles_alloc(core, plan, rows, &t))
    return ATTN_ENOMEM;
  for (int64_t j = task.row; j < end; j += rows)
    keys_tile(core, x, &task, &t, j, attn_least(rows, end - j));
  return ATTN_OK;
}

/* ---- dQ -------------------------------------------------------------------------------------- */

/* shapes: total, sum (rows, d)  ds (stream, ld)  k (stream, d) */
struct query_tiles {
  int64_t ld, ldk;
  float *total, *sum, *ds, *k;
};

/* Adds what keys j .. j + nj give. */
static void add_keys(struct attn_core *core, const struct attn_matrices *x,
                     const struct attn_task *task, struct query_tiles *t, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = x->gradient.plan;
  const float one = 1;
  int64_t d = plan->p.d, ni = task->rows, stream = plan->q.stream;
  struct attn_view keys = attn_view_k(plan, &x->gradient.args->k, task, task->h / plan->group);
  for (int64_t at = j; at < j + nj; at += stream) {
    int64_t n = attn_least(stream, j + nj - at);
    attn_view_load(core, keys, at, n, d, t->k, t->ldk);
    load_matrix(core, x, x->dp, task, at, n, task->row, ni, t->ds, t->ld);
    attn_block()->product(ni, d, n, (struct attn_operand){t->ds, 1, t->ld}, t->k, t->ldk, t->sum,
                          t->ldk, &one, false);
  }
}

/* Which tiles of queries a task has: as large as SRAM holds, or flash's where its order counts. */
static int query_grid(const struct attn_matrices *x)
{
  return x->skip ? ATTN_GRID_Q_STREAM : ATTN_GRID_Q;
}

/* Adds up one split. */
static void add_split(struct attn_core *core, const struct attn_matrices *x,
                      const struct attn_task *task, struct query_tiles *t, int64_t from,
                      int64_t end)
{
  const struct attn_plan *plan = x->gradient.plan;
  int64_t rows = attn_tile_rows(end - from, plan->k.rows);
  memset(t->sum, 0, (size_t)(attn_round_up(task->rows, 8) * t->ldk) * sizeof *t->sum);
  for (int64_t j = from; j < end; j += rows) {
    int64_t nj = attn_least(rows, end - j);
    if (visits(&plan->p, x->skip, task->seq->sq, task->seq->sk, task->row, task->rows, j, nj))
      add_keys(core, x, task, t, j, nj);
  }
  attn_block()->add(t->total, t->sum, t->ldk, task->rows, plan->p.d);
}

static int query_gradients(struct attn_core *core, int64_t index, void *ctx)
{
  const struct attn_matrices *x = ctx;
  const struct attn_plan *plan = x->gradient.plan;
  struct attn_task task = attn_task_find(core, plan, query_grid(x), index, x->gradient.args);
  int64_t rows = attn_round_up(task.rows, 8), ldk = attn_round_up(plan->p.d, 8);
  struct query_tiles t = {attn_lanes(rows), ldk, NULL, NULL, NULL, NULL};
  t.total = attn_tile_alloc(core, rows * ldk);
  t.sum = attn_tile_alloc(core, rows * ldk);
  t.ds = attn_tile_alloc(core, plan->q.stream * t.ld);
  t.k = attn_tile_alloc(core, plan->q.stream * ldk);
  if (!t.k)
    return ATTN_ENOMEM;
  memset(t.total, 0, (size_t)(rows * ldk) * sizeof *t.total);
  int64_t part = attn_grid_rows(&plan->grid[ATTN_GRID_SPLIT], task.seq), sk = task.seq->sk;
  for (int64_t j = 0; j < sk; j += part)
    add_split(core, x, &task, &t, j, attn_least(sk, j + part));
  attn_block()->scale(t.total, ldk, task.rows, plan->p.d, plan->scale);
  attn_view_store(core, attn_view_q(plan, &x->gradient.args->dq, &task, task.h), task.row,
                  task.rows, plan->p.d, t.total, ldk);
  return ATTN_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int matrix_count(const struct attn_problem *p)
{
  return p->softcap > 0 ? 3 : 2;
}

size_t attn_materialised_backward_workspace(const struct attn_problem *p)
{
  return (attn_gradient_floats(p, 0) + (size_t)(matrix_count(p) * attn_matrix_floats(p))) *
         sizeof(float);
}

int attn_materialised_backward(struct attn_plan *plan, const struct attn_args *args, bool skip,
                               struct attn_machine *m)
{
  struct attn_matrices x = {.gradient = {.plan = plan, .args = args}};
  int64_t floats = attn_matrix_floats(&plan->p);
  x.p = args->workspace;
  x.dp = x.p + floats;
  x.slope = plan->p.softcap > 0 ? x.dp + floats : NULL;
  attn_gradient_layout(&x.gradient, 0, x.p + matrix_count(&plan->p) * floats);
  int status = attn_gradient_begin(&x.gradient, m);
  if (!status)
    status = attn_write_scores(&x, m);
  if (!status)
    status = attn_write_value_products(&x, m);
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q), write_gradients, &x);
  x.skip = skip; /* matrices are written whole */
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_SPLIT), key_gradients, &x);
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, query_grid(&x)), query_gradients, &x);
  return status ? status : attn_gradient_end(&x.gradient, m);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void key_tile_traffic(const struct attn_problem *p, const struct attn_run *run,
                             int64_t stream, bool skip, int64_t j, int64_t nj,
                             struct attn_traffic *t)
{
  double wide = (double)(p->d + p->dv) * (double)attn_dtype_size(p->dtype);
  t->write_bytes += (double)nj * attn_gradient_key_bytes(p);
  for (int64_t i = 0; i < run->sq; i += stream) {
    int64_t ni = attn_least(stream, run->sq - i);
    if (visits(p, skip, run->sq, run->sk, i, ni, j, nj))
      t->read_bytes += (double)ni * (wide + 8 * (double)nj);
  }
}

static void keys_traffic(const struct attn_problem *p, const struct attn_run *run,
                         struct attn_tiling k, int64_t part, bool skip, struct attn_traffic *t)
{
  for (int64_t from = 0; from < run->sk; from += part) {
    int64_t end = attn_least(run->sk, from + part), rows = attn_tile_rows(end - from, k.rows);
    t->read_bytes += attn_task_bytes(p);
    for (int64_t j = from; j < end; j += rows)
      key_tile_traffic(p, run, k.stream, skip, j, attn_least(rows, end - j), t);
  }
}

/* Tiles of queries of at most max_i rows, tiles of keys of at most max_j. */
static void queries_traffic(const struct attn_problem *p, const struct attn_run *run, int64_t max_i,
                            int64_t max_j, int64_t part, bool skip, struct attn_traffic *t)
{
  double row = (double)p->d * (double)attn_dtype_size(p->dtype);
  int64_t rows = attn_tile_rows(run->sq, max_i);
  for (int64_t i = 0; i < run->sq; i += rows) {
    int64_t ni = attn_least(rows, run->sq - i);
    t->read_bytes += attn_task_bytes(p);
    for (int64_t from = 0; from < run->sk; from += part) {
      int64_t end = attn_least(run->sk, from + part), keys = attn_tile_rows(end - from, max_j);
      for (int64_t j = from; j < end; j += keys) {
        int64_t nj = attn_least(keys, end - j);
        if (visits(p, skip, run->sq, run->sk, i, ni, j, nj))
          t->read_bytes += (double)nj * (row + 4 * (double)ni);
      }
    }
  }
  t->write_bytes += (double)run->sq * row;
}

void attn_materialised_backward_traffic(const struct attn_problem *p, struct attn_tiling q,
                                        struct attn_tiling k, int64_t splits, bool skip,
                                        struct attn_traffic *t)
{
  struct attn_grid grid = {.keys = true, .parts = splits};
  double slope = p->softcap > 0, dropout = p->dropout_p > 0;
  *t = (struct attn_traffic){0, 0};
  attn_gradient_traffic(p, 0, k.stream, t);
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    double matrix = 4 * (double)run.sq * (double)run.sk;
    double tasks = (double)attn_tiles(run.sq, q.rows) * attn_task_bytes(p);
    struct attn_traffic head = {(double)run.sq * 8 + (2 + slope) * matrix + tasks,
                                (1 + slope + dropout) * matrix};
    attn_products_traffic(p, &run, q, false, p->d, &head);
    attn_products_traffic(p, &run, q, false, p->dv, &head);
    int64_t part = attn_grid_rows(&grid, &(struct attn_extent){.sk = run.sk});
    keys_traffic(p, &run, k, part, skip, &head);
    queries_traffic(p, &run, skip ? k.stream : q.rows, k.rows, part, skip, &head);
    attn_traffic_add(t, &head, run.count * p->hq);
  }
}
