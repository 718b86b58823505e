/* SPDX-License-Identifier: Apache-2.0
 *
 * table-panels.c - what tables of panels have in common: a row a length, a column an
 * implementation, and above the rows of a panel what they share.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/tables.h"

struct table *table_by_length(const struct report *r, const bool *used,
                              const struct table_column *second, const char *name,
                              const char *title, const char *caption)
{
  struct table_column *columns = calloc((size_t)r->nalgorithms + 2, sizeof *columns);
  int n = 0;
  if (!columns)
    return NULL;
  columns[n++] = (struct table_column){strdup("Tokens"), "tokens", 'r'};
  if (second)
    columns[n++] = (struct table_column){strdup(second->head), second->csv, second->align};
  for (int s = 0; s < r->nalgorithms; s++)
    if (used[s])
      columns[n++] = (struct table_column){strdup(r->algorithms[s]), r->algorithms[s], 'r'};
  struct table *t = table_new(name, title, caption, columns, n);
  if (!t)
    return NULL;
  t->own_columns = columns;
  t->section_csv = "case";
  return t;
}

void table_panel(struct table *t, const struct report *r, const struct report_view *v,
                 const struct attributes *a)
{
  char section[1024], view[256], words[512];
  attributes_common(a, 1, words, sizeof words);
  report_view_title(r, v, view, sizeof view);
  snprintf(section, sizeof section, "%s · %s", view, words);
  table_section(t, section);
}
