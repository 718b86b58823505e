/* SPDX-License-Identifier: Apache-2.0
 *
 * split-decode.c - cpu/split-decode: few queries on a long cache, contiguous or paged.
 *
 * The keys of a KV head are cut into parts of at most PART, each a task: all queries of all heads
 * that share the KV head stay in SRAM, row g*seqlen_q + i for query i of the g-th head, so that K
 * and V are read once and not once a query head.  Parts leave O and LSE in fp32; a second pass
 * merges them.  Where one part is all, it writes the result itself.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/plan.h"
#include "impl/cpu/split-decode.h"

#define PART 512   /* partial results then cost little beside so many keys and values */
#define LANE_PAD 7 /* heads are transposed one by one, and each pads to 8 lanes */

struct pass {
  struct attn_plan *plan;
  const struct attn_args *args;
};

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

static float *part_at(const struct pass *x, int64_t part)
{
  return (float *)x->args->workspace + part * part_floats(&x->plan->p);
}

static float *part_lse(const struct pass *x, const struct attn_extent *seq, int64_t part)
{
  return part_at(x, part) + x->plan->group * seq->sq * x->plan->p.dv;
}

static int64_t parts_of(const struct attn_plan *plan, int64_t b)
{
  const int64_t *first = plan->grid[ATTN_GRID_K_GROUP].first;
  return first[b + 1] - first[b];
}

static int64_t first_part(const struct attn_plan *plan, int64_t b, int64_t hkv)
{
  return plan->grid[ATTN_GRID_K_GROUP].first[b] * plan->p.hkv + hkv * parts_of(plan, b);
}

/* shapes: q (d, ld)  kv (stream, d|dv)  s (stream, ld)  o (rows, dv)  the rest (rows) */
struct tiles {
  int64_t rows, ld, ldk, ldv;
  float *q, *kv, *s, *o, *m, *l, *alpha;
  attn_sram_int *lo, *hi;
};

static struct attn_footprint footprint(const struct attn_problem *p, int64_t stream)
{
  int64_t dk = attn_round_up(p->d, 8), dv = attn_round_up(p->dv, 8);
  return (struct attn_footprint){p->d + stream, dv + 5, stream * attn_most(dk, dv)};
}

static int tiles_alloc(struct attn_core *core, const struct attn_plan *plan, int64_t rows,
                       struct tiles *t)
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
  return t->hi ? ATTN_OK : ATTN_ENOMEM; /* after a refusal all are refused */
}

/* The queries of all heads of the group, what they see, and nothing summed yet. */
static void begin(struct attn_core *core, const struct pass *x, const struct attn_task *task,
                  struct tiles *t)
{
  const struct attn_plan *plan = x->plan;
  int64_t sq = task->seq->sq, sk = task->seq->sk;
  for (int64_t g = 0; g < plan->group; g++) {
    struct attn_view q = attn_view_q(plan, &x->args->q, task, task->h * plan->group + g);
    attn_view_load_transposed(core, q, 0, sq, plan->p.d, t->q + g * sq, t->ld, t->kv,
                              plan->q.stream);
  }
  for (int64_t r = 0; r < attn_round_up(t->rows, 8); r++) {
    int64_t lo = 0, hi = 0;
    if (r < t->rows)
      attn_problem_visible(&plan->p, sq, sk, r % sq, &lo, &hi);
    t->lo[r] = (int32_t)lo;
    t->hi[r] = (int32_t)attn_most(hi, 0);
    t->m[r] = -INFINITY;
    t->l[r] = 0;
  }
}

static void step(struct attn_core *core, const struct pass *x, const struct attn_task *task,
                 struct tiles *t, struct attn_span span, int64_t j, int64_t nj, bool first)
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
                 first ? NULL : t->alpha, true);
}

/* O and LSE of the part: to their place if it is the only one, else to the workspace. */
static void finish_part(struct attn_core *core, const struct pass *x, struct attn_task *task,
                        int64_t part, struct tiles *t)
{
  const struct attn_plan *plan = x->plan;
  int64_t dv = plan->p.dv, sq = task->seq->sq, n = t->rows;
  if (parts_of(plan, task->b) == 1) {
    struct attn_task head = *task;
    head.row = 0;
    head.rows = sq;
    for (int64_t g = 0; g < plan->group; g++) {
      head.h = task->h * plan->group + g;
      attn_finish_rows(core, plan, x->args, &head, t->o + g * sq * t->ldv, t->ldv, t->m + g * sq,
                       t->l + g * sq);
    }
    return;
  }
  attn_block()->divide(t->o, t->ldv, n, dv, t->l);
  for (int64_t r = 0; r < n; r++)
    t->m[r] += logf(t->l[r]);
  attn_tile_store(core, t->o, t->ldv, ATTN_F32, part_at(x, part), dv, n, dv);
  attn_tile_store(core, t->m, n, ATTN_F32, part_lse(x, task->seq, part), n, 1, n);
}

/* Keys of a part that some query sees. */
static struct attn_span part_span(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t row,
                                  int64_t rows)
{
  struct attn_span s = attn_span_of(p, sq, sk, 0, sq);
  s.lo = attn_most(s.lo, row);
  s.hi = attn_least(s.hi, row + rows);
  return s;
}

static int attend(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_plan *plan = x->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_K_GROUP, i, x->args);
  struct tiles t;
  if (!task.seq->sq)
    return ATTN_OK;
  if (tiles_alloc(core, plan, plan->group * task.seq->sq, &t))
    return ATTN_ENOMEM;
  attn_task_scales(core, plan, x->args, task.h, &task);
  begin(core, x, &task, &t);
  struct attn_span s = part_span(&plan->p, task.seq->sq, task.seq->sk, task.row, task.rows);
  for (int64_t j = s.lo; j < s.hi; j += plan->q.stream)
    step(core, x, &task, &t, s, j, attn_least(plan->q.stream, s.hi - j), j == s.lo);
  finish_part(core, x, &task, i, &t);
  return ATTN_OK;
}

/* ---- the second pass ------------------------------------------------------------------------- */

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

static void load_lse(struct attn_core *core, const struct pass *x, const struct attn_task *task,
                     int64_t part, int64_t row, float *lse)
{
  int64_t n = task->rows;
  attn_tile_load(core, lse, attn_round_up(n, 8), ATTN_F32, part_lse(x, task->seq, part) + row, n, 1,
                 n);
}

/* One query head of one sequence. */
static int merge(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_plan *plan = x->plan;
  struct attn_task task = attn_task_find(core, plan, ATTN_GRID_Q, i, x->args);
  int64_t n = task.rows, dv = plan->p.dv, ld = attn_round_up(dv, 8);
  int64_t parts = parts_of(plan, task.b), row = task.h % plan->group * n;
  int64_t first = first_part(plan, task.b, task.h / plan->group);
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

/* ---- the implementation ---------------------------------------------------------------------- */

static int64_t lanes_of(const struct attn_problem *p)
{
  return attn_round_up(p->hq / p->hkv * p->sq + LANE_PAD, 8);
}

static struct attn_tiling tiling_q(const struct attn_problem *p, const struct attn_device *dev)
{
  struct attn_tiling t = attn_tile(p, dev->sram_bytes, lanes_of(p), footprint);
  return t.rows < lanes_of(p) ? (struct attn_tiling){0, 8} : t;
}

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  static _Thread_local char text[192];
  if (p->op == ATTN_BWD)
    return "forward only";
  if (p->alibi)
    return "alibi: the packed heads share one slope";
  if (p->dropout_p > 0)
    return "dropout: a cache is read at inference";
  if (tiling_q(p, dev).rows)
    return NULL;
  snprintf(text, sizeof text,
           "SRAM of %zu bytes cannot hold the %lld queries of a group beside a tile of keys",
           dev->sram_bytes, (long long)(p->hq / p->hkv * p->sq));
  return text;
}

static int64_t all_parts(const struct attn_problem *p)
{
  int64_t sum = 0;
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    sum += run.count * p->hkv * attn_tiles(run.sk, PART);
  }
  return sum;
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return (size_t)(all_parts(p) * part_floats(p)) * sizeof(float);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct attn_tiling q = {attn_round_up(p->sq, 8), tiling_q(p, dev).stream};
  *plan = attn_plan_create(p, q, (struct attn_tiling){0, PART}, 0);
  return *plan ? ATTN_OK : ATTN_ENOMEM;
}

static int run(void *arg, const struct attn_args *args, void *stream)
{
  struct attn_machine *m = stream;
  struct pass x = {arg, args};
  int status = m->parallel(m, attn_grid_tasks(x.plan, ATTN_GRID_K_GROUP), attend, &x);
  return status ? status : m->parallel(m, attn_grid_tasks(x.plan, ATTN_GRID_Q), merge, &x);
}

/* One KV head of one sequence. */
static void head_traffic(const struct attn_problem *p, const struct attn_run *run, int64_t stream,
                         struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype), group = (double)(p->hq / p->hkv);
  double rows = group * (double)run->sq, part = rows * (double)(p->dv + 1) * 4;
  int64_t parts = attn_tiles(run->sk, PART), keys = attn_tile_rows(run->sk, PART);
  t->read_bytes += (double)parts * attn_task_bytes(p);
  if (!run->sq)
    return;
  for (int64_t j = 0; j < run->sk; j += keys) {
    struct attn_span s = part_span(p, run->sq, run->sk, j, attn_least(keys, run->sk - j));
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

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  *t = (struct attn_traffic){0, 0};
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    struct attn_traffic head = {0, 0};
    head_traffic(p, &run, tiling_q(p, dev).stream, &head);
    attn_traffic_add(t, &head, run.count * p->hkv);
  }
}

const struct attn_impl attn_cpu_split_decode = {
    .abi = ATTN_ABI,
    .name = "cpu/split-decode",
    .device = ATTN_CPU,
    .summary = "query heads of a group packed, keys in parts, merged by LSE; contiguous or paged",
    .provenance = "attnbench; after Dao et al., Flash-Decoding (2023)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_F32, .grad = ATTN_ROUND_F32},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = attn_plan_destroy,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
