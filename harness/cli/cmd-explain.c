/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-explain.c - attnbench explain: what bounds a problem on this machine or on a known one, and
 * what implementations reach of it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/options.h"
#include "harness/explain/explain.h"
#include "harness/explain/machine-file.h"

struct explaining {
  const struct options *o;
  struct explained *x; /* the problem whose runs are coming in; n == 0: none yet */
};

static void print(const struct options *o, const struct explained *x,
                  const struct machine_limits *m)
{
  (o->json ? explain_print_json : explain_print)(x, m, stdout);
}

/* A problem is printed when all of its runs are in: when the first implementation comes again. */
static void flush(struct explaining *e)
{
  static bool another;
  if (!e->x->n)
    return;
  if (another && !e->o->json)
    printf("\n\n");
  another = true;
  print(e->o, e->x, NULL);
  fflush(stdout);
  e->x->n = 0;
}

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct explaining *e = ctx;
  struct explained *x = e->x;
  if (x->n && !strcmp(x->run[0].impl, r->impl))
    flush(e);
  x->problem = g->problem;
  x->device = g->device.info;
  x->ceilings = g->ceilings;
  x->run[x->n++] = *r;
}

static int failed(const struct run_summary *s)
{
  return s->count[STATUS_FAIL] || s->count[STATUS_INVALID] || s->count[STATUS_CRASH] ||
         s->count[STATUS_TIMEOUT];
}

static int run(struct options *o, struct explained *x)
{
  char err[1024] = "";
  struct explaining e = {o, x};
  struct run_summary sum;
  o->run.group.time = o->run.quiet = true;
  o->run.each = see;
  o->run.ctx = &e;
  int status = run_problems(&o->problems, &o->run, &sum, err, sizeof err);
  flush(&e);
  if (sum.interrupted)
    return complain(EXIT_INTERRUPTED, "interrupted");
  if (status)
    return complain(status == ATTN_EINVAL ? EXIT_USAGE : EXIT_ENVIRONMENT,
                    err[0] ? err : "out of memory");
  return failed(&sum) ? EXIT_VERDICT : EXIT_OK;
}

/* On a machine that is not here. */
static int model(struct options *o, struct explained *x)
{
  char err[1024];
  struct machine_limits m;
  if (machine_read(o->machine, &m, err, sizeof err))
    return complain(EXIT_USAGE, err);
  for (int i = 0; i < o->problems.n; i++) {
    if (i && !o->json)
      printf("\n\n");
    x->problem = o->problems.item[i];
    if (explain_choose(x, &m, &o->run, err, sizeof err))
      return complain(EXIT_USAGE, err);
    print(o, x, &m);
  }
  return EXIT_OK;
}

static int explain_problems(struct options *o)
{
  char err[1024];
  struct explained *x = calloc(1, sizeof *x);
  int code = EXIT_OK;
  if (!x)
    code = complain(EXIT_ENVIRONMENT, "out of memory");
  else if (command_problems(o, 0, NULL, err, sizeof err))
    code = complain(EXIT_USAGE, err);
  else if (o->machine)
    code = model(o, x);
  else if (command_device(o, err, sizeof err))
    code =
        complain(EXIT_ENVIRONMENT, strcat(err, "; --machine NAME shows the model of a known GPU"));
  else
    code = run(o, x);
  free(x);
  return code;
}

static int explain(struct options *o)
{
  if (!o->nwords && !o->run.suite)
    return complain(EXIT_USAGE, "explain needs a problem, such as 'op=fwd hq=16 sq=4k d=128 "
                                "mask=causal', or --suite");
  if (o->machine && o->run.device == &device_host)
    return complain(EXIT_USAGE, "--machine names a GPU, and nothing is run on it: leave out "
                                "--device cpu");
  return explain_problems(o);
}

const struct command cmd_explain = {
    "explain", "[options] PROBLEM ...",
    "Says what bounds a problem, and what implementations reach of it.\n"
    "The model is the problem's and the machine's alone: FLOPs, exponentials and compulsory bytes\n"
    "by the rates of matrix units, exponentials and memory, each as if nothing else took time.\n"
    "Then each implementation is verified, timed and observed: its kernels, blocks a\n"
    "multiprocessor and waves on a GPU, its tile and the time that shared memory takes by a "
    "model;\n"
    "SRAM on device cpu; bytes on both. With --machine the\n"
    "model of a known GPU is shown, with the variants that implementations would choose there, "
    "and\n"
    "nothing is run.\n"
    "Exit: 0 explained, 1 a verdict failed, 2 bad input, 3 no device, 130 interrupted.",
    OPT_EXPLAIN | OPT_SELECT | OPT_DISPATCH | OPT_MEASURE | OPT_TIME, explain};
