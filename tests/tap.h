/* SPDX-License-Identifier: Apache-2.0
 *
 * tap.h - the Test Anything Protocol for C tests: one header.
 * A test program calls ok() any number of times and ends with return done_testing().
 */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

/* Prints ok or not ok with a formatted name; returns whether it was ok. */
__attribute__((format(printf, 2, 3))) static inline bool ok(bool pass, const char *name, ...)
{
  va_list ap;
  printf("%sok %d - ", pass ? "" : "not ", ++tap_count);
  va_start(ap, name);
  vprintf(name, ap);
  va_end(ap);
  printf("\n");
  fflush(stdout);
  tap_failed += !pass;
  return pass;
}

__attribute__((format(printf, 1, 2))) static inline void diag(const char *text, ...)
{
  va_list ap;
  printf("# ");
  va_start(ap, text);
  vprintf(text, ap);
  va_end(ap);
  printf("\n");
}

static inline bool is_str(const char *got, const char *want, const char *name)
{
  bool same = got && want && !strcmp(got, want);
  if (!same)
    diag("got \"%s\", want \"%s\"", got ? got : "(null)", want ? want : "(null)");
  return ok(same, "%s", name);
}

static inline void skip_all(const char *reason)
{
  printf("1..0 # SKIP %s\n", reason);
  exit(0);
}

/* One skipped test point. */
static inline void skip(const char *reason)
{
  printf("ok %d # SKIP %s\n", ++tap_count, reason);
}

static inline int done_testing(void)
{
  printf("1..%d\n", tap_count);
  return 0;
}

#endif
