/* SPDX-License-Identifier: Apache-2.0
 *
 * cascade.c - cpu/cascade: many sequences on one cache that begin alike are served from one pass
 * over the prefix that they share.
 *
 * First the prefix: the queries of as many sequences as SRAM holds are packed into one tile
 * (packed.h), and its keys and values stream past all of them; its parts are the longer the more
 * sequences there are, since what a part leaves behind grows with them.  Then each sequence's own
 * keys, and the merge of all parts, which is exact: as cpu/split-decode, from the end of the prefix
 * on.  Without a prefix it is cpu/split-decode.
 */
#include "config.h"

#include <stdlib.h>

#include "impl/cpu/cpu.h"
#include "impl/cpu/packed.h"

struct cascade {
  struct attn_plan *plan;
  struct attn_tiling tiling;
  int64_t shared; /* parts of the prefix */
  int64_t tiles;
  int64_t *first; /* tiles + 1: sequences */
};

struct pass {
  struct attn_packed packed;
  const struct cascade *c;
};

/* ---- how the prefix is cut --------------------------------------------------------------------
 */

static struct attn_tiling tiling(const struct attn_problem *p, const struct attn_device *dev)
{
  int64_t rows = p->prefix ? p->hq / p->hkv * attn_problem_total_q(p) : 0;
  return attn_packed_tiling(p, dev, rows);
}

/* Sequences from s on whose queries fill a tile: the first that is not among them. */
static int64_t tile_end(const struct attn_problem *p, struct attn_tiling t, int64_t s,
                        int64_t *rows)
{
  int64_t sq, sk, group = p->hq / p->hkv;
  for (*rows = 0; s < p->b; s++) {
    attn_problem_seq(p, s, &sq, &sk);
    if (*rows + group * sq > attn_packed_rows(t))
      break;
    *rows += group * sq;
  }
  return s;
}

/* Keys of a part of the prefix, at most. */
static int64_t part_keys(const struct attn_problem *p, struct attn_tiling t)
{
  int64_t one = p->hq / p->hkv * p->sq;
  return ATTN_PART * attn_most(1, attn_packed_rows(t) / one);
}

static int64_t shared_parts(const struct attn_problem *p, struct attn_tiling t)
{
  return p->prefix ? attn_tiles(p->prefix, part_keys(p, t)) : 0;
}

/* Keys of part k that the queries of sequences from ... until see. */
static struct attn_span span_of(const struct attn_problem *p, struct attn_tiling t, int64_t from,
                                int64_t until, int64_t k)
{
  int64_t keys = attn_tile_rows(p->prefix, part_keys(p, t)), row = k * keys, sq, sk;
  struct attn_span all = {INT64_MAX, 0, 0, INT64_MAX};
  for (int64_t s = from; s < until; s++) {
    attn_problem_seq(p, s, &sq, &sk);
    if (!sq)
      continue;
    struct attn_span one = attn_packed_span(p, sq, sk, row, attn_least(keys, p->prefix - row));
    all.all_lo = attn_most(all.all_lo, one.all_lo);
    all.all_hi = attn_least(all.all_hi, one.all_hi);
    if (one.lo >= one.hi)
      continue;
    all.lo = attn_least(all.lo, one.lo);
    all.hi = attn_most(all.hi, one.hi);
  }
  return all;
}

/* ---- the prefix -------------------------------------------------------------------------------
 */

/* A part of one KV head, and a tile of sequences. */
static int attend(struct attn_core *core, int64_t i, void *ctx)
{
  const struct pass *x = ctx;
  const struct attn_packed *packed = &x->packed;
  const struct attn_plan *plan = packed->plan;
  int64_t part = i % x->c->shared, tile = i / x->c->shared % x->c->tiles;
  int64_t h = i / x->c->shared / x->c->tiles, at = 0;
  int64_t from = x->c->first[tile], until = x->c->first[tile + 1];
  int64_t rows = plan->group * (plan->seq[until].q_first - plan->seq[from].q_first);
  struct attn_packed_tiles t;
  if (!rows)
    return ATTN_OK;
  if (attn_packed_alloc(core, plan, rows, &t))
    return ATTN_ENOMEM;
  for (int64_t s = from; s < until; at += plan->group * plan->seq[s++].sq) {
    struct attn_task task = attn_task_of(core, plan, s, h, packed->args);
    attn_packed_begin(core, packed, &task, &t, at);
  }
  struct attn_task any = attn_task_of(core, plan, from, h, packed->args);
  attn_task_scales(core, plan, packed->args, h, &any);
  attn_packed_sweep(core, packed, &any, &t, span_of(&plan->p, x->c->tiling, from, until, part));
  at = 0;
  for (int64_t s = from; s < until; at += plan->group * plan->seq[s++].sq) {
    struct attn_task task = attn_task_of(core, plan, s, h, packed->args);
    attn_packed_finish(core, packed, &task, &t, at, part);
  }
  return ATTN_OK;
}

/* One KV head, all sequences. */
static void prefix_traffic(const struct attn_problem *p, struct attn_tiling q,
                           struct attn_traffic *t)
{
  double size = (double)attn_dtype_size(p->dtype);
  int64_t parts = shared_parts(p, q), rows, until;
  for (int64_t from = 0; parts && from < p->b; from = until) {
    until = tile_end(p, q, from, &rows);
    for (int64_t k = 0; k < parts && rows; k++) {
      struct attn_span s = span_of(p, q, from, until, k);
      t->read_bytes += (double)(2 * (until - from) + 1) * attn_task_bytes(p);
      t->read_bytes += (double)(rows * p->d) * size + attn_scale_bytes(p);
      t->read_bytes += (double)attn_most(s.hi - s.lo, 0) * attn_key_bytes(p);
      t->read_bytes += 8 * attn_table_entries(p, s.lo, s.hi, q.stream);
    }
  }
}

/* ---- the implementation -----------------------------------------------------------------------
 */

static const char *unsupported(const struct attn_problem *p, const struct attn_device *dev)
{
  if (!p->page)
    return "no pages that sequences could share";
  return attn_packed_unsupported(p, dev);
}

static size_t workspace(const struct attn_problem *p, const struct attn_device *dev)
{
  return attn_packed_workspace(p, p->prefix, shared_parts(p, tiling(p, dev)));
}

static void finish(void *arg)
{
  struct cascade *c = arg;
  if (!c)
    return;
  attn_plan_destroy(c->plan);
  free(c->first);
  free(c);
}

static int prepare(const struct attn_problem *p, const struct attn_device *dev, void **plan)
{
  struct cascade *c = calloc(1, sizeof *c);
  int64_t rows;
  *plan = c;
  if (!c)
    return ATTN_ENOMEM;
  c->tiling = tiling(p, dev);
  c->shared = shared_parts(p, c->tiling);
  c->plan = attn_packed_plan(p, c->tiling.stream, p->prefix);
  c->first = malloc((size_t)(p->b + 1) * sizeof *c->first);
  if (!c->plan || !c->first) {
    finish(c);
    return ATTN_ENOMEM;
  }
  for (c->first[0] = 0; c->first[c->tiles] < p->b; c->tiles++)
    c->first[c->tiles + 1] = tile_end(p, c->tiling, c->first[c->tiles], &rows);
  return ATTN_OK;
}

static int run(void *arg, const struct attn_args *args, void *stream)
{
  const struct cascade *c = arg;
  struct attn_machine *m = stream;
  struct pass x = {{c->plan, args, c->shared}, c};
  int status = m->parallel(m, c->plan->p.hkv * c->tiles * c->shared, attend, &x);
  return status ? status : attn_packed_run(m, &x.packed);
}

static void traffic(const struct attn_problem *p, const struct attn_device *dev,
                    struct attn_traffic *t)
{
  struct attn_tiling q = tiling(p, dev);
  struct attn_traffic head = {0, 0};
  *t = (struct attn_traffic){0, 0};
  prefix_traffic(p, q, &head);
  attn_traffic_add(t, &head, p->hkv);
  attn_packed_traffic(p, q.stream, p->prefix, shared_parts(p, q), t);
}

const struct attn_impl attn_cpu_cascade = {
    .abi = ATTN_ABI,
    .name = "cpu/cascade",
    .device = ATTN_CPU,
    .summary = "a shared prefix read once for all sequences, then each one's rest, merged by LSE",
    .provenance =
        "attnbench; after Juravsky et al., Hydragen (2024), and FlashInfer's cascade (2024)",
    .numerics = {.score = ATTN_ROUND_F32, .prob = ATTN_ROUND_F32, .grad = ATTN_ROUND_F32},
    .unsupported = unsupported,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .finish = finish,
    .traffic = traffic,
    .takes = ATTN_TAKES_FP8_KV,
};
