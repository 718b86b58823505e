/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h - numbers and text for people: units, significant digits, escapes.
 * A NaN number is an empty text: missing is an empty cell, never 0.
 */
#ifndef REPORTS_FORMAT_H
#define REPORTS_FORMAT_H

#include <stddef.h>
#include <stdio.h>

struct text {
  char s[64];
};

struct text format_number(double x, int digits); /* significant digits, no exponent below 1e6 */
struct text format_exact(double x);              /* the shortest decimal that reads back as x */
struct text format_round(double x);              /* 0.3: for round numbers */
struct text format_seconds(double s);            /* 1.234 ms */
struct text format_bytes(double b);              /* 268 MB: powers of ten */
struct text format_round_bytes(double b);        /* 100 MB: for round numbers */
struct text format_binary(double b);             /* 1.5 GiB: powers of two */
struct text format_tokens(double n);             /* 512, 16k */
struct text format_percent(double part);         /* 12.3 % */

/* Bytes of the first n characters of UTF-8 text. */
size_t format_characters(const char *s, int n);

enum escape { ESCAPE_HTML, ESCAPE_MARKDOWN, ESCAPE_LATEX, ESCAPE_CSV };
void write_escaped(FILE *out, enum escape e, const char *s);

#endif
