/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-list.c - attnbench list: implementations, suites, models, variants, the problems of a suite.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/options.h"
#include "harness/tune/advice.h"

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

/* Rows for several types have one name. */
static bool seen_before(const struct attn_impl *impl, int i, const char *name)
{
  struct attn_variant v;
  for (int k = 0; k < i && !impl->variant(NULL, NULL, k, &v); k++)
    if (!strcmp(v.name, name))
      return true;
  return false;
}

static void print_variants(const struct attn_impl *impl)
{
  struct attn_variant v;
  for (int i = 0; impl->variant && !impl->variant(NULL, NULL, i, &v); i++) {
    if (seen_before(impl, i, v.name))
      continue;
    printf("%-26s %-24s tile %d x %d", impl->name, v.name, v.rows, v.keys);
    if (v.stages)
      printf(", %d stages", v.stages);
    printf(", %d threads\n", v.threads);
  }
}

/* Compiled variants, and the tables that choose among them. */
static int list_variants(const struct attn_impl *const *impl, int n, const char *choices)
{
  static struct advice advice;
  char err[1024] = "";
  for (int i = 0; i < n; i++)
    print_variants(impl[i]);
  if (advice_read(&advice, choices, err, sizeof err))
    return complain(EXIT_USAGE, err);
  for (int i = 0; i < advice.n; i++)
    printf("choices for %s: %d lines of %s\n", advice.table[i].device, advice.table[i].n,
           advice.table[i].path);
  printf("any other device: each implementation's own choice\n");
  advice_free(&advice);
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
  if (o->list_variants)
    return list_variants(impl, n, o->run.choices);
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

const struct command cmd_list = {"list", "[options]",
                                 "Lists devices and implementations, or suites, models, known "
                                 "GPUs, variants, the problems of a\n"
                                 "suite.\n"
                                 "Exit: 0, or 2 bad input.",
                                 OPT_SELECT | OPT_LIST, list};
