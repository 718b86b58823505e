/* SPDX-License-Identifier: Apache-2.0
 *
 * problem-sweep.c - one line of a suite stands for many problems.
 *
 *   d=64,128,256      a list: a piece after a comma or blank that has no '=' continues the list
 *                     before it; a piece with '=' begins the next key
 *   sk=512..16k       doubles from 512 while it is at most 16k; may stand in a list
 *   tokens=16k        b = tokens / sq
 *   hidden=2048       hq = hidden / d
 *   model=NAME        hq, hkv and d of models_dir/NAME.model, where the line does not give them
 *
 * The leftmost key is the outermost loop.  What is not swept follows from the parser's defaults: s,
 * or sq or sk alone, moves both lengths.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "impl/echo.h"
#include "impl/model.h"
#include "impl/problem.h"

#define MAX_AXES 24
#define MAX_VALUES 64

struct value {
  struct attn_slice text; /* of a list; text.text is NULL where number holds */
  char number[24];        /* of a range */
};

struct axis {
  struct attn_slice key;
  struct value values[MAX_VALUES];
  int count, at;
};

struct sweep {
  struct axis axes[MAX_AXES];
  int count;
  const char *models_dir;
  int (*emit)(const struct attn_problem *p, void *ctx);
  void *ctx;
  char *err;
  size_t errlen;
};

/* ---- reading the axes ----------------------------------------------------------------------- */

static struct value *new_value(struct sweep *s, struct axis *a)
{
  if (a->count == MAX_VALUES) {
    attn_fail(s->err, s->errlen, "%s has more than %d values: split the line",
              ATTN_ECHO(a->key.text, a->key.len), MAX_VALUES);
    return NULL;
  }
  return &a->values[a->count++];
}

/* The dots of FROM..TO; NULL where text does not begin with a digit. */
static const char *find_dots(struct attn_slice text)
{
  if (!text.len || text.text[0] < '0' || text.text[0] > '9')
    return NULL;
  for (size_t i = 1; i + 1 < text.len; i++)
    if (text.text[i] == '.' && text.text[i + 1] == '.')
      return text.text + i;
  return NULL;
}

static int add_range(struct sweep *s, struct axis *a, struct attn_slice text, const char *dots)
{
  int64_t from, to;
  struct attn_slice low = {text.text, (size_t)(dots - text.text)};
  struct attn_slice high = {dots + 2, text.len - low.len - 2};
  if (!attn_parse_count(low, &from) || !attn_parse_count(high, &to) || from < 1 || from > to)
    return attn_fail(s->err, s->errlen,
                     "%s=%s: want FROM..TO with 1 <= FROM <= TO, which doubles (512..16k)",
                     ATTN_ECHO(a->key.text, a->key.len), ATTN_ECHO(text.text, text.len));
  for (int64_t n = from;; n *= 2) {
    struct value *v = new_value(s, a);
    if (!v)
      return ATTN_EINVAL;
    v->text.text = NULL;
    snprintf(v->number, sizeof v->number, "%lld", (long long)n);
    if (n > to / 2)
      return ATTN_OK;
  }
}

static int add_value(struct sweep *s, struct axis *a, struct attn_slice text)
{
  const char *dots = find_dots(text);
  if (dots)
    return add_range(s, a, text, dots);
  struct value *v = new_value(s, a);
  if (!v)
    return ATTN_EINVAL;
  v->text = text;
  return ATTN_OK;
}

static bool same(struct attn_slice a, struct attn_slice b)
{
  return a.len == b.len && !memcmp(a.text, b.text, a.len);
}

static int read_axes(struct sweep *s, const char *text)
{
  struct attn_slice piece, value;
  while (attn_next_piece(&text, &piece)) {
    struct attn_slice key;
    if (attn_split_pair(piece, &key, &value)) {
      for (int i = 0; i < s->count; i++)
        if (same(s->axes[i].key, key))
          return attn_fail(s->err, s->errlen, "%s is given twice: keep one",
                           ATTN_ECHO(key.text, key.len));
      if (s->count == MAX_AXES)
        return attn_fail(s->err, s->errlen, "more than %d keys", MAX_AXES);
      s->axes[s->count++] = (struct axis){.key = key};
    } else if (s->count) {
      value = piece;
    } else {
      return attn_fail(s->err, s->errlen, "\"%s\" has no '=': write key=value",
                       ATTN_ECHO(piece.text, piece.len));
    }
    int rc = add_value(s, &s->axes[s->count - 1], value);
    if (rc)
      return rc;
  }
  return ATTN_OK;
}

/* ---- one combination ------------------------------------------------------------------------ */

static struct attn_slice current(const struct axis *a)
{
  const struct value *v = &a->values[a->at];
  return v->text.text ? v->text : (struct attn_slice){v->number, strlen(v->number)};
}

static const struct axis *find(const struct sweep *s, const char *key)
{
  for (int i = 0; i < s->count; i++)
    if (attn_slice_is(s->axes[i].key, key))
      return &s->axes[i];
  return NULL;
}

/* The number that a key has now; 0 if the line does not give it, or gives no number. */
static int64_t number_of(const struct sweep *s, const char *key)
{
  int64_t n = 0;
  const struct axis *a = find(s, key);
  return a && attn_parse_count(current(a), &n) ? n : 0;
}

struct text {
  char buf[2 * ATTN_PROBLEM_TEXT];
  size_t used;
};

static void append(struct text *t, struct attn_slice key, struct attn_slice value)
{
  size_t room = sizeof t->buf - t->used;
  int n = snprintf(t->buf + t->used, room, " %.*s=%.*s", (int)key.len, key.text, (int)value.len,
                   value.text);
  t->used += (size_t)n < room ? (size_t)n : room - 1;
}

static void append_count(struct text *t, const char *key, int64_t n)
{
  char digits[24];
  snprintf(digits, sizeof digits, "%lld", (long long)n);
  append(t, (struct attn_slice){key, strlen(key)}, (struct attn_slice){digits, strlen(digits)});
}

static int add_model(const struct sweep *s, struct text *t, int64_t *d)
{
  const struct axis *a = find(s, "model");
  struct attn_model m;
  char name[64];
  if (!a)
    return ATTN_OK;
  struct attn_slice value = current(a);
  snprintf(name, sizeof name, "%.*s", (int)value.len, value.text);
  int rc = attn_model_read(s->models_dir, name, &m, s->err, s->errlen);
  if (rc)
    return rc;
  if (!find(s, "hq") && !find(s, "hidden"))
    append_count(t, "hq", m.hq);
  if (!find(s, "hkv"))
    append_count(t, "hkv", m.hkv);
  if (!*d)
    append_count(t, "d", *d = m.d);
  return ATTN_OK;
}

/* quotient key = total / part, where the line gives total */
static int add_quotient(const struct sweep *s, struct text *t, const char *total_key,
                        const char *part_key, int64_t part, const char *key)
{
  const struct axis *a = find(s, total_key);
  if (!a)
    return ATTN_OK;
  int64_t total = number_of(s, total_key);
  struct attn_slice given = current(a);
  if (total < 1)
    return attn_fail(s->err, s->errlen, "%s=%s: want a whole number from 1", total_key,
                     ATTN_ECHO(given.text, given.len));
  if (find(s, key))
    return attn_fail(s->err, s->errlen, "%s=%lld gives %s: leave %s out", total_key,
                     (long long)total, key, key);
  if (part < 1)
    return attn_fail(s->err, s->errlen, "%s=%lld needs %s: give it", total_key, (long long)total,
                     part_key);
  if (total % part)
    return attn_fail(s->err, s->errlen, "%s=%lld is not a multiple of %s=%lld", total_key,
                     (long long)total, part_key, (long long)part);
  append_count(t, key, total / part);
  return ATTN_OK;
}

static bool is_derived(struct attn_slice key)
{
  return attn_slice_is(key, "model") || attn_slice_is(key, "tokens") ||
         attn_slice_is(key, "hidden");
}

/* sq, by the parser's defaults; 0 if the line gives no length. */
static int64_t queries(const struct sweep *s)
{
  const struct axis *op = find(s, "op");
  int64_t sq = number_of(s, "sq") + number_of(s, "s");
  if (sq)
    return sq;
  return op && attn_slice_is(current(op), "decode") ? 1 : number_of(s, "sk");
}

static int emit_one(const struct sweep *s)
{
  struct text t = {.used = 0};
  struct attn_problem p;
  int64_t d = number_of(s, "d");
  for (int i = 0; i < s->count; i++)
    if (!is_derived(s->axes[i].key))
      append(&t, s->axes[i].key, current(&s->axes[i]));
  int rc = add_model(s, &t, &d);
  if (!rc)
    rc = add_quotient(s, &t, "hidden", "d", d ? d : 128, "hq");
  if (!rc)
    rc = add_quotient(s, &t, "tokens", "sq", queries(s), "b");
  if (!rc)
    rc = attn_problem_parse(t.buf, &p, s->err, s->errlen);
  return rc ? rc : s->emit(&p, s->ctx);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* The next combination, the rightmost key fastest; false after the last. */
static bool advance(struct sweep *s)
{
  for (int i = s->count - 1; i >= 0; i--) {
    if (++s->axes[i].at < s->axes[i].count)
      return true;
    s->axes[i].at = 0;
  }
  return false;
}

int attn_problem_sweep(const char *text, const char *models_dir,
                       int (*emit)(const struct attn_problem *p, void *ctx), void *ctx, char *err,
                       size_t errlen)
{
  struct sweep s = {
      .models_dir = models_dir, .emit = emit, .ctx = ctx, .err = err, .errlen = errlen};
  int rc = read_axes(&s, text);
  if (rc)
    return rc;
  do
    rc = emit_one(&s);
  while (!rc && advance(&s));
  return rc;
}
