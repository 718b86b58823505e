/* SPDX-License-Identifier: Apache-2.0
 *
 * serve-trace.c - where a scenario's requests come from: a file, or conversations that are made.
 */
#include "config.h"

#include <math.h>

#include "harness/base/rng.h"
#include "harness/serve/serve-parts.h"

#define MADE 40 /* requests of the made trace */
#define USERS 8
#define GAP_S 0.04     /* mean between arrivals */
#define NAME_IDS 65536 /* ids of one prompt */

int serve_prompt(struct trace *t, double arrival_s, int64_t n, int64_t output, int64_t name)
{
  int64_t ids = (n + TRACE_BLOCK - 1) / TRACE_BLOCK;
  int status = trace_add(t, arrival_s, n, output, NULL, 0);
  struct trace_request *r = status ? NULL : &t->request[t->n - 1];
  for (int64_t i = 0; !status && i < ids; i++)
    status = trace_id_append(t, name * NAME_IDS + i);
  if (!status)
    r->ids = (size_t)ids;
  return status;
}

/* Conversations of several turns: each prompt is the one before and 40 to 300 tokens more, up to
 * 1700 tokens; arrivals are Poisson's. */
static int make(struct trace *t, uint64_t seed, size_t n)
{
  int64_t length[USERS] = {0}, turn[USERS] = {0};
  double at = 0;
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < n; i++) {
    uint32_t u = rng_below(seed, 4 * i, USERS);
    double x = ((double)rng_below(seed, 4 * i + 1, 1u << 30) + 0.5) * 0x1p-30;
    length[u] += 40 + rng_below(seed, 4 * i + 2, 260);
    if (length[u] > 1700) {
      length[u] = 300;
      turn[u]++;
    }
    at -= i ? GAP_S * log(x) : 0;
    status =
        serve_prompt(t, at, length[u], 4 + rng_below(seed, 4 * i + 3, 28), 1 + u + USERS * turn[u]);
  }
  return status;
}

int serve_trace(struct serve *s, struct trace *t, const char **name)
{
  size_t n = (size_t)s->o->requests;
  *t = (struct trace){0};
  *name = s->o->trace ? s->o->trace : "made conversations";
  if (s->o->trace)
    return trace_read(t, s->o->trace, n, s->err, s->errlen);
  return make(t, s->o->seed, n ? n : MADE) ? serve_fail(s, ATTN_ENOMEM, "no memory for a trace")
                                           : ATTN_OK;
}
