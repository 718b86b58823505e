/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-fork.c - parallel sampling: a prompt is computed once and forked 8 ways. The allocator's
 * counters say what that adds to the cache: nothing, until the branches write; then each writes its
 * first token into its own copy of the prompt's last page. Where the device counts bytes, what it
 * wrote to DRAM meanwhile stands beside them.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/device/instrument.h"
#include "harness/serve/serve-parts.h"

#define BRANCHES 8

struct fork {
  struct serve *s;
  struct decoder *decoder;
  struct kv kv;
  struct kv_seq prompt, branch[BRANCHES];
  int32_t *token;
  int64_t length;
  struct step step; /* that writes the branches' first tokens */
  struct step_item item[BRANCHES];
  struct kv_copy copy[BRANCHES + 1];
  int32_t first[BRANCHES];
  double page_bytes, prompt_bytes, forked_bytes, written_bytes;
  double forked_dram, written_dram; /* written by the device; NaN: not counted */
};

/* The prompt, in steps of the budget. */
static int compute_prompt(struct serve *s, const struct setting *x, struct fork *f)
{
  int32_t sampled;
  struct step_times times;
  struct kv_copy copy;
  int status = ATTN_OK;
  while (!status && f->prompt.length < f->length) {
    int64_t first = f->prompt.length, left = f->length - first;
    int64_t n = left < x->d.tokens ? left : x->d.tokens;
    status = kv_append(&f->kv, &f->prompt, n, &copy);
    struct step_item item = {f->token + first, first, n, f->prompt.table, f->prompt.npages, true};
    struct step st = {.item = &item, .nitems = 1, .tokens = n};
    if (!status)
      status = decoder_run(f->decoder, &st, &sampled, &times, s->err, s->errlen);
  }
  return status;
}

/* Any number of times. */
static int fork_all(void *ctx, void *stream)
{
  struct fork *f = ctx;
  int status = ATTN_OK;
  for (int i = 0; !status && i < BRANCHES; i++) {
    kv_release(&f->kv, &f->branch[i]);
    status = kv_fork(&f->kv, &f->prompt, &f->branch[i]);
  }
  return status;
}

/* One token of every branch, each another. */
static int plan_branches(struct fork *f)
{
  int status = ATTN_OK;
  f->step = (struct step){
      .item = f->item, .nitems = BRANCHES, .tokens = BRANCHES, .copy = f->copy, .ncopies = 0};
  for (int i = 0; !status && i < BRANCHES; i++) {
    struct kv_seq *branch = &f->branch[i];
    f->first[i] = i;
    status = kv_append(&f->kv, branch, 1, &f->copy[f->step.ncopies]);
    f->step.ncopies += !status && f->copy[f->step.ncopies].from != PAGE_NONE;
    f->item[i] =
        (struct step_item){&f->first[i], f->length, 1, branch->table, branch->npages, true};
  }
  return status;
}

/* Any number of times: it writes the same again. */
static int write_branches(void *ctx, void *stream)
{
  struct fork *f = ctx;
  int32_t sampled[BRANCHES];
  struct step_times times;
  return decoder_run(f->decoder, &f->step, sampled, &times, f->s->err, f->s->errlen);
}

/* Once, and where bytes can be counted, once more for that. */
static int run_counted(struct fork *f, device_launch launch, double *written)
{
  struct device *dev = &f->s->dev;
  const struct instrument_ops *ins = instrument_for(dev, NULL);
  struct counted c = {.launch = launch, .ctx = f, .counters = counters_unknown()};
  int status = launch(f, dev->ops->stream(dev));
  bool counts = !strcmp(ins->name, "cupti");
  if (!status && counts)
    status = ins->count(dev, &c, 1);
  *written = c.counters.dram_write_bytes + c.counters.residue_bytes;
  return status;
}

static int run(struct serve *s, const struct setting *x, struct fork *f)
{
  int status = compute_prompt(s, x, f);
  f->prompt_bytes = pages_used(&f->kv.pages) * f->page_bytes;
  if (!status)
    status = run_counted(f, fork_all, &f->forked_dram);
  f->forked_bytes = pages_used(&f->kv.pages) * f->page_bytes - f->prompt_bytes;
  kv_release(&f->kv, &f->prompt);
  if (!status)
    status = plan_branches(f);
  if (!status)
    status = run_counted(f, write_branches, &f->written_dram);
  f->written_bytes = pages_used(&f->kv.pages) * f->page_bytes - f->prompt_bytes - f->forked_bytes;
  for (int i = 0; i < BRANCHES; i++)
    kv_release(&f->kv, &f->branch[i]);
  return status;
}

static int emit(struct serve *s, const struct setting *x, const struct fork *f)
{
  double separate = (BRANCHES - 1) * f->prompt_bytes;
  if (!s->o->quiet && !s->sum->records)
    printf("%-12s %8s %14s %14s %14s %14s\n", "model", "prompt", "KV bytes", "forked 8 ways",
           "first tokens", "separate");
  if (!s->o->quiet)
    printf("%-12s %8lld %14.0f %14.0f %14.0f %14.0f\n", x->d.model.name, (long long)f->length,
           f->prompt_bytes, f->forked_bytes, f->written_bytes, separate);
  if (!s->o->quiet && !isnan(f->forked_dram))
    printf("%-12s %8s %14s %14.0f %14.0f\n", "", "", "DRAM writes", f->forked_dram,
           f->written_dram);
  json_t *serve = serve_json(s, x);
  serve_put(serve, "prompt_tokens", (double)f->length);
  serve_put(serve, "branches", BRANCHES);
  serve_put(serve, "kv_bytes_prompt", f->prompt_bytes);
  serve_put(serve, "kv_bytes_forked", f->forked_bytes);
  serve_put(serve, "kv_bytes_written", f->written_bytes);
  serve_put(serve, "kv_bytes_separate", separate);
  serve_put(serve, "dram_bytes_forked", f->forked_dram);
  serve_put(serve, "dram_bytes_written", f->written_dram);
  serve_put(serve, "fork_copies", (double)f->kv.copies);
  serve_put(serve, "fork_copied_bytes",
            (double)f->kv.copied * decoder_token_bytes(&x->d, x->dtype));
  serve_put(serve, "pages_leaked", pages_used(&f->kv.pages));
  s->sum->failed += f->forked_bytes > 0 || pages_used(&f->kv.pages) > 0;
  return serve_emit(s, x, f->length, 1, serve);
}

static int one(struct serve *s, const struct setting *x, int64_t length)
{
  struct fork f = {.s = s,
                   .length = length,
                   .page_bytes = decoder_token_bytes(&x->d, x->dtype) * (double)x->d.page,
                   .token = malloc((size_t)length * sizeof *f.token)};
  struct decoder_options o = x->d;
  if (!f.token)
    return serve_fail(s, ATTN_ENOMEM, "no memory for a prompt of %lld tokens", (long long)length);
  for (int64_t i = 0; i < length; i++)
    f.token[i] = (int32_t)rng_below(s->o->seed, (uint64_t)i, (uint32_t)o.model.vocab);
  o.batch = o.batch < BRANCHES ? BRANCHES : o.batch;
  o.tokens = o.tokens < o.batch ? o.batch : o.tokens;
  replay_end(s);
  int status = decoder_create(&f.decoder, &s->dev, &o, s->err, s->errlen);
  if (!status)
    status = kv_init(&f.kv, (int32_t)o.npages, o.page);
  if (!status)
    status = run(s, x, &f);
  if (status == ATTN_ENOMEM && !*s->err)
    status =
        serve_fail(s, ATTN_EINVAL,
                   "a prompt of %lld tokens and %d branches take more than %lld pages of %lld: "
                   "more --kv-memory",
                   (long long)length, BRANCHES, (long long)o.npages, (long long)o.page);
  if (!status)
    status = emit(s, x, &f);
  kv_free(&f.kv);
  decoder_destroy(f.decoder);
  free(f.token);
  return status;
}

static int on_model(struct serve *s, struct setting *x, void *ctx)
{
  int64_t length[32];
  int n, status = setting_numbers(s, "--lengths", s->o->lengths ? s->o->lengths : "500,1k,1900",
                                  length, 32, &n);
  if (!status && x->d.contiguous)
    status = serve_fail(s, ATTN_EINVAL, "fork with --contiguous: only pages can be shared");
  for (int i = 0; !status && i < n; i++)
    status = setting_length(s, x, length[i], 1);
  if (!status)
    status = setting_check(s, x);
  for (int i = 0; !status && i < n; i++)
    status = one(s, x, length[i]);
  return status;
}

int scenario_fork(struct serve *s)
{
  return setting_each(s, false, on_model, NULL);
}
