/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - the table of options, what each sets, and what is set where none is given.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/options-table.h"

/* A refusal is left in o->refused. */
static int number(struct options *o, const char *text, bool whole, double lo, double hi, double *x)
{
  char *end;
  errno = 0;
  snprintf(o->refused, sizeof o->refused, "want a %snumber from %.10g to %.10g",
           whole ? "whole " : "", lo, hi);
  *x = strtod(text, &end);
  if (*end == 'k' && !end[1])
    *x *= 1024, end++;
  else if (*end == 'M' && !end[1])
    *x *= 1048576, end++;
  else if (*end == 'G' && !end[1])
    *x *= 1073741824, end++;
  bool fits = *x >= lo && *x <= hi && (!whole || *x == floor(*x));
  return errno || end == text || *end || !fits ? -1 : 0;
}

/* Of the type, that is. */
#define WHOLE(type) ((type)0.5 == 0)

#define NUMBER(name, field, type, lo, hi)               \
  static int name(struct options *o, const char *value) \
  {                                                     \
    double x;                                           \
    if (number(o, value, WHOLE(type), lo, hi, &x))      \
      return -1;                                        \
    o->field = (type)x;                                 \
    return 0;                                           \
  }

#define FLAG(name, statement)                           \
  static int name(struct options *o, const char *value) \
  {                                                     \
    (void)value;                                        \
    statement;                                          \
    return 0;                                           \
  }

NUMBER(set_gpu, run.device_options.index, int, 0, 1023)
NUMBER(set_sram, run.device_options.sram_bytes, size_t, 1024, 1073741824.0)
NUMBER(set_cores, run.device_options.cores, int, 1, 1024)
NUMBER(set_seed, run.group.seed, uint64_t, 0, 9007199254740992.0)
NUMBER(set_rows, run.group.rows_max, int64_t, 0, 1e15)
NUMBER(set_timeout, run.timeout_s, double, 1, 1e6)
NUMBER(set_ci, run.group.ci_width, double, 0, 1)
NUMBER(set_rest, run.group.timing.rest_s, double, 0, 10)
FLAG(set_resume, o->run.resume = true)
FLAG(set_quiet, o->run.quiet = true)
FLAG(set_minimize, o->minimize = true)
FLAG(set_full, o->run.group.laws = true)
FLAG(set_sustained, o->run.group.timing.mode = MODE_SUSTAINED)
FLAG(set_graph, o->run.group.graph = true)
FLAG(set_warm, o->run.group.timing.cache = CACHE_WARM)
FLAG(set_no_counters, o->run.group.count = false)
FLAG(set_suites, o->list_suites = true)
FLAG(set_models, o->list_models = true)
FLAG(set_machines, o->list_machines = true)
FLAG(set_variants, o->list_variants = true)
FLAG(set_json, o->json = true)
NUMBER(set_threshold, gate.compare.threshold, double, 0, 10)
NUMBER(set_bytes_threshold, gate.compare.bytes_threshold, double, 0, 10)
NUMBER(set_error_threshold, gate.compare.error_threshold, double, 0, 1e6)
NUMBER(set_comparisons, gate.comparisons, int, 1, 1000)
FLAG(set_ab, o->gate.ab = true)
FLAG(set_all, o->gate.all = true)
FLAG(set_anyway, o->gate.compare.anyway = true)

static int set_samples(struct options *o, const char *value)
{
  double x;
  if (number(o, value, true, 1, GROUP_SAMPLES, &x))
    return -1;
  o->run.group.samples_min = o->run.group.samples_max = (int)x;
  return 0;
}

static int set_processes(struct options *o, const char *value)
{
  double x;
  if (number(o, value, true, 1, 1000, &x))
    return -1;
  o->run.processes = (int)x;
  o->processes_given = true;
  return 0;
}

static int set_quantities(struct options *o, const char *value)
{
  unsigned chosen = 0;
  while (*value) {
    size_t n = strcspn(value, ",");
    unsigned before = chosen;
    for (enum quantity q = 0; q < QUANTITIES; q++)
      if (strlen(quantity_name(q)) == n && !strncmp(quantity_name(q), value, n))
        chosen |= 1u << q;
    if (chosen == before)
      return -1;
    value += n + (value[n] == ',');
  }
  o->gate.compare.quantities = chosen;
  return chosen ? 0 : -1;
}

static int set_format(struct options *o, const char *value)
{
  o->gate.format = compare_format_find(value);
  return o->gate.format ? 0 : -1;
}

#define WORD(name, field)                               \
  static int name(struct options *o, const char *value) \
  {                                                     \
    o->field = value;                                   \
    return *value ? 0 : -1;                             \
  }

WORD(set_floor, gate.floor)
WORD(set_mutants, mutants)
WORD(set_keep, gate.keep)
WORD(set_machine, machine)
WORD(set_gate_out, gate.out)

static int set_quick(struct options *o, const char *value)
{
  (void)value;
  o->quick = true;
  o->run.group.samples_min = STATS_LEAST;
  o->run.group.samples_max = 10;
  o->run.group.seconds = 2;
  o->run.group.quick = true;
  return 0;
}

static int set_device(struct options *o, const char *value)
{
  o->run.device = device_find(value);
  return o->run.device ? 0 : -1;
}

static int set_impl(struct options *o, const char *value)
{
  o->run.impls = value;
  return 0;
}

WORD(set_variant, run.variant)

static int set_choices(struct options *o, const char *value)
{
  o->run.choices = o->serve.choices = value;
  return *value ? 0 : -1;
}

static int set_regime(struct options *o, const char *value)
{
  o->run.group.regime = regime_find(value);
  return o->run.group.regime ? 0 : -1;
}

static int set_suite(struct options *o, const char *value)
{
  o->run.suite = value;
  return 0;
}

static int set_out(struct options *o, const char *value)
{
  o->run.out = value;
  return *value ? 0 : -1;
}

static int set_problems(struct options *o, const char *value)
{
  o->list_problems = value;
  return 0;
}

WORD(set_trace, serve.trace)
WORD(set_model, serve.models)
WORD(set_serve_impl, serve.impl)
WORD(set_rope, serve.rope)
WORD(set_lengths, serve.lengths)
WORD(set_shares, serve.shares)
NUMBER(set_requests, serve.requests, int64_t, 1, 1e9)
NUMBER(set_rate, serve.rate, double, 1e-6, 1e9)
NUMBER(set_layers, serve.layers, int64_t, 1, 1e4)
NUMBER(set_page, serve.page, int64_t, 1, 1048576)
NUMBER(set_context, serve.context, int64_t, 1, 16777216)
NUMBER(set_kv_memory, serve.kv_memory, double, 1, 1e15)
NUMBER(set_budget, serve.budget, int64_t, 1, 1048576)
NUMBER(set_batch, serve.batch, int64_t, 1, 65536)
NUMBER(set_repeat, serve.repeat, int64_t, 1, 1000)
FLAG(set_contiguous, o->serve.contiguous = true)

static int set_prefix(struct options *o, const char *value)
{
  static const char *const names[] = {"both", "on", "off"};
  for (int i = PREFIX_BOTH; i <= PREFIX_OFF; i++)
    if (!strcmp(value, names[i])) {
      o->serve.prefix = (enum serve_prefix)i;
      return 0;
    }
  return -1;
}

static const struct option_row table[] = {
    {"device", "NAME", "cpu or cuda (default: cuda where there is a GPU)", OPT_SELECT, true,
     set_device},
    {"device", "NAME", "cpu (default)", OPT_SERVE, true, set_device},
    {"gpu", "N", "which GPU (default 0)", OPT_SELECT, true, set_gpu},
    {"sram", "BYTES", "M of the two-level machine (device cpu; default 232448)",
     OPT_SELECT | OPT_SERVE, true, set_sram},
    {"cores", "N", "worker threads of device cpu (default: all)", OPT_SELECT | OPT_SERVE, true,
     set_cores},
    {"trace", "FILE", "requests of a Mooncake (JSON lines) or Azure (CSV) trace (default: made)",
     OPT_SERVE, true, set_trace},
    {"requests", "N", "only the first N of them", OPT_SERVE, true, set_requests},
    {"rate", "X", "requests arrive X times as fast as the trace says (default 1)", OPT_SERVE, true,
     set_rate},
    {"model", "NAMES", "presets of attnbench list --models, comma-separated (default: tiny ones)",
     OPT_SERVE, true, set_model},
    {"layers", "N", "only the model's first N layers", OPT_SERVE, true, set_layers},
    {"impl", "NAME[,NAME]", "attention of prompts, of decoding (default cpu/flash for both)",
     OPT_SERVE, true, set_serve_impl},
    {"rope", "NAME:FACTOR", "linear, ntk, dyn, yarn or llama3 from the model's context on",
     OPT_SERVE, true, set_rope},
    {"page", "N", "tokens a page of the KV cache (default 16)", OPT_SERVE, true, set_page},
    {"contiguous", NULL, "a stretch of the whole context a sequence instead of pages", OPT_SERVE,
     true, set_contiguous},
    {"kv-memory", "BYTES", "of the KV cache (default 64M, on a GPU half of what is free)",
     OPT_SERVE, true, set_kv_memory},
    {"context", "N", "longest sequence (default: the model's)", OPT_SERVE, true, set_context},
    {"budget", "N", "tokens a step (default 512, on a GPU 8192)", OPT_SERVE, true, set_budget},
    {"batch", "N", "sequences at once (default 32)", OPT_SERVE, true, set_batch},
    {"prefix", "on|off|both", "with the prefix cache, without, one after the other (default both)",
     OPT_SERVE, true, set_prefix},
    {"lengths", "LIST", "prompt lengths of prefill and fork, comma-separated; one for heads",
     OPT_SERVE, true, set_lengths},
    {"shares", "LIST", "cached shares of prefill in percent, ascending (default 25,50,75,90,99)",
     OPT_SERVE, true, set_shares},
    {"repeat", "N", "measurements a point of prefill and heads (default 6)", OPT_SERVE, true,
     set_repeat},
    {"impl", "PATTERNS", "implementations, comma-separated shell patterns (default: all)",
     OPT_SELECT, false, set_impl},
    {"plugin", "FILE.so", "load implementations from a shared object; may be repeated",
     OPT_SELECT | OPT_SERVE, true, NULL},
    {"variant", "NAME", "the compiled variant that it must be (default: by the table of choices)",
     OPT_DISPATCH, true, set_variant},
    {"choices", "FILE",
     "table of choices, or none (default: profiles/machines/NAME.tune of the GPU)",
     OPT_DISPATCH | OPT_SERVE, true, set_choices},
    {"suite", "NAME", "problems of profiles/suites/NAME.suite, or of a file",
     OPT_WORK | OPT_MEASURE, false, set_suite},
    {"seed", "N", "of the random inputs (default 1)", OPT_WORK | OPT_MEASURE, true, set_seed},
    {"seed", "N", "of weights and tokens (default 1)", OPT_SERVE, true, set_seed},
    {"rows", "N", "rows to verify a case (default: all that a second's work allows)",
     OPT_WORK | OPT_MEASURE, true, set_rows},
    {"out", "FILE", "append records to FILE", OPT_WORK | OPT_SERVE, false, set_out},
    {"resume", NULL, "skip what FILE already records", OPT_WORK, false, set_resume},
    {"timeout", "S", "kill a case that makes no progress for S seconds (default 120)",
     OPT_WORK | OPT_MEASURE, false, set_timeout},
    {"quiet", NULL, "print no table", OPT_WORK | OPT_SERVE, false, set_quiet},
    {"full", NULL, "laws and exact probes, too; without a problem: suite verify", OPT_VERIFY, true,
     set_full},
    {"minimize", NULL, "shrink what fails to the smallest problem that does", OPT_VERIFY, false,
     set_minimize},
    {"mutants", "DIR", "planted faults, built by tests/mutants/build.sh: prints the kill matrix",
     OPT_VERIFY, false, set_mutants},
    {"regime", "NAME",
     "inputs: normal (default), scores-x6, v-mean-8, sink, rising, falling, large, low, subnormal",
     OPT_VERIFY, true, set_regime},
    {"quick", NULL, "fewer samples and checked rows; suite quick unless one is named", OPT_TIME,
     true, set_quick},
    {"sustained", NULL, "hot card: 3 s warm-up, no pauses (default: rested, 50 ms pauses)",
     OPT_TIME, true, set_sustained},
    {"rest", "S", "pause before each run, rested mode (default 0.05; less warms the card)",
     OPT_TIME, true, set_rest},
    {"warm", NULL, "leave the cache as it is (default: cold)", OPT_TIME, true, set_warm},
    {"graph", NULL, "what takes under 2 ms by CUDA graph and by CUPTI's activity, too", OPT_TIME,
     true, set_graph},
    {"processes", "N", "worker processes a problem (default 1)", OPT_TIME, true, set_processes},
    {"samples", "N", "exactly N samples a process", OPT_TIME, true, set_samples},
    {"ci", "W", "stop when the 95 % interval is narrower than W of the median (default 0.005)",
     OPT_TIME, true, set_ci},
    {"no-counters", NULL, "measure time only", OPT_TIME, true, set_no_counters},
    {"ab", NULL,
     "measure A and B now, interleaved: implementations, plugins (.so) or attnbench programs",
     OPT_COMPARE, false, set_ab},
    {"threshold", "PART", "of time: a smaller change is none (default 0.005)", OPT_JUDGE, false,
     set_threshold},
    {"bytes-threshold", "PART", "of bytes and workspace: likewise (default 0.02)", OPT_JUDGE, false,
     set_bytes_threshold},
    {"error-threshold", "PART", "of error over bound: likewise (default 0.5)", OPT_JUDGE, false,
     set_error_threshold},
    {"quantities", "LIST", "of time,bytes,workspace,error (default: all)", OPT_JUDGE, false,
     set_quantities},
    {"anyway", NULL, "compare what differs in device, clocks or inputs", OPT_JUDGE, false,
     set_anyway},
    {"floor", "FILE", "noise floor of this machine, from attnbench aa", OPT_COMPARE, false,
     set_floor},
    {"format", "NAME", "text, markdown, junit, tap or annotations (default text)", OPT_COMPARE,
     false, set_format},
    {"all", NULL, "list what is the same, too", OPT_COMPARE, false, set_all},
    {"comparisons", "N", "compare N + 1 runs, each with the next (default 5)", OPT_AA, false,
     set_comparisons},
    {"keep", "DIR", "keep the records of what is measured in DIR", OPT_COMPARE | OPT_AA, false,
     set_keep},
    {"out", "FILE", "write the noise floor to FILE", OPT_AA, false, set_gate_out},
    {"out", "FILE", "write the choices to FILE (default: NAME.tune of the GPU, in its profiles)",
     OPT_TUNE, false, set_gate_out},
    {"out", "DIR", "draw the changed series in DIR", OPT_HISTORY, false, set_gate_out},
    {"out", "DIR", "folder of the report (default: report)", OPT_REPORT, false, set_out},
    {"suites", NULL, "list suites", OPT_LIST, false, set_suites},
    {"models", NULL, "list model presets", OPT_LIST, false, set_models},
    {"machines", NULL, "list known GPUs", OPT_LIST, false, set_machines},
    {"variants", NULL, "list compiled variants, and the tables that choose among them", OPT_LIST,
     false, set_variants},
    {"machine", "NAME", "the model of a known GPU; nothing is run", OPT_EXPLAIN, false,
     set_machine},
    {"json", NULL, "one JSON object a run, in place of text", OPT_EXPLAIN, false, set_json},
    {"problems", "SUITE", "list the problems of a suite", OPT_LIST, false, set_problems},
};

const struct option_row *options_table(size_t *n)
{
  *n = sizeof table / sizeof *table;
  return table;
}

void options_defaults(struct options *o)
{
  memset(o, 0, sizeof *o);
  o->run.processes = 1;
  o->run.timeout_s = 120;
  o->run.progress = isatty(2);
  o->gate.comparisons = 5;
  o->gate.format = compare_format_find("text");
  o->gate.compare = (struct compare_options){.threshold = 0.005,
                                             .bytes_threshold = 0.02,
                                             .error_threshold = 0.5,
                                             .rate = 0.05,
                                             .quantities = (1u << QUANTITIES) - 1};
  serve_defaults(&o->serve);
  o->run.group = (struct group_options){
      .timing = {CACHE_COLD, MODE_RESTED, 0.05},
      .samples_min = 7,
      .samples_max = 60,
      .ci_width = 0.005,
      .seconds = 10,
      .seed = 1,
      .count = true,
      .recheck = true,
  };
}
