/* SPDX-License-Identifier: Apache-2.0
 *
 * group-time.c - interleaved samples, counters, and what follows from them.
 *
 * Every round samples each case once, in random order with random gaps, until the interval of each
 * median is narrow enough: order inside a process is what biases (a block of A's before B's reads
 * 7.6 % off on a power-limited card), and short copies lock to a fixed period.
 */
#include "config.h"

#include <math.h>
#include <string.h>
#include <stdio.h>
#include <time.h>

#include "harness/base/clock.h"
#include "harness/run/group.h"
#include "harness/base/rng.h"
#include "harness/run/tensors.h"
#include "harness/gate/stats.h"

#define WARM_UP_S 3.0         /* sustained mode, whole group */
#define GAP 0.2               /* random, of the pause, up to 10 ms */
#define GRAPH_BELOW_S 2e-3    /* what takes longer says nothing new in a graph */
#define ACTIVITIES 5          /* runs that are traced for a median of their kernels' times */
#define GRAPH_ROWS 64         /* verified behind it */
#define BEYOND_MATMUL 1.25    /* more FLOP/s than this times the measured product: INVALID */
#define BELOW_COMPULSORY 0.97 /* fewer cold bytes than this times compulsory: INVALID */
#define BEYOND_READ 1.15      /* faster than compulsory bytes at this times read bandwidth */

static bool satisfied(const struct group_work *w, const struct record *r)
{
  if (r->n < w->o->samples_min)
    return false;
  if (r->n >= w->o->samples_max || r->n >= GROUP_SAMPLES)
    return true;
  struct stats_interval ci = stats_median_interval(r->samples, (size_t)r->n, w->o->seed);
  return ci.hi - ci.lo <= w->o->ci_width * stats_median(r->samples, (size_t)r->n);
}

/* Order of one round: a Fisher-Yates shuffle of the unsatisfied cases. */
static int shuffle(const struct group_work *w, int *order, uint64_t *draw)
{
  int n = 0;
  for (int i = 0; i < w->g->n; i++)
    if (w->live[i].ready && !satisfied(w, &w->live[i].c->record))
      order[n++] = i;
  for (int i = n - 1; i > 0; i--) {
    int k = (int)rng_below(w->o->seed, (*draw)++, (uint32_t)i + 1), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  return n;
}

static int sample(struct group_work *w, struct live *l, double gap)
{
  struct device_timing t = w->o->timing;
  struct device_sample s;
  struct record *r = &l->c->record;
  t.rest_s += gap;
  enum spent_on before = spent_enter(w->g->spent, SPENT_CHECKS);
  int status = group_check_ahead(w);
  spent_enter(w->g->spent, SPENT_TIMING);
  if (!status)
    status = w->dev->ops->time(w->dev, &t, group_launch, l, &s);
  spent_enter(w->g->spent, SPENT_TIMING);
  if (status) {
    group_end(l->c, STATUS_CRASH, "time: %s", w->dev->error);
    return ATTN_EDEVICE;
  }
  spent_move(w->g->spent, SPENT_KERNELS, s.seconds);
  if (t.mode == MODE_RESTED)
    spent_move(w->g->spent, SPENT_PAUSES, t.rest_s);
  spent_enter(w->g->spent, SPENT_CHECKS);
  r->samples[r->n++] = s.seconds;
  r->sample_mhz = r->n == 1 ? s.mhz : r->sample_mhz + (s.mhz - r->sample_mhz) / r->n;
  status = group_check_behind(w, l);
  spent_enter(w->g->spent, before);
  return status;
}

/* Sustained mode: everything in turn, unsampled, until the clocks have settled. */
static int warm_up(struct group_work *w)
{
  double until = clock_now() + WARM_UP_S;
  struct device_sample s;
  enum spent_on before = spent_enter(w->g->spent, SPENT_KERNELS);
  while (w->o->timing.mode == MODE_SUSTAINED && clock_now() < until) {
    bool any = false;
    for (int i = 0; i < w->g->n; i++) {
      if (!w->live[i].ready)
        continue;
      any = true;
      group_stage(w->g, i, "warm up");
      if (w->dev->ops->time(w->dev, &w->o->timing, group_launch, &w->live[i], &s))
        return ATTN_EDEVICE;
    }
    if (!any)
      break;
  }
  spent_enter(w->g->spent, before);
  return ATTN_OK;
}

static int rounds(struct group_work *w)
{
  int order[GROUP_CASES], n, status = ATTN_OK;
  uint64_t draw = 0;
  double until = clock_now() + w->o->seconds;
  while (!status && (n = shuffle(w, order, &draw)) > 0) {
    for (int i = 0; i < n && !status; i++) {
      double most = fmin(0.01, GAP * w->o->timing.rest_s);
      double gap = most * rng_below(w->o->seed, draw++, 1000) / 1000;
      group_stage(w->g, order[i], "time");
      status = sample(w, &w->live[order[i]], gap);
    }
    if (clock_now() > until)
      break;
  }
  if (!status)
    group_stage(w->g, -1, "time");
  return status; /* otherwise the case at work is to blame, and no other */
}

static void summarise(struct group_work *w, struct record *r)
{
  struct stats_interval ci = stats_median_interval(r->samples, (size_t)r->n, w->o->seed);
  r->timed = r->n > 0;
  r->cache = w->o->timing.cache;
  r->mode = w->o->timing.mode;
  r->rest_s = r->mode == MODE_RESTED ? w->o->timing.rest_s : NAN;
  r->method = w->dev->info.kind == ATTN_CUDA ? "hidden-events" : "host-clock";
  r->processes = 1;
  r->median_s = stats_median(r->samples, (size_t)r->n);
  r->min_s = stats_min(r->samples, (size_t)r->n);
  r->ci_lo_s = ci.lo;
  r->ci_hi_s = ci.hi;
}

/* What is short is timed in a graph, too, on poisoned outputs that are looked at afterwards. */
static int by_graph(struct group_work *w, struct live *l)
{
  struct record *r = &l->c->record;
  if (!(r->median_s < GRAPH_BELOW_S))
    return ATTN_OK;
  int status = tensors_poison_outputs(w->tensors);
  if (!status)
    status = w->dev->ops->graph(w->dev, group_launch, l, &r->graph_s, &r->row_s);
  if (status) {
    group_end(l->c, STATUS_CRASH, "time by graph: %s", w->dev->error);
    return ATTN_EDEVICE;
  }
  return isnan(r->graph_s) ? ATTN_OK
                           : group_truth(w, l, &l->args, GRAPH_ROWS, w->o->seed, "in a graph: ");
}

static int graphs(struct group_work *w)
{
  int status = ATTN_OK;
  for (int i = 0; i < w->g->n && !status && w->o->graph; i++) {
    if (!w->live[i].ready)
      continue;
    group_stage(w->g, i, "time by graph");
    enum spent_on before = spent_enter(w->g->spent, SPENT_KERNELS);
    status = by_graph(w, &w->live[i]);
    spent_enter(w->g->spent, before);
  }
  return status;
}

int group_time(struct group_work *w)
{
  struct device_state state;
  group_stage(w->g, -1, "time");
  int status = w->dev->ops->state_begin(w->dev);
  if (!status)
    status = warm_up(w);
  if (!status)
    status = group_check_begin(w);
  if (!status)
    status = rounds(w);
  group_check_end(w);
  int ended = w->dev->ops->state_end(w->dev, &state);
  if (!status)
    status = group_check_inputs(w);
  for (int i = 0; i < w->g->n; i++) {
    if (!w->live[i].ready)
      continue;
    summarise(w, &w->live[i].c->record);
    if (!ended)
      w->live[i].c->record.state = state;
  }
  return status ? status : graphs(w);
}

static int launch_row(void *live, void *stream)
{
  int status = ATTN_OK;
  for (int i = 0; i < DEVICE_ROW && !status; i++)
    status = group_launch(live, stream);
  return status;
}

/* The same row by CUPTI's activity records: start to end of the kernels, gaps left out. */
static int by_activity(struct group_work *w, const struct instrument_ops *ins, struct live *l)
{
  struct record *r = &l->c->record;
  struct kernel_info kernels[RECORD_KERNELS];
  double seconds[ACTIVITIES];
  int n = 0;
  if (!w->o->graph || !(r->median_s < GRAPH_BELOW_S))
    return ATTN_OK;
  for (int i = 0; i < ACTIVITIES; i++) {
    int status = ins->kernels(w->dev, launch_row, l, kernels, RECORD_KERNELS, &n);
    if (status || !n)
      return status;
    seconds[i] = 0;
    for (int k = 0; k < n; k++)
      seconds[i] += kernels[k].seconds;
  }
  r->activity_s = stats_median(seconds, ACTIVITIES) / DEVICE_ROW;
  return ATTN_OK;
}

/* A launch that is counted, of the case that is to blame for it. */
struct counting {
  struct group_work *w;
  int i;
};

static int launch_counted(void *ctx, void *stream)
{
  const struct counting *c = ctx;
  group_stage(c->w->g, c->i, "count");
  return group_launch(&c->w->live[c->i], stream);
}

static int count_ready(struct group_work *w, const struct instrument_ops *ins)
{
  struct counting who[GROUP_CASES];
  struct counted what[GROUP_CASES];
  int n = 0;
  for (int i = 0; i < w->g->n; i++) {
    if (!w->live[i].ready)
      continue;
    who[n] = (struct counting){w, i};
    what[n] = (struct counted){.launch = launch_counted, .ctx = &who[n]};
    n++;
  }
  int status = n ? ins->count(w->dev, what, n) : ATTN_OK;
  for (int i = 0; i < n; i++)
    w->g->cases[who[i].i].record.counters = what[i].counters;
  return status;
}

/* Which kernels a case runs, and their time by CUPTI's activity records. */
static int list_kernels(struct group_work *w, const struct instrument_ops *ins, struct live *l)
{
  struct record *r = &l->c->record;
  if (!ins->kernels)
    return ATTN_OK;
  int status = ins->kernels(w->dev, group_launch, l, r->kernels, RECORD_KERNELS, &r->nkernels);
  return status ? status : by_activity(w, ins, l);
}

int group_count(struct group_work *w)
{
  const struct instrument_ops *ins = instrument_for(w->dev, NULL);
  int status = count_ready(w, ins);
  for (int i = 0; i < w->g->n && !status; i++) {
    if (!w->live[i].ready)
      continue;
    group_stage(w->g, i, "list the kernels");
    status = list_kernels(w, ins, &w->live[i]);
  }
  if (status)
    return ATTN_EDEVICE;
  w->g->current = -1;
  return ATTN_OK;
}

static void rates(struct group *g, struct record *r)
{
  const struct device_ceilings *c = &g->ceilings;
  if (!r->timed)
    return;
  r->tflops = attn_problem_flops(&g->problem) / r->median_s * 1e-12;
  r->gbps = r->compulsory_bytes / r->median_s * 1e-9;
  r->of_matmul = c->matmul_tflops > 0 ? r->tflops / c->matmul_tflops : NAN;
  r->of_copy = c->copy_gbps > 0 ? r->gbps / c->copy_gbps : NAN;
}

void group_judge(struct group *g, struct group_case *c)
{
  struct record *r = &c->record;
  const struct device_ceilings *top = &g->ceilings;
  r->ceilings = *top;
  rates(g, r);
  if (r->status != STATUS_PASS)
    return;
  double moved =
      r->counters.dram_read_bytes + r->counters.dram_write_bytes + r->counters.residue_bytes;
  double fastest = top->read_gbps > top->copy_gbps ? top->read_gbps : top->copy_gbps;
  if (r->timed && r->of_matmul > BEYOND_MATMUL)
    group_end(c, STATUS_INVALID, "%.3g TFLOP/s is %.2f of the measured matrix product", r->tflops,
              r->of_matmul);
  else if (r->counters.source && moved < BELOW_COMPULSORY * r->compulsory_bytes)
    group_end(c, STATUS_INVALID, "moved %.4g bytes with a cold cache, %.4g are compulsory", moved,
              r->compulsory_bytes);
  else if (r->timed && r->cache == CACHE_COLD && fastest > 0 && g->device.info.l2_bytes > 0 &&
           r->compulsory_bytes > 4.0 * (double)g->device.info.l2_bytes &&
           r->gbps > BEYOND_READ * fastest)
    group_end(c, STATUS_INVALID, "compulsory bytes at %.3g GB/s, the device reads %.3g", r->gbps,
              fastest);
}
