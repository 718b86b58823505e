/* SPDX-License-Identifier: Apache-2.0
 *
 * gradient.c - the linear passes of backward.
 */
#include "config.h"

#include <string.h>

#include "impl/cpu/gradient.h"

static bool shares_keys(const struct attn_problem *p)
{
  return p->hq != p->hkv;
}

#define MIN_TASKS 16 /* with fewer sequences and heads, the keys of a sequence are split */
#define MIN_SPLIT_KEYS 128

int64_t attn_gradient_splits(const struct attn_problem *p)
{
  if (p->op != ATTN_BWD)
    return 0;
  int64_t wanted = (MIN_TASKS + p->b * p->hq - 1) / (p->b * p->hq);
  return attn_most(1, attn_least(wanted, p->sk / MIN_SPLIT_KEYS));
}

/* ---- workspace ------------------------------------------------------------------------------- */

#define ALIGN_FLOATS 256 /* each array starts 1024-byte aligned */

static int64_t delta_floats(const struct attn_problem *p)
{
  return attn_round_up(p->hq * attn_problem_total_q(p), ALIGN_FLOATS);
}

static int64_t dq_floats(const struct attn_problem *p, int64_t splits)
{
  return attn_round_up(splits * p->hq * attn_problem_total_q(p) * p->d, ALIGN_FLOATS);
}

static int64_t key_floats(const struct attn_problem *p, int64_t width)
{
  return shares_keys(p) ? attn_round_up(p->hq * attn_problem_total_k(p) * width, ALIGN_FLOATS) : 0;
}

size_t attn_gradient_floats(const struct attn_problem *p, int64_t splits)
{
  return (size_t)(delta_floats(p) + dq_floats(p, splits) + key_floats(p, p->d) +
                  key_floats(p, p->dv));
}

void attn_gradient_layout(struct attn_gradient *g, int64_t splits, float *at)
{
  const struct attn_problem *p = &g->plan->p;
  g->delta = at;
  at += delta_floats(p);
  g->dq_sum = splits ? at : NULL;
  at += dq_floats(p, splits);
  g->dk_sum = shares_keys(p) ? at : NULL;
  at += key_floats(p, p->d);
  g->dv_sum = shares_keys(p) ? at : NULL;
}

static struct attn_view rows_of(float *base, int64_t row, int64_t width)
{
  return (struct attn_view){
      .data = (char *)(base + row * width), .stride = width, .dtype = ATTN_F32};
}

float *attn_delta_of(const struct attn_gradient *g, const struct attn_task *task)
{
  return g->delta + task->h * g->plan->total_q + task->seq->q_first;
}

struct attn_view attn_dq_sum_of(const struct attn_gradient *g, const struct attn_task *task,
                                int64_t split)
{
  int64_t head = split * g->plan->p.hq + task->h;
  return rows_of(g->dq_sum, head * g->plan->total_q + task->seq->q_first, g->plan->p.d);
}

static struct attn_view key_sum_of(const struct attn_plan *plan, float *sum, int64_t width,
                                   const struct attn_task *task, int64_t h)
{
  return rows_of(sum, h * plan->total_k + task->seq->k_first, width);
}

/* ---- before ---------------------------------------------------------------------------------- */

static int64_t splits_of(const struct attn_plan *plan, const struct attn_extent *seq)
{
  int64_t rows = attn_grid_rows(&plan->grid[ATTN_GRID_SPLIT], seq);
  return (seq->sk + rows - 1) / rows;
}

static int begin(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_gradient *g = ctx;
  const struct attn_plan *plan = g->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q_STREAM, i, g->args);
  int64_t d = plan->p.d, dv = plan->p.dv, ld = attn_round_up(d, 8), ldv = attn_round_up(dv, 8);
  int64_t n = task.rows;
  float *dout = attn_tile_alloc(core, n * attn_most(ld, ldv)), *o = attn_tile_alloc(core, n * ldv);
  float *delta = attn_tile_alloc(core, n);
  if (!delta)
    return ATTN_ENOMEM;
  attn_view_load(core, attn_view_q(plan, &g->args->dout, &task, task.h), task.row, n, dv, dout,
                 ldv);
  attn_view_load(core, attn_view_q(plan, &g->args->o, &task, task.h), task.row, n, dv, o, ldv);
  attn_block()->dot(dout, o, ldv, n, dv, delta);
  attn_tile_store(core, delta, n, ATTN_F32, attn_delta_of(g, &task) + task.row, n, 1, n);
  if (!g->dq_sum)
    return ATTN_OK;
  memset(dout, 0, (size_t)(n * ld) * sizeof *dout);
  for (int64_t s = 0; s < splits_of(plan, task.seq); s++)
    attn_view_store(core, attn_dq_sum_of(g, &task, s), task.row, n, d, dout, ld);
  return ATTN_OK;
}

int attn_gradient_begin(struct attn_gradient *g, struct attn_machine *m)
{
  return m->parallel(m, attn_grid_tasks(g->plan, ATTN_GRID_Q_STREAM), begin, g);
}

/* ---- after ----------------------------------------------------------------------------------- */

void attn_gradient_keys(struct attn_core *core, const struct attn_gradient *g,
                        const struct attn_task *task, int64_t j, int64_t nj, float *dk,
                        const float *dv)
{
  const struct attn_plan *plan = g->plan;
  int64_t wk = plan->p.d, wv = plan->p.dv, h = task->h;
  int64_t ldk = attn_round_up(wk, 8), ldv = attn_round_up(wv, 8);
  struct attn_view to_k, to_v;
  if (g->dk_sum) {
    to_k = key_sum_of(plan, g->dk_sum, wk, task, h);
    to_v = key_sum_of(plan, g->dv_sum, wv, task, h);
  } else {
    attn_block()->scale(dk, ldk, nj, wk, plan->scale);
    to_k = attn_view_k(plan, &g->args->dk, task, h);
    to_v = attn_view_k(plan, &g->args->dv, task, h);
  }
  attn_view_store(core, to_k, j, nj, wk, dk, ldk);
  attn_view_store(core, to_v, j, nj, wv, dv, ldv);
}

static int end_queries(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_gradient *g = ctx;
  const struct attn_plan *plan = g->plan;
  const struct attn_block *block = attn_block();
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q_STREAM, i, g->args);
  int64_t d = plan->p.d, ld = attn_round_up(d, 8), n = task.rows;
  float *sum = attn_tile_alloc(core, n * ld), *part = attn_tile_alloc(core, n * ld);
  if (!part)
    return ATTN_ENOMEM;
  memset(sum, 0, (size_t)(n * ld) * sizeof *sum);
  for (int64_t s = 0; s < splits_of(plan, task.seq); s++) {
    attn_view_load(core, attn_dq_sum_of(g, &task, s), task.row, n, d, part, ld);
    block->add(sum, part, ld, n, d);
  }
  block->scale(sum, ld, n, d, plan->scale);
  attn_view_store(core, attn_view_q(plan, &g->args->dq, &task, task.h), task.row, n, d, sum, ld);
  return ATTN_OK;
}

/* to = factor * sum over the query heads of KV head task->h, in order */
static int sum_group(struct attn_core *core, const struct attn_plan *plan,
                     const struct attn_task *task, float *from, const struct attn_tensor *to,
                     int64_t width, float factor)
{
  const struct attn_block *block = attn_block();
  int64_t ld = attn_round_up(width, 8), n = task->rows;
  float *sum = attn_tile_alloc(core, n * ld), *part = attn_tile_alloc(core, n * ld);
  if (!part)
    return ATTN_ENOMEM;
  memset(sum, 0, (size_t)(n * ld) * sizeof *sum);
  for (int64_t h = task->h * plan->group; h < (task->h + 1) * plan->group; h++) {
    attn_view_load(core, key_sum_of(plan, from, width, task, h), task->row, n, width, part, ld);
    block->add(sum, part, ld, n, width);
  }
  block->scale(sum, ld, n, width, factor);
  attn_view_store(core, attn_view_k(plan, to, task, task->h), task->row, n, width, sum, ld);
  return ATTN_OK;
}

static int end_keys(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_gradient *g = ctx;
  const struct attn_plan *plan = g->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_K_GROUP, i, g->args);
  int status = sum_group(core, plan, &task, g->dk_sum, &g->args->dk, plan->p.d, plan->scale);
  core->sram_used = 0;
  return status ? status : sum_group(core, plan, &task, g->dv_sum, &g->args->dv, plan->p.dv, 1.0f);
}

int attn_gradient_end(struct attn_gradient *g, struct attn_machine *m)
{
  int status = ATTN_OK;
  if (g->dq_sum)
    status = m->parallel(m, attn_grid_tasks(g->plan, ATTN_GRID_Q_STREAM), end_queries, g);
  if (!status && g->dk_sum)
    status = m->parallel(m, attn_grid_tasks(g->plan, ATTN_GRID_K_GROUP), end_keys, g);
  return status;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

double attn_gradient_key_bytes(const struct attn_problem *p)
{
  return (double)(p->d + p->dv) * (shares_keys(p) ? 4 : (double)attn_dtype_size(p->dtype));
}

static double tasks_bytes(const struct attn_problem *p, int64_t len, int64_t stream)
{
  return (double)attn_tiles(len, stream) * attn_task_bytes(p);
}

void attn_gradient_traffic(const struct attn_problem *p, int64_t splits, int64_t stream,
                           struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype), d = (double)p->d, dv = (double)p->dv;
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_grid grid = {.keys = true, .parts = attn_most(splits, 1)};
    int64_t rows = attn_grid_rows(&grid, &(struct attn_extent){.sk = run.sk});
    double parts = splits ? (double)((run.sk + rows - 1) / rows) : 0;
    double sq = (double)run.sq, sk = (double)run.sk;
    double passes_q = splits ? 2 : 1, tasks_q = tasks_bytes(p, run.sq, stream);
    struct attn_traffic q = {2 * sq * dv * size + parts * sq * d * 4 + passes_q * tasks_q,
                             sq * 4 + parts * sq * d * 4 + (splits ? sq * d * size : 0)};
    attn_traffic_add(t, &q, run.count * p->hq);
    struct attn_traffic k = {(double)(p->hq / p->hkv) * sk * (d + dv) * 4 +
                                 tasks_bytes(p, run.sk, stream),
                             sk * (d + dv) * size};
    if (shares_keys(p))
      attn_traffic_add(t, &k, run.count * p->hkv);
  }
}
