/* SPDX-License-Identifier: Apache-2.0
 *
 * compute-cpu.c - a decoder's work on the host in fp32, on the threads of the two-level machine
 * (whose counters see attention alone). Weights lie in panels of GEMM_COLUMNS columns, (out / 16,
 * in, 16), padded with zeros. A call is done when it returns, so parts are times of the clock.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "harness/serve/compute-gemm.h"
#include "harness/serve/compute.h"
#include "impl/cpu/machine.h"

#define CHUNK_ROWS 96  /* of x, in the cache while panels pass by */
#define CHUNK_PANELS 4 /* a task */
#define NORM_EPS 1e-5f

struct cpu {
  enum step_part part;
  double since;
  struct step_times times;
};

struct job {
  const float *x, *w, *gain;
  const int32_t *index;
  float *y;
  int32_t *token;
  int64_t n, out, in, row_chunks;
  uint64_t seed;
  double mean, scale;
  bool add;
};

static int spread(struct compute *c, int64_t tasks,
                  int (*body)(struct attn_core *core, int64_t i, void *ctx), const struct job *job)
{
  struct attn_machine *m = c->dev->ops->stream(c->dev);
  return m->parallel(m, tasks, body, (void *)job);
}

static int cpu_open(struct compute *c)
{
  struct cpu *self = calloc(1, sizeof *self);
  c->self = self;
  if (!self)
    return ATTN_ENOMEM;
  self->part = PART_OTHER;
  self->since = clock_now();
  return ATTN_OK;
}

static void cpu_close(struct compute *c)
{
  free(c->self);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* Element i of a stream: nearly normal, the sum of four uniform numbers of 16 bits. */
static float normal_at(uint64_t seed, uint64_t i)
{
  uint64_t z = rng_at(seed, i);
  double sum = (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) +
               (double)(z >> 48);
  return (float)((sum / 65535 - 2) * 1.7320508075688772);
}

static int64_t panels_of(int64_t out)
{
  return (out + GEMM_COLUMNS - 1) / GEMM_COLUMNS;
}

static int fill_panel(struct attn_core *core, int64_t panel, void *ctx)
{
  const struct job *j = ctx;
  float *w = j->y + panel * j->in * GEMM_COLUMNS;
  for (int64_t c = 0; c < GEMM_COLUMNS; c++) {
    int64_t row = panel * GEMM_COLUMNS + c;
    for (int64_t k = 0; k < j->in; k++)
      w[k * GEMM_COLUMNS + c] =
          row < j->out ? (float)j->scale * normal_at(j->seed, (uint64_t)(row * j->in + k)) : 0;
  }
  return ATTN_OK;
}

static int cpu_weights(struct compute *c, void **w, int64_t out, int64_t in, uint64_t seed,
                       double scale)
{
  int64_t panels = panels_of(out);
  int status = c->dev->ops->alloc(c->dev, (size_t)(panels * GEMM_COLUMNS * in) * sizeof(float), w);
  struct job j = {.y = *w, .out = out, .in = in, .seed = seed, .scale = scale};
  return status ? status : spread(c, panels, fill_panel, &j);
}

static int fill_row(struct attn_core *core, int64_t row, void *ctx)
{
  const struct job *j = ctx;
  for (int64_t k = 0; k < j->in; k++)
    j->y[row * j->in + k] =
        (float)(j->mean + j->scale * normal_at(j->seed, (uint64_t)(row * j->in + k)));
  return ATTN_OK;
}

static int cpu_plain(struct compute *c, void **w, int64_t rows, int64_t columns, uint64_t seed,
                     double mean, double scale)
{
  int status = c->dev->ops->alloc(c->dev, (size_t)(rows * columns) * sizeof(float), w);
  struct job j = {.y = *w, .in = columns, .seed = seed, .mean = mean, .scale = scale};
  return status ? status : spread(c, rows, fill_row, &j);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int take_row(struct attn_core *core, int64_t i, void *ctx)
{
  const struct job *j = ctx;
  memcpy(j->y + i * j->in, j->x + j->index[i] * j->in, (size_t)j->in * sizeof *j->y);
  return ATTN_OK;
}

static int cpu_gather(struct compute *c, void *y, const void *x, const int32_t *row, int64_t n,
                      int64_t hidden)
{
  return spread(c, n, take_row, &(struct job){.y = y, .x = x, .index = row, .in = hidden});
}

static int norm_row(struct attn_core *core, int64_t i, void *ctx)
{
  const struct job *j = ctx;
  const float *x = j->x + i * j->in;
  float *y = j->y + i * j->in;
  double sum = 0;
  for (int64_t k = 0; k < j->in; k++)
    sum += (double)x[k] * x[k];
  float over = 1 / sqrtf((float)(sum / (double)j->in) + NORM_EPS);
  for (int64_t k = 0; k < j->in; k++)
    y[k] = x[k] * over * j->gain[k];
  return ATTN_OK;
}

static int cpu_norm(struct compute *c, void *y, const void *x, const void *gain, int64_t n,
                    int64_t hidden)
{
  return spread(c, n, norm_row, &(struct job){.y = y, .x = x, .gain = gain, .in = hidden});
}

static int swiglu_row(struct attn_core *core, int64_t i, void *ctx)
{
  const struct job *j = ctx;
  const float *gate = j->x + 2 * i * j->in, *up = gate + j->in;
  for (int64_t k = 0; k < j->in; k++)
    j->y[i * j->in + k] = gate[k] / (1 + expf(-gate[k])) * up[k];
  return ATTN_OK;
}

static int cpu_swiglu(struct compute *c, void *y, const void *gate_up, int64_t n, int64_t ffn)
{
  return spread(c, n, swiglu_row, &(struct job){.y = y, .x = gate_up, .in = ffn});
}

static int argmax_row(struct attn_core *core, int64_t i, void *ctx)
{
  const struct job *j = ctx;
  const float *x = j->x + i * j->in;
  int64_t best = 0;
  for (int64_t k = 1; k < j->in; k++)
    best = x[k] > x[best] ? k : best;
  j->token[i] = (int32_t)best;
  return ATTN_OK;
}

static int cpu_argmax(struct compute *c, int32_t *token, const void *logits, int64_t n,
                      int64_t vocab)
{
  return spread(c, n, argmax_row, &(struct job){.token = token, .x = logits, .in = vocab});
}

/* ---- products ------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int gemm_task(struct attn_core *core, int64_t i, void *ctx)
{
  const struct job *j = ctx;
  int64_t row = i % j->row_chunks * CHUNK_ROWS, first = i / j->row_chunks * CHUNK_PANELS;
  for (int64_t p = first; p < least(first + CHUNK_PANELS, panels_of(j->out)); p++) {
    int64_t column = p * GEMM_COLUMNS;
    gemm_panel(j->y + row * j->out + column, j->out, j->x + row * j->in, j->w + column * j->in,
               least(CHUNK_ROWS, j->n - row), least(GEMM_COLUMNS, j->out - column), j->in, j->add);
  }
  return ATTN_OK;
}

static int cpu_gemm(struct compute *c, void *y, const void *x, const void *w, int64_t n,
                    int64_t out, int64_t in, bool add)
{
  struct job j = {.y = y,
                  .x = x,
                  .w = w,
                  .n = n,
                  .out = out,
                  .in = in,
                  .add = add,
                  .row_chunks = (n + CHUNK_ROWS - 1) / CHUNK_ROWS};
  int64_t tasks = (panels_of(out) + CHUNK_PANELS - 1) / CHUNK_PANELS * j.row_chunks;
  return spread(c, tasks, gemm_task, &j);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void cpu_mark(struct compute *c, enum step_part part)
{
  struct cpu *self = c->self;
  double now = clock_now();
  self->times.part[self->part] += now - self->since;
  self->since = now;
  self->part = part;
}

static int cpu_times(struct compute *c, struct step_times *t)
{
  struct cpu *self = c->self;
  cpu_mark(c, PART_OTHER);
  *t = self->times;
  self->times = (struct step_times){.part = {0}};
  return ATTN_OK;
}

const struct compute_ops compute_cpu = {
    .device = "cpu",
    .dtype = ATTN_F32,
    .open = cpu_open,
    .close = cpu_close,
    .weights = cpu_weights,
    .plain = cpu_plain,
    .gather = cpu_gather,
    .norm = cpu_norm,
    .gemm = cpu_gemm,
    .swiglu = cpu_swiglu,
    .argmax = cpu_argmax,
    .mark = cpu_mark,
    .times = cpu_times,
};
