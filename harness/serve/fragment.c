/* SPDX-License-Identifier: Apache-2.0
 *
 * fragment.c - memory of a KV cache by both ways of reserving it, on a list of lengths.
 *
 * The lengths are final ones, which favours contiguous memory: it reserves the maximum from the
 * first token on, paging only what has come so far.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "harness/gate/stats.h"
#include "harness/serve/fragment.h"
#include "harness/serve/kv.h"
#include "impl/attn.h"

#define STARTS 16 /* of the batches whose median size is reported */

static int64_t length_of(const struct fragment_task *t, size_t i)
{
  int64_t n = t->length[i % t->n];
  return n < t->max_length ? n : t->max_length;
}

static double used_bytes(const struct fragment_task *t)
{
  double tokens = 0;
  for (size_t i = 0; i < t->n; i++)
    tokens += (double)length_of(t, i);
  return tokens * t->token_bytes;
}

static void finish(struct fragment *f)
{
  f->wasted = f->reserved - f->used;
  f->wasted_share = f->reserved > 0 ? f->wasted / f->reserved : NAN;
}

struct fragment fragment_contiguous(const struct fragment_task *t)
{
  double slot = (double)t->max_length * t->token_bytes;
  struct fragment f = {.reserved = slot * (double)t->n, .used = used_bytes(t)};
  f.largest_batch = floor(t->memory_bytes / slot);
  finish(&f);
  return f;
}

/* Sequences from `from` on, round the list, until a page is missing. Releases them again. */
static int fill(const struct fragment_task *t, struct kv *kv, struct kv_seq *seq, size_t room,
                size_t from, size_t *fit)
{
  struct kv_copy copy;
  size_t n = 0;
  while (n < room && !kv_append(kv, &seq[n], length_of(t, from + n), &copy))
    n++;
  for (size_t i = 0; i < n; i++)
    kv_release(kv, &seq[i]);
  *fit = n;
  return n < room ? ATTN_OK : ATTN_ENOMEM;
}

static int largest_batch(const struct fragment_task *t, double *batch)
{
  double pages = floor(t->memory_bytes / (t->token_bytes * (double)t->page)), size[STARTS];
  if (!(pages >= 1 && pages < INT32_MAX))
    return ATTN_EINVAL;
  size_t room = (size_t)pages + 1;
  struct kv_seq *seq = calloc(room, sizeof *seq);
  struct kv kv;
  int status = kv_init(&kv, (int32_t)pages, t->page);
  if (!seq)
    status = ATTN_ENOMEM;
  for (size_t i = 0; !status && i < STARTS; i++) {
    size_t fit;
    status = fill(t, &kv, seq, room, i * t->n / STARTS, &fit);
    size[i] = (double)fit;
  }
  *batch = status ? NAN : stats_median(size, STARTS);
  kv_free(&kv);
  free(seq);
  return status;
}

int fragment_paged(const struct fragment_task *t, struct fragment *f)
{
  int64_t pages = 0;
  for (size_t i = 0; i < t->n; i++)
    pages += (length_of(t, i) + t->page - 1) / t->page;
  *f = (struct fragment){.used = used_bytes(t)};
  if (pages >= INT32_MAX)
    return ATTN_EINVAL;
  struct kv kv;
  struct kv_copy copy;
  struct kv_seq *seq = calloc(t->n, sizeof *seq);
  int status = kv_init(&kv, (int32_t)pages, t->page);
  if (!seq)
    status = ATTN_ENOMEM;
  for (size_t i = 0; !status && i < t->n; i++)
    status = kv_append(&kv, &seq[i], length_of(t, i), &copy);
  f->reserved = (double)pages_used(&kv.pages) * (double)t->page * t->token_bytes;
  for (size_t i = 0; seq && i < t->n; i++)
    kv_release(&kv, &seq[i]);
  free(seq);
  kv_free(&kv);
  finish(f);
  return status ? status : largest_batch(t, &f->largest_batch);
}
