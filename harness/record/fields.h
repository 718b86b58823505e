/* SPDX-License-Identifier: Apache-2.0
 *
 * fields.h - members of a JSON object as numbers and words; what is missing is NaN, or "".
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

#endif
