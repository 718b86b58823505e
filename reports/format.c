/* SPDX-License-Identifier: Apache-2.0
 *
 * format.c - numbers and text for people.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/format.h"

struct text format_number(double x, int digits)
{
  struct text t = {""};
  if (!isfinite(x))
    return t;
  int before = x == 0 ? 1 : (int)floor(log10(fabs(x))) + 1;
  if (before > 6 || before < -4) {
    snprintf(t.s, sizeof t.s, "%.*e", digits - 1, x);
    return t;
  }
  int after = digits > before ? digits - before : 0;
  snprintf(t.s, sizeof t.s, "%.*f", after, x);
  return t;
}

struct text format_exact(double x)
{
  struct text t = {""};
  if (!isfinite(x))
    return t;
  if (x == floor(x) && fabs(x) < 0x1p53) {
    snprintf(t.s, sizeof t.s, "%.0f", x);
    return t;
  }
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(t.s, sizeof t.s, "%.*g", digits, x);
    if (strtod(t.s, NULL) == x)
      break;
  }
  return t;
}

struct text format_round(double x)
{
  struct text t;
  snprintf(t.s, sizeof t.s, "%.6g", x);
  return t;
}

/* x in the largest unit that leaves at least 1 of it. */
static struct text in_units(double x, int digits, double step, const char *const *units, int n)
{
  struct text t = {""};
  int i = 0;
  if (!isfinite(x))
    return t;
  while (i + 1 < n && fabs(x) >= step * (1 - 0.5 * pow(10, -digits))) {
    x /= step;
    i++;
  }
  snprintf(t.s, sizeof t.s, "%.40s %s", format_number(x, digits).s, units[i]);
  return t;
}

struct text format_seconds(double s)
{
  static const char *const units[] = {"ns", "µs", "ms", "s"};
  return in_units(s * 1e9, 4, 1000, units, 4);
}

static const char *const byte_units[] = {"B", "kB", "MB", "GB", "TB", "PB"};

struct text format_bytes(double b)
{
  if (b >= 0 && b < 1000 && b == floor(b)) {
    struct text t;
    snprintf(t.s, sizeof t.s, "%.0f B", b);
    return t;
  }
  return in_units(b, 3, 1000, byte_units, 6);
}

struct text format_round_bytes(double b)
{
  struct text t;
  int i = 0;
  for (; i < 5 && b >= 999; i++)
    b /= 1000;
  snprintf(t.s, sizeof t.s, "%.3g %s", b, byte_units[i]);
  return t;
}

struct text format_binary(double b)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  struct text t = {""};
  int i = 0;
  if (!isfinite(b))
    return t;
  for (; i < 5 && b >= 1024; i++)
    b /= 1024;
  if (b == floor(b))
    snprintf(t.s, sizeof t.s, "%.0f %s", b, units[i]);
  else
    snprintf(t.s, sizeof t.s, "%.40s %s", format_number(b, b >= 1000 ? 4 : 3).s, units[i]);
  return t;
}

struct text format_tokens(double n)
{
  struct text t = {""};
  if (!isfinite(n))
    return t;
  if (n >= 1024 && fmod(n, 512) == 0)
    snprintf(t.s, sizeof t.s, "%gk", n / 1024);
  else
    snprintf(t.s, sizeof t.s, "%.0f", n);
  return t;
}

struct text format_percent(double part)
{
  struct text t = {""};
  if (isfinite(part))
    snprintf(t.s, sizeof t.s, "%.40s %%", format_number(100 * part, 3).s);
  return t;
}

size_t format_characters(const char *s, int n)
{
  size_t bytes = 0;
  for (; s[bytes]; bytes++)
    if ((s[bytes] & 0xC0) != 0x80 && n-- <= 0)
      break;
  return bytes;
}

/* ---- escapes -------------------------------------------------------------------------------- */

struct replacement {
  char c;
  const char *by;
};

static const struct replacement html[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {0, NULL}};
static const struct replacement markdown[] = {
    {'|', "\\|"}, {'<', "&lt;"}, {'*', "\\*"}, {'`', "\\`"}, {'_', "\\_"}, {'\n', " "}, {0, NULL}};
static const struct replacement latex[] = {{'&', "\\&"},
                                           {'%', "\\%"},
                                           {'$', "\\$"},
                                           {'#', "\\#"},
                                           {'_', "\\_"},
                                           {'{', "\\{"},
                                           {'}', "\\}"},
                                           {'~', "\\textasciitilde{}"},
                                           {'^', "\\textasciicircum{}"},
                                           {'\\', "\\textbackslash{}"},
                                           {'<', "\\textless{}"},
                                           {'>', "\\textgreater{}"},
                                           {'\n', " "},
                                           {0, NULL}};
static const struct replacement csv[] = {{'"', "\"\""}, {'\n', " "}, {0, NULL}};
static const struct replacement *const escapes[] = {html, markdown, latex, csv};

/* What LaTeX's fonts lack; two or three bytes of UTF-8. */
static const struct {
  const char *utf8, *by;
} latex_words[] = {{"×", "$\\times$"}, {"µ", "\\textmu{}"}, {"·", "$\\cdot$"}, {"–", "--"}};

static size_t write_latex_word(FILE *out, const char *s)
{
  for (size_t i = 0; i < sizeof latex_words / sizeof *latex_words; i++) {
    size_t n = strlen(latex_words[i].utf8);
    if (!strncmp(s, latex_words[i].utf8, n)) {
      fputs(latex_words[i].by, out);
      return n;
    }
  }
  return 0;
}

void write_escaped(FILE *out, enum escape e, const char *s)
{
  for (; *s; s++) {
    const struct replacement *r = escapes[e];
    size_t word = e == ESCAPE_LATEX ? write_latex_word(out, s) : 0;
    if (word) {
      s += word - 1;
      continue;
    }
    while (r->by && r->c != *s)
      r++;
    if (r->by)
      fputs(r->by, out);
    else
      fputc(*s, out);
  }
}
