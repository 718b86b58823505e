/* SPDX-License-Identifier: Apache-2.0
 *
 * schema.h - checks JSON against the part of JSON Schema (draft-07) that record.schema.json uses.
 *
 * A keyword that is not known here is an error of the schema, so that nothing in it is silently
 * not checked.
 */
#ifndef TESTS_SCHEMA_H
#define TESTS_SCHEMA_H

#include <jansson.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Says where and what in err and returns false, or returns true. */
static bool schema_valid(const json_t *schema, const json_t *value, const char *where, char *err,
                         size_t errlen);

static bool schema_no(char *err, size_t errlen, const char *where, const char *what)
{
  snprintf(err, errlen, "%s: %s", *where ? where : "(record)", what);
  return false;
}

static bool schema_type_is(const char *type, const json_t *value)
{
  return (!strcmp(type, "null") && json_is_null(value)) ||
         (!strcmp(type, "boolean") && json_is_boolean(value)) ||
         (!strcmp(type, "integer") && json_is_integer(value)) ||
         (!strcmp(type, "number") && json_is_number(value)) ||
         (!strcmp(type, "string") && json_is_string(value)) ||
         (!strcmp(type, "array") && json_is_array(value)) ||
         (!strcmp(type, "object") && json_is_object(value));
}

static bool schema_type(const json_t *rule, const json_t *value)
{
  if (json_is_string(rule))
    return schema_type_is(json_string_value(rule), value);
  for (size_t i = 0; i < json_array_size(rule); i++)
    if (schema_type_is(json_string_value(json_array_get(rule, i)), value))
      return true;
  return false;
}

static bool schema_enum(const json_t *rule, const json_t *value)
{
  for (size_t i = 0; i < json_array_size(rule); i++)
    if (json_equal(json_array_get(rule, i), value))
      return true;
  return false;
}

static bool schema_pattern(const json_t *rule, const json_t *value)
{
  regex_t re;
  if (!json_is_string(value))
    return true;
  if (regcomp(&re, json_string_value(rule), REG_EXTENDED | REG_NOSUB))
    return false;
  bool match = !regexec(&re, json_string_value(value), 0, NULL, 0);
  regfree(&re);
  return match;
}

/* The keywords that need no descent. */
static bool schema_simple(const char *key, const json_t *rule, const json_t *value, bool *known)
{
  *known = true;
  if (!strcmp(key, "type"))
    return schema_type(rule, value);
  if (!strcmp(key, "enum"))
    return schema_enum(rule, value);
  if (!strcmp(key, "const"))
    return json_equal(rule, value);
  if (!strcmp(key, "pattern"))
    return schema_pattern(rule, value);
  if (!strcmp(key, "minLength"))
    return !json_is_string(value) ||
           (json_int_t)json_string_length(value) >= json_integer_value(rule);
  if (!strcmp(key, "minimum"))
    return !json_is_number(value) || json_number_value(value) >= json_number_value(rule);
  if (!strcmp(key, "exclusiveMinimum"))
    return !json_is_number(value) || json_number_value(value) > json_number_value(rule);
  *known = false;
  return false;
}

static bool schema_required(const json_t *rule, const json_t *value, const char *where, char *err,
                            size_t errlen)
{
  for (size_t i = 0; json_is_object(value) && i < json_array_size(rule); i++) {
    const char *name = json_string_value(json_array_get(rule, i));
    char what[128];
    snprintf(what, sizeof what, "%s is missing", name);
    if (!json_object_get(value, name))
      return schema_no(err, errlen, where, what);
  }
  return true;
}

/* properties, and additionalProperties for those not among them */
static bool schema_members(const json_t *schema, const json_t *value, const char *where, char *err,
                           size_t errlen)
{
  const json_t *properties = json_object_get(schema, "properties");
  const json_t *others = json_object_get(schema, "additionalProperties");
  const char *name;
  json_t *member;
  json_object_foreach((json_t *)value, name, member)
  {
    char path[256];
    const json_t *rule = json_object_get(properties, name);
    snprintf(path, sizeof path, "%s%s%s", where, *where ? "." : "", name);
    if (!rule && json_is_false(others))
      return schema_no(err, errlen, path, "is not in the schema");
    rule = rule ? rule : others;
    if (rule && !schema_valid(rule, member, path, err, errlen))
      return false;
  }
  return true;
}

static bool schema_items(const json_t *rule, const json_t *value, const char *where, char *err,
                         size_t errlen)
{
  for (size_t i = 0; i < json_array_size(value); i++) {
    char path[256];
    snprintf(path, sizeof path, "%s[%zu]", where, i);
    if (!schema_valid(rule, json_array_get(value, i), path, err, errlen))
      return false;
  }
  return true;
}

static bool schema_is_text(const char *key)
{
  return !strcmp(key, "description") || !strcmp(key, "title") || !strcmp(key, "$schema");
}

static bool schema_is_members(const char *key)
{
  return !strcmp(key, "properties") || !strcmp(key, "additionalProperties");
}

static bool schema_valid(const json_t *schema, const json_t *value, const char *where, char *err,
                         size_t errlen)
{
  const char *key;
  json_t *rule;
  json_object_foreach((json_t *)schema, key, rule)
  {
    bool known, right = schema_simple(key, rule, value, &known);
    char what[128];
    snprintf(what, sizeof what, known ? "breaks %s" : "%s: a keyword the test does not know", key);
    if (schema_is_text(key) || schema_is_members(key) || (known && right))
      continue;
    if (!strcmp(key, "required")) {
      if (!schema_required(rule, value, where, err, errlen))
        return false;
    } else if (!strcmp(key, "items")) {
      if (!schema_items(rule, value, where, err, errlen))
        return false;
    } else {
      return schema_no(err, errlen, where, what);
    }
  }
  return !json_is_object(value) || schema_members(schema, value, where, err, errlen);
}

#endif
