/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-tune.c - attnbench tune: every compiled variant on the device that is here, and the table of
 * choices that follows.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/options.h"
#include "harness/record/store.h"
#include "harness/tune/tune.h"

static void show(const struct tune_point *p)
{
  char problem[ATTN_PROBLEM_TEXT], at[32];
  attn_problem_print(&p->problem, problem, sizeof problem);
  printf("%s  %s\n", p->impl, problem);
  for (int i = 0; i < p->n; i++) {
    const struct trial *t = &p->trial[i];
    bool passed = t->status == STATUS_PASS;
    printf("  %-28s %12s", t->variant,
           passed ? show_seconds(at, sizeof at, t->median_s) : record_status_name(t->status));
    if (passed && i && p->trial[0].median_s > 0)
      printf("  %+.2f %%", 100 * (t->median_s / p->trial[0].median_s - 1));
    printf("%s%s\n", i ? "" : "  own choice", i == p->best ? "  *" : "");
  }
  fflush(stdout);
}

/* What the table rests on, for its head. */
static void describe(const struct options *o, char *how, size_t len)
{
  const struct device_timing *t = &o->run.group.timing;
  snprintf(how, len, "%s, %s cache, %s", t->mode == MODE_RESTED ? "rested" : "sustained",
           t->cache == CACHE_COLD ? "cold" : "warm", o->repro);
}

/* What was measured is kept, where no command looks for it. */
static int interrupted(struct options *o, struct tune_result *t, const char *path)
{
  char err[1024], how[RUN_REPRO + 64], part[4300];
  describe(o, how, sizeof how);
  snprintf(part, sizeof part, "%s.partial", path);
  if (!t->n || tune_write(t, part, how, err, sizeof err))
    return complain(EXIT_INTERRUPTED, "interrupted; no table was written");
  snprintf(err, sizeof err, "interrupted; what was measured is in %.900s", part);
  return complain(EXIT_INTERRUPTED, err);
}

static int finish(struct options *o, struct tune_result *t, const char *path)
{
  const struct run_summary *s = &t->summary;
  char err[1024], how[RUN_REPRO + 64];
  int wrong = s->count[STATUS_FAIL] + s->count[STATUS_INVALID] + s->count[STATUS_CRASH] +
              s->count[STATUS_TIMEOUT];
  if (s->interrupted)
    return interrupted(o, t, path);
  if (!t->n)
    return complain(EXIT_USAGE, "nothing to choose: no implementation here has two variants for "
                                "one of these problems; attnbench list --variants");
  describe(o, how, sizeof how);
  if (tune_write(t, path, how, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  spent_print(&s->spent, how, sizeof how);
  printf("%s\nchoices: %s\n", how, path);
  if (wrong)
    remark("variants that failed were left out; attnbench verify --variant NAME says more");
  return wrong ? EXIT_VERDICT : EXIT_OK;
}

static int sweep(struct options *o, struct tune_result *t)
{
  char err[1024] = "", path[4200] = "";
  if (command_device(o, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  if (command_problems(o, 0, o->quick ? "tune-quick" : "tune", err, sizeof err))
    return complain(EXIT_USAGE, err);
  if (o->gate.out && store_writable(o->gate.out, err, sizeof err - 40))
    return complain(EXIT_ENVIRONMENT, strcat(err, "; choose another --out"));
  o->run.group.recheck = !o->quick;
  int status = tune_sweep(&o->problems, &o->run, show, t, err, sizeof err);
  if (status && !t->summary.interrupted)
    return complain(status == ATTN_EINVAL ? EXIT_USAGE : EXIT_ENVIRONMENT,
                    err[0] ? err : "out of memory");
  tune_path(&t->device, path, sizeof path);
  return finish(o, t, o->gate.out ? o->gate.out : path);
}

static int tune(struct options *o)
{
  struct tune_result t = {.n = 0};
  int code = sweep(o, &t);
  tune_free(&t);
  return code;
}

const struct command cmd_tune = {
    "tune", "[options] [PROBLEM ...]",
    "Measures every compiled variant of every implementation, and writes which is the fastest.\n"
    "Variants of one problem are interleaved, and verified before and (but for --quick) after; one "
    "an\n"
    "implementation would not choose itself has to be faster by 0.5 % and by more than the\n"
    "intervals. The table (profiles/machines/NAME.tune) is plain text, and every other command\n"
    "goes by the one of its GPU. Without a problem or --suite: suite tune, with --quick "
    "tune-quick.\n"
    "Exit: 0 written, 1 written without a variant that failed, 2 bad input or nothing to choose,\n"
    "3 no device or no room, 130 interrupted.",
    OPT_SELECT | OPT_MEASURE | OPT_TIME | OPT_TUNE, tune};
