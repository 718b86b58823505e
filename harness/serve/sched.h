/* SPDX-License-Identifier: Apache-2.0
 *
 * sched.h - continuous batching with chunked prefill: which tokens the next step computes.
 *
 * A step has a budget of tokens.  Sequences that are decoding come first, a token each, in order of
 * admission; what is left goes to prompts in chunks, first come, first served, and admits waiting
 * requests as long as their prompts fit the cache.  When a decoding sequence finds no page, the
 * youngest one is preempted: it gives its pages back and is computed again later.
 *
 * Pages of a prompt enter the prefix cache when their computation is scheduled. Since prompts are
 * computed in order and a layer writes its keys and values before it reads any, whoever finds such
 * a page reads it after it was written, and finds all pages of every prompt that was admitted
 * before.
 *
 * No clock and no device in here.
 */
#ifndef HARNESS_SERVE_SCHED_H
#define HARNESS_SERVE_SCHED_H

#include "harness/serve/prefix.h"
#include "harness/serve/recount.h"
#include "harness/serve/step.h"
#include "harness/serve/trace.h"

struct sched_options {
  int64_t page, npages;
  int64_t budget; /* tokens a step */
  int64_t batch;  /* sequences at once */
  int64_t vocab;
  uint64_t seed; /* of the prompts' tokens */
  bool prefix;   /* with the prefix cache */
};

enum request_state { REQUEST_COMING, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_DONE };

struct sched_request {
  enum request_state state;
  struct kv_seq seq;
  int32_t *token;   /* prompt, then what was sampled */
  int64_t known;    /* tokens there */
  int64_t computed; /* of them, keys and values are in the cache */
  int64_t entered;  /* pages in the prefix cache, from the first */
  bool apart;       /* met a page that was there already: enters no more */
  int64_t cached;   /* tokens found at the first admission */
  int admissions;
};

struct sched {
  const struct trace *trace;
  struct sched_options o;
  struct kv kv;
  struct prefix px;
  struct sched_request *request; /* (trace->n) */
  int32_t *waiting;              /* a ring of wait_room */
  int32_t *running;              /* (batch) in order of admission */
  int64_t wait_from, waits, wait_room, nrunning, ndone;
  struct step step; /* the one being made */
  struct kv_copy *copy;
  int32_t *who; /* (batch) request of each item */
  struct serve_event *event;
  size_t nevents, event_room;
  int64_t preemptions;
};

/* ATTN_EINVAL and a line in err if a request can never fit (file, row). */
int sched_check(const struct trace *t, const char *path, const struct sched_options *o, char *err,
                size_t errlen);
/* Checks likewise; ATTN_ENOMEM. */
int sched_init(struct sched *s, const struct trace *t, const char *path,
               const struct sched_options *o, char *err, size_t errlen);
void sched_free(struct sched *s);

int sched_arrive(struct sched *s, int32_t request);
/* Fills s->step; an empty one if there is nothing to do. */
int sched_plan(struct sched *s);
/* After the step was run: takes the sampled tokens, ends what is done. */
int sched_commit(struct sched *s, const int32_t *sampled);
/* Gives the pages of all that is running back, as at the end of an interrupted run. */
void sched_stop(struct sched *s);

#endif
