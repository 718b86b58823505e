/* SPDX-License-Identifier: Apache-2.0
 *
 * options-parse.c - parses by the table; help is printed from the same table.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/path.h"
#include "harness/cli/options-table.h"
#include "impl/echo.h"

void options_help(const struct command *c)
{
  size_t n;
  const struct option_row *table = options_table(&n);
  printf("usage: attnbench %s %s\n\n%s\n\noptions:\n", c->name, c->args, c->summary);
  for (size_t i = 0; i < n; i++) {
    char left[40];
    if (!(table[i].group & c->options))
      continue;
    snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].arg ? " " : "",
             table[i].arg ? table[i].arg : "");
    printf("  %-22s %s\n", left, table[i].help);
  }
  printf("  %-22s %s\n", "--help", "this text");
}

static const struct option_row *find(const char *name, size_t n, unsigned options)
{
  size_t rows;
  const struct option_row *table = options_table(&rows);
  for (size_t i = 0; i < rows; i++)
    if (table[i].group & options && strlen(table[i].name) == n && !strncmp(table[i].name, name, n))
      return &table[i];
  return NULL;
}

/* Room that a scenario, or the name of another command, takes behind the options. */
#define REPRO_SPARE 32

static const char plain[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,=+-@%";

/* A value as a shell reads it back, behind what is there; false: no room. */
static bool put_word(char *text, size_t size, const char *value)
{
  bool quoted = !*value || value[strspn(value, plain)];
  size_t at = strlen(text);
  size -= 7; /* a blank, both quotes and one that is escaped */
  text[at++] = ' ';
  if (quoted)
    text[at++] = '\'';
  for (; *value && at < size; value++) {
    const char *c = *value == '\'' ? "'\\''" : (char[]){*value, 0};
    memcpy(text + at, c, strlen(c));
    at += strlen(c);
  }
  if (quoted)
    text[at++] = '\'';
  text[at] = 0;
  return !*value;
}

/* Records are UTF-8, and a command is one line. */
static bool is_text(const char *value)
{
  size_t n = strlen(value), len;
  while (n && (len = attn_printable(value, n))) {
    value += len;
    n -= len;
  }
  return !n;
}

/* The options that change a record's numbers, for its repro line; a trace without its folders. */
static int remember(struct options *o, const struct option_row *r, const char *value, char *err,
                    size_t errlen)
{
  size_t used = strlen(o->repro), size = sizeof o->repro - REPRO_SPARE;
  if (!r->repro)
    return 0;
  if (r->arg && !strcmp(r->name, "trace"))
    value = path_base(value);
  if (r->arg && !is_text(value)) {
    snprintf(err, errlen,
             "--%s %s: a record cannot hold a name that is no printable UTF-8; rename it", r->name,
             ATTN_ECHOS(value));
    return -1;
  }
  if (used + strlen(r->name) + 16 < size) {
    snprintf(o->repro + used, sizeof o->repro - used, " --%s", r->name);
    if (!r->arg || put_word(o->repro, size, value))
      return 0;
  }
  snprintf(err, errlen,
           "--%s: the options are too long for the command in a record, %zu bytes; "
           "use shorter names of files",
           r->name, size);
  return -1;
}

/* The options that another attnbench must be given to measure the same; all of serve's. */
static void pass_on(struct options *o, const struct command *c, const struct option_row *r,
                    const char *value)
{
  bool measures = r->group & (OPT_SELECT | OPT_MEASURE | OPT_TIME | OPT_DISPATCH) &&
                  strcmp(r->name, "processes");
  if ((!measures && c->options != OPT_SERVE) || o->ngiven + 2 > GIVEN)
    return;
  o->given[o->ngiven++] = r->name;
  o->given[o->ngiven++] = value;
}

/* Takes the option at argv[0]; returns how many words it was, or -1. */
static int take(struct options *o, const struct command *c, int argc, char **argv, char *err,
                size_t errlen)
{
  const char *name = argv[0] + 2, *equals = strchr(name, '=');
  size_t n = equals ? (size_t)(equals - name) : strlen(name);
  const struct option_row *r = find(name, n, c->options);
  if (!r) {
    snprintf(err, errlen, "%s: unknown option --%s; attnbench %s --help lists them", c->name,
             ATTN_ECHO(name, n), c->name);
    return -1;
  }
  const char *value = equals ? equals + 1 : r->arg && argc > 1 ? argv[1] : NULL;
  if (!r->arg != !value) {
    snprintf(err, errlen, "--%s %s", r->name, r->arg ? "needs a value" : "takes no value");
    return -1;
  }
  o->refused[0] = '\0';
  int bad = r->set ? r->set(o, value) : catalog_plugin(value, err, errlen);
  if (bad) {
    if (r->set)
      snprintf(err, errlen, "--%s %s: %s; %s", r->name, ATTN_ECHOS(value ? value : ""),
               o->refused[0] ? o->refused : "not understood", r->help);
    return -1;
  }
  if (remember(o, r, value, err, errlen))
    return -1;
  pass_on(o, c, r, value);
  return r->arg && !equals ? 2 : 1;
}

int options_parse(struct options *o, const struct command *c, int argc, char **argv, char *err,
                  size_t errlen)
{
  bool words_only = false;
  options_defaults(o);
  o->words = calloc((size_t)argc + 1, sizeof *o->words);
  if (!o->words)
    return -1;
  snprintf(o->repro, sizeof o->repro, "attnbench %s", c->name);
  for (int i = 0; i < argc;) {
    if (!words_only && !strcmp(argv[i], "--")) {
      words_only = true;
      i++;
    } else if (!words_only && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
      return 1;
    } else if (!words_only && !strncmp(argv[i], "--", 2)) {
      int used = take(o, c, argc - i, argv + i, err, errlen);
      if (used < 0)
        return -1;
      i += used;
    } else if (!words_only && argv[i][0] == '-' && argv[i][1]) {
      snprintf(err, errlen, "%s: unknown option %s; attnbench %s --help lists them", c->name,
               ATTN_ECHOS(argv[i]), c->name);
      return -1;
    } else {
      o->words[o->nwords++] = argv[i++];
    }
  }
  o->run.repro = o->repro;
  return 0;
}

void options_free(struct options *o)
{
  free(o->words);
  catalog_problems_free(&o->problems);
}
