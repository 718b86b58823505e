/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-fixture.h - a problem with its tensors on the host, and a run of an implementation on it.
 *
 * Rows of every tensor are `pad` elements longer than they need be, and everything that an
 * implementation must not write is filled with a pattern that is checked afterwards.
 */
#ifndef TESTS_UNIT_CPU_FIXTURE_H
#define TESTS_UNIT_CPU_FIXTURE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "impl/cpu/cpu.h"
#include "impl/cpu/machine.h"
#include "impl/dropout.h"
#include "tests/tap.h"

#define POISON 0x7fffdeadu /* NaN as fp32, and as bf16 or fp16 in its upper half */

struct buffer {
  struct attn_tensor t;
  int64_t heads, width, elements; /* elements: allocated */
  bool keys;
};

enum { B_Q, B_K, B_V, B_O, B_DOUT, B_DQ, B_DK, B_DV, BUFFERS };

struct fixture {
  struct attn_problem p;
  struct buffer b[BUFFERS];
  struct attn_args args;
  int64_t lse_count;
  int32_t *cu_q, *cu_k;
  int32_t *table, *lengths; /* of a paged cache */
  int64_t pages;            /* of a pool: those in use and two more */
  float *k_scale, *v_scale; /* of an e4m3 cache */
  uint64_t rng;
};

/* ---- random numbers -------------------------------------------------------------------------- */

static inline uint64_t draw(uint64_t *rng)
{
  *rng = *rng * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = *rng ^ *rng >> 29;
  return x * 0x9E3779B97F4A7C15u >> 16;
}

static inline int64_t draw_in(uint64_t *rng, int64_t lo, int64_t hi)
{
  return lo + (int64_t)(draw(rng) % (uint64_t)(hi - lo + 1));
}

static inline float draw_real(uint64_t *rng)
{
  float sum = 0;
  for (int i = 0; i < 4; i++)
    sum += (float)(draw(rng) & 0xffff) / 65536.0f - 0.5f;
  return sum;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static inline int64_t first_row(const struct fixture *f, int64_t s, bool keys)
{
  return f->p.nruns ? (keys ? f->cu_k : f->cu_q)[s] : 0;
}

static inline int64_t element(const struct fixture *f, int which, int64_t s, int64_t row, int64_t h,
                              int64_t c)
{
  const struct buffer *b = &f->b[which];
  if (b->keys && f->p.page)
    return f->table[s * f->args.block_table_stride + row / f->p.page] * b->t.sb +
           row % f->p.page * b->t.ss + h * b->t.sh + c;
  return s * b->t.sb + (first_row(f, s, b->keys) + row) * b->t.ss + h * b->t.sh + c;
}

static inline bool is_e4m3(const struct fixture *f, int which)
{
  return f->p.kv == ATTN_KV_E4M3 && (which == B_K || which == B_V);
}

static inline enum attn_dtype type_of(const struct fixture *f, int which)
{
  return is_e4m3(f, which) ? ATTN_E4M3 : f->p.dtype;
}

/* What an element stands for is its stored number times this. */
static inline double factor_of(const struct fixture *f, int which, int64_t h)
{
  return is_e4m3(f, which) ? (which == B_K ? f->k_scale : f->v_scale)[h] : 1;
}

static inline double value(const struct fixture *f, int which, int64_t s, int64_t row, int64_t h,
                           int64_t c)
{
  return factor_of(f, which, h) *
         attn_load(type_of(f, which), f->b[which].t.data, element(f, which, s, row, h, c));
}

static inline void set_value(struct fixture *f, int which, int64_t s, int64_t row, int64_t h,
                             int64_t c, double x)
{
  attn_store(type_of(f, which), f->b[which].t.data, element(f, which, s, row, h, c),
             (float)(x / factor_of(f, which, h)));
}

static inline float *lse_at(const struct fixture *f, int64_t s, int64_t h, int64_t i)
{
  if (f->p.nruns)
    return f->args.lse + h * attn_problem_total_q(&f->p) + f->cu_q[s] + i;
  return f->args.lse + (s * f->p.hq + h) * f->p.sq + i;
}

static inline void poison(struct fixture *f, int which)
{
  struct buffer *b = &f->b[which];
  for (int64_t i = 0; i < b->elements; i++) {
    if (type_of(f, which) == ATTN_F32)
      ((uint32_t *)b->t.data)[i] = POISON;
    else if (is_e4m3(f, which))
      ((uint8_t *)b->t.data)[i] = POISON >> 24;
    else
      ((uint16_t *)b->t.data)[i] = POISON >> 16;
  }
}

static inline bool is_poison(const struct fixture *f, int which, int64_t e)
{
  const void *data = f->b[which].t.data;
  return f->p.dtype == ATTN_F32 ? ((const uint32_t *)data)[e] == POISON
                                : ((const uint16_t *)data)[e] == POISON >> 16;
}

/* Calls each for all elements of a tensor. */
#define FOR_ELEMENTS(f, which, s, r, h, c)                          \
  for (int64_t s = 0, lq_, lk_; s < (f)->p.b; s++)                  \
    for (int64_t r = (attn_problem_seq(&(f)->p, s, &lq_, &lk_), 0); \
         r < ((f)->b[which].keys ? lk_ : lq_); r++)                 \
      for (int64_t h = 0; h < (f)->b[which].heads; h++)             \
        for (int64_t c = 0; c < (f)->b[which].width; c++)

static inline void fill(struct fixture *f, int which, float amplitude)
{
  FOR_ELEMENTS(f, which, s, r, h, c)
  set_value(f, which, s, r, h, c, amplitude * draw_real(&f->rng));
}

/* Elements that no tensor row holds must keep the poison. */
static inline bool gaps_intact(const struct fixture *f, int which)
{
  const struct buffer *b = &f->b[which];
  char *owned = calloc(1, (size_t)b->elements + 1);
  bool intact = true;
  FOR_ELEMENTS(f, which, s, r, h, c)
  owned[element(f, which, s, r, h, c)] = 1;
  for (int64_t e = 0; e < b->elements; e++)
    intact &= owned[e] || is_poison(f, which, e);
  free(owned);
  return intact;
}

static inline void buffer_init(struct fixture *f, int which, int64_t heads, int64_t width,
                               bool keys, int64_t pad)
{
  const struct attn_problem *p = &f->p;
  struct buffer *b = &f->b[which];
  int64_t len = keys ? p->sk : p->sq, w = width + pad;
  bool paged = keys && p->page;
  if (paged)
    len = p->page;
  if (p->nruns && !paged) {
    len = keys ? attn_problem_total_k(p) : attn_problem_total_q(p);
    b->t = (struct attn_tensor){NULL, 0, heads * w, w};
  } else if (p->layout == ATTN_BHSD) {
    b->t = (struct attn_tensor){NULL, heads * (len + pad) * w, w, (len + pad) * w};
  } else {
    b->t = (struct attn_tensor){NULL, (len * heads + pad) * w, heads * w, w};
  }
  b->heads = heads;
  b->width = width;
  b->keys = keys;
  b->elements = paged ? f->pages * b->t.sb : p->nruns ? len * heads * w : p->b * b->t.sb;
  b->t.data = malloc((size_t)b->elements * 4 + 64);
  poison(f, which);
}

static inline void cu_init(struct fixture *f)
{
  f->cu_q = calloc((size_t)f->p.b + 1, sizeof *f->cu_q);
  f->cu_k = calloc((size_t)f->p.b + 1, sizeof *f->cu_k);
  for (int64_t s = 0, sq, sk; s < f->p.b; s++) {
    attn_problem_seq(&f->p, s, &sq, &sk);
    f->cu_q[s + 1] = f->cu_q[s] + (int32_t)sq;
    f->cu_k[s + 1] = f->cu_k[s] + (int32_t)sk;
  }
}

/* Gives every sequence its pages, in an order drawn from order; what lies behind its last page in
 * the table leads nowhere. */
static inline void pages_init(struct fixture *f, uint64_t order)
{
  int64_t stride = attn_problem_pages(&f->p, f->p.sk), next = 0;
  if (!f->p.page)
    return;
  int64_t shared = f->p.prefix / f->p.page;
  f->pages = 2 + shared;
  for (int64_t s = 0, sq, sk; s < f->p.b; s++) {
    attn_problem_seq(&f->p, s, &sq, &sk);
    f->pages += attn_problem_pages(&f->p, sk) - shared;
  }
  int32_t *page = malloc((size_t)f->pages * sizeof *page);
  for (int64_t i = 0; i < f->pages; i++) {
    int64_t j = draw_in(&order, 0, i);
    page[i] = page[j];
    page[j] = (int32_t)i;
  }
  f->table = malloc((size_t)(f->p.b * stride + 1) * sizeof *f->table);
  next = shared;
  f->lengths = malloc((size_t)f->p.b * sizeof *f->lengths);
  f->args.block_table_stride = stride;
  for (int64_t s = 0, sq, sk; s < f->p.b; s++) {
    attn_problem_seq(&f->p, s, &sq, &sk);
    f->lengths[s] = (int32_t)sk;
    for (int64_t i = 0; i < stride; i++)
      f->table[s * stride + i] = i < shared                          ? page[i]
                                 : i < attn_problem_pages(&f->p, sk) ? page[next++]
                                                                     : INT32_MAX - 255;
  }
  free(page);
}

/* Another one for each head, of 16 bits, so that products with e4m3 numbers are exact in fp32. */
static inline void scales_init(struct fixture *f)
{
  if (f->p.kv != ATTN_KV_E4M3)
    return;
  f->k_scale = malloc((size_t)f->p.hkv * sizeof *f->k_scale);
  f->v_scale = malloc((size_t)f->p.hkv * sizeof *f->v_scale);
  for (int64_t h = 0; h < f->p.hkv; h++) {
    f->k_scale[h] = (float)draw_in(&f->rng, 0x1000, 0xffff) * 0x1p-17f;
    f->v_scale[h] = (float)draw_in(&f->rng, 0x1000, 0xffff) * 0x1p-15f;
  }
}

static inline void fixture_init(struct fixture *f, const struct attn_problem *p, uint64_t seed,
                                int64_t pad, float amplitude)
{
  *f = (struct fixture){.p = *p, .rng = seed};
  scales_init(f);
  cu_init(f);
  pages_init(f, seed);
  const struct {
    int64_t heads, width;
    bool keys;
  } shape[BUFFERS] = {{p->hq, p->d, false},  {p->hkv, p->d, true},  {p->hkv, p->dv, true},
                      {p->hq, p->dv, false}, {p->hq, p->dv, false}, {p->hq, p->d, false},
                      {p->hkv, p->d, true},  {p->hkv, p->dv, true}};
  for (int i = 0; i < BUFFERS; i++)
    buffer_init(f, i, shape[i].heads, shape[i].width, shape[i].keys, pad);
  fill(f, B_Q, amplitude);
  fill(f, B_K, 1);
  fill(f, B_V, 1);
  fill(f, B_DOUT, 1);
  f->lse_count = p->hq * attn_problem_total_q(p);
  f->args = (struct attn_args){.q = f->b[B_Q].t,
                               .k = f->b[B_K].t,
                               .v = f->b[B_V].t,
                               .o = f->b[B_O].t,
                               .dout = f->b[B_DOUT].t,
                               .dq = f->b[B_DQ].t,
                               .dk = f->b[B_DK].t,
                               .dv = f->b[B_DV].t,
                               .lse = malloc((size_t)f->lse_count * sizeof(float) + 64),
                               .cu_seqlens_q = p->nruns ? f->cu_q : NULL,
                               .cu_seqlens_k = p->nruns && !p->page ? f->cu_k : NULL,
                               .block_table = f->table,
                               .block_table_stride = f->args.block_table_stride,
                               .seqlens_k = f->lengths,
                               .k_scale = f->k_scale,
                               .v_scale = f->v_scale};
  for (int64_t i = 0; i < f->lse_count; i++)
    f->args.lse[i] = attn_float(POISON);
}

static inline void fixture_free(struct fixture *f)
{
  for (int i = 0; i < BUFFERS; i++)
    free(f->b[i].t.data);
  free(f->args.lse);
  free(f->cu_q);
  free(f->cu_k);
  free(f->table);
  free(f->lengths);
  free(f->k_scale);
  free(f->v_scale);
}

/* ---- running --------------------------------------------------------------------------------- */

static inline struct attn_device device_of(const struct attn_machine *m)
{
  return (struct attn_device){.kind = ATTN_CPU,
                              .multiprocessors = m->ncores,
                              .memory_bytes = (size_t)64 << 30,
                              .sram_bytes = m->sram_bytes};
}

struct ran {
  const char *refused;
  int status;
  uint64_t read, write;
  size_t peak;
  struct attn_traffic model;
};

/* One run on poisoned workspace and outputs. */
static inline struct ran run_on(struct attn_machine *m, const struct attn_impl *impl,
                                struct fixture *f)
{
  struct attn_device dev = device_of(m);
  struct ran r = {.refused = attn_unsupported(impl, &f->p, &dev), .status = ATTN_EUNSUPPORTED};
  if (r.refused)
    return r;
  f->args.workspace_bytes = impl->workspace(&f->p, &dev);
  size_t bytes = (f->args.workspace_bytes + 2047) / 1024 * 1024;
  f->args.workspace = aligned_alloc(1024, bytes);
  memset(f->args.workspace, 0xff, bytes);
  for (int i = 0; i < BUFFERS; i++)
    if (f->p.op == ATTN_BWD ? i >= B_DQ : i == B_O)
      poison(f, i);
  for (int64_t i = 0; i < f->lse_count && f->p.op != ATTN_BWD; i++)
    f->args.lse[i] = attn_float(POISON);
  void *plan = NULL;
  attn_machine_reset(m);
  r.status = impl->prepare(&f->p, &dev, &plan);
  if (!r.status)
    r.status = impl->run(plan, &f->args, m);
  impl->finish(plan);
  attn_machine_totals(m, &r.read, &r.write, &r.peak);
  impl->traffic(&f->p, &dev, &r.model);
  for (size_t i = f->args.workspace_bytes; i < bytes; i++)
    if (((unsigned char *)f->args.workspace)[i] != 0xff)
      r.status = ATTN_EINVAL; /* wrote beyond its workspace */
  free(f->args.workspace);
  return r;
}

#endif
