/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - attnbench: picks the command; the only place that exits.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "harness/record/build.h"
#include "harness/cli/options.h"
#include "impl/echo.h"

static const struct command *const commands[] = {
    &cmd_list,    &cmd_verify, &cmd_run,    &cmd_explain, &cmd_compare, &cmd_aa,
    &cmd_history, &cmd_report, &cmd_doctor, &cmd_serve,   &cmd_tune};
#define COMMANDS (sizeof commands / sizeof *commands)

static int usage(FILE *out)
{
  fprintf(out, "usage: attnbench COMMAND [options]\n\n");
  for (size_t i = 0; i < COMMANDS; i++)
    fprintf(out, "  %-8s %.*s\n", commands[i]->name, (int)strcspn(commands[i]->summary, "."),
            commands[i]->summary);
  fprintf(out, "\nattnbench COMMAND --help says more; attnbench --version\n");
  return out == stdout ? EXIT_OK : EXIT_USAGE;
}

static int command(const struct command *c, int argc, char **argv)
{
  struct options o;
  char err[1024] = "out of memory";
  int parsed = options_parse(&o, c, argc, argv, err, sizeof err), code = EXIT_OK;
  if (parsed > 0)
    options_help(c);
  else
    code = parsed ? complain(EXIT_USAGE, err) : c->run(&o);
  options_free(&o);
  return code;
}

/* What was printed must have arrived: a full disk is no success. */
static int written(int code)
{
  if (!fflush(stdout) && !ferror(stdout))
    return code;
  return complain(EXIT_ENVIRONMENT,
                  "standard output cannot be written: make room, or send it elsewhere");
}

int main(int argc, char **argv)
{
  char err[1024];
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, not our end */
  if (argc < 2)
    return usage(stderr);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
    return usage(stdout);
  if (!strcmp(argv[1], "--version")) {
    printf("attnbench %s (%s)\n", build_info()->version, build_info()->commit);
    return EXIT_OK;
  }
  for (size_t i = 0; i < COMMANDS; i++)
    if (!strcmp(argv[1], commands[i]->name))
      return written(command(commands[i], argc - 2, argv + 2));
  snprintf(err, sizeof err, "unknown command %s; attnbench --help lists them", ATTN_ECHOS(argv[1]));
  return complain(EXIT_USAGE, err);
}
