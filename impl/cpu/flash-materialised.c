/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-materialised.c - cpu/flash-materialised: standard attention in the order of cpu/flash.
 *
 * It writes S and P to HBM like cpu/naive, but takes the maxima, the sums and the rescaling in
 * flash's tiles and order.  On any input its bits equal those of cpu/flash, which shows that flash
 * rearranges standard attention and approximates nothing.  Each pass keeps in HBM what flash keeps
 * in SRAM: P under the running maximum of its step, and the factors alpha of every step.
 */
#include "config.h"

#include <math.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/flash.h"
#include "impl/cpu/materialise.h"

/* In the workspace after the matrix, per query head: m and l (total_q), alpha (steps, seqlen_q). */
struct pass {
  struct attn_matrices x;
  float *m, *l, *alpha;
};

static int64_t row_floats(const struct attn_problem *p)
{
  return attn_round_up(p->hq * attn_problem_total_q(p), 256);
}

static int64_t alpha_floats(const struct attn_problem *p, int64_t stream)
{
  int64_t sum = 0;
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    sum += run.count * run.sq * ((run.sk + stream - 1) / stream);
  }
  return attn_round_up(sum * p->hq, 256);
}

static float *row_at(const struct pass *x, float *rows, const struct attn_task *task)
{
  return rows + task->h * x->x.gradient.plan->total_q + task->seq->q_first + task->row;
}

static float *alpha_at(const struct pass *x, const struct attn_task *task, int64_t step)
{
  const struct attn_plan *plan = x->x.gradient.plan;
  const struct attn_extent *e = task->seq;
  int64_t steps = (e->sk + plan->q.stream - 1) / plan->q.stream;
  return x->alpha + e->steps_first * plan->p.hq + (task->h * steps + step) * e->sq + task->row;
}

/* S to P under the maximum so far, step by step; l and m of the end, alpha of each step. */
static int softmax(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_plan *plan = x->x.gradient.plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, x->x.gradient.args);
  int64_t n = task.rows, padded = attn_round_up(n, 8), ld = attn_lanes(n), stream = plan->q.stream;
  float *s = attn_tile_alloc(core, stream * ld), *m = attn_tile_alloc(core, padded);
  float *l = attn_tile_alloc(core, padded), *alpha = attn_tile_alloc(core, padded);
  if (!alpha)
    return ATTN_ENOMEM;
  for (int64_t r = 0; r < padded; r++) {
    m[r] = -INFINITY;
    l[r] = 0;
  }
  struct attn_span span = attn_keys_to_visit(&x->x, &task);
  for (int64_t j = span.lo, step = 0; j < span.hi; j += stream, step++) {
    int64_t nj = attn_least(stream, span.hi - j);
    float *at = attn_matrix_at(plan, x->x.p, &task, j, task.row);
    attn_tile_load(core, s, ld, ATTN_F32, at, task.seq->sq, nj, n);
    attn_block()->online(s, ld, n, nj, m, l, alpha);
    attn_drop(plan, &task, task.h, task.row, j, s, ld, n, nj);
    attn_tile_store(core, s, ld, ATTN_F32, at, task.seq->sq, nj, n);
    attn_tile_store(core, alpha, padded, ATTN_F32, alpha_at(x, &task, step), n, 1, n);
  }
  attn_tile_store(core, m, padded, ATTN_F32, row_at(x, x->m, &task), n, 1, n);
  attn_tile_store(core, l, padded, ATTN_F32, row_at(x, x->l, &task), n, 1, n);
  return ATTN_OK;
}

/* shapes: o (rows, dv)  p (stream, ld)  v (stream, dv)  m, l, alpha (rows) */
struct tiles {
  int64_t ld, ldv;
  float *o, *p, *v, *m, *l, *alpha;
};

static int tiles_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                       struct tiles *t)
{
  int64_t padded = attn_round_up(rows, 8);
  t->ld = attn_lanes(rows);
  t->ldv = attn_round_up(plan->p.dv, 8);
  t->o = attn_tile_alloc(core, padded * t->ldv);
  t->p = attn_tile_alloc(core, plan->q.stream * t->ld);
  t->v = attn_tile_alloc(core, plan->q.stream * t->ldv);
  t->m = attn_tile_alloc(core, padded);
  t->l = attn_tile_alloc(core, padded);
  t->alpha = attn_tile_alloc(core, padded);
  return t->alpha ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* O = P V with the rescaling of every step, then O / l. */
static int outputs(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_plan *plan = x->x.gradient.plan;
  const struct attn_args *args = x->x.gradient.args;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, args);
  int64_t n = task.rows, padded = attn_round_up(n, 8), stream = plan->q.stream, dv = plan->p.dv;
  struct tiles t;
  if (tiles_alloc(core, plan, n, &t))
    return ATTN_ENOMEM;
  attn_task_scales(core, plan, args, task.h / plan->group, &task);
  struct attn_view values = attn_view_values(plan, args, &task, task.h / plan->group);
  struct attn_span span = attn_keys_to_visit(&x->x, &task);
  for (int64_t j = span.lo, step = 0; j < span.hi; j += stream, step++) {
    int64_t nj = attn_least(stream, span.hi - j);
    float *at = attn_matrix_at(plan, x->x.p, &task, j, task.row);
    attn_tile_load(core, t.p, t.ld, ATTN_F32, at, task.seq->sq, nj, n);
    attn_tile_load(core, t.alpha, padded, ATTN_F32, alpha_at(x, &task, step), n, 1, n);
    attn_view_load(core, values, j, nj, dv, t.v, t.ldv);
    attn_block()->product(n, dv, nj, (struct attn_operand){t.p, 1, t.ld}, t.v, t.ldv, t.o, t.ldv,
                          step ? t.alpha : NULL, true);
  }
  attn_tile_load(core, t.m, padded, ATTN_F32, row_at(x, x->m, &task), n, 1, n);
  attn_tile_load(core, t.l, padded, ATTN_F32, row_at(x, x->l, &task), n, 1, n);
  attn_finish_rows(core, plan, args, &task, t.o, t.ldv, t.m, t.l);
  return ATTN_OK;
}

/* ---- the implementation ---------------------------------------------------------------------- */

static struct attn_tiling tiling_q(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op == ATTN_BWD)
    return attn_tile(p, dev->sram_bytes, p->sq, attn_materialised_backward_footprint_q);
  return attn_flash_tiling_q(p, dev);
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op == ATTN_BWD)
    return attn_materialised_backward_workspace(p);
  int64_t stream = tiling_q(p, dev).stream;
  return (size_t)(attn_matrix_floats(p) + 2 * row_floats(p) + alpha_floats(p, stream)) *
         sizeof(float);
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  const char *reason = attn_cpu_flash.unsupported(p, dev);
  if (!reason && !tiling_q(p, dev).rows)
    reason = attn_sram_too_small(p, dev, attn_materialised_backward_footprint_q);
  return reason ? reason : attn_matrices_too_large(p, dev, workspace(p, dev));
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  *plan =
      attn_plan_create(p, tiling_q(p, dev), attn_flash_tiling_k(p, dev), attn_gradient_splits(p));
  return *plan ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *arg, const struct attn_args *args, void *stream)
{
  struct attn_plan *plan = arg;
  struct attn_machine *m = stream;
  struct pass x = {.x = {.gradient = {.plan = plan, .args = args}, .skip = true}};
  if (plan->p.op == ATTN_BWD)
    return attn_materialised_backward(plan, args, true, m);
  x.x.p = args->workspace;
  x.m = x.x.p + attn_matrix_floats(&plan->p);
  x.l = x.m + row_floats(&plan->p);
  x.alpha = x.l + row_floats(&plan->p);
  int status = attn_write_scores(&x.x, m);
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q), softmax, &x);
  return status ? status : m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q), outputs, &x);
}

/* Of one head: rows that the alphas of all steps take, tile by tile. */
static double alpha_rows(const struct attn_problem *p, const struct attn_run *run,
                         struct attn_tiling q)
{
  double sum = 0;
  int64_t rows = attn_tile_rows(run->sq, q.rows);
  for (int64_t i = 0; i < run->sq; i += rows) {
    int64_t n = attn_least(rows, run->sq - i);
    struct attn_span s = attn_span_of(p, run->sq, run->sk, i, n);
    sum += (double)(n * ((attn_most(s.hi - s.lo, 0) + q.stream - 1) / q.stream));
  }
  return sum;
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  struct attn_tiling q = tiling_q(p, dev);
  if (p->op == ATTN_BWD) {
    attn_materialised_backward_traffic(p, q, attn_flash_tiling_k(p, dev), attn_gradient_splits(p),
                                       true, t);
    return;
  }
  double row = (double)p->dv * (double)attn_dtype_size(p->dtype);
  double value = (double)p->dv * (double)attn_dtype_size(attn_problem_kv_type(p));
  *t = (struct attn_traffic){0, 0};
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    double pairs, keys = attn_visited_keys(p, &run, q.rows, true, &pairs), sq = (double)run.sq;
    double alphas = alpha_rows(p, &run, q);
    attn_products_traffic(p, &run, q, true, p->d, &head);
    head.read_bytes += 2 * 4 * pairs + keys * value + 4 * alphas + 8 * sq;
    head.read_bytes += 2 * (double)attn_tiles(run.sq, q.rows) * attn_task_bytes(p);
    head.read_bytes += (double)attn_tiles(run.sq, q.rows) * attn_scale_bytes(p);
    head.read_bytes += 4 * attn_visited_entries(p, &run, q, true);
    head.write_bytes += 4 * pairs + 4 * alphas + 8 * sq + sq * row + 4 * sq;
    attn_traffic_add(t, &head, run.count * p->hq);
  }
}

const struct attn_impl attn_cpu_flash_materialised = {
    .abi = ATTN_ABI,
    .name = "cpu/flash-materialised",
    .device = ATTN_CPU,
    .summary = "writes S and P to memory in flash's order of reduction: bit for bit cpu/flash",
    .provenance = "attnbench",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_F32, .grad = ATTN_ROUND_F32},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = attn_plan_destroy,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
    .twin = "cpu/flash",
};
