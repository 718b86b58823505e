/* SPDX-License-Identifier: Apache-2.0
 *
 * materialise.c - score matrices in HBM: where they lie, and the pass that writes Q K^T into them,
 * or dO V^T.
 */
#include "config.h"

#include <stdio.h>

#include "impl/cpu/materialise.h"

int64_t attn_matrix_floats(const struct attn_problem *p)
{
  int64_t sum = 0;
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    sum += run.count * run.sq * run.sk;
  }
  return attn_round_up(sum * p->hq, 256);
}

float *attn_matrix_at(const struct attn_plan *plan, float *matrix, const struct attn_task *task,
                      int64_t j, int64_t i)
{
  const struct attn_extent *e = task->seq;
  return matrix + e->pairs_first * plan->p.hq + task->h * e->sq * e->sk + j * e->sq + i;
}

struct attn_span attn_keys_to_visit(const struct attn_matrices *x, const struct attn_task *task)
{
  const struct attn_extent *e = task->seq;
  if (!x->skip)
    return (struct attn_span){.lo = 0, .hi = e->sk};
  return attn_span_of(&x->gradient.plan->p, e->sq, e->sk, task->row, task->rows);
}

const char *attn_matrices_too_large(const struct attn_problem *p, const struct attn_device *dev,
                                    size_t workspace)
{
  static _Thread_local char text[192];
  const double gib = 1024.0 * 1024 * 1024;
  if (!dev->memory_bytes || workspace <= dev->memory_bytes)
    return NULL;
  snprintf(text, sizeof text,
           "one head's matrix of %lld x %lld takes %.1f GiB, all matrices %.1f GiB; the device has "
           "%.1f GiB of memory",
           (long long)p->sq, (long long)p->sk, (double)p->sq * (double)p->sk * 4 / gib,
           (double)workspace / gib, (double)dev->memory_bytes / gib);
  return text;
}

/* ---- products -------------------------------------------------------------------------------- */

struct pass {
  struct attn_matrices *x;
  bool values; /* dP = dO V^T rather than S = Q K^T */
};

/* shapes: stay (width, ld)  stream (stream, width)  s, slope (stream, ld)  the rest (rows) */
struct tiles {
  int64_t ld, width, ldw;
  float *stay, *stream, *s, *slope, *lse;
  attn_sram_int *lo, *hi;
};

static int tiles_alloc(struct attn_core *core, const struct pass *pass,
                       const struct attn_task *task, struct tiles *t)
{
  const struct attn_plan *plan = pass->x->gradient.plan;
  int64_t padded = attn_round_up(task->rows, 8), stream = plan->q.stream;
  t->ld = attn_lanes(task->rows);
  t->width = pass->values ? plan->p.dv : plan->p.d;
  t->ldw = attn_round_up(t->width, 8);
  t->stay = attn_tile_alloc(core, t->width * t->ld);
  t->stream = attn_tile_alloc(core, stream * t->ldw);
  t->s = attn_tile_alloc(core, stream * t->ld);
  t->slope = pass->x->slope ? attn_tile_alloc(core, stream * t->ld) : NULL;
  t->lse = attn_tile_alloc(core, padded);
  t->lo = (attn_sram_int *)attn_tile_alloc(core, padded);
  t->hi = (attn_sram_int *)attn_tile_alloc(core, padded);
  return t->hi ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* Products to scores, and in backward to P. */
static void finish_scores(struct attn_core *core, const struct attn_matrices *x,
                          const struct attn_task *task, struct tiles *t, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_block *block = attn_block();
  int64_t ni = task->rows, sq = task->seq->sq;
  struct attn_span span = attn_span_of(&plan->p, sq, task->seq->sk, task->row, ni);
  struct attn_score how = attn_score_of(plan, task, task->h, task->row, j, nj, span, t->lo, t->hi);
  block->score(t->s, t->ld, ni, nj, &how, t->slope);
  if (plan->p.op != ATTN_BWD)
    return;
  block->exponential(t->s, t->ld, ni, nj, t->lse);
  if (t->slope)
    attn_tile_store(core, t->slope, t->ld, ATTN_F32,
                    attn_matrix_at(plan, x->slope, task, j, task->row), sq, nj, ni);
}

static void write_tile(struct attn_core *core, const struct pass *pass,
                       const struct attn_task *task, struct tiles *t, int64_t j, int64_t nj)
{
  const struct attn_matrices *x = pass->x;
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_args *args = x->gradient.args;
  int64_t ni = task->rows;
  int64_t hkv = task->h / plan->group;
  struct attn_view keys = pass->values ? attn_view_values(plan, args, task, hkv)
                                       : attn_view_keys(plan, args, task, hkv);
  attn_view_load(core, keys, j, nj, t->width, t->stream, t->ldw);
  attn_block()->product(nj, ni, t->width, (struct attn_operand){t->stream, t->ldw, 1}, t->stay,
                        t->ld, t->s, t->ld, NULL, false);
  if (!pass->values)
    finish_scores(core, x, task, t, j, nj);
  float *to = attn_matrix_at(plan, pass->values ? x->dp : x->p, task, j, task->row);
  attn_tile_store(core, t->s, t->ld, ATTN_F32, to, task->seq->sq, nj, ni);
}

static int write_products(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *pass = ctx;
  const struct attn_matrices *x = pass->x;
  const struct attn_plan *plan = x->gradient.plan;
  const struct attn_args *args = x->gradient.args;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, args);
  int64_t n = task.rows, stream = plan->q.stream;
  struct tiles t;
  if (tiles_alloc(core, pass, &task, &t))
    return ATTN_ENOMEM;
  attn_task_scales(core, plan, args, task.h / plan->group, &task);
  attn_view_load_transposed(core,
                            attn_view_q(plan, pass->values ? &args->dout : &args->q, &task, task.h),
                            task.row, n, t.width, t.stay, t.ld, t.stream, stream);
  if (plan->p.op == ATTN_BWD && !pass->values)
    attn_tile_load(core, t.lse, attn_round_up(n, 8), ATTN_F32,
                   attn_lse_of(plan, args, &task, task.h) + task.row, n, 1, n);
  attn_visible_lanes(&plan->p, task.seq->sq, task.seq->sk, task.row, n, t.lo, t.hi);
  struct attn_span visit = attn_keys_to_visit(x, &task);
  for (int64_t j = visit.lo; j < visit.hi; j += stream)
    write_tile(core, pass, &task, &t, j, attn_least(stream, visit.hi - j));
  return ATTN_OK;
}

static int run_products(struct attn_matrices *x, bool values, struct attn_machine *m)
{
  struct pass pass = {x, values};
  return m->parallel(m, attn_grid_tasks(x->gradient.plan, ATTN_GRID_Q), write_products, &pass);
}

int attn_write_scores(struct attn_matrices *x, struct attn_machine *m)
{
  return run_products(x, false, m);
}

int attn_write_value_products(struct attn_matrices *x, struct attn_machine *m)
{
  return run_products(x, true, m);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Keys that queries i .. i + n visit. */
static struct attn_span visit_of(const struct attn_problem *p, const struct attn_run *run,
                                 int64_t i, int64_t n, bool skip)
{
  if (skip)
    return attn_span_of(p, run->sq, run->sk, i, n);
  return (struct attn_span){.lo = 0, .hi = run->sk};
}

double attn_visited_keys(const struct attn_problem *p, const struct attn_run *run, int64_t max_rows,
                         bool skip, double *pairs)
{
  int64_t rows = attn_tile_rows(run->sq, max_rows);
  double keys = 0;
  *pairs = 0;
  for (int64_t i = 0; i < run->sq; i += rows) {
    int64_t n = attn_least(rows, run->sq - i);
    struct attn_span s = visit_of(p, run, i, n, skip);
    keys += (double)attn_most(s.hi - s.lo, 0);
    *pairs += (double)attn_most(s.hi - s.lo, 0) * (double)n;
  }
  return keys;
}

double attn_visited_entries(const struct attn_problem *p, const struct attn_run *run,
                            struct attn_tiling q, bool skip)
{
  int64_t rows = attn_tile_rows(run->sq, q.rows);
  double sum = 0;
  for (int64_t i = 0; p->page && i < run->sq; i += rows) {
    struct attn_span s = visit_of(p, run, i, attn_least(rows, run->sq - i), skip);
    sum += attn_table_entries(p, s.lo, s.hi, q.stream);
  }
  return sum;
}

void attn_products_traffic(const struct attn_problem *p, const struct attn_run *run,
                           struct attn_tiling q, bool skip, int64_t width,
                           struct attn_traffic *head)
{
  double pairs, keys = attn_visited_keys(p, run, q.rows, skip, &pairs);
  double query = (double)(width * (int64_t)attn_dtype_size(p->dtype));
  double key = (double)(width * (int64_t)attn_dtype_size(attn_problem_kv_type(p)));
  head->read_bytes += (double)run->sq * query + keys * key;
  head->read_bytes +=
      (double)attn_tiles(run->sq, q.rows) * (attn_task_bytes(p) + attn_scale_bytes(p));
  head->read_bytes += 4 * attn_visited_entries(p, run, q, skip);
  head->write_bytes += pairs * 4;
}
