/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.c - cpu/rope and cpu/rope-fp32: rotate Q, rotate K and append K and V to the cache, in one
 * pass.
 *
 * A task is some new tokens of one sequence.  It computes their cosines and sines once, for all
 * heads, and finds the pages of the tokens once, for K and V; then every row is loaded, turned and
 * stored, so that the bytes moved are the compulsory ones (a page that two tasks share is looked up
 * twice).  cpu/rope has its angles in fixed point, good at any position; cpu/rope-fp32 multiplies
 * position and frequency in fp32, as is common, and loses what that loses.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/plan.h"
#include "impl/rope.h"

#define ROWS 64 /* tokens of a task, if SRAM holds them */

struct pass {
  const struct attn_problem *p;
  const struct attn_args *args;
  int64_t rows, tiles; /* tokens of a task, tasks of a sequence */
  bool fp32;
};

/* shapes: cosine, sine (rows, half)  x (rows, ld)  page (rows) */
struct tiles {
  int64_t half, ld;
  float *cosine, *sine, *x;
  attn_sram_int *page;
};

/* New tokens of a sequence. */
struct tokens {
  int64_t b, sq, sk, row, rows; /* row counts from the first new token */
  int64_t q0, k0;               /* first rows of the sequence in packed tensors */
};

/* ---- tiles ----------------------------------------------------------------------------------- */

static int64_t floats_of(const struct attn_problem *p, int64_t rows)
{
  int64_t half = attn_round_up(p->rope.rotary / 2, 8);
  int64_t ld = attn_round_up(attn_most(p->d, p->dv), 8);
  return rows * (2 * half + ld) + attn_round_up(rows, 8);
}

/* Tokens of a task; 0: SRAM does not hold one. */
static int64_t rows_of(const struct attn_problem *p, size_t sram_bytes)
{
  int64_t rows = attn_least(ROWS, p->sq);
  while (rows > 0 && floats_of(p, rows) > (int64_t)(sram_bytes / sizeof(float)))
    rows--;
  return rows;
}

static int tiles_alloc(struct attn_core *core, const struct attn_problem *p, int64_t rows,
                       struct tiles *t)
{
  t->half = attn_round_up(p->rope.rotary / 2, 8);
  t->ld = attn_round_up(attn_most(p->d, p->dv), 8);
  t->cosine = attn_tile_alloc(core, rows * t->half);
  t->sine = attn_tile_alloc(core, rows * t->half);
  t->x = attn_tile_alloc(core, rows * t->ld);
  t->page = (attn_sram_int *)attn_tile_alloc(core, rows);
  return t->page ? ATTN_OK : ATTN_ENOMEM;
}

/* ---- angles ---------------------------------------------------------------------------------- */

static int64_t position_of(const struct tokens *at, int64_t n)
{
  return at->sk - at->sq + at->row + n;
}

/* Cosine and sine of pair i at every token of the task. */
static void turn(const struct attn_rope *r, double frequency, const struct tokens *at, int64_t i,
                 struct tiles *t)
{
  uint64_t turns = attn_rope_turns(frequency);
  for (int64_t n = 0; n < at->rows; n++) {
    double angle = attn_rope_angle(turns, position_of(at, n));
    t->cosine[n * t->half + i] = (float)(r->attention * cos(angle));
    t->sine[n * t->half + i] = (float)(r->attention * sin(angle));
  }
}

static void turn_in_fp32(const struct attn_rope *r, double frequency, const struct tokens *at,
                         int64_t i, struct tiles *t)
{
  for (int64_t n = 0; n < at->rows; n++) {
    float angle = (float)position_of(at, n) * (float)frequency;
    t->cosine[n * t->half + i] = (float)r->attention * cosf(angle);
    t->sine[n * t->half + i] = (float)r->attention * sinf(angle);
  }
}

static void make_angles(const struct pass *x, const struct tokens *at, struct tiles *t)
{
  const struct attn_rope *r = &x->p->rope;
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    double frequency = attn_rope_frequency(r, at->sk, i);
    if (x->fp32)
      turn_in_fp32(r, frequency, at, i, t);
    else
      turn(r, frequency, at, i, t);
  }
}

/* Elements beyond rotary stay. */
static void rotate(const struct attn_rope *r, int64_t rows, struct tiles *t)
{
  for (int64_t n = 0; n < rows; n++) {
    const float *cosine = t->cosine + n * t->half, *sine = t->sine + n * t->half;
    float *x = t->x + n * t->ld;
    for (int64_t i = 0; i < r->rotary / 2; i++) {
      int64_t first = attn_rope_first(r, i), second = attn_rope_second(r, i);
      float a = x[first], b = x[second];
      x[first] = a * cosine[i] - b * sine[i];
      x[second] = a * sine[i] + b * cosine[i];
    }
  }
}

/* ---- rows in HBM ----------------------------------------------------------------------------- */

static char *place(const struct attn_problem *p, const struct attn_tensor *t, int64_t b,
                   int64_t row, int64_t h)
{
  int64_t at = b * t->sb + row * t->ss + h * t->sh;
  return (char *)t->data + at * (int64_t)attn_dtype_size(p->dtype);
}

static void load(struct attn_core *core, const struct pass *x, const struct tokens *at,
                 const struct attn_tensor *from, int64_t h, int64_t width, struct tiles *t)
{
  attn_tile_load(core, t->x, t->ld, x->p->dtype, place(x->p, from, at->b, at->q0 + at->row, h),
                 from->ss, at->rows, width);
}

/* The page of each token; one look into the table for each page. */
static void find_pages(struct attn_core *core, const struct pass *x, const struct tokens *at,
                       struct tiles *t)
{
  const int32_t *table = x->args->block_table + at->b * x->args->block_table_stride;
  int64_t page = x->p->page, first = position_of(at, 0);
  for (int64_t n = 0; n < at->rows; n++) {
    bool same = n && (first + n) % page;
    t->page[n] = same ? t->page[n - 1] : attn_index_load(core, table + (first + n) / page);
  }
}

/* Rows of the tile to the slots of the new tokens, as many at once as lie in one page. */
static void append(struct attn_core *core, const struct pass *x, const struct tokens *at,
                   const struct attn_tensor *to, int64_t h, int64_t width, const struct tiles *t)
{
  const struct attn_problem *p = x->p;
  int64_t first = position_of(at, 0), n = at->rows;
  for (int64_t r = 0; r < at->rows; r += n) {
    char *slot = place(p, to, at->b, at->k0 + first, h);
    if (p->page) {
      slot = place(p, to, t->page[r], (first + r) % p->page, h);
      n = attn_least(p->page - (first + r) % p->page, at->rows - r);
    }
    attn_tile_store(core, t->x + r * t->ld, t->ld, p->dtype, slot, to->ss, n, width);
  }
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void find_rows(struct attn_core *core, const struct pass *x, struct tokens *at,
                      struct tiles *t)
{
  if (x->p->nruns)
    at->q0 = attn_index_load(core, x->args->cu_seqlens_q + at->b);
  if (x->p->page)
    find_pages(core, x, at, t);
  else if (x->p->nruns)
    at->k0 = attn_index_load(core, x->args->cu_seqlens_k + at->b);
}

static int body(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_problem *p = x->p;
  const struct attn_args *a = x->args;
  struct tokens at = {.b = i / x->tiles, .row = i % x->tiles * x->rows};
  struct tiles t;
  attn_problem_seq(p, at.b, &at.sq, &at.sk);
  at.rows = attn_least(x->rows, at.sq - at.row);
  if (at.rows <= 0)
    return ATTN_OK;
  if (tiles_alloc(core, p, at.rows, &t))
    return ATTN_ENOMEM;
  find_rows(core, x, &at, &t);
  make_angles(x, &at, &t);
  for (int64_t h = 0; h < p->hq; h++) {
    load(core, x, &at, &a->q, h, p->d, &t);
    rotate(&p->rope, at.rows, &t);
    attn_tile_store(core, t.x, t.ld, p->dtype, place(p, &a->o, at.b, at.q0 + at.row, h), a->o.ss,
                    at.rows, p->d);
  }
  for (int64_t h = 0; h < p->hkv; h++) {
    load(core, x, &at, &a->k_new, h, p->d, &t);
    rotate(&p->rope, at.rows, &t);
    append(core, x, &at, &a->k, h, p->d, &t);
    load(core, x, &at, &a->v_new, h, p->dv, &t);
    append(core, x, &at, &a->v, h, p->dv, &t);
  }
  return ATTN_OK;
}

/* ---- the implementations --------------------------------------------------------------------- */

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  static _Thread_local char text[160];
  if (p->op != ATTN_ROPE)
    return "only op=rope";
  if (rows_of(p, dev->sram_bytes))
    return NULL;
  snprintf(text, sizeof text, "SRAM of %zu bytes cannot hold a row and its angles, %lld bytes",
           dev->sram_bytes, (long long)(floats_of(p, 1) * (int64_t)sizeof(float)));
  return text;
}

static int run_pass(const struct attn_problem *p, const struct attn_args *args,
                    struct attn_machine *m, bool fp32)
{
  struct pass x = {.p = p, .args = args, .rows = rows_of(p, m->sram_bytes), .fp32 = fp32};
  x.tiles = (p->sq + x.rows - 1) / x.rows;
  return m->parallel(m, p->b * x.tiles, body, &x);
}

static int run(void *plan, const struct attn_args *args, void *stream)
{
  return run_pass(plan, args, stream, false);
}

static int run_fp32(void *plan, const struct attn_args *args, void *stream)
{
  return run_pass(plan, args, stream, true);
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  int64_t rows = rows_of(p, dev->sram_bytes);
  double row = (double)(p->hq * p->d + p->hkv * (p->d + p->dv)) * (double)attn_dtype_size(p->dtype);
  *t = (struct attn_traffic){0, 0};
  for (int r = 0; r < attn_run_count(p); r++) {
    struct attn_run run = attn_run_of(p, r);
    double tasks = (double)((run.sq + rows - 1) / rows), moved = (double)run.sq * row;
    double entries = attn_table_entries(p, run.sk - run.sq, run.sk, rows);
    struct attn_traffic one = {moved + tasks * attn_task_bytes(p) + 4 * entries, moved};
    attn_traffic_add(t, &one, run.count);
  }
}

const struct attn_impl attn_cpu_rope = {
    .abi = ATTN_ABI,
    .name = "cpu/rope",
    .device = ATTN_CPU,
    .summary = "rotate Q, rotate and append K, append V in one pass; angles in fixed point",
    .provenance = "attnbench; after Su et al., RoFormer (2021)",
    .unsupported = unsupported,
    .run = run,
    .traffic = traffic,
    .takes = ATTN_TAKES_ROPE,
};

const struct attn_impl attn_cpu_rope_fp32 = {
    .abi = ATTN_ABI,
    .name = "cpu/rope-fp32",
    .device = ATTN_CPU,
    .summary = "the same with angles as products in fp32, which long positions make coarse",
    .provenance = "attnbench; angles as in most deployed kernels",
    .numerics = {.angle_rel = 0x1p-22},
    .unsupported = unsupported,
    .run = run_fp32,
    .traffic = traffic,
    .takes = ATTN_TAKES_ROPE,
};
