/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.c - cpu/naive: standard attention, which writes its matrices to HBM.
 *
 * S = Q K^T, P = softmax(S) in place, O = P V: three passes, and every element of S and P is moved,
 * masked or not: Theta(N^2) bytes once M holds enough rows that the operands matter less.
 */
#include "config.h"

#include <math.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/materialise.h"

#define STRIP_MAX 64 /* queries whose softmax one task computes */

static struct attn_footprint forward_footprint(const struct attn_problem *p, int64_t stream)
{
  int64_t wide = attn_round_up(attn_most(p->d, p->dv), 8);
  return (struct attn_footprint){wide + stream, 3, stream * wide};
}

static struct attn_tiling tiling_q(const struct attn_problem *p, const struct attn_device *dev)
{
  return attn_tile(p, dev->sram_bytes, p->sq,
                   p->op == ATTN_BWD ? attn_materialised_backward_footprint_q : forward_footprint);
}

/* Strips of queries, and how many keys of a strip SRAM holds with m, l and alpha: all of them,
 * unless even the narrowest strip is too long. */
static struct attn_tiling strips(const struct attn_problem *p, size_t sram_bytes)
{
  int64_t width = STRIP_MAX, room = (int64_t)(sram_bytes / sizeof(float));
  while (width > 8 && width * (p->sk + 3) > room)
    width /= 2;
  return (struct attn_tiling){attn_least(p->sk, room / width - 3), width, 0};
}

static struct attn_tiling tiling_k(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op != ATTN_BWD)
    return strips(p, dev->sram_bytes);
  return attn_tile(p, dev->sram_bytes, p->sk, attn_materialised_backward_footprint_k);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* shapes: s (keys, width)  m, l, alpha (width) */
struct strip {
  int64_t width, keys;
  float *s, *m, *l, *alpha;
};

static void move_scores(struct attn_core *core, const struct attn_matrices *x,
                        const struct attn_task *task, struct strip *t, int64_t j, int64_t nj,
                        bool store)
{
  float *at = attn_matrix_at(x->gradient.plan, x->p, task, j, task->row);
  int64_t sq = task->seq->sq, ni = task->rows;
  if (store)
    attn_tile_store(core, t->s, t->width, ATTN_F32, at, sq, nj, ni);
  else
    attn_tile_load(core, t->s, t->width, ATTN_F32, at, sq, nj, ni);
}

/* S to P for keys j .. j + nj, once m and l are known. */
static void write_probabilities(struct attn_core *core, const struct attn_matrices *x,
                                const struct attn_task *task, struct strip *t, int64_t j,
                                int64_t nj)
{
  const struct attn_block *block = attn_block();
  int64_t ni = task->rows;
  if (task->seq->sk > t->keys) { /* what is in SRAM is of another part of the strip */
    move_scores(core, x, task, t, j, nj, false);
    block->exponential(t->s, t->width, ni, nj, t->m);
  }
  block->normalize(t->s, t->width, ni, nj, t->l);
  attn_drop(x->gradient.plan, task, task->h, task->row, j, t->s, t->width, ni, nj);
  move_scores(core, x, task, t, j, nj, true);
}

static int softmax(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_matrices *x = ctx;
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_block *block = attn_block();
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q_STREAM, i, x->gradient.args);
  int64_t sk = task.seq->sk, n = task.rows, width = plan->k.stream, keys = plan->k.rows;
  struct strip t = {width, keys, NULL, NULL, NULL, NULL};
  t.s = attn_tile_alloc(core, keys * width);
  t.m = attn_tile_alloc(core, width);
  t.l = attn_tile_alloc(core, width);
  t.alpha = attn_tile_alloc(core, width);
  if (!t.alpha)
    return ATTN_ENOMEM;
  for (int64_t r = 0; r < width; r++) {
    t.m[r] = -INFINITY;
    t.l[r] = 0;
  }
  for (int64_t j = 0; j < sk; j += keys) {
    move_scores(core, x, &task, &t, j, attn_least(keys, sk - j), false);
    block->online(t.s, width, n, attn_least(keys, sk - j), t.m, t.l, t.alpha);
  }
  for (int64_t j = 0; j < sk; j += keys)
    write_probabilities(core, x, &task, &t, j, attn_least(keys, sk - j));
  for (int64_t r = 0; r < n; r++)
    t.m[r] += logf(t.l[r]);
  float *lse = attn_lse_of(plan, x->gradient.args, &task, task.h) + task.row;
  attn_tile_store(core, t.m, n, ATTN_F32, lse, n, 1, n);
  return ATTN_OK;
}

/* ---- O = P V --------------------------------------------------------------------------------- */

static int outputs(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_matrices *x = ctx;
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_args *args = x->gradient.args;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, args);
  int64_t n = task.rows, sk = task.seq->sk, dv = plan->p.dv, stream = plan->q.stream;
  int64_t ld = attn_lanes(n), ldv = attn_round_up(dv, 8);
  float *o = attn_tile_alloc(core, attn_round_up(n, 8) * ldv);
  float *p = attn_tile_alloc(core, stream * ld), *v = attn_tile_alloc(core, stream * ldv);
  const float one = 1;
  if (!v)
    return ATTN_ENOMEM;
  for (int64_t r = 0; r < n * ldv; r++)
    o[r] = 0;
  attn_task_scales(core, plan, args, task.h / plan->group, &task);
  struct attn_view values = attn_view_values(plan, args, &task, task.h / plan->group);
  for (int64_t j = 0; j < sk; j += stream) {
    int64_t nj = attn_least(stream, sk - j);
    float *from = attn_matrix_at(plan, x->p, &task, j, task.row);
    attn_tile_load(core, p, ld, ATTN_F32, from, task.seq->sq, nj, n);
    attn_view_load(core, values, j, nj, dv, v, ldv);
    attn_block()->product(n, dv, nj, (struct attn_operand){p, 1, ld}, v, ldv, o, ldv, &one, false);
  }
  attn_view_store(core, attn_view_q(plan, &args->o, &task, task.h), task.row, n, dv, o, ldv);
  return ATTN_OK;
}

/* ---- the implementation ---------------------------------------------------------------------- */

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  if (p->op == ATTN_BWD)
    return attn_materialised_backward_workspace(p);
  return (size_t)attn_matrix_floats(p) * sizeof(float);
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  const char *reason = NULL;
  bool backward = p->op == ATTN_BWD;
  if (!tiling_q(p, dev).rows)
    reason = attn_sram_too_small(
        p, dev, backward ? attn_materialised_backward_footprint_q : forward_footprint);
  if (!reason && backward && !tiling_k(p, dev).rows)
    reason = attn_sram_too_small(p, dev, attn_materialised_backward_footprint_k);
  return reason ? reason : attn_matrices_too_large(p, dev, workspace(p, dev));
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  *plan = attn_plan_create(p, tiling_q(p, dev), tiling_k(p, dev), attn_gradient_splits(p));
  return *plan ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *arg, const struct attn_args *args, void *stream)
{
  struct attn_plan *plan = arg;
  struct attn_machine *m = stream;
  struct attn_matrices x = {.gradient = {.plan = plan, .args = args}, .p = args->workspace};
  if (plan->p.op == ATTN_BWD)
    return attn_materialised_backward(plan, args, false, m);
  int status = attn_write_scores(&x, m);
  if (!status)
    status = m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q_STREAM), softmax, &x);
  return status ? status : m->parallel(m, attn_grid_tasks(plan, ATTN_GRID_Q), outputs, &x);
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  struct attn_tiling q = tiling_q(p, dev), k = tiling_k(p, dev);
  if (p->op == ATTN_BWD) {
    attn_materialised_backward_traffic(p, q, k, attn_gradient_splits(p), false, t);
    return;
  }
  double row = (double)p->dv * (double)attn_dtype_size(p->dtype);
  double value = (double)p->dv * (double)attn_dtype_size(attn_problem_kv_type(p));
  *t = (struct attn_traffic){0, 0};
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    double tiles = (double)attn_tiles(run.sq, q.rows),
           strips = (double)attn_tiles(run.sq, k.stream);
    double sq = (double)run.sq, sk = (double)run.sk, matrix = 4 * sq * sk;
    attn_products_traffic(p, &run, q, false, p->d, &head);
    head.read_bytes += (run.sk > k.rows ? 2 : 1) * matrix + strips * attn_task_bytes(p);
    head.write_bytes += matrix + 4 * sq;
    head.read_bytes += matrix + tiles * (sk * value + attn_task_bytes(p) + attn_scale_bytes(p)) +
                       4 * attn_visited_entries(p, &run, q, false);
    head.write_bytes += sq * row;
    attn_traffic_add(t, &head, run.count * p->hq);
  }
}

const struct attn_impl attn_cpu_naive = {
    .abi = ATTN_ABI,
    .name = "cpu/naive",
    .device = ATTN_CPU,
    .summary = "standard attention: S and P, and in backward dP and dS, are written to memory",
    .provenance = "attnbench; the standard algorithm as in Dao et al., FlashAttention (2022)",
    .numerics = {.score = ATTN_ROUND_F32,
                 .prob = ATTN_ROUND_F32,
                 .normalize_first = true,
                 .grad = ATTN_ROUND_F32},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = attn_plan_destroy,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
