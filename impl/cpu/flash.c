/* SPDX-License-Identifier: Apache-2.0
 *
 * flash.c - cpu/flash: exact attention in one pass over tiles, with the online softmax.
 *
 * A tile of queries and its accumulators (O, row maximum m, row sum l) stay in SRAM while keys and
 * values stream past; no score ever goes to HBM.  With M floats of SRAM a tile has about
 * M / (d + dv) queries, so K and V are read N (d + dv) / M times: Theta(N^2 d^2 / M) bytes.
 */
#include "config.h"

#include <math.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/flash.h"
#include "impl/cpu/gradient.h"

struct pass {
  struct attn_plan *plan;
  const struct attn_args *args;
};

/* shapes: q (d, ld)  kv (stream, d|dv)  s (stream, ld)  o (rows, dv)  the rest (rows) */
struct tiles {
  int64_t ld, ldk, ldv;
  float *q, *kv, *s, *o, *m, *l, *alpha;
  attn_sram_int *lo, *hi;
};

struct attn_footprint attn_flash_forward_footprint(const struct attn_problem *p, int64_t stream)
{
  int64_t dk = attn_round_up(p->d, 8), dv = attn_round_up(p->dv, 8);
  return (struct attn_footprint){p->d + stream, dv + 5, stream * attn_most(dk, dv)};
}

struct attn_tiling attn_flash_tiling_q(const struct attn_problem *p, const struct attn_device *dev)
{
  return attn_tile(p, dev->sram_bytes, p->sq, attn_flash_forward_footprint);
}

static int tiles_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                       struct tiles *t)
{
  const struct attn_problem *p = &plan->p;
  int64_t padded = attn_round_up(rows, 8);
  t->ld = attn_lanes(rows);
  t->ldk = attn_round_up(p->d, 8);
  t->ldv = attn_round_up(p->dv, 8);
  t->q = attn_tile_alloc(core, p->d * t->ld);
  t->kv = attn_tile_alloc(core, plan->q.stream * attn_most(t->ldk, t->ldv));
  t->s = attn_tile_alloc(core, plan->q.stream * t->ld);
  t->o = attn_tile_alloc(core, padded * t->ldv);
  t->m = attn_tile_alloc(core, padded);
  t->l = attn_tile_alloc(core, padded);
  t->alpha = attn_tile_alloc(core, padded);
  t->lo = (attn_sram_int *)attn_tile_alloc(core, padded);
  t->hi = (attn_sram_int *)attn_tile_alloc(core, padded);
  return t->hi ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* The tile meets keys j .. j + nj. */
static void step(struct attn_core *core, const struct pass *x, const struct attn_task *task,
                 struct tiles *t, struct attn_span span, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = x->plan;
  const struct attn_block *block = attn_block();
  int64_t d = plan->p.d, dv = plan->p.dv, ni = task->rows, h = task->h, hkv = h / plan->group;
  attn_view_load(core, attn_view_keys(plan, x->args, task, hkv), j, nj, d, t->kv, t->ldk);
  block->product(nj, ni, d, (struct attn_operand){t->kv, t->ldk, 1}, t->q, t->ld, t->s, t->ld, NULL,
                 false);
  struct attn_score how = attn_score_of(plan, task, h, task->row, j, nj, span, t->lo, t->hi);
  block->score(t->s, t->ld, ni, nj, &how, NULL);
  block->online(t->s, t->ld, ni, nj, t->m, t->l, t->alpha);
  attn_drop(plan, task, h, task->row, j, t->s, t->ld, ni, nj);
  attn_view_load(core, attn_view_values(plan, x->args, task, hkv), j, nj, dv, t->kv, t->ldv);
  block->product(ni, dv, nj, (struct attn_operand){t->s, 1, t->ld}, t->kv, t->ldv, t->o, t->ldv,
                 j == span.lo ? NULL : t->alpha, true);
}

static int forward(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_plan *plan = x->plan;
  const struct attn_problem *p = &plan->p;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, x->args);
  int64_t sq = task.seq->sq, sk = task.seq->sk, row = task.row, n = task.rows;
  struct tiles t;
  attn_task_scales(core, plan, x->args, task.h / plan->group, &task);
  if (tiles_alloc(core, plan, n, &t))
    return ATTN_ENOMEM;
  attn_view_load_transposed(core, attn_view_q(plan, &x->args->q, &task, task.h), row, n, p->d, t.q,
                            t.ld, t.kv, plan->q.stream);
  attn_visible_lanes(p, sq, sk, row, n, t.lo, t.hi);
  struct attn_span span = attn_span_of(p, sq, sk, row, n);
  for (int64_t r = 0; r < attn_round_up(n, 8); r++) {
    t.m[r] = -INFINITY;
    t.l[r] = 0;
  }
  for (int64_t j = span.lo; j < span.hi; j += plan->q.stream)
    step(core, x, &task, &t, span, j, attn_least(plan->q.stream, span.hi - j));
  attn_finish_rows(core, plan, x->args, &task, t.o, t.ldv, t.m, t.l);
  return ATTN_OK;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  const char *reason = NULL;
  if (!attn_flash_tiling_q(p, dev).rows)
    reason = attn_sram_too_small(p, dev, attn_flash_forward_footprint);
  if (!reason && p->op == ATTN_BWD && !attn_flash_tiling_k(p, dev).rows)
    reason = attn_sram_too_small(p, dev, attn_flash_backward_footprint);
  return reason;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return p->op == ATTN_BWD ? attn_flash_backward_workspace(p) : 0;
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  *plan = attn_plan_create(p, attn_flash_tiling_q(p, dev), attn_flash_tiling_k(p, dev),
                           attn_gradient_splits(p));
  return *plan ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *arg, const struct attn_args *args, void *stream)
{
  struct attn_plan *plan = arg;
  struct attn_machine *m = stream;
  struct pass x = {plan, args};
  if (plan->p.op == ATTN_BWD)
    return attn_flash_backward(plan, args, m);
  return m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q), forward, &x);
}

/* One head of one sequence: Q once, what is visible of K and V once for each tile of queries. */
static void head_traffic(const struct attn_problem *p, int64_t sq, int64_t sk, struct attn_tiling q,
                         struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype);
  int64_t rows = attn_tile_rows(sq, q.rows);
  for (int64_t i = 0; i < sq; i += rows) {
    struct attn_span s = attn_span_of(p, sq, sk, i, attn_least(rows, sq - i));
    t->read_bytes += (double)attn_most(s.hi - s.lo, 0) * attn_key_bytes(p);
    t->read_bytes += 8 * attn_table_entries(p, s.lo, s.hi, q.stream) + attn_task_bytes(p);
    t->read_bytes += attn_scale_bytes(p);
  }
  t->read_bytes += (double)(sq * p->d) * size;
  t->write_bytes += (double)(sq * p->dv) * size + (double)sq * 4;
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  if (p->op == ATTN_BWD) {
    attn_flash_backward_traffic(p, dev, t);
    return;
  }
  struct attn_tiling q = attn_flash_tiling_q(p, dev);
  *t = (struct attn_traffic){0, 0};
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    head_traffic(p, run.sq, run.sk, q, &head);
    attn_traffic_add(t, &head, run.count * p->hq);
  }
}

const struct attn_impl attn_cpu_flash = {
    .abi = ATTN_ABI,
    .name = "cpu/flash",
    .device = ATTN_CPU,
    .summary = "one pass over tiles with the online softmax; backward recomputes from LSE",
    .provenance = "attnbench; after Dao et al., FlashAttention (2022) and FlashAttention-2 (2023)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_F32, .grad = ATTN_ROUND_F32},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = attn_plan_destroy,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
