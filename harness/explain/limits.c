/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c - modelled times, and how many blocks fit.
 */
#include "config.h"

#include <math.h>

#include "harness/explain/limits.h"

double explain_exp_per_clock(int sm)
{
  return sm >= 80 ? 16 : NAN;
}

double explain_shared_per_clock(int sm)
{
  return sm >= 80 ? 128 : NAN;
}

/* Each pair that is seen costs one exponential: forward for P, backward for P again. What softcap
 * adds is a hyperbolic tangent, from the same units at the same rate. */
struct work explain_work(const struct attn_problem *p)
{
  double pairs = attn_problem_pairs(p) * (double)p->hq;
  return (struct work){.flops = pairs > 0 ? attn_problem_flops(p) : 0,
                       .exps = pairs * (p->softcap > 0 ? 2 : 1),
                       .read_bytes = attn_problem_compulsory_read(p),
                       .write_bytes = attn_problem_compulsory_write(p)};
}

const char *explain_limit_name(enum limit l)
{
  static const char *const names[] = {"matrix units", "exponentials", "memory", "shared memory"};
  return names[l];
}

/* NaN where there is no work of this kind, or no rate is known. */
static double seconds(double work, double rate)
{
  return work > 0 && rate > 0 ? work / rate : NAN;
}

struct bound explain_bound(const struct attn_problem *p, const struct machine_limits *m)
{
  struct work w = explain_work(p);
  struct bound b = {{NAN, NAN, NAN, NAN}, -1};
  bool narrow = p->dtype != ATTN_F32; /* what the ceiling of a GPU was measured with */
  double bytes = fmax(m->read_gbps, m->copy_gbps) * 1e9;
  if (m->kind == ATTN_CPU || narrow)
    b.s[LIMIT_MATMUL] = seconds(w.flops, m->matmul_tflops * 1e12);
  b.s[LIMIT_EXP] = seconds(w.exps, m->exp_per_clock * m->clock_hz * m->multiprocessors);
  b.s[LIMIT_MEMORY] = seconds(w.read_bytes + w.write_bytes, bytes);
  const double of[LIMITS] = {w.flops, m->kind == ATTN_CUDA ? w.exps : 0,
                             w.read_bytes + w.write_bytes, 0};
  for (int i = 0; i < LIMITS; i++)
    if (b.s[i] > 0 && (b.by < 0 || b.s[i] > b.s[b.by]))
      b.by = i;
  for (int i = 0; i < LIMITS; i++)
    if (of[i] > 0 && isnan(b.s[i])) /* it might be the one */
      b.by = -1;
  return b;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static double ceil_div(int64_t a, int64_t b)
{
  return (double)((a + b - 1) / b);
}

/* Steps of one head of a sequence. Both ends of what a query sees grow with the query. */
static double steps_of(const struct attn_problem *p, const struct attn_variant *v, int64_t sq,
                       int64_t sk)
{
  int64_t lo, hi, unused;
  double steps = 0;
  for (int64_t i = 0; i < sq; i += v->rows) {
    int64_t last = i + v->rows < sq ? i + v->rows : sq;
    attn_problem_visible(p, sq, sk, i, &lo, &unused);
    attn_problem_visible(p, sq, sk, last - 1, &unused, &hi);
    if (hi > lo)
      steps += ceil_div(hi, v->keys) - (double)(lo / v->keys);
  }
  return steps;
}

struct tiling explain_tiling(const struct attn_problem *p, const struct attn_variant *v)
{
  struct tiling t = {0, 0, NAN};
  if (v->rows < 1 || v->keys < 1 || v->packed)
    return t;
  for (int r = 0; r < (p->nruns ? p->nruns : 1); r++) {
    struct attn_run run = p->nruns ? p->runs[r] : (struct attn_run){p->b, p->sq, p->sk};
    double n = (double)run.count;
    t.steps += n * (double)p->hq * steps_of(p, v, run.sq, run.sk);
    t.tiles += p->op == ATTN_BWD ? n * (double)p->hkv * ceil_div(run.sk, v->keys)
                                 : n * (double)p->hq * ceil_div(run.sq, v->rows);
  }
  if (v->step_smem_bytes > 0)
    t.shared_bytes = t.steps * v->step_smem_bytes + t.tiles * v->tile_smem_bytes;
  return t;
}

struct bound explain_bound_of(const struct attn_problem *p, const struct machine_limits *m,
                              const struct attn_variant *v)
{
  struct bound b = explain_bound(p, m);
  double rate = explain_shared_per_clock(m->sm) * m->clock_hz * m->multiprocessors;
  if (m->kind != ATTN_CUDA || !v->name[0])
    return b;
  b.s[LIMIT_SHARED] = seconds(explain_tiling(p, v).shared_bytes, rate);
  if (b.by >= 0 && b.s[LIMIT_SHARED] > b.s[b.by])
    b.by = LIMIT_SHARED;
  return b;
}

/* ---- occupancy ------------------------------------------------------------------------------- */

/* CUDA C++ Programming Guide, technical specifications per compute capability. Every one has 65536
 * registers a multiprocessor, gives them to warps by 256, and keeps 1 KiB of shared memory a
 * block. */
static const struct resources {
  int sm, threads, blocks, shared_bytes;
} table[] = {
    {80, 2048, 32, 164 << 10},  {86, 1536, 16, 100 << 10},  {87, 1536, 16, 164 << 10},
    {89, 1536, 24, 100 << 10},  {90, 2048, 32, 228 << 10},  {100, 2048, 32, 228 << 10},
    {103, 2048, 32, 228 << 10}, {120, 1536, 24, 100 << 10},
};
enum { WARP = 32, REGISTERS = 65536, BY_WARP = 256, PARTITIONS = 4, KEPT = 1024, BY_SHARE = 128 };

const char *explain_occupancy_limit_name(enum occupancy_limit by)
{
  static const char *const names[] = {"threads", "blocks", "registers", "shared memory"};
  return names[by];
}

static int up(int n, int to)
{
  return (n + to - 1) / to * to;
}

size_t explain_sram(int sm)
{
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].sm == sm)
      return (size_t)(table[i].shared_bytes - KEPT);
  return 0;
}

int explain_occupancy(int sm, int multiprocessors, double grid_blocks, int threads, int registers,
                      int shared_bytes, struct occupancy *o)
{
  const struct resources *r = NULL;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].sm == sm)
      r = &table[i];
  if (!r || threads < 1 || registers < 0 || multiprocessors < 1)
    return -1;
  int warps = (threads + WARP - 1) / WARP, most = r->threads / WARP;
  int of_warp = up((registers ? registers : 1) * WARP, BY_WARP);
  int holds = REGISTERS / PARTITIONS / of_warp * PARTITIONS; /* warps; each stays in a quarter */
  int fit[] = {[BY_THREADS] = most / warps,
               [BY_BLOCKS] = r->blocks,
               [BY_REGISTERS] = holds / warps,
               [BY_SHARED] = r->shared_bytes / up(shared_bytes + KEPT, BY_SHARE)};
  *o = (struct occupancy){.blocks = fit[BY_THREADS], .by = BY_THREADS};
  for (enum occupancy_limit i = BY_BLOCKS; i <= BY_SHARED; i++)
    if (fit[i] < o->blocks) {
      o->blocks = fit[i];
      o->by = i;
    }
  o->warps = (double)(o->blocks * warps) / most;
  o->waves =
      o->blocks && grid_blocks > 0 ? grid_blocks / ((double)o->blocks * multiprocessors) : NAN;
  return 0;
}
