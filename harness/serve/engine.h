/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h - replays a trace: requests arrive when the trace says, whether or not the engine is
 * ready (open loop), and times count from then.
 *
 * TTFT: from arrival to the first sampled token on the host. Its parts add up to it: queueing (to
 * the step that admits the request), and of every step from that one to the one that ends with the
 * token, scheduling, GEMM, attention, launching, and the rest.
 *
 * TPOT: time a token behind the first: (last token - first token) / (tokens - 1)
 */
#ifndef HARNESS_SERVE_ENGINE_H
#define HARNESS_SERVE_ENGINE_H

#include "harness/serve/sched.h"

struct serve_clock {
  double (*now)(void *self);
  void (*wait_until)(void *self, double when);
  void *self;
};

/* Launching: what a step takes before the device begins and after it has ended. */
enum ttft_part {
  TTFT_QUEUE,
  TTFT_SCHEDULE,
  TTFT_GEMM,
  TTFT_ATTENTION,
  TTFT_LAUNCH,
  TTFT_OTHER,
  TTFT_PARTS
};

struct request_times {
  double arrival, first, done; /* since the replay's start; NaN: not reached */
  double part[TTFT_PARTS];     /* NaN before the first token */
};

struct engine_task {
  struct sched *sched;
  struct step_model model;
  struct serve_clock clock;
  double rate;                /* arrivals come so many times faster; infinite: all at once */
  bool (*stopped)(void *ctx); /* asked between steps; or NULL */
  void (*progress)(void *ctx, const struct sched *s, double now); /* after every step; or NULL */
  void *ctx;
};

struct engine_result {
  struct request_times *request;    /* (trace->n) the caller's */
  double seconds;                   /* from the first arrival to the end */
  double busy[TTFT_PARTS];          /* of all steps; queue: idle for want of requests */
  int64_t steps, computed, sampled; /* tokens */
  /* Steps in which all sequences decode, of the largest number of sequences. */
  int64_t decode_batch, decode_tokens;
  double decode_s;
  bool launches; /* TTFT_LAUNCH is known: a launch is not its execution */
  bool interrupted;
};

/* An enum attn_status, and a line in err. */
int engine_run(const struct engine_task *task, struct engine_result *result, char *err,
               size_t errlen);

#endif
