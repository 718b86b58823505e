/* SPDX-License-Identifier: Apache-2.0
 *
 * recount.c - a tree of block contents with users and times of release, and a queue of evictions.
 */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/rng.h"
#include "harness/serve/recount.h"
#include "impl/attn.h"

#define ROOT (-1)

struct node {
  int64_t parent;
  uint64_t content;
  int64_t next; /* in its bucket */
  int64_t users;
  uint64_t released; /* when its last user left */
  bool present;
};

struct entry {
  int64_t node;
  uint64_t released;
};

struct live {
  int64_t *node; /* (pages of the prompt) those known to the cache */
  int64_t nodes, pages;
  bool apart; /* met another's page: enters no more */
};

struct count {
  const struct recount_task *task;
  struct node *node;
  int64_t *bucket;
  struct entry *idle; /* a queue: in order of release, stale entries among them */
  struct live *live;  /* (requests) */
  int64_t nnodes, node_room, nbuckets, idle_room, idle_from, idle_to;
  int64_t held; /* pages in use or cached */
  uint64_t clock;
};

static int64_t bucket_of(const struct count *c, int64_t parent, uint64_t content)
{
  return (int64_t)(rng_at(content, (uint64_t)parent) & (uint64_t)(c->nbuckets - 1));
}

/* A power of two of buckets, no fewer than pages that the trace can fill. */
static int create(struct count *c)
{
  const struct trace *t = c->task->trace;
  for (size_t i = 0; i < t->n; i++)
    c->node_room += t->request[i].input / c->task->page;
  for (c->nbuckets = 1; c->nbuckets < c->node_room;)
    c->nbuckets *= 2;
  c->node = malloc((size_t)(c->node_room + 1) * sizeof *c->node);
  c->bucket = malloc((size_t)c->nbuckets * sizeof *c->bucket);
  c->live = calloc(t->n + 1, sizeof *c->live);
  if (!c->node || !c->bucket || !c->live)
    return ATTN_ENOMEM;
  for (int64_t i = 0; i < c->nbuckets; i++)
    c->bucket[i] = ROOT;
  return ATTN_OK;
}

static void destroy(struct count *c)
{
  for (size_t i = 0; c->live && i < c->task->trace->n; i++)
    free(c->live[i].node);
  free(c->live);
  free(c->node);
  free(c->bucket);
  free(c->idle);
}

static uint64_t page_content(const struct count *c, size_t request, int64_t index)
{
  uint64_t h = 0;
  for (int64_t i = index * c->task->page; i < (index + 1) * c->task->page; i++)
    h = rng_at(h, trace_content(c->task->trace, request, i));
  return h;
}

static int64_t find(struct count *c, int64_t parent, uint64_t content)
{
  int64_t i = c->bucket[bucket_of(c, parent, content)];
  while (i != ROOT && (c->node[i].parent != parent || c->node[i].content != content))
    i = c->node[i].next;
  return i;
}

static int64_t find_or_make(struct count *c, int64_t parent, uint64_t content)
{
  int64_t i = find(c, parent, content);
  if (i != ROOT)
    return i;
  int64_t *bucket = &c->bucket[bucket_of(c, parent, content)];
  i = c->nnodes++;
  c->node[i] = (struct node){.parent = parent, .content = content, .next = *bucket};
  return *bucket = i;
}

/* Room for pages more: what was released longest ago goes first. */
static void make_room(struct count *c, int64_t pages)
{
  c->held += pages;
  while (c->task->npages && c->held > c->task->npages && c->idle_from < c->idle_to) {
    struct entry e = c->idle[c->idle_from++];
    struct node *n = &c->node[e.node];
    if (!n->present || n->users || n->released != e.released)
      continue;
    n->present = false;
    c->held--;
  }
}

static int push_idle(struct count *c, int64_t node)
{
  if (c->idle_to == c->idle_room) {
    int64_t room = c->idle_room ? 2 * c->idle_room : 1024;
    struct entry *idle = realloc(c->idle, (size_t)room * sizeof *idle);
    if (!idle)
      return ATTN_ENOMEM;
    c->idle = idle;
    c->idle_room = room;
  }
  c->node[node].released = ++c->clock;
  c->idle[c->idle_to++] = (struct entry){node, c->clock};
  return ATTN_OK;
}

static int admit(struct count *c, const struct serve_event *e, struct recount *out)
{
  int64_t page = c->task->page, input = c->task->trace->request[e->request].input;
  struct live *l = &c->live[e->request];
  *l = (struct live){.node = malloc((size_t)(input / page + 1) * sizeof *l->node)};
  if (!l->node)
    return ATTN_ENOMEM;
  /* the last token is always computed: its logits are wanted */
  int64_t most = (e->tokens - 1 < input ? e->tokens - 1 : input) / page, parent = ROOT;
  for (; l->nodes < most; l->nodes++) {
    int64_t i = find(c, parent, page_content(c, (size_t)e->request, l->nodes));
    if (i == ROOT || !c->node[i].present)
      break;
    c->node[i].users++;
    l->node[l->nodes] = parent = i;
  }
  l->pages = l->nodes;
  out->cached += l->nodes * page;
  out->wrong += l->nodes * page != e->cached;
  return ATTN_OK;
}

static void compute(struct count *c, const struct serve_event *e)
{
  struct live *l = &c->live[e->request];
  int64_t page = c->task->page, input = c->task->trace->request[e->request].input;
  int64_t end = (e->tokens < input ? e->tokens : input) / page;
  for (; l->nodes < end && !l->apart; l->nodes++) {
    int64_t parent = l->nodes ? l->node[l->nodes - 1] : ROOT;
    int64_t i = find_or_make(c, parent, page_content(c, (size_t)e->request, l->nodes));
    l->apart = c->node[i].present;
    if (l->apart)
      return;
    c->node[i].present = true;
    c->node[i].users = 1;
    l->node[l->nodes] = i;
  }
}

static void extend(struct count *c, const struct serve_event *e)
{
  struct live *l = &c->live[e->request];
  int64_t pages = (e->tokens + c->task->page - 1) / c->task->page;
  make_room(c, pages - l->pages);
  l->pages = pages;
}

static int release(struct count *c, const struct serve_event *e)
{
  struct live *l = &c->live[e->request];
  int status = ATTN_OK;
  c->held -= l->pages - l->nodes;
  while (!status && l->nodes > 0) {
    int64_t i = l->node[--l->nodes];
    if (!--c->node[i].users)
      status = push_idle(c, i);
  }
  free(l->node);
  *l = (struct live){0};
  return status;
}

static int take(struct count *c, const struct serve_event *e, struct recount *out)
{
  switch (e->kind) {
  case EVENT_ADMIT: return admit(c, e, out);
  case EVENT_COMPUTE: compute(c, e); return ATTN_OK;
  case EVENT_EXTEND: extend(c, e); return ATTN_OK;
  case EVENT_RELEASE: return release(c, e);
  }
  return ATTN_EINVAL;
}

int recount_run(const struct recount_task *task, struct recount *out)
{
  struct count c = {.task = task};
  int status = create(&c);
  *out = (struct recount){0};
  for (size_t i = 0; !status && i < task->nevents; i++)
    status = take(&c, &task->event[i], out);
  destroy(&c);
  return status;
}

int recount_unlimited(const struct trace *t, int64_t page, int64_t *cached)
{
  struct serve_event *event = malloc((4 * t->n + 1) * sizeof *event), *e = event;
  struct recount out;
  if (!event)
    return ATTN_ENOMEM;
  for (size_t i = 0; i < t->n; i++) {
    int32_t r = (int32_t)i;
    *e++ = (struct serve_event){EVENT_ADMIT, r, t->request[i].input, 0};
    *e++ = (struct serve_event){EVENT_EXTEND, r, t->request[i].input, 0};
    *e++ = (struct serve_event){EVENT_COMPUTE, r, t->request[i].input, 0};
    *e++ = (struct serve_event){EVENT_RELEASE, r, 0, 0};
  }
  int status = recount_run(&(struct recount_task){t, event, 4 * t->n, page, 0}, &out);
  *cached = out.cached;
  free(event);
  return status;
}
