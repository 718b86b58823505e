/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - tile sizes, grids of tasks, and the way from a task to rows in HBM.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "impl/cpu/plan.h"
#include "impl/dropout.h"

/* ---- tile sizes ------------------------------------------------------------------------------ */

static int64_t floats_of(const struct attn_footprint *f, int64_t rows)
{
  return f->per_lane * attn_lanes(rows) + f->per_row * rows + f->fixed;
}

int64_t attn_fit(size_t sram_bytes, const struct attn_footprint *f, int64_t len)
{
  int64_t room = (int64_t)(sram_bytes / sizeof(float));
  int64_t guess = (room - f->fixed) / (f->per_lane + f->per_row); /* lanes add to it: too many */
  int64_t rows = attn_least(attn_round_up(len, 8), attn_most(guess, 0) / 8 * 8);
  while (rows > 0 && floats_of(f, rows) > room)
    rows -= 8;
  return rows;
}

struct attn_tiling attn_tile(const struct attn_problem *p, size_t sram_bytes, int64_t len,
                             attn_footprint_of *of)
{
  for (int64_t stream = ATTN_STREAM_MAX; stream >= 8; stream /= 2) {
    struct attn_footprint f = of(p, stream);
    int64_t rows = attn_fit(sram_bytes, &f, len);
    if (rows >= attn_least(stream, attn_round_up(len, 8)))
      return (struct attn_tiling){rows, stream, 0};
  }
  return (struct attn_tiling){0, 8, 0};
}

/* As even as multiples of 8 can be, and no more tiles than max asks for. */
int64_t attn_tile_rows(int64_t len, int64_t max)
{
  int64_t tiles = (len + max - 1) / max;
  return tiles ? attn_round_up((len + tiles - 1) / tiles, 8) : max;
}

int64_t attn_tiles(int64_t len, int64_t max)
{
  int64_t rows = attn_tile_rows(len, max);
  return (len + rows - 1) / rows;
}

int attn_run_count(const struct attn_problem *p)
{
  return p->nruns ? p->nruns : 1;
}

struct attn_run attn_run_of(const struct attn_problem *p, int r)
{
  return p->nruns ? p->runs[r] : (struct attn_run){p->b, p->sq, p->sk};
}

void attn_traffic_add(struct attn_traffic *t, const struct attn_traffic *x, int64_t n)
{
  t->read_bytes += (double)n * x->read_bytes;
  t->write_bytes += (double)n * x->write_bytes;
}

double attn_table_entries(const struct attn_problem *p, int64_t lo, int64_t hi, int64_t step)
{
  double sum = 0;
  for (int64_t j = lo; p->page && j < hi; j += step)
    sum += (double)((attn_least(j + step, hi) - 1) / p->page - j / p->page + 1);
  return sum;
}

static _Thread_local char refusal[192];

const char *attn_sram_too_small(const struct attn_problem *p, const struct attn_device *dev,
                                attn_footprint_of *of)
{
  struct attn_footprint f = of(p, 8);
  snprintf(refusal, sizeof refusal,
           "SRAM of %zu bytes cannot hold a tile set for d=%lld dv=%lld, which takes %lld bytes",
           dev->sram_bytes, (long long)p->d, (long long)p->dv,
           (long long)floats_of(&f, 8) * (long long)sizeof(float));
  return refusal;
}

/* ---- grids ----------------------------------------------------------------------------------- */

static int64_t length_of(const struct attn_grid *g, const struct attn_extent *seq)
{
  return (g->keys ? seq->sk : seq->sq) - g->from;
}

int64_t attn_grid_rows(const struct attn_grid *g, const struct attn_extent *seq)
{
  int64_t len = length_of(g, seq);
  if (g->rows)
    return attn_tile_rows(len, g->rows);
  return attn_most(8, attn_round_up((len + g->parts - 1) / g->parts, 8));
}

static int grid_init(struct attn_plan *plan, struct attn_grid *g)
{
  int64_t b = plan->p.b, sum = 0;
  if (!g->rows && !g->parts) /* the plan does without it */
    return ATTN_OK;
  g->first = malloc((size_t)(b + 1) * sizeof *g->first);
  if (!g->first)
    return ATTN_ENOMEM;
  for (int64_t s = 0; s < b; s++) {
    int64_t rows = attn_grid_rows(g, &plan->seq[s]);
    g->first[s] = sum;
    sum += (length_of(g, &plan->seq[s]) + rows - 1) / rows;
  }
  g->first[b] = sum;
  return ATTN_OK;
}

int64_t attn_grid_tasks(const struct attn_plan *plan, int which)
{
  const struct attn_grid *g = &plan->grid[which];
  return g->first[plan->p.b] * g->heads;
}

struct attn_task attn_task_of(struct attn_core *core, const struct attn_plan *plan, int64_t b,
                              int64_t h, const struct attn_args *args)
{
  struct attn_task t = {.seq = &plan->seq[b], .b = b, .h = h};
  if (plan->p.nruns)
    t.q0 = attn_index_load(core, args->cu_seqlens_q + b);
  if (plan->p.page)
    t.table = args->block_table + b * args->block_table_stride;
  else if (plan->p.nruns)
    t.k0 = attn_index_load(core, args->cu_seqlens_k + b);
  return t;
}

struct attn_task attn_task_find(struct attn_core *core, const struct attn_plan *plan, int which,
                                int64_t i, const struct attn_args *args)
{
  const struct attn_grid *g = &plan->grid[which];
  int64_t lo = 0, hi = plan->p.b;
  while (hi - lo > 1) { /* the last sequence whose first task is not beyond i */
    int64_t mid = lo + (hi - lo) / 2;
    if (g->first[mid] * g->heads <= i)
      lo = mid;
    else
      hi = mid;
  }
  int64_t tiles = g->first[lo + 1] - g->first[lo], rank = i - g->first[lo] * g->heads;
  struct attn_task t = attn_task_of(core, plan, lo, rank / tiles, args);
  int64_t rows = attn_grid_rows(g, t.seq);
  t.tile = rank % tiles;
  t.row = g->from + t.tile * rows;
  t.rows = attn_least(rows, g->from + length_of(g, t.seq) - t.row);
  return t;
}

double attn_task_bytes(const struct attn_problem *p)
{
  return p->nruns ? (p->page ? 1 : 2) * sizeof(int32_t) : 0;
}

void attn_task_scales(struct attn_core *core, const struct attn_plan *plan,
                      const struct attn_args *args, int64_t h, struct attn_task *task)
{
  if (plan->p.kv != ATTN_KV_E4M3)
    return;
  attn_tile_load(core, &task->k_scale, 1, ATTN_F32, args->k_scale + h, 1, 1, 1);
  attn_tile_load(core, &task->v_scale, 1, ATTN_F32, args->v_scale + h, 1, 1, 1);
}

double attn_scale_bytes(const struct attn_problem *p)
{
  return p->kv == ATTN_KV_E4M3 ? 2 * sizeof(float) : 0;
}

double attn_key_bytes(const struct attn_problem *p)
{
  return (double)(p->d + p->dv) * (double)attn_dtype_size(attn_problem_kv_type(p));
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int extents_init(struct attn_plan *plan)
{
  struct attn_extent at = {0};
  plan->seq = malloc((size_t)(plan->p.b + 1) * sizeof *plan->seq);
  if (!plan->seq)
    return ATTN_ENOMEM;
  for (int64_t s = 0; s < plan->p.b; s++) {
    attn_problem_seq(&plan->p, s, &at.sq, &at.sk);
    plan->seq[s] = at;
    at.q_first += at.sq;
    at.k_first += at.sk;
    at.pairs_first += at.sq * at.sk;
    at.steps_first += at.sq * ((at.sk + plan->q.stream - 1) / plan->q.stream);
  }
  plan->seq[plan->p.b] = at;
  plan->total_q = at.q_first;
  plan->total_k = at.k_first;
  return ATTN_OK;
}

struct attn_plan *attn_plan_create(const struct attn_problem *p, struct attn_tiling q,
                                   struct attn_tiling k, int64_t splits)
{
  struct attn_plan *plan = calloc(1, sizeof *plan);
  if (!plan)
    return NULL;
  plan->p = *p;
  plan->scale = (float)attn_problem_scale(p);
  plan->group = p->hq / p->hkv;
  plan->q = q;
  plan->k = k;
  plan->grid[ATTN_GRID_Q] = (struct attn_grid){false, p->hq, q.rows, 0, 0, NULL};
  plan->grid[ATTN_GRID_SPLIT] = (struct attn_grid){true, p->hq, 0, splits, 0, NULL};
  plan->grid[ATTN_GRID_Q_STREAM] = (struct attn_grid){false, p->hq, k.stream, 0, 0, NULL};
  plan->grid[ATTN_GRID_K_GROUP] = (struct attn_grid){true, p->hkv, k.stream, 0, k.from, NULL};
  int status = extents_init(plan);
  for (int i = 0; i < ATTN_GRIDS && !status; i++)
    status = grid_init(plan, &plan->grid[i]);
  if (status) {
    attn_plan_destroy(plan);
    return NULL;
  }
  return plan;
}

void attn_plan_destroy(void *arg)
{
  struct attn_plan *plan = arg;
  if (!plan)
    return;
  for (int i = 0; i < ATTN_GRIDS; i++)
    free(plan->grid[i].first);
  free(plan->seq);
  free(plan);
}

/* ---- rows in HBM ----------------------------------------------------------------------------- */

static struct attn_view view(enum attn_dtype type, const struct attn_tensor *t, int64_t b,
                             int64_t row0, int64_t h)
{
  int64_t at = b * t->sb + row0 * t->ss + h * t->sh;
  return (struct attn_view){.data = (char *)t->data + at * (int64_t)attn_dtype_size(type),
                            .stride = t->ss,
                            .dtype = type};
}

struct attn_view attn_view_q(const struct attn_plan *plan, const struct attn_tensor *t,
                             const struct attn_task *task, int64_t h)
{
  return view(plan->p.dtype, t, task->b, task->q0, h);
}

struct attn_view attn_view_k(const struct attn_plan *plan, const struct attn_tensor *t,
                             const struct attn_task *task, int64_t h)
{
  if (!plan->p.page)
    return view(plan->p.dtype, t, task->b, task->k0, h);
  struct attn_view v = view(attn_problem_kv_type(&plan->p), t, 0, 0, h);
  v.page = plan->p.page;
  v.page_stride = t->sb;
  v.table = task->table;
  return v;
}

struct attn_view attn_view_keys(const struct attn_plan *plan, const struct attn_args *args,
                                const struct attn_task *task, int64_t h)
{
  struct attn_view v = attn_view_k(plan, &args->k, task, h);
  v.factor = task->k_scale;
  return v;
}

struct attn_view attn_view_values(const struct attn_plan *plan, const struct attn_args *args,
                                  const struct attn_task *task, int64_t h)
{
  struct attn_view v = attn_view_k(plan, &args->v, task, h);
  v.factor = task->v_scale;
  return v;
}

float *attn_lse_of(const struct attn_plan *plan, const struct attn_args *args,
                   const struct attn_task *task, int64_t h)
{
  if (plan->p.nruns)
    return args->lse + h * plan->total_q + task->q0;
  return args->lse + (task->b * plan->p.hq + h) * plan->p.sq;
}

static char *row_of(struct attn_view v, int64_t row)
{
  return v.data + row * v.stride * (int64_t)attn_dtype_size(v.dtype);
}

void attn_view_load(struct attn_core *core, struct attn_view v, int64_t row, int64_t rows,
                    int64_t cols, float *tile, int64_t ld)
{
  int64_t n = rows, page = 0, slot = row;
  for (int64_t r = 0; r < rows; r += n) {
    if (v.page) {
      page = attn_index_load(core, v.table + (row + r) / v.page) * v.page_stride;
      slot = (row + r) % v.page;
      n = attn_least(v.page - slot, rows - r);
    }
    const char *from = row_of(v, slot) + page * (int64_t)attn_dtype_size(v.dtype);
    attn_tile_load(core, tile + r * ld, ld, v.dtype, from, v.stride, n, cols);
  }
  if (v.factor > 0)
    attn_block()->scale(tile, ld, rows, cols, v.factor);
}

void attn_view_store(struct attn_core *core, struct attn_view v, int64_t row, int64_t rows,
                     int64_t cols, const float *tile, int64_t ld)
{
  attn_tile_store(core, tile, ld, v.dtype, row_of(v, row), v.stride, rows, cols);
}

void attn_view_load_transposed(struct attn_core *core, struct attn_view v, int64_t row,
                               int64_t rows, int64_t cols, float *tile, int64_t ld, float *staging,
                               int64_t strip)
{
  int64_t width = attn_round_up(cols, 8);
  for (int64_t r = 0; r < rows; r += strip) {
    int64_t n = attn_least(strip, rows - r);
    attn_view_load(core, v, row + r, n, cols, staging, width);
    attn_block()->transpose(staging, width, n, cols, tile + r, ld);
  }
}

void attn_finish_rows(struct attn_core *core, const struct attn_plan *plan,
                      const struct attn_args *args, const struct attn_task *task, float *o,
                      int64_t ldv, float *m, const float *l)
{
  int64_t n = task->rows, dv = plan->p.dv;
  attn_block()->divide(o, ldv, n, dv, l);
  attn_view_store(core, attn_view_q(plan, &args->o, task, task->h), task->row, n, dv, o, ldv);
  for (int64_t r = 0; r < n; r++)
    m[r] += logf(l[r]);
  float *lse = attn_lse_of(plan, args, task, task->h) + task->row;
  attn_tile_store(core, m, n, ATTN_F32, lse, n, 1, n);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Both ends of the visible range move forward with the query. */
struct attn_span attn_span_of(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i,
                              int64_t n)
{
  struct attn_span s;
  attn_problem_visible(p, sq, sk, i, &s.lo, &s.all_hi);
  attn_problem_visible(p, sq, sk, i + n - 1, &s.all_lo, &s.hi);
  return s;
}

void attn_visible_lanes(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i, int64_t n,
                        attn_sram_int *lo, attn_sram_int *hi)
{
  for (int64_t r = 0; r < attn_round_up(n, 8); r++) {
    int64_t from = 0, to = 0;
    if (r < n)
      attn_problem_visible(p, sq, sk, i + r, &from, &to);
    lo[r] = (int32_t)from;
    hi[r] = (int32_t)attn_most(to, 0);
  }
}

/* The ALiBi paper's slopes: powers of 2^(-8/n) for n a power of two; otherwise those of the next
 * lower power, then every other one of its double. */
static double slope_of(int64_t hq, int64_t h)
{
  int64_t n = 1;
  while (2 * n <= hq)
    n *= 2;
  if (h < n)
    return exp2(-8.0 * (double)(h + 1) / (double)n);
  return exp2(-8.0 * (double)(2 * (h - n) + 1) / (double)(2 * n));
}

struct attn_score attn_score_of(const struct attn_plan *plan, const struct attn_task *task,
                                int64_t h, int64_t i, int64_t j, int64_t nj, struct attn_span span,
                                const attn_sram_int *lo, const attn_sram_int *hi)
{
  bool all = span.all_lo <= j && j + nj <= span.all_hi;
  return (struct attn_score){
      .scale = plan->scale,
      .softcap = (float)plan->p.softcap,
      .slope = plan->p.alibi ? (float)slope_of(plan->p.hq, h) : 0,
      .i0 = (int32_t)i,
      .j0 = (int32_t)j,
      .shift = (int32_t)(task->seq->sk - task->seq->sq),
      .lo = all ? NULL : lo,
      .hi = all ? NULL : hi,
  };
}

void attn_drop(const struct attn_plan *plan, const struct attn_task *task, int64_t h, int64_t i,
               int64_t j, float *s, int64_t ld, int64_t ni, int64_t nj)
{
  const struct attn_problem *p = &plan->p;
  if (!(p->dropout_p > 0))
    return;
  uint32_t threshold = attn_dropout_threshold(p->dropout_p);
  struct attn_keep keep = {
      .key = attn_dropout_key(p->dropout_seed, task->b, p->hq, h),
      .high = (uint32_t)(p->dropout_seed >> 32),
      .threshold = threshold,
      .scale = attn_dropout_scale(threshold),
      .i0 = i,
      .j0 = j,
  };
  attn_block()->dropout(s, ld, ni, nj, &keep);
}
