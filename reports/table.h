/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - a table as data, written as HTML, Markdown, LaTeX (booktabs) or CSV.
 *
 * A cell has a text for people and, for CSV, the number itself.  A section row spans the table and
 * heads the rows below it; CSV, where every line stands alone, has it as its first field.
 */
#ifndef REPORTS_TABLE_H
#define REPORTS_TABLE_H

#include <stdbool.h>
#include <stdio.h>

struct table_column {
  const char *head; /* for people; NULL: in CSV only */
  const char *csv;  /* name in CSV; NULL: not in CSV */
  char align;       /* 'l', 'r', or 'w': left, long texts that may wrap */
};

struct table_cell {
  char *text, *raw;
};

struct table {
  const char *name; /* stem of its files */
  const char *title, *caption;
  const char *section_csv; /* CSV name of the section column; NULL: sections are not in CSV */
  const struct table_column *columns;
  struct table_column *own_columns; /* columns, where the table owns them */
  int ncolumns, nrows;
  struct table_row {
    char *section; /* non-NULL: a section row, no cells */
    struct table_cell *cells;
  } * rows;
  bool failed; /* out of memory: the table is not complete */
};

struct table *table_new(const char *name, const char *title, const char *caption,
                        const struct table_column *columns, int ncolumns);
void table_free(struct table *t);

/* Rows are filled from left to right after table_row. */
void table_section(struct table *t, const char *text);
void table_row(struct table *t);
void table_text(struct table *t, int column, const char *text);
/* The text for people, and the number; an unknown number is empty in both. */
void table_number(struct table *t, int column, double x, const char *text);

void table_html(const struct table *t, FILE *out);
void table_markdown(const struct table *t, FILE *out);
void table_latex(const struct table *t, FILE *out);
void table_csv(const struct table *t, FILE *out);

/* NAME.md, NAME.tex and NAME.csv in folder, none of them where there is no row; -1 and a line in
 * err. */
int table_save(const struct table *t, const char *folder, char *err, size_t errlen);

#endif
