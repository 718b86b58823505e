/* SPDX-License-Identifier: Apache-2.0
 *
 * minimize.c - greedy: options are taken away and sizes made smaller, one at a time, as long as
 * the problem still fails, in whatever way; until nothing more can be taken away.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/minimize.h"

static bool failed(enum record_status s)
{
  return s == STATUS_FAIL || s == STATUS_CRASH || s == STATUS_TIMEOUT || s == STATUS_INVALID;
}

void failures_collect(const struct record *r, const struct group *g, void *failures)
{
  struct failures *f = failures;
  if (!failed(r->status) || f->n == MINIMIZE_MAX)
    return;
  snprintf(f->of[f->n].impl, sizeof f->of[f->n].impl, "%s", r->impl);
  f->of[f->n++].problem = r->problem;
}

/* ---- smaller problems ------------------------------------------------------------------------ */

/* Step n of the ways to make p smaller; false: there are no more. What is not smaller, or no
 * problem at all, is passed over by the caller. */
static bool without_option(struct attn_problem *p, int n)
{
  switch (n) {
  case 0: p->softcap = 0; return true;
  case 1: p->alibi = false; return true;
  case 2: p->dropout_p = 0, p->dropout_seed = 0; return true;
  case 3: p->scale = 0; return true;
  case 4: p->page = p->prefix = 0, p->kv = ATTN_KV_DTYPE; return true;
  case 5: p->mask = ATTN_MASK_NONE, p->window_left = p->window_right = 0; return true;
  case 6: p->layout = p->nruns ? ATTN_PACKED : ATTN_BSHD; return true;
  case 7: p->hq = p->hkv; return true;
  case 8: p->hq = p->hkv = 1; return true;
  case 9: p->hq = 2 * p->hkv; return true;
  case 10: p->hq /= p->hkv, p->hkv = 1; return true;
  case 11: p->dv = p->d; return true;
  case 12: p->d = p->d > 8 ? p->d / 16 * 8 : p->d, p->dv = p->dv > p->d ? p->d : p->dv; return true;
  case 13: p->kv = ATTN_KV_DTYPE; return true;
  case 14: p->prefix = 0; return true;
  case 15: p->prefix = p->page ? p->prefix / 2 / p->page * p->page : 0; return true;
  default: return false;
  }
}

static int64_t smaller(int64_t x, int step)
{
  return step == 0 ? 1 : step == 1 ? x / 2 : step == 2 ? x - x / 4 : x - 1;
}

#define STEPS 4

/* Sizes: b, sq and sk of a uniform batch, or one run of a ragged one after the other. */
static bool with_smaller_size(struct attn_problem *p, int n)
{
  int step = n % STEPS, which = n / STEPS;
  if (p->nruns == 0) {
    int64_t *size[] = {&p->b, &p->sq, &p->sk};
    if (which >= 4)
      return false;
    if (which == 3)
      p->sq = p->sk = smaller(p->sk < p->sq ? p->sq : p->sk, step);
    else
      *size[which] = smaller(*size[which], step);
    return true;
  }
  struct attn_run *run = &p->runs[which / 4];
  if (which >= 4 * p->nruns)
    return false;
  if (which % 4 == 0)
    run->count = smaller(run->count, step);
  else if (which % 4 == 1)
    run->sq = smaller(run->sq, step);
  else if (which % 4 == 2)
    run->sk = smaller(run->sk, step);
  else if (p->nruns > 1)
    memmove(run, run + 1, (size_t)(--p->nruns - which / 4) * sizeof *run);
  return true;
}

static double weight(const struct attn_problem *p)
{
  double sizes = (double)(attn_problem_total_q(p) + attn_problem_total_k(p)) *
                 (double)(p->hq + p->hkv) * (double)(p->d + p->dv);
  int options = (p->softcap > 0) + p->alibi + (p->dropout_p > 0) + (p->scale != 0) + (p->page > 0) +
                (p->kv > 0) + (p->prefix > 0) + (p->mask != ATTN_MASK_NONE) +
                (p->layout != ATTN_BSHD) + p->nruns;
  return sizes * (1 + options);
}

/* A prefix ends with the shortest sequence. */
static void shorten_prefix(struct attn_problem *p)
{
  int64_t shortest = p->nruns ? p->runs[0].sk : p->sk;
  for (int i = 1; i < p->nruns; i++)
    shortest = p->runs[i].sk < shortest ? p->runs[i].sk : shortest;
  if (p->prefix > shortest)
    p->prefix = shortest / p->page * p->page;
}

/* The problem again, as its own text says it: sums and maxima of a ragged batch included. */
static bool settle(struct attn_problem *p)
{
  char text[ATTN_PROBLEM_TEXT], err[256];
  struct attn_problem q;
  shorten_prefix(p);
  attn_problem_print(p, text, sizeof text);
  if (attn_problem_parse(text, &q, err, sizeof err))
    return false;
  *p = q;
  return true;
}

/* ---- trying ---------------------------------------------------------------------------------- */

struct trial {
  const struct run_options *o;
  const char *impl;
  bool failed;
  char reason[256];
};

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct trial *t = ctx;
  t->failed = failed(r->status);
  snprintf(t->reason, sizeof t->reason, "%s", r->reason);
}

static int try_problem(struct trial *t, struct attn_problem *p, char *err, size_t errlen)
{
  struct run_options o = *t->o;
  struct problem_list list = {p, 1, 1};
  struct run_summary sum;
  t->failed = false;
  o.impls = t->impl;
  o.quiet = true;
  o.out = NULL;
  o.each = see;
  o.ctx = t;
  int status = run_problems(&list, &o, &sum, err, errlen);
  return sum.interrupted ? ATTN_EINVAL : status;
}

/* One pass over all ways; true if one of them took something away. */
static int one_pass(struct trial *t, struct attn_problem *p, bool *shrunk, char *reason, char *err,
                    size_t errlen)
{
  bool (*const ways[])(struct attn_problem *, int) = {without_option, with_smaller_size};
  for (int w = 0; w < 2; w++)
    for (int n = 0;; n++) {
      struct attn_problem q = *p;
      if (!ways[w](&q, n))
        break;
      if (!settle(&q) || weight(&q) >= weight(p))
        continue;
      int status = try_problem(t, &q, err, errlen);
      if (status)
        return status;
      if (!t->failed)
        continue;
      *p = q;
      *shrunk = true;
      memcpy(reason, t->reason, sizeof t->reason);
      n = -1;
    }
  return ATTN_OK;
}

int failures_minimize(struct failures *f, const struct run_options *o, char *err, size_t errlen)
{
  int status = ATTN_OK;
  for (int i = 0; i < f->n && !status; i++) {
    struct attn_problem *p = &f->of[i].problem;
    struct trial t = {.o = o, .impl = f->of[i].impl};
    char text[ATTN_PROBLEM_TEXT], reason[sizeof t.reason] = "as it was";
    bool shrunk = true;
    while (shrunk && !status) {
      shrunk = false;
      status = one_pass(&t, p, &shrunk, reason, err, errlen);
    }
    attn_problem_print(p, text, sizeof text);
    printf("smallest    %-22s %s\n            %s\n            again: %s --impl %s '%s'\n", t.impl,
           text, reason, o->repro, t.impl, text);
    fflush(stdout);
  }
  return status;
}
