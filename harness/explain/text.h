/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - numbers as words of an explanation: amounts, times, "-" for what is not known.
 */
#ifndef HARNESS_EXPLAIN_TEXT_H
#define HARNESS_EXPLAIN_TEXT_H

#include <math.h>
#include <stdio.h>

#include "harness/run/run.h"

struct text {
  char s[32];
};

/* 1234567 bytes are "1.235 MB". */
static inline struct text amount(double x, const char *unit)
{
  static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
  struct text t;
  int i = 0;
  while (i < 6 && x >= 999.95) {
    x /= 1000;
    i++;
  }
  if (isfinite(x))
    snprintf(t.s, sizeof t.s, "%.4g%s%s%s", x, i || *unit != ' ' ? " " : "", prefix[i], unit);
  else
    snprintf(t.s, sizeof t.s, "-");
  return t;
}

static inline struct text number(const char *format, double x)
{
  struct text t;
  show_number(t.s, sizeof t.s, format, x);
  return t;
}

static inline struct text duration(double s)
{
  struct text t;
  show_seconds(t.s, sizeof t.s, s);
  return t;
}

#endif
