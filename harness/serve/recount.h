/* SPDX-License-Identifier: Apache-2.0
 *
 * recount.h - how many prompt tokens a prefix cache of a given size must have found, counted from
 * the trace alone.
 *
 * Takes what the scheduler did, event by event, and keeps its own idea of what is cached: no pages,
 * no tokens, only counts and a tree of block contents.  The same policy (prefix.h), other code:
 * what the cache found and what this finds must agree to the token.
 */
#ifndef HARNESS_SERVE_RECOUNT_H
#define HARNESS_SERVE_RECOUNT_H

#include "harness/serve/trace.h"

enum serve_event_kind {
  EVENT_ADMIT,   /* tokens: of the prompt; cached: how many of them were found */
  EVENT_COMPUTE, /* tokens: of the prompt that are computed now, all in all */
  EVENT_EXTEND,  /* tokens: of the whole sequence, room made for */
  EVENT_RELEASE,
};

struct serve_event {
  enum serve_event_kind kind;
  int32_t request;
  int64_t tokens, cached;
};

struct recount_task {
  const struct trace *trace;
  const struct serve_event *event;
  size_t nevents;
  int64_t page, npages; /* npages 0: as many as it takes */
};

struct recount {
  int64_t cached; /* tokens found, all admissions */
  int64_t wrong;  /* admissions whose event says another number */
};

/* ATTN_OK or ATTN_ENOMEM. */
int recount_run(const struct recount_task *task, struct recount *out);
/* Tokens that an unlimited cache finds if requests come one after the other. */
int recount_unlimited(const struct trace *t, int64_t page, int64_t *cached);

#endif
