/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-serve.c - attnbench serve: what attention does to time to first token and tokens per second.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/cli/options.h"
#include "harness/run/worker.h"

#define PATIENCE_S 1.0 /* an interrupt so much later is a second one */

static bool known(const char *scenario)
{
  const char *name, *summary;
  for (int i = 0; (name = serve_scenario(i, &summary)); i++)
    if (!strcmp(name, scenario))
      return true;
  return false;
}

static int unknown(const char *scenario)
{
  char line[512];
  const char *name, *summary;
  size_t n = (size_t)snprintf(line, sizeof line, "serve %.60s: no such scenario; choose", scenario);
  for (int i = 0; (name = serve_scenario(i, &summary)) && n < sizeof line; i++)
    n += (size_t)snprintf(line + n, sizeof line - n, "%s %s", i ? "," : "", name);
  return complain(EXIT_USAGE, line);
}

/* Options that some scenarios alone go by; elsewhere they would be ignored in silence. */
static const struct {
  const char *option, *scenarios;
} own[] = {
    {"trace", "replay, memory"},
    {"requests", "replay, memory"},
    {"rate", "replay"},
    {"prefix", "replay"},
    {"lengths", "prefill, heads, fork"},
    {"shares", "prefill"},
    {"repeat", "prefill, heads"},
    {"rope", "replay, prefill, heads, fork"},
    {"kv-memory", "replay, prefill, heads, memory, fork"},
};

static int check_given(const struct options *o, const char *scenario)
{
  char line[256];
  for (int i = 0; i < o->ngiven; i += 2)
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
      if (!strcmp(o->given[i], own[k].option) && !strstr(own[k].scenarios, scenario)) {
        snprintf(line, sizeof line, "serve %s has no use for --%s; it is of %s", scenario,
                 own[k].option, own[k].scenarios);
        return complain(EXIT_USAGE, line);
      }
  return EXIT_OK;
}

static int ended(int status)
{
  char line[200];
  if (WIFEXITED(status))
    return WEXITSTATUS(status);
  int sig = WTERMSIG(status);
  if (sig == SIGPIPE) /* nobody reads */
    return EXIT_ENVIRONMENT;
  snprintf(line, sizeof line, "serve: died of signal %d (%s), %s; what was recorded before is kept",
           sig, strsignal(sig),
           sig == SIGKILL ? "as what takes too much memory does"
                          : "in an implementation most likely");
  return complain(EXIT_VERDICT, line);
}

/* Passes an interrupt on, which ends the work cleanly where a step ends; a second one kills what
 * hangs. */
static int watch(pid_t child)
{
  int status;
  double first = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return complain(EXIT_ENVIRONMENT, "serve: lost the process that does the work");
    if (first > 0 && clock_now() - first > PATIENCE_S) {
      kill(child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
      return complain(EXIT_INTERRUPTED, "interrupted twice; what was recorded before is kept");
    }
    first = first > 0 ? first : clock_now();
    kill(child, SIGINT);
  }
  return ended(status);
}

static int work(struct options *o)
{
  struct serve_summary sum;
  char err[1024] = "";
  const char *scenario = o->nwords ? o->words[0] : "replay";
  snprintf(o->repro + strlen(o->repro), sizeof o->repro - strlen(o->repro), " %s", scenario);
  o->serve.device = o->run.device ? o->run.device : &device_host;
  o->serve.device_options = o->run.device_options;
  o->serve.seed = o->run.group.seed;
  o->serve.out = o->run.out;
  o->serve.quiet = o->run.quiet;
  o->serve.repro = o->repro;
  o->serve.progress = isatty(2) && !o->run.quiet;
  int status = serve_run(scenario, &o->serve, &sum, err, sizeof err);
  if (status)
    return complain(status == ATTN_EINVAL || status == ATTN_EUNSUPPORTED ? EXIT_USAGE
                                                                         : EXIT_ENVIRONMENT,
                    *err ? err : "out of memory");
  if (sum.interrupted)
    return complain(EXIT_INTERRUPTED, "interrupted; what was measured is recorded");
  if (o->run.out)
    printf("records: %s\n", o->run.out);
  if (sum.failed)
    return complain(EXIT_VERDICT, "a check failed: see above");
  return EXIT_OK;
}

/* The work is done in a child, where a plugin may crash or hang. */
static int serve(struct options *o)
{
  const char *scenario = o->nwords ? o->words[0] : "replay";
  if (o->nwords > 1)
    return complain(EXIT_USAGE, "serve: one scenario at a time; attnbench serve --help lists them");
  if (!known(scenario))
    return unknown(scenario);
  if (check_given(o, scenario))
    return EXIT_USAGE;
  fflush(NULL);
  worker_catch_interrupts();
  pid_t parent = getpid(), child = fork();
  if (child < 0)
    return complain(EXIT_ENVIRONMENT, "serve: no process to work in: end others");
  if (child > 0)
    return watch(child);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent ? work(o) : EXIT_ENVIRONMENT;
}

const struct command cmd_serve = {
    "serve", "[options] [replay|prefill|heads|memory|fork|rope]",
    "Runs a decoder with random weights on a paged KV cache: time to first token, tokens/s, and "
    "how many sequences fit.\n"
    "replay   a trace, with the prefix cache off and on (default)\n"
    "prefill  time to first token by prompt length and cached share\n"
    "heads    MHA, GQA and MQA heads of one model\n"
    "memory   KV memory wasted, contiguous against paged\n"
    "fork     a prompt forked 8 ways: what it adds to the cache\n"
    "rope     contexts of 4, 16 and 32 times the trained length with each scaling of RoPE\n"
    "Exit: 0 done, 1 a check failed or an implementation crashed, 2 bad input, 3 no device or no "
    "room, 130 interrupted.",
    OPT_SERVE, serve};
