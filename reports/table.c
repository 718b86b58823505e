/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - a table as data, and its four ways onto paper.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/format.h"
#include "reports/model.h"
#include "reports/table.h"

/* ---- building ------------------------------------------------------------------------------- */

struct table *table_new(const char *name, const char *title, const char *caption,
                        const struct table_column *columns, int ncolumns)
{
  struct table *t = calloc(1, sizeof *t);
  if (t)
    *t = (struct table){
        .name = name, .title = title, .caption = caption, .columns = columns, .ncolumns = ncolumns};
  return t;
}

void table_free(struct table *t)
{
  if (!t)
    return;
  for (int i = 0; i < t->nrows; i++) {
    for (int k = 0; t->rows[i].cells && k < t->ncolumns; k++) {
      free(t->rows[i].cells[k].text);
      free(t->rows[i].cells[k].raw);
    }
    free(t->rows[i].cells);
    free(t->rows[i].section);
  }
  for (int k = 0; t->own_columns && k < t->ncolumns; k++)
    free((char *)t->own_columns[k].head);
  free(t->own_columns);
  free(t->rows);
  free(t);
}

static struct table_row *new_row(struct table *t)
{
  struct table_row *rows = report_grow(t->rows, &t->nrows, sizeof *rows);
  if (!rows) {
    t->failed = true;
    return NULL;
  }
  t->rows = rows;
  return &rows[t->nrows - 1];
}

void table_section(struct table *t, const char *text)
{
  struct table_row *row = new_row(t);
  if (row && !(row->section = strdup(text)))
    t->failed = true;
}

void table_row(struct table *t)
{
  struct table_row *row = new_row(t);
  if (row && !(row->cells = calloc((size_t)t->ncolumns, sizeof *row->cells)))
    t->failed = true;
}

static void set_cell(struct table *t, int column, const char *text, const char *raw)
{
  if (t->failed)
    return;
  struct table_cell *c = &t->rows[t->nrows - 1].cells[column];
  c->text = strdup(text);
  c->raw = strdup(raw);
  t->failed = !c->text || !c->raw;
}

void table_text(struct table *t, int column, const char *text)
{
  set_cell(t, column, text, text);
}

void table_number(struct table *t, int column, double x, const char *text)
{
  set_cell(t, column, isfinite(x) ? text : "", format_exact(x).s);
}

/* ---- writing -------------------------------------------------------------------------------- */

static const char *cell_text(const struct table_row *row, int column)
{
  return row->cells[column].text ? row->cells[column].text : "";
}

static int shown_columns(const struct table *t)
{
  int n = 0;
  for (int k = 0; k < t->ncolumns; k++)
    n += t->columns[k].head != NULL;
  return n;
}

static void html_row(const struct table *t, const struct table_row *row, FILE *out)
{
  if (row->section) {
    fprintf(out, "<tr class=\"section\"><th colspan=\"%d\">", shown_columns(t));
    write_escaped(out, ESCAPE_HTML, row->section);
    fputs("</th></tr>\n", out);
    return;
  }
  fputs("<tr>", out);
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].head)
      continue;
    const char *text = cell_text(row, k);
    bool status = !strcmp(t->columns[k].head, "Status");
    fprintf(out, "<td class=\"%c\">", t->columns[k].align);
    if (status)
      fprintf(out, "<span class=\"status %s\">", text);
    write_escaped(out, ESCAPE_HTML, text);
    fputs(status ? "</span></td>" : "</td>", out);
  }
  fputs("</tr>\n", out);
}

void table_html(const struct table *t, FILE *out)
{
  fputs("<div class=\"table\"><table>\n<thead><tr>", out);
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].head)
      continue;
    fprintf(out, t->columns[k].align == 'r' ? "<th class=\"r\">" : "<th>");
    write_escaped(out, ESCAPE_HTML, t->columns[k].head);
    fputs("</th>", out);
  }
  fputs("</tr></thead>\n<tbody>\n", out);
  for (int i = 0; i < t->nrows; i++)
    html_row(t, &t->rows[i], out);
  fputs("</tbody></table></div>\n", out);
}

static void markdown_line(const struct table *t, const struct table_row *row, FILE *out)
{
  bool first = true;
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].head)
      continue;
    fputs("| ", out);
    if (row->section && first) {
      fputs("**", out);
      write_escaped(out, ESCAPE_MARKDOWN, row->section);
      fputs("**", out);
    } else if (!row->section) {
      write_escaped(out, ESCAPE_MARKDOWN, cell_text(row, k));
    }
    fputc(' ', out);
    first = false;
  }
  fputs("|\n", out);
}

void table_markdown(const struct table *t, FILE *out)
{
  for (int k = 0; k < t->ncolumns; k++)
    if (t->columns[k].head) {
      fputs("| ", out);
      write_escaped(out, ESCAPE_MARKDOWN, t->columns[k].head);
      fputc(' ', out);
    }
  fputs("|\n", out);
  for (int k = 0; k < t->ncolumns; k++)
    if (t->columns[k].head)
      fputs(t->columns[k].align == 'r' ? "|---:" : "|---", out);
  fputs("|\n", out);
  for (int i = 0; i < t->nrows; i++)
    markdown_line(t, &t->rows[i], out);
}

static void latex_row(const struct table *t, const struct table_row *row, FILE *out)
{
  if (row->section) {
    fprintf(out, "\\addlinespace\n\\multicolumn{%d}{l}{\\textit{", shown_columns(t));
    write_escaped(out, ESCAPE_LATEX, row->section);
    fputs("}} \\\\\n", out);
    return;
  }
  bool first = true;
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].head)
      continue;
    fputs(first ? "" : " & ", out);
    write_escaped(out, ESCAPE_LATEX, cell_text(row, k));
    first = false;
  }
  fputs(" \\\\\n", out);
}

static void latex_head(const struct table *t, FILE *out)
{
  bool first = true;
  fputs("\\toprule\n", out);
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].head)
      continue;
    fputs(first ? "" : " & ", out);
    write_escaped(out, ESCAPE_LATEX, t->columns[k].head);
    first = false;
  }
  fputs(" \\\\\n\\midrule\n", out);
}

void table_latex(const struct table *t, FILE *out)
{
  fputs("% \\usepackage{booktabs,longtable}\n\\begin{longtable}{", out);
  for (int k = 0; k < t->ncolumns; k++)
    if (t->columns[k].head)
      fputc(t->columns[k].align == 'r' ? 'r' : 'l', out);
  fputs("}\n\\caption{", out);
  write_escaped(out, ESCAPE_LATEX, t->caption);
  fputs("}\\\\\n", out);
  latex_head(t, out);
  fputs("\\endfirsthead\n", out);
  latex_head(t, out);
  fputs("\\endhead\n\\bottomrule\n\\endfoot\n", out);
  for (int i = 0; i < t->nrows; i++)
    latex_row(t, &t->rows[i], out);
  fputs("\\end{longtable}\n", out);
}

static void csv_field(FILE *out, bool first, const char *text)
{
  fputs(first ? "" : ",", out);
  bool quote = strpbrk(text, ",\"\n\r") != NULL;
  fputs(quote ? "\"" : "", out);
  write_escaped(out, ESCAPE_CSV, text);
  fputs(quote ? "\"" : "", out);
}

/* One line: names of columns, or the cells of a row below its section. */
static void csv_line(const struct table *t, const struct table_row *row, const char *section,
                     FILE *out)
{
  bool first = true;
  if (t->section_csv) {
    csv_field(out, first, row ? section : t->section_csv);
    first = false;
  }
  for (int k = 0; k < t->ncolumns; k++) {
    if (!t->columns[k].csv)
      continue;
    const char *raw = row ? row->cells[k].raw : t->columns[k].csv;
    csv_field(out, first, raw ? raw : "");
    first = false;
  }
  fputc('\n', out);
}

void table_csv(const struct table *t, FILE *out)
{
  const char *section = "";
  csv_line(t, NULL, section, out);
  for (int i = 0; i < t->nrows; i++)
    if (t->rows[i].section)
      section = t->rows[i].section;
    else
      csv_line(t, &t->rows[i], section, out);
}

int table_save(const struct table *t, const char *folder, char *err, size_t errlen)
{
  static const struct {
    const char *extension;
    void (*write)(const struct table *t, FILE *out);
  } forms[] = {{"md", table_markdown}, {"tex", table_latex}, {"csv", table_csv}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, t->name, forms[i].extension);
    if (!t->nrows) {
      remove(path); /* of an earlier report in the same folder */
      continue;
    }
    FILE *out = fopen(path, "w");
    if (out)
      forms[i].write(t, out);
    bool failed = !out || ferror(out);
    if ((out && fclose(out)) || failed) {
      snprintf(err, errlen, "%s: cannot write: %s", path, strerror(errno));
      return -1;
    }
  }
  return 0;
}
