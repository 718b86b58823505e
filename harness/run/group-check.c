/* SPDX-License-Identifier: Apache-2.0
 *
 * group-check.c - every timed run is on inputs of its own, and its output is looked at.
 *
 * Around what is timed: the signs of one input are flipped at random, so that no earlier output is
 * right; the outputs are poisoned on the stream, ahead of the run, and copied away on the stream,
 * right behind it, so that work on another stream or thread is either overwritten or too late. Then
 * the copy is verified: a few rows of each run, half of them random, and many rows of one run
 * chosen at random.  The keys come from the system, so that nothing can be computed beforehand.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "harness/base/clock.h"
#include "harness/run/group.h"
#include "harness/base/rng.h"
#include "harness/run/tensors.h"

#define FEW_ROWS 16
#define MANY_ROWS 512
#define SUSTAINED_ONE_IN 8 /* a check pauses the device, which sustained mode must not */

uint64_t group_entropy(void)
{
  uint64_t x;
  if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x)
    x = rng_at((uint64_t)(clock_now() * 1e9), 0);
  return x;
}

/* ---- on the stream ----------------------------------------------------------------------------
 */

static int poison(void *ctx, void *stream)
{
  (void)stream;
  return tensors_poison_outputs(((struct group_work *)ctx)->tensors);
}

static int copy_away(void *ctx, void *stream)
{
  struct group_work *w = ctx;
  int status = ATTN_OK;
  (void)stream;
  for (int op = 0; op < OPERANDS && !status; op++)
    if (w->check.copy[op])
      status = w->dev->ops->move(w->dev, w->check.copy[op]->data, w->tensors->buffer[op]->data,
                                 w->tensors->bytes[op]);
  return status;
}

/* Where there is no room for a copy, the output itself is verified. */
int group_check_begin(struct group_work *w)
{
  struct group_check *c = &w->check;
  int status = ATTN_OK;
  c->key = group_entropy();
  c->around = (struct device_around){poison, copy_away, w};
  for (int op = 0; op < OPERANDS && !status; op++)
    if (w->tensors->output[op])
      status = arena_alloc(w->arena, "copy", w->tensors->bytes[op], &c->copy[op]);
  if (status)
    group_check_end(w);
  for (int i = 0; i < w->g->n; i++)
    w->live[i].many = (int)(rng_at(c->key, (uint64_t)i) % (uint64_t)w->o->samples_min);
  w->dev->around = &c->around;
  return status == ATTN_ENOMEM ? ATTN_OK : status;
}

void group_check_end(struct group_work *w)
{
  w->dev->around = NULL;
  for (int op = 0; op < OPERANDS; op++)
    if (w->check.copy[op]) {
      arena_free(w->arena, w->check.copy[op]);
      w->check.copy[op] = NULL;
    }
}

/* ---- one run ----------------------------------------------------------------------------------
 */

int group_check_ahead(struct group_work *w)
{
  return tensors_flip(w->tensors, rng_at(w->check.key, GROUP_CASES + w->check.drawn++));
}

static struct attn_args copied(const struct group_work *w, const struct live *l)
{
  struct arena_buffer *const *copy = w->check.copy;
  struct attn_args a = l->args;
  if (copy[OP_K])
    a.k.data = copy[OP_K]->data;
  if (copy[OP_V])
    a.v.data = copy[OP_V]->data;
  if (copy[OP_O])
    a.o.data = copy[OP_O]->data;
  if (copy[OP_LSE])
    a.lse = copy[OP_LSE]->data;
  if (copy[OP_DQ])
    a.dq.data = copy[OP_DQ]->data;
  if (copy[OP_DK])
    a.dk.data = copy[OP_DK]->data;
  if (copy[OP_DV])
    a.dv.data = copy[OP_DV]->data;
  return a;
}

/* Rows to verify of sample n: 0 is none. Backward verifies one run only: a row of dK takes every
 * query. */
static int64_t rows_of(const struct group_work *w, const struct live *l, int n, uint64_t draw)
{
  bool few = w->o->timing.mode == MODE_RESTED || draw % SUSTAINED_ONE_IN == 0;
  int64_t allowed = group_rows(w);
  if (n == l->many)
    return allowed && allowed < MANY_ROWS ? allowed : MANY_ROWS;
  return w->g->problem.op == ATTN_BWD || !few ? 0 : FEW_ROWS;
}

static int inputs_touched(struct group_work *w, struct live *l, int n, uint64_t draw)
{
  if (tensors_probe(w->tensors, draw) != 0)
    return ATTN_OK;
  l->c->record.inputs_unchanged = 0;
  l->ready = false;
  group_end(l->c, STATUS_FAIL, "timed run %d changed its inputs", n + 1);
  return tensors_restore(w->tensors);
}

int group_check_behind(struct group_work *w, struct live *l)
{
  int n = l->c->record.n - 1;
  uint64_t draw = rng_at(~w->check.key, w->check.drawn);
  int64_t rows = rows_of(w, l, n, draw);
  char when[32];
  if (!rows)
    return ATTN_OK;
  struct attn_args args = copied(w, l);
  snprintf(when, sizeof when, "timed run %d: ", n + 1);
  int status = group_truth(w, l, &args, rows, draw, when);
  return status || !l->ready ? status : inputs_touched(w, l, n, draw);
}

/* Somebody changed inputs where no probe fell: whose times are right is not known. */
int group_check_inputs(struct group_work *w)
{
  if (tensors_inputs_unchanged(w->tensors) != 0)
    return ATTN_OK;
  for (int i = 0; i < w->g->n; i++) {
    if (!w->live[i].ready)
      continue;
    w->live[i].ready = false;
    group_end(w->live[i].c, STATUS_INVALID,
              "inputs were changed while timing, by this or another of %d: run it alone (--impl)",
              w->g->n);
  }
  return tensors_restore(w->tensors);
}
