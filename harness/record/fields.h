/* SPDX-License-Identifier: Apache-2.0
 *
 * fields.h - members of a JSON object as numbers and words, what is missing is NaN, or ""; and
 * numbers as members: NaN and infinities are null.
 */
#ifndef HARNESS_FIELDS_H
#define HARNESS_FIELDS_H

#include <jansson.h>
#include <math.h>

static inline double field_number(const json_t *object, const char *name)
{
  const json_t *x = json_object_get(object, name);
  return json_is_number(x) ? json_number_value(x) : NAN;
}

static inline const char *field_text(const json_t *object, const char *name)
{
  const char *s = json_string_value(json_object_get(object, name));
  return s ? s : "";
}

static inline json_t *field_real(double x)
{
  return isfinite(x) ? json_real(x) : json_null();
}

/* Bytes and counts: whole numbers where they are. */
static inline json_t *field_count(double x)
{
  return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : field_real(x);
}

#endif
