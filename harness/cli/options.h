/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h - the command line, one table: name, argument, help and what it sets.
 */
#ifndef HARNESS_OPTIONS_H
#define HARNESS_OPTIONS_H

#include "harness/gate/compare.h"
#include "harness/run/run.h"
#include "harness/serve/serve.h"

/* Exit codes, documented in attnbench(1). */
enum {
  EXIT_OK = 0,
  EXIT_VERDICT = 1,
  EXIT_USAGE = 2,
  EXIT_ENVIRONMENT = 3,
  EXIT_INTERRUPTED = 130
};

/* Which options a command takes. */
enum {
  OPT_SELECT = 1, /* --device --gpu --sram --cores --impl --plugin */
  OPT_WORK = 2,   /* --suite --seed --rows --out --resume --timeout --quiet */
  OPT_TIME = 4,   /* --quick --sustained --warm --processes --samples --ci --no-counters */
  OPT_REPORT = 8, /* --out DIR --title */
  OPT_LIST = 16,  /* --suites --models --machines --variants --problems */
  OPT_MEASURE =
      32, /* those of OPT_WORK that choose what is measured: --suite --seed --rows --timeout */
  OPT_JUDGE = 64, /* --threshold ... --anyway */
  OPT_COMPARE = 128,
  OPT_AA = 256,
  OPT_HISTORY = 512,
  OPT_VERIFY = 1024,  /* --full */
  OPT_EXPLAIN = 2048, /* --machine --json */
  OPT_SERVE = 4096,
  OPT_DISPATCH = 8192, /* --variant --choices */
  OPT_TUNE = 16384,    /* --out FILE */
};

/* What the regression gate takes. */
struct gate_options {
  struct compare_options compare;
  const struct compare_format *format;
  const char *floor, *keep, *out; /* files, folders, or NULL */
  bool ab, all;
  int comparisons;
};

#define GIVEN 256
struct options {
  struct run_options run;
  struct gate_options gate;
  struct serve_options serve;
  const char *given[GIVEN]; /* name, value (or NULL) of options that say what to measure and how */
  int ngiven;
  bool processes_given;
  struct problem_list problems;
  const char **words; /* what is no option */
  int nwords;
  const char *mutants; /* folder, or NULL */
  bool minimize;
  bool quick; /* --quick was given */
  bool list_suites, list_models, list_machines, list_variants;
  const char *machine; /* a known one, or NULL */
  bool json;
  const char *list_problems;
  char repro[RUN_REPRO];
  char refused[80]; /* why the last value was, or "" */
};

struct command {
  const char *name, *args, *summary;
  unsigned options;
  int (*run)(struct options *o);
};

extern const struct command cmd_list, cmd_verify, cmd_run, cmd_compare, cmd_aa, cmd_history,
    cmd_report, cmd_doctor, cmd_explain, cmd_serve, cmd_tune;

void options_help(const struct command *c);
/* -1: a line in err. 1: --help was asked for. */
int options_parse(struct options *o, const struct command *c, int argc, char **argv, char *err,
                  size_t errlen);
void options_free(struct options *o);

/* cmd-run.c: the problems of --suite and of the words from the given one on, or of a suite where
 * there are none; the device, one that is there. -1 and a line in err. */
int command_problems(struct options *o, int from, const char *default_suite, char *err,
                     size_t errlen);
int command_device(struct options *o, char *err, size_t errlen);

/* Prints "attnbench: LINE" to stderr, whatever is in it in one line, and returns code. */
int complain(int code, const char *line);
/* The same without a code: something to say beside the result. */
void remark(const char *line);
/* Says how many lines of a results file were none that this version reads. */
void tell_skipped(const struct cells *c);

#endif
