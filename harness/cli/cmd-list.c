/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-list.c - attnbench list: implementations, suites, models, the problems of a suite.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/options.h"

#define IMPLS 512 /* built in and loaded */

static void print_name(const char *name, void *ctx)
{
  (void)ctx;
  printf("%s\n", name);
}

static int list_files(const char *folder, const char *suffix)
{
  char err[256];
  if (!catalog_files(folder, suffix, print_name, NULL))
    return EXIT_OK;
  snprintf(err, sizeof err,
           "the profiles folder is not found: set ATTNBENCH_DATADIR to the folder "
           "that holds profiles/");
  return complain(EXIT_ENVIRONMENT, err);
}

static int list_problems(struct options *o)
{
  char err[1024], text[ATTN_PROBLEM_TEXT];
  if (catalog_suite(&o->problems, o->list_problems, err, sizeof err))
    return complain(EXIT_USAGE, err);
  for (int i = 0; i < o->problems.n; i++) {
    attn_problem_print(&o->problems.item[i], text, sizeof text);
    printf("%s\n", text);
  }
  return EXIT_OK;
}

static int list_impls(const struct options *o)
{
  const struct device_ops *const *all = device_all();
  const struct attn_impl *impl[IMPLS];
  char err[1024];
  int kind = CATALOG_ANY_DEVICE;
  if (o->run.device)
    kind = o->run.device == &device_host ? ATTN_CPU : ATTN_CUDA;
  int n = catalog_select(kind, o->run.impls, impl, IMPLS, err, sizeof err);
  if (n < 0)
    return complain(EXIT_USAGE, err);
  for (int i = 0; all[i]; i++) {
    const char *why = all[i]->absent();
    printf("device %-8s %s\n", all[i]->name, why ? why : "present");
  }
  for (int i = 0; i < n; i++)
    printf("%-26s %s\n", impl[i]->name, impl[i]->summary ? impl[i]->summary : "");
  return EXIT_OK;
}

static int list(struct options *o)
{
  if (o->nwords)
    return complain(EXIT_USAGE, "list takes no problem; attnbench list --help");
  if (o->list_problems)
    return list_problems(o);
  if (o->list_suites)
    return list_files("suites", ".suite");
  if (o->list_models)
    return list_files("models", ".model");
  if (o->list_machines)
    return list_files("machines", ".machine");
  return list_impls(o);
}

const struct command cmd_list = {
    "list", "[options]",
    "Lists devices and implementations, or suites, models, known GPUs, the problems of a suite.\n"
    "Exit: 0, or 2 bad input.",
    OPT_SELECT | OPT_LIST, list};
