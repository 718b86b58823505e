/* SPDX-License-Identifier: Apache-2.0
 *
 * options-table.h - between options.c (the table) and options-parse.c.
 */
#ifndef HARNESS_OPTIONS_TABLE_H
#define HARNESS_OPTIONS_TABLE_H

#include "harness/cli/options.h"

/* repro: repeated in a record's repro line, because it changes the numbers */
struct option_row {
  const char *name, *arg, *help;
  unsigned group;
  bool repro;
  int (*set)(struct options *o, const char *value); /* NULL: a plugin */
};

const struct option_row *options_table(size_t *n);
void options_defaults(struct options *o);

#endif
