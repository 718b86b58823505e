/* SPDX-License-Identifier: Apache-2.0
 *
 * sched.c - the scheduler's queues and its plan of a step.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/serve/sched.h"
#include "impl/attn.h"

/* ---- life ----------------------------------------------------------------------------------- */

static int check_request(const struct sched_options *o, const struct trace_request *r,
                         const char *path, char *err, size_t errlen)
{
  int64_t needs = (r->input + r->output + o->page - 1) / o->page;
  if (needs <= o->npages)
    return ATTN_OK;
  snprintf(err, errlen,
           "%s: row %d: %lld tokens of prompt and output take %lld pages of %lld, the cache has "
           "%lld: give it more --kv-memory, or leave the row out",
           path, r->row, (long long)(r->input + r->output), (long long)needs, (long long)o->page,
           (long long)o->npages);
  return ATTN_EINVAL;
}

int sched_check(const struct trace *t, const char *path, const struct sched_options *o, char *err,
                size_t errlen)
{
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < t->n; i++)
    status = check_request(o, &t->request[i], path, err, errlen);
  return status;
}

static int allocate(struct sched *s)
{
  size_t n = s->trace->n, batch = (size_t)s->o.batch;
  s->wait_room = (int64_t)n + 1;
  s->request = calloc(n + 1, sizeof *s->request);
  s->waiting = malloc((n + 1) * sizeof *s->waiting);
  s->running = malloc(batch * sizeof *s->running);
  s->who = malloc(batch * sizeof *s->who);
  s->copy = malloc(batch * sizeof *s->copy);
  s->step.item = malloc(batch * sizeof *s->step.item);
  if (!s->request || !s->waiting || !s->running || !s->who || !s->copy || !s->step.item)
    return ATTN_ENOMEM;
  s->step.copy = s->copy;
  int status = kv_init(&s->kv, (int32_t)s->o.npages, s->o.page);
  if (!status && s->o.prefix)
    status = prefix_init(&s->px, &s->kv, NULL);
  return status;
}

int sched_init(struct sched *s, const struct trace *t, const char *path,
               const struct sched_options *o, char *err, size_t errlen)
{
  *s = (struct sched){.trace = t, .o = *o};
  if (sched_check(t, path, o, err, errlen))
    return ATTN_EINVAL;
  int status = allocate(s);
  if (status)
    snprintf(err, errlen, "no memory for %zu requests and %lld pages", t->n, (long long)o->npages);
  if (status)
    sched_free(s);
  return status;
}

void sched_free(struct sched *s)
{
  if (s->request)
    sched_stop(s);
  for (size_t i = 0; s->request && i < s->trace->n; i++)
    free(s->request[i].token);
  free(s->request);
  free(s->waiting);
  free(s->running);
  free(s->who);
  free(s->copy);
  free(s->step.item);
  free(s->event);
  prefix_free(&s->px);
  kv_free(&s->kv);
  memset(s, 0, sizeof *s);
}

/* ---- events --------------------------------------------------------------------------------- */

static int note(struct sched *s, enum serve_event_kind kind, int32_t request, int64_t tokens,
                int64_t cached)
{
  if (s->nevents == s->event_room) {
    size_t room = s->event_room ? 2 * s->event_room : 256;
    struct serve_event *event = realloc(s->event, room * sizeof *event);
    if (!event)
      return ATTN_ENOMEM;
    s->event = event;
    s->event_room = room;
  }
  s->event[s->nevents++] = (struct serve_event){kind, request, tokens, cached};
  return ATTN_OK;
}

/* ---- queues --------------------------------------------------------------------------------- */

static void wait_last(struct sched *s, int32_t request)
{
  s->waiting[(s->wait_from + s->waits++) % s->wait_room] = request;
  s->request[request].state = REQUEST_WAITING;
}

static void wait_first(struct sched *s, int32_t request)
{
  s->wait_from = (s->wait_from + s->wait_room - 1) % s->wait_room;
  s->waiting[s->wait_from] = request;
  s->waits++;
  s->request[request].state = REQUEST_WAITING;
}

int sched_arrive(struct sched *s, int32_t request)
{
  const struct trace_request *t = &s->trace->request[request];
  struct sched_request *r = &s->request[request];
  r->token = malloc((size_t)(t->input + t->output) * sizeof *r->token);
  if (!r->token)
    return ATTN_ENOMEM;
  trace_tokens(s->trace, (size_t)request, s->o.seed, s->o.vocab, r->token);
  r->known = t->input;
  wait_last(s, request);
  return ATTN_OK;
}

static int release(struct sched *s, int32_t request)
{
  struct sched_request *r = &s->request[request];
  kv_release(&s->kv, &r->seq);
  r->computed = r->entered = 0;
  r->apart = false;
  return note(s, EVENT_RELEASE, request, 0, 0);
}

/* The youngest sequence makes room, and waits before all others. */
static int preempt(struct sched *s)
{
  int32_t youngest = s->running[--s->nrunning];
  s->preemptions++;
  wait_first(s, youngest);
  return release(s, youngest);
}

/* ---- plan ----------------------------------------------------------------------------------- */

/* Enters the prompt's pages that are full after this step. */
static int enter(struct sched *s, int32_t request)
{
  struct sched_request *r = &s->request[request];
  int64_t input = s->trace->request[request].input;
  int64_t end = (r->computed < input ? r->computed : input) / s->o.page;
  if (!s->o.prefix || s->trace->request[request].apart || end <= r->entered)
    return ATTN_OK;
  if (!r->apart) {
    r->entered = prefix_insert(&s->px, &r->seq, r->token, r->entered, end);
    r->apart = r->entered < end;
  }
  return note(s, EVENT_COMPUTE, request, r->computed, 0);
}

static int add_item(struct sched *s, int32_t request, int64_t n)
{
  struct sched_request *r = &s->request[request];
  struct step_item *item = &s->step.item[s->step.nitems];
  *item = (struct step_item){.token = r->token + r->computed,
                             .first = r->computed,
                             .n = n,
                             .table = r->seq.table,
                             .npages = r->seq.npages,
                             .sample = r->computed + n == r->known};
  s->who[s->step.nitems++] = request;
  s->step.tokens += n;
  r->computed += n;
  return enter(s, request);
}

/* A page for one more token, if need be another sequence's; ATTN_ENOMEM: it had to go itself. */
static int make_room(struct sched *s, int64_t at)
{
  int32_t request = s->running[at];
  struct sched_request *r = &s->request[request];
  struct kv_copy copy;
  while (kv_append(&s->kv, &r->seq, 1, &copy)) {
    if (kv_needs(&s->kv, &r->seq, 1) <= pages_available(&s->kv.pages))
      return ATTN_EDEVICE;
    int status = preempt(s);
    if (status)
      return ATTN_EDEVICE;
    if (s->nrunning == at)
      return ATTN_ENOMEM;
  }
  if (copy.from != PAGE_NONE)
    s->copy[s->step.ncopies++] = copy;
  return note(s, EVENT_EXTEND, request, r->seq.length, 0) ? ATTN_EDEVICE : ATTN_OK;
}

static int64_t room_left(const struct sched *s)
{
  return s->o.budget - s->step.tokens;
}

static int plan_decodes(struct sched *s)
{
  for (int64_t i = 0; i < s->nrunning && room_left(s) > 0; i++) {
    struct sched_request *r = &s->request[s->running[i]];
    if (r->computed < r->seq.length)
      continue;
    int status = make_room(s, i);
    if (status == ATTN_ENOMEM)
      return ATTN_OK;
    if (!status)
      status = add_item(s, s->running[i], 1);
    if (status)
      return status;
  }
  return ATTN_OK;
}

static int plan_chunk(struct sched *s, int32_t request)
{
  struct sched_request *r = &s->request[request];
  int64_t left = r->seq.length - r->computed;
  return left > 0 ? add_item(s, request, left < room_left(s) ? left : room_left(s)) : ATTN_OK;
}

static int plan_prefills(struct sched *s)
{
  int status = ATTN_OK;
  for (int64_t i = 0; !status && i < s->nrunning && room_left(s) > 0; i++)
    status = plan_chunk(s, s->running[i]);
  return status;
}

/* The last known token is computed in any case: its logits are wanted. */
static int64_t findable(const struct sched *s, int32_t request)
{
  int64_t input = s->trace->request[request].input, known = s->request[request].known;
  return known - 1 < input ? known - 1 : input;
}

static bool fits(struct sched *s, int32_t request)
{
  const struct sched_request *r = &s->request[request];
  int64_t idle = 0, found = 0;
  if (s->o.prefix)
    found = prefix_probe(&s->px, r->token, findable(s, request), &idle);
  return (r->known + s->o.page - 1) / s->o.page - found <= pages_available(&s->kv.pages) - idle;
}

static int admit(struct sched *s, int32_t request)
{
  struct sched_request *r = &s->request[request];
  struct kv_copy copy;
  int64_t cached = 0;
  int status = ATTN_OK;
  if (s->o.prefix)
    status = prefix_match(&s->px, &r->seq, r->token, findable(s, request), &cached);
  if (!status)
    status = kv_append(&s->kv, &r->seq, r->known - cached, &copy);
  if (!status)
    status = note(s, EVENT_ADMIT, request, r->known, cached);
  if (!status)
    status = note(s, EVENT_EXTEND, request, r->known, 0);
  if (status)
    return status;
  r->computed = cached;
  r->entered = cached / s->o.page;
  r->cached = r->admissions++ ? r->cached : cached;
  r->state = REQUEST_RUNNING;
  s->running[s->nrunning++] = request;
  return plan_chunk(s, request);
}

static int plan_admissions(struct sched *s)
{
  while (s->waits && room_left(s) > 0 && s->nrunning < s->o.batch) {
    int32_t request = s->waiting[s->wait_from];
    if (!fits(s, request))
      break;
    s->wait_from = (s->wait_from + 1) % s->wait_room;
    s->waits--;
    int status = admit(s, request);
    if (status)
      return status;
  }
  return ATTN_OK;
}

int sched_plan(struct sched *s)
{
  s->step.nitems = s->step.tokens = s->step.ncopies = 0;
  int status = plan_decodes(s);
  if (!status)
    status = plan_prefills(s);
  return status ? status : plan_admissions(s);
}

int sched_commit(struct sched *s, const int32_t *sampled)
{
  int64_t kept = 0;
  int status = ATTN_OK;
  for (int64_t i = 0; !status && i < s->step.nitems; i++) {
    struct sched_request *r = &s->request[s->who[i]];
    const struct trace_request *t = &s->trace->request[s->who[i]];
    if (!s->step.item[i].sample)
      continue;
    r->token[r->known++] = sampled[i];
    if (r->known < t->input + t->output)
      continue;
    r->state = REQUEST_DONE;
    s->ndone++;
    status = release(s, s->who[i]);
    free(r->token);
    r->token = NULL;
  }
  for (int64_t i = 0; i < s->nrunning; i++)
    if (s->request[s->running[i]].state == REQUEST_RUNNING)
      s->running[kept++] = s->running[i];
  s->nrunning = kept;
  return status;
}

void sched_stop(struct sched *s)
{
  for (int64_t i = 0; i < s->nrunning; i++)
    kv_release(&s->kv, &s->request[s->running[i]].seq);
  s->nrunning = 0;
}
