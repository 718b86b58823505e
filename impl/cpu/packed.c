/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.c - few queries on many keys: the tile of packed query heads, the parts, their merge.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "impl/cpu/packed.h"

#define LANE_PAD 7 /* heads are transposed one by one, and each pads to 8 lanes */

/* ---- the merge ------------------------------------------------------------------------------- */

void attn_merge_top(float *top, const float *lse, int64_t n)
{
  for (int64_t r = 0; r < n; r++)
    top[r] = lse[r] > top[r] ? lse[r] : top[r];
}

void attn_merge_add(float *o, float *sum, const float *top, const float *part, const float *lse,
                    int64_t n, int64_t ld, int64_t dv)
{
  for (int64_t r = 0; r < n; r++) {
    if (lse[r] == -INFINITY)
      continue;
    float w = expf(lse[r] - top[r]);
    sum[r] += w;
    for (int64_t c = 0; c < dv; c++)
      o[r * ld + c] += w * part[r * ld + c];
  }
}

void attn_merge_end(float *o, const float *sum, float *top, int64_t n, int64_t ld, int64_t dv)
{
  attn_block()->divide(o, ld, n, dv, sum);
  for (int64_t r = 0; r < n; r++)
    top[r] += sum[r] > 0 ? logf(sum[r]) : 0;
}

/* ---- partial results ------------------------------------------------------------------------- */

/* In the workspace, for each part: O (rows, dv), LSE (rows). */
static int64_t part_floats(const struct attn_problem *p)
{
  return p->hq / p->hkv * p->sq * (p->dv + 1);
}

static float *part_at(const struct attn_packed *x, int64_t part)
{
  return (float *)x->args->workspace + part * part_floats(&x->plan->p);
}

static float *part_lse(const struct attn_packed *x, const struct attn_extent *seq, int64_t part)
{
  return part_at(x, part) + x->plan->group * seq->sq * x->plan->p.dv;
}

static int64_t parts_of(const struct attn_packed *x, int64_t b)
{
  const int64_t *first = x->plan->grid[ATTN_GRID_K_GROUP].first;
  return x->shared + first[b + 1] - first[b];
}

static int64_t first_part(const struct attn_packed *x, int64_t b, int64_t hkv)
{
  const int64_t *first = x->plan->grid[ATTN_GRID_K_GROUP].first;
  return (first[b] + b * x->shared) * x->plan->p.hkv + hkv * parts_of(x, b);
}

size_t attn_packed_workspace(const struct attn_problem *p, int64_t from, int64_t shared)
{
  int64_t parts = 0;
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    parts += run.count * p->hkv * (shared + attn_tiles(run.sk - from, ATTN_PART));
  }
  return (size_t)(parts * part_floats(p)) * sizeof(float);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static struct attn_footprint footprint(const struct attn_problem *p, int64_t stream)
{
  int64_t dk = attn_round_up(p->d, 8), dv = attn_round_up(p->dv, 8);
  return (struct attn_footprint){p->d + stream, dv + 5, stream * attn_most(dk, dv)};
}

struct attn_tiling attn_packed_tiling(const struct attn_problem *p, const struct attn_device *dev,
                                      int64_t len)
{
  int64_t lanes = attn_round_up(p->hq / p->hkv * p->sq + LANE_PAD, 8);
  struct attn_tiling t = attn_tile(p, dev->sram_bytes, attn_most(len + LANE_PAD, lanes), footprint);
  return t.rows < lanes ? (struct attn_tiling){0, 8, 0} : t;
}

int64_t attn_packed_rows(struct attn_tiling t)
{
  return t.rows - LANE_PAD;
}

const char *attn_packed_unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  static _Thread_local char text[192];
  if (p->op == ATTN_BWD)
    return "forward only";
  if (p->alibi)
    return "alibi: the packed heads share one slope";
  if (p->dropout_p > 0)
    return "dropout: a cache is read at inference";
  if (attn_packed_tiling(p, dev, 0).rows)
    return NULL;
  snprintf(text, sizeof text,
           "SRAM of %zu bytes cannot hold the %lld queries of a group beside a tile of keys",
           dev->sram_bytes, (long long)(p->hq / p->hkv * p->sq));
  return text;
}

struct attn_plan *attn_packed_plan(const struct attn_problem *p, int64_t stream, int64_t from)
{
  struct attn_tiling q = {attn_round_up(p->sq, 8), stream, 0};
  return attn_plan_create(p, q, (struct attn_tiling){0, ATTN_PART, from}, 0);
}

int attn_packed_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                      struct attn_packed_tiles *t)
{
  const struct attn_problem *p = &plan->p;
  int64_t padded = attn_round_up(rows + LANE_PAD, 8);
  t->rows = rows;
  t->ld = attn_lanes(padded);
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
  for (int64_t r = 0; t->hi && r < padded; r++) {
    t->lo[r] = t->hi[r] = 0;
    t->m[r] = -INFINITY;
    t->l[r] = 0;
  }
  return t->hi ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

void attn_packed_begin(struct attn_core *core, const struct attn_packed *x,
                       const struct attn_task *task, struct attn_packed_tiles *t, int64_t at)
{
  const struct attn_plan *plan = x->plan;
  int64_t sq = task->seq->sq, sk = task->seq->sk;
  for (int64_t g = 0; g < plan->group; g++) {
    struct attn_view q = attn_view_q(plan, &x->args->q, task, task->h * plan->group + g);
    attn_view_load_transposed(core, q, 0, sq, plan->p.d, t->q + at + g * sq, t->ld, t->kv,
                              plan->q.stream);
  }
  for (int64_t r = 0; r < plan->group * sq; r++) {
    int64_t lo, hi;
    attn_problem_visible(&plan->p, sq, sk, r % sq, &lo, &hi);
    t->lo[at + r] = (int32_t)lo;
    t->hi[at + r] = (int32_t)attn_most(hi, 0);
  }
}

static void step(struct attn_core *core, const struct attn_packed *x, const struct attn_task *task,
                 struct attn_packed_tiles *t, struct attn_span span, int64_t j, int64_t nj)
{
  const struct attn_plan *plan = x->plan;
  const struct attn_block *block = attn_block();
  int64_t d = plan->p.d, dv = plan->p.dv, n = t->rows;
  attn_view_load(core, attn_view_keys(plan, x->args, task, task->h), j, nj, d, t->kv, t->ldk);
  block->product(nj, n, d, (struct attn_operand){t->kv, t->ldk, 1}, t->q, t->ld, t->s, t->ld, NULL,
                 false);
  struct attn_score how = attn_score_of(plan, task, task->h, 0, j, nj, span, t->lo, t->hi);
  block->score(t->s, t->ld, n, nj, &how, NULL);
  block->online(t->s, t->ld, n, nj, t->m, t->l, t->alpha);
  attn_view_load(core, attn_view_values(plan, x->args, task, task->h), j, nj, dv, t->kv, t->ldv);
  block->product(n, dv, nj, (struct attn_operand){t->s, 1, t->ld}, t->kv, t->ldv, t->o, t->ldv,
                 j == span.lo ? NULL : t->alpha, true);
}

void attn_packed_sweep(struct attn_core *core, const struct attn_packed *x,
                       const struct attn_task *task, struct attn_packed_tiles *t,
                       struct attn_span span)
{
  int64_t stream = x->plan->q.stream;
  for (int64_t j = span.lo; j < span.hi; j += stream)
    step(core, x, task, t, span, j, attn_least(stream, span.hi - j));
}

/* To its place if the part is the only one, else to the workspace. */
void attn_packed_finish(struct attn_core *core, const struct attn_packed *x,
                        const struct attn_task *task, struct attn_packed_tiles *t, int64_t at,
                        int64_t part)
{
  const struct attn_plan *plan = x->plan;
  int64_t dv = plan->p.dv, sq = task->seq->sq, n = plan->group * sq;
  int64_t slot = first_part(x, task->b, task->h) + part;
  if (parts_of(x, task->b) == 1) {
    struct attn_task head = *task;
    head.row = 0;
    head.rows = sq;
    for (int64_t g = 0; g < plan->group; g++) {
      head.h = task->h * plan->group + g;
      attn_finish_rows(core, plan, x->args, &head, t->o + (at + g * sq) * t->ldv, t->ldv,
                       t->m + at + g * sq, t->l + at + g * sq);
    }
    return;
  }
  attn_block()->divide(t->o + at * t->ldv, t->ldv, n, dv, t->l + at);
  for (int64_t r = at; r < at + n; r++)
    t->m[r] += logf(t->l[r]);
  attn_tile_store(core, t->o + at * t->ldv, t->ldv, ATTN_F32, part_at(x, slot), dv, n, dv);
  attn_tile_store(core, t->m + at, n, ATTN_F32, part_lse(x, task->seq, slot), n, 1, n);
}

struct attn_span attn_packed_span(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t row,
                                  int64_t rows)
{
  struct attn_span s = attn_span_of(p, sq, sk, 0, sq);
  s.lo = attn_most(s.lo, row);
  s.hi = attn_least(s.hi, row + rows);
  return s;
}

/* ---- the passes ------------------------------------------------------------------------------ */

/* A part of one KV head of one sequence. */
static int attend(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_packed *x = ctx;
  const struct attn_plan *plan = x->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_K_GROUP, i, x->args);
  int64_t sq = task.seq->sq;
  struct attn_packed_tiles t;
  if (!sq)
    return ATTN_OK;
  if (attn_packed_alloc(core, plan, plan->group * sq, &t))
    return ATTN_ENOMEM;
  attn_task_scales(core, plan, x->args, task.h, &task);
  attn_packed_begin(core, x, &task, &t, 0);
  attn_packed_sweep(core, x, &task, &t,
                    attn_packed_span(&plan->p, sq, task.seq->sk, task.row, task.rows));
  attn_packed_finish(core, x, &task, &t, 0, x->shared + task.tile);
  return ATTN_OK;
}

/* shapes: o, part (rows, dv)  the rest (rows) */
struct merge_tiles {
  float *o, *part, *top, *sum, *lse;
};

static int merge_alloc(struct attn_core *core, int64_t rows, int64_t ld, struct merge_tiles *t)
{
  int64_t padded = attn_round_up(rows, 8);
  t->o = attn_tile_alloc(core, padded * ld);
  t->part = attn_tile_alloc(core, padded * ld);
  t->top = attn_tile_alloc(core, padded);
  t->sum = attn_tile_alloc(core, padded);
  t->lse = attn_tile_alloc(core, padded);
  if (!t->lse)
    return ATTN_ENOMEM;
  for (int64_t i = 0; i < padded * ld; i++)
    t->o[i] = 0;
  for (int64_t r = 0; r < padded; r++) {
    t->top[r] = -INFINITY;
    t->sum[r] = 0;
  }
  return ATTN_OK;
}

static void load_lse(struct attn_core *core, const struct attn_packed *x,
                     const struct attn_task *task, int64_t part, int64_t row, float *lse)
{
  int64_t n = task->rows;
  attn_tile_load(core, lse, attn_round_up(n, 8), ATTN_F32, part_lse(x, task->seq, part) + row, n, 1,
                 n);
}

/* One query head of one sequence. */
static int merge(struct attn_core *core, int64_t i, void *ctx)
{
  const struct attn_packed *x = ctx;
  const struct attn_plan *plan = x->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, x->args);
  int64_t n = task.rows, dv = plan->p.dv, ld = attn_round_up(dv, 8);
  int64_t parts = parts_of(x, task.b), row = task.h % plan->group * n;
  int64_t first = first_part(x, task.b, task.h / plan->group);
  struct merge_tiles t;
  if (parts == 1)
    return ATTN_OK;
  if (merge_alloc(core, n, ld, &t))
    return ATTN_ENOMEM;
  for (int64_t k = first; k < first + parts; k++) {
    load_lse(core, x, &task, k, row, t.lse);
    attn_merge_top(t.top, t.lse, n);
  }
  for (int64_t k = first; k < first + parts; k++) {
    load_lse(core, x, &task, k, row, t.lse);
    attn_tile_load(core, t.part, ld, ATTN_F32, part_at(x, k) + row * dv, dv, n, dv);
    attn_merge_add(t.o, t.sum, t.top, t.part, t.lse, n, ld, dv);
  }
  attn_merge_end(t.o, t.sum, t.top, n, ld, dv);
  attn_view_store(core, attn_view_q(plan, &x->args->o, &task, task.h), 0, n, dv, t.o, ld);
  attn_tile_store(core, t.top, n, ATTN_F32, attn_lse_of(plan, x->args, &task, task.h), n, 1, n);
  return ATTN_OK;
}

int attn_packed_run(struct attn_machine *m, struct attn_packed *x)
{
  int status = m->parallel(m, attn_grid_tasks(x->plan, ATTN_GRID_K_GROUP), attend, x);
  return status ? status : m->parallel(m, attn_grid_tasks(x->plan, ATTN_GRID_Q), merge, x);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* One KV head of one sequence. */
static void head_traffic(const struct attn_problem *p, const struct attn_run *run, int64_t stream,
                         int64_t from, int64_t shared, struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype), group = (double)(p->hq / p->hkv);
  double rows = group * (double)run->sq, part = rows * (double)(p->dv + 1) * 4;
  int64_t own = attn_tiles(run->sk - from, ATTN_PART), parts = shared + own;
  int64_t keys = attn_tile_rows(run->sk - from, ATTN_PART);
  t->read_bytes += (double)own * attn_task_bytes(p);
  if (!run->sq)
    return;
  for (int64_t j = from; j < run->sk; j += keys) {
    struct attn_span s = attn_packed_span(p, run->sq, run->sk, j, attn_least(keys, run->sk - j));
    t->read_bytes += rows * (double)p->d * size;
    t->read_bytes += (double)attn_most(s.hi - s.lo, 0) * attn_key_bytes(p) + attn_scale_bytes(p);
    t->read_bytes += 8 * attn_table_entries(p, s.lo, s.hi, stream);
  }
  if (parts > 1) {
    t->write_bytes += (double)parts * part;
    t->read_bytes += (double)parts * (part + rows * 4);
  }
  t->read_bytes += group * attn_task_bytes(p);
  t->write_bytes += rows * ((double)p->dv * size + 4);
}

void attn_packed_traffic(const struct attn_problem *p, int64_t stream, int64_t from, int64_t shared,
                         struct attn_traffic *t)
{
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    head_traffic(p, &run, stream, from, shared, &head);
    attn_traffic_add(t, &head, run.count * p->hkv);
  }
}
