/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-run.c - attnbench verify and attnbench run: problems in, verdicts and records out.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/options.h"
#include "harness/cli/minimize.h"
#include "harness/cli/zoo.h"
#include "harness/record/store.h"

int command_problems(struct options *o, int from, const char *default_suite, char *err,
                     size_t errlen)
{
  if (o->nwords <= from && !o->run.suite)
    o->run.suite = default_suite;
  if (o->run.suite && catalog_suite(&o->problems, o->run.suite, err, errlen))
    return -1;
  for (int i = from; i < o->nwords; i++)
    if (catalog_problems(&o->problems, o->words[i], err, errlen))
      return -1;
  return 0;
}

static const struct device_ops *default_device(void)
{
  const struct device_ops *const *all = device_all(), *best = NULL;
  for (int i = 0; all[i]; i++)
    if (!all[i]->absent())
      best = all[i];
  return best;
}

int command_device(struct options *o, char *err, size_t errlen)
{
  const char *why;
  if (!o->run.device)
    o->run.device = default_device();
  if (!(why = o->run.device->absent()))
    return 0;
  snprintf(err, errlen, "--device %s: %s; attnbench doctor says more", o->run.device->name, why);
  return -1;
}

static void print_summary(const struct run_summary *s)
{
  const char *separator = "";
  char wall[400];
  int records = 0;
  for (int i = 0; i <= STATUS_CRASH; i++) {
    records += s->count[i];
    if (s->count[i] || i == STATUS_PASS || i == STATUS_FAIL) {
      printf("%s%d %s", separator, s->count[i], record_status_name(i));
      separator = ", ";
    }
  }
  if (s->resumed)
    printf(", %d recorded before", s->resumed);
  printf("\n");
  if (!records)
    return; /* nothing was left to run */
  spent_print(&s->spent, wall, sizeof wall);
  printf("%s\n", wall);
}

static bool all_well(const struct run_summary *s)
{
  return !s->count[STATUS_FAIL] && !s->count[STATUS_INVALID] && !s->count[STATUS_CRASH] &&
         !s->count[STATUS_TIMEOUT];
}

static int go(struct options *o, const char *default_suite)
{
  char err[1024] = "";
  struct run_summary sum;
  struct failures failures = {.n = 0};
  if (o->run.resume && !o->run.out)
    return complain(EXIT_USAGE, "--resume needs --out FILE, whose records are not repeated");
  if (command_device(o, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  if (command_problems(o, 0, default_suite, err, sizeof err))
    return complain(EXIT_USAGE, err);
  if (o->minimize) {
    o->run.each = failures_collect;
    o->run.ctx = &failures;
  }
  int status = run_problems(&o->problems, &o->run, &sum, err, sizeof err);
  if (sum.interrupted) {
    print_summary(&sum);
    return complain(EXIT_INTERRUPTED, "interrupted; what was finished is recorded");
  }
  if (status)
    return complain(status == ATTN_EINVAL && !sum.count[STATUS_PASS] ? EXIT_USAGE
                                                                     : EXIT_ENVIRONMENT,
                    err[0] ? err : "out of memory");
  if (failures_minimize(&failures, &o->run, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err[0] ? err : "interrupted");
  print_summary(&sum);
  if (o->run.out)
    printf("records: %s\n", o->run.out);
  return all_well(&sum) ? EXIT_OK : EXIT_VERDICT;
}

/* What was seen before an interrupt, or before the device was lost. */
static int unfinished(struct zoo *z, const char *err)
{
  char line[80];
  int of, finished = zoo_keep_finished(z, &of);
  if (z->n)
    zoo_print(z);
  snprintf(line, sizeof line, "%d of %d planted faults are finished", finished, of);
  if (!err[0])
    return complain(EXIT_INTERRUPTED, strcat(line, "; interrupted"));
  remark(line);
  return complain(EXIT_ENVIRONMENT, err);
}

/* --mutants: the checker is checked. */
static int zoo(struct options *o)
{
  static struct zoo z;
  char err[1024] = "";
  if (!o->run.device)
    o->run.device = &device_host;
  if (command_device(o, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  if (o->run.out && store_writable(o->run.out, err, sizeof err - 40))
    return complain(EXIT_ENVIRONMENT, strcat(err, "; choose another --out"));
  if (zoo_load(&z, o->mutants, err, sizeof err))
    return complain(EXIT_USAGE, err);
  int status = zoo_run(&z, &o->run, o->run.out, err, sizeof err);
  if (status)
    return unfinished(&z, err);
  bool fine = zoo_print(&z);
  if (o->run.out && zoo_write(&z, o->run.out, err, sizeof err))
    return complain(EXIT_ENVIRONMENT, err);
  return fine ? EXIT_OK : EXIT_VERDICT;
}

static int verify(struct options *o)
{
  if (o->mutants)
    return zoo(o);
  o->run.group.time = o->run.group.count = false;
  return go(o, o->run.group.laws ? "verify" : "verify-fast");
}

static int run(struct options *o)
{
  o->run.group.time = true;
  return go(o, o->run.group.quick ? "quick" : "prefill");
}

const struct command cmd_verify = {
    "verify", "[options] [PROBLEM ...]",
    "Checks implementations against the fp64 reference. Without a problem or --suite: suite "
    "verify-fast, or verify with --full.\n"
    "Exit: 0 all pass, 1 a verdict failed, 2 bad input, 3 no device or no room, 130 interrupted.",
    OPT_SELECT | OPT_DISPATCH | OPT_WORK | OPT_VERIFY, verify};

const struct command cmd_run = {
    "run", "[options] [PROBLEM ...]",
    "Verifies, times and counts; records go to --out. Without a problem or --suite: suite "
    "prefill.\n"
    "Exit: 0 all pass, 1 a verdict failed, 2 bad input, 3 no device or no room, 130 interrupted.",
    OPT_SELECT | OPT_DISPATCH | OPT_WORK | OPT_TIME, run};
