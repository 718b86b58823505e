/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario-memory.c - a trace's lengths in contiguous memory of the model's maximum length, and in
 * pages: what is reserved, used and wasted, and how many sequences fit. Nothing is computed.
 */
#include "config.h"

#include <stdlib.h>

#include "harness/base/path.h"
#include "harness/serve/serve-parts.h"

static json_t *fragment_json(const struct fragment *f)
{
  json_t *o = json_object();
  serve_put(o, "reserved_bytes", f->reserved);
  serve_put(o, "used_bytes", f->used);
  serve_put(o, "wasted_bytes", f->wasted);
  serve_put(o, "wasted_share", f->wasted_share);
  serve_put(o, "largest_batch", f->largest_batch);
  return o;
}

static void show_row(const char *name, const struct fragment *f)
{
  printf("%-10s %11.3f %11.3f %11.3f %8.3f%% %10.0f\n", name, f->reserved / 0x1p30,
         f->used / 0x1p30, f->wasted / 0x1p30, 100 * f->wasted_share, f->largest_batch);
}

static void show(const struct serve *s, const struct setting *x, const char *name,
                 const struct fragment_task *t, const struct fragment *contiguous,
                 const struct fragment *paged)
{
  if (s->o->quiet)
    return;
  printf("%s, %.0f bytes a token; %zu sequences of %s, at most %lld tokens, page %lld; batches in "
         "%.3f GiB\n\n",
         x->d.model.name, t->token_bytes, t->n, name, (long long)t->max_length, (long long)t->page,
         t->memory_bytes / 0x1p30);
  printf("%-10s %11s %11s %11s %9s %10s\n", "", "reserved/GiB", "used/GiB", "wasted/GiB", "wasted",
         "batch");
  show_row("contiguous", contiguous);
  show_row("paged", paged);
}

struct input {
  struct trace trace;
  const char *name;
  int64_t *length;
  int64_t longest;
};

static int measure(struct serve *s, struct setting *x, void *ctx)
{
  const struct input *in = ctx;
  struct fragment paged, contiguous;
  struct fragment_task t = {.length = in->length,
                            .n = in->trace.n,
                            .token_bytes = decoder_token_bytes(&x->d, x->dtype),
                            .memory_bytes = s->o->kv_memory,
                            .max_length = setting_context(s, x),
                            .page = s->o->page};
  if (x->d.contiguous)
    return serve_fail(s, ATTN_EINVAL, "memory with --contiguous: it compares both; leave it out");
  if (replay_check_context(s, x, &in->trace, in->name))
    return ATTN_EINVAL;
  contiguous = fragment_contiguous(&t);
  if (fragment_paged(&t, &paged))
    return serve_fail(s, ATTN_EINVAL,
                      "%s: %zu sequences do not fit 2^31 pages, or memory has none "
                      "for their tables: --requests fewer",
                      in->name, t.n);
  show(s, x, in->name, &t, &contiguous, &paged);
  json_t *serve = serve_json(s, x);
  json_object_set_new(serve, "trace", json_string(path_base(in->name)));
  json_object_set_new(serve, "trace_format", json_string(in->trace.format));
  serve_put(serve, "requests", (double)in->trace.n);
  serve_put(serve, "memory_bytes", t.memory_bytes);
  serve_put(serve, "max_length", (double)t.max_length);
  json_object_set_new(serve, "contiguous_memory", fragment_json(&contiguous));
  json_object_set_new(serve, "paged_memory", fragment_json(&paged));
  return serve_emit(s, x, 0, in->longest, serve);
}

int scenario_memory(struct serve *s)
{
  struct input in = {.longest = 1};
  int status = serve_trace(s, &in.trace, &in.name);
  if (!status)
    in.length = malloc((in.trace.n + 1) * sizeof *in.length);
  if (!status && !in.length)
    status = serve_fail(s, ATTN_ENOMEM, "no memory for %zu lengths", in.trace.n);
  for (size_t i = 0; !status && i < in.trace.n; i++) {
    in.length[i] = in.trace.request[i].input + in.trace.request[i].output;
    in.longest = in.length[i] > in.longest ? in.length[i] : in.longest;
  }
  if (!status)
    status = setting_each(s, false, measure, &in);
  free(in.length);
  trace_free(&in.trace);
  return status;
}
