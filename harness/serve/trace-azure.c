/* SPDX-License-Identifier: Apache-2.0
 *
 * trace-azure.c - a row of an Azure LLM inference trace: 2023-11-16 18:15:46.6805900,374,44; those
 * of 2024 name the zone, 2024-05-10 00:00:00.009930+00:00,2162,5.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/serve/trace.h"
#include "impl/attn.h"
#include "impl/problem.h"

/* Days from 1970-01-01 in the Gregorian calendar. */
static int64_t days(int64_t year, int month, int day)
{
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  int64_t y = year - (month <= 2), leaps = y / 4 - y / 100 + y / 400;
  return 365 * (year - 1970) + leaps - 477 + before[month - 1] + day - 1;
}

/* Seconds east of Greenwich: nothing, Z, +HH:MM, -HH:MM. */
static int zone(const char *text, double *s)
{
  int hours, minutes, used = 0;
  char sign = *text;
  *s = 0;
  if (!*text || !strcmp(text, "Z"))
    return ATTN_OK;
  if ((sign != '+' && sign != '-') || strspn(text + 1, "0123456789:") != 5 ||
      sscanf(text + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || used != 5 || text[6])
    return ATTN_EINVAL;
  *s = (sign == '-' ? -60 : 60) * (double)(60 * hours + minutes);
  return ATTN_OK;
}

/* Seconds since 1970 of the date and time that is all of text, which is cut at the zone. */
static int seconds(char *text, double *s)
{
  int year, month, day, hour, minute, used = 0;
  double second, east;
  if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%n", &year, &month, &day, &hour, &minute, &used) != 5 ||
      !used || text[used] < '0' || text[used] > '9')
    return ATTN_EINVAL;
  char *rest = text + used + strspn(text + used, "0123456789.");
  if (zone(rest, &east))
    return ATTN_EINVAL;
  *rest = '\0';
  if (!attn_parse_real(text + used, &second))
    return ATTN_EINVAL;
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
      minute < 0 || minute > 59 || second >= 61)
    return ATTN_EINVAL;
  *s = (double)(days(year, month, day) * 86400 + hour * 3600 + minute * 60) + second - east;
  return ATTN_OK;
}

static int count(const char *text, const char *name, int64_t *n, const struct trace_line *l)
{
  if (!*text || text[strspn(text, "0123456789")] || strlen(text) > 18)
    return trace_fail(l, "%s is \"%.40s\": want a whole number", name, text);
  *n = strtoll(text, NULL, 10);
  return ATTN_OK;
}

int trace_row_azure(struct trace *t, struct trace_request *r, const struct trace_line *l)
{
  char text[128], *input, *output = NULL;
  if (snprintf(text, sizeof text, "%s", l->text) >= (int)sizeof text)
    return trace_fail(l, "longer than a row can be: want TIMESTAMP,ContextTokens,GeneratedTokens");
  input = strchr(text, ',');
  if (input)
    output = strchr(input + 1, ',');
  if (!output)
    return trace_fail(l, "two commas are needed: TIMESTAMP,ContextTokens,GeneratedTokens");
  *input++ = *output++ = '\0';
  if (seconds(text, &r->arrival_s))
    return trace_fail(l, "time is \"%.40s\": want it like 2023-11-16 18:15:46.68", text);
  int status = count(input, "ContextTokens", &r->input, l);
  return status ? status : count(output, "GeneratedTokens", &r->output, l);
}
