/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-fork.c - parallel sampling: a prompt is computed once and forked 8 ways. The allocator's
 * counters say what that adds to the cache: nothing, until the branches write; then each writes its
 * first token into its own copy of the prompt's last page.
 */
#include "config.h"

#include <stdlib.h>

#include "harness/base/rng.h"
#include "harness/serve/serve-parts.h"

#define BRANCHES 8

struct fork {
  struct decoder *decoder;
  struct kv kv;
  struct kv_seq prompt, branch[BRANCHES];
  int32_t *token;
  int64_t length;
  double page_bytes, prompt_bytes, forked_bytes, written_bytes;
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

/* One token of every branch, each another. */
static int write_branches(struct serve *s, struct fork *f)
{
  struct step_item item[BRANCHES];
  struct kv_copy copy[BRANCHES + 1];
  int32_t sampled[BRANCHES], token[BRANCHES];
  struct step_times times;
  struct step st = {.item = item, .nitems = BRANCHES, .tokens = BRANCHES, .copy = copy};
  int status = ATTN_OK;
  for (int i = 0; !status && i < BRANCHES; i++) {
    token[i] = i;
    status = kv_append(&f->kv, &f->branch[i], 1, &copy[st.ncopies]);
    st.ncopies += !status && copy[st.ncopies].from != PAGE_NONE;
    item[i] =
        (struct step_item){&token[i], f->length, 1, f->branch[i].table, f->branch[i].npages, true};
  }
  return status ? status : decoder_run(f->decoder, &st, sampled, &times, s->err, s->errlen);
}

static int run(struct serve *s, const struct setting *x, struct fork *f)
{
  int status = compute_prompt(s, x, f);
  f->prompt_bytes = pages_used(&f->kv.pages) * f->page_bytes;
  for (int i = 0; !status && i < BRANCHES; i++)
    status = kv_fork(&f->kv, &f->prompt, &f->branch[i]);
  f->forked_bytes = pages_used(&f->kv.pages) * f->page_bytes - f->prompt_bytes;
  kv_release(&f->kv, &f->prompt);
  if (!status)
    status = write_branches(s, f);
  f->written_bytes = pages_used(&f->kv.pages) * f->page_bytes - f->prompt_bytes - f->forked_bytes;
  for (int i = 0; i < BRANCHES; i++)
    kv_release(&f->kv, &f->branch[i]);
  return status;
}

static int emit(struct serve *s, const struct setting *x, const struct fork *f)
{
  double separate = (BRANCHES - 1) * f->prompt_bytes;
  if (!s->o->quiet)
    printf("%-12s %8lld %14.0f %14.0f %14.0f %14.0f\n", x->d.model.name, (long long)f->length,
           f->prompt_bytes, f->forked_bytes, f->written_bytes, separate);
  json_t *serve = serve_json(s, x);
  serve_put(serve, "prompt_tokens", (double)f->length);
  serve_put(serve, "branches", BRANCHES);
  serve_put(serve, "kv_bytes_prompt", f->prompt_bytes);
  serve_put(serve, "kv_bytes_forked", f->forked_bytes);
  serve_put(serve, "kv_bytes_written", f->written_bytes);
  serve_put(serve, "kv_bytes_separate", separate);
  serve_put(serve, "fork_copies", (double)f->kv.copies);
  serve_put(serve, "fork_copied_bytes",
            (double)f->kv.copied * decoder_token_bytes(&x->d, x->dtype));
  serve_put(serve, "pages_leaked", pages_used(&f->kv.pages));
  s->sum->failed += f->forked_bytes > 0 || pages_used(&f->kv.pages) > 0;
  return serve_emit(s, x, f->length, 1, serve);
}

static int one(struct serve *s, const struct setting *x, int64_t length)
{
  struct fork f = {.length = length,
                   .page_bytes = decoder_token_bytes(&x->d, x->dtype) * (double)x->d.page,
                   .token = malloc((size_t)length * sizeof *f.token)};
  struct decoder_options o = x->d;
  if (!f.token)
    return serve_fail(s, ATTN_ENOMEM, "no memory for a prompt of %lld tokens", (long long)length);
  for (int64_t i = 0; i < length; i++)
    f.token[i] = (int32_t)rng_below(s->o->seed, (uint64_t)i, (uint32_t)o.model.vocab);
  o.batch = o.batch < BRANCHES ? BRANCHES : o.batch;
  o.tokens = o.tokens < o.batch ? o.batch : o.tokens;
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
  if (!status)
    status = setting_check(s, x);
  for (int i = 0; !status && i < n; i++)
    status = one(s, x, length[i]);
  return status;
}

int scenario_fork(struct serve *s)
{
  if (!s->o->quiet)
    printf("%-12s %8s %14s %14s %14s %14s\n", "model", "prompt", "KV bytes", "forked 8 ways",
           "first tokens", "separate");
  return setting_each(s, "tiny-gqa", on_model, NULL);
}
