/* SPDX-License-Identifier: Apache-2.0
 *
 * problem-rope.c - the keys of op=rope: read, fill in, check, print.
 *
 * rope= names the scaling and its factor.  Numbers that a scaling has no use for are refused, so
 * that one computation has one problem string.
 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "impl/problem.h"

#define THETA 10000

const char *const attn_rope_names[] = {"none", "linear", "ntk", "dyn", "yarn", "llama3"};

const char *attn_rope_name(enum attn_rope_scaling s)
{
  return attn_rope_names[s];
}

/* What a scaling needs beside its factor. */
static const struct {
  bool trained, band;
  double low, high;
} needs[] = {
    [ATTN_ROPE_NONE] = {false},
    [ATTN_ROPE_LINEAR] = {false},
    [ATTN_ROPE_NTK] = {false},
    [ATTN_ROPE_DYNAMIC] = {.trained = true},
    [ATTN_ROPE_YARN] = {true, true, 1, 32},
    [ATTN_ROPE_LLAMA3] = {true, true, 1, 4},
};

/* ---- values --------------------------------------------------------------------------------- */

/* NAME or NAME:FACTOR */
bool attn_rope_set_rope(struct attn_problem *p, const char *value)
{
  struct attn_rope *r = &p->rope;
  const char *colon = strchr(value, ':');
  struct attn_slice name = {value, colon ? (size_t)(colon - value) : strlen(value)};
  int i = 0;
  while (i <= ATTN_ROPE_LLAMA3 && !attn_slice_is(name, attn_rope_names[i]))
    i++;
  if (i > ATTN_ROPE_LLAMA3 || (i == ATTN_ROPE_NONE) != !colon)
    return false;
  r->scaling = (enum attn_rope_scaling)i;
  r->factor = 1;
  return !colon || (attn_parse_real(colon + 1, &r->factor) && r->factor >= 1);
}

bool attn_rope_set_theta(struct attn_problem *p, const char *value)
{
  return attn_parse_real(value, &p->rope.theta) && p->rope.theta > 1;
}

static bool set_count(int64_t *n, const char *value)
{
  return attn_parse_count((struct attn_slice){value, strlen(value)}, n) && *n > 0 &&
         *n <= INT32_MAX;
}

bool attn_rope_set_trained(struct attn_problem *p, const char *value)
{
  return set_count(&p->rope.trained, value);
}

bool attn_rope_set_rotary(struct attn_problem *p, const char *value)
{
  return set_count(&p->rope.rotary, value);
}

bool attn_rope_set_pairs(struct attn_problem *p, const char *value)
{
  p->rope.interleaved = !strcmp(value, "interleaved");
  return p->rope.interleaved || !strcmp(value, "half");
}

/* LOW:HIGH */
bool attn_rope_set_band(struct attn_problem *p, const char *value)
{
  struct attn_rope *r = &p->rope;
  char low[64];
  const char *colon = strchr(value, ':');
  size_t len = colon ? (size_t)(colon - value) : 0;
  if (!len || len >= sizeof low)
    return false;
  memcpy(low, value, len);
  low[len] = 0;
  return attn_parse_real(low, &r->band_low) && attn_parse_real(colon + 1, &r->band_high) &&
         r->band_low > 0 && r->band_high > r->band_low;
}

bool attn_rope_set_ramp(struct attn_problem *p, const char *value)
{
  p->rope.ramp_by_index = !strcmp(value, "index");
  return p->rope.ramp_by_index || !strcmp(value, "turns");
}

bool attn_rope_set_attention(struct attn_problem *p, const char *value)
{
  return attn_parse_real(value, &p->rope.attention) && p->rope.attention > 0;
}

static double attention_of(const struct attn_rope *r)
{
  return r->scaling == ATTN_ROPE_YARN ? 0.1 * log(r->factor) + 1 : 1;
}

void attn_rope_defaults(struct attn_problem *p)
{
  struct attn_rope *r = &p->rope;
  if (r->factor == 0)
    r->factor = 1;
  if (r->theta == 0)
    r->theta = THETA;
  if (!r->rotary)
    r->rotary = p->d;
  if (r->band_high == 0) {
    r->band_low = needs[r->scaling].low;
    r->band_high = needs[r->scaling].high;
  }
  if (r->attention == 0)
    r->attention = attention_of(r);
}

/* ---- check ---------------------------------------------------------------------------------- */

/* Options of attention. */
static int check_plain(const struct attn_problem *p, char *err, size_t errlen)
{
  const char *key = p->mask != ATTN_MASK_NONE ? "mask"
                    : p->softcap != 0         ? "softcap"
                    : p->alibi                ? "alibi"
                    : p->dropout_p != 0       ? "dropout"
                    : p->scale != 0           ? "scale"
                                              : NULL;
  return key ? attn_fail(err, errlen, "%s with op=rope: it computes no attention; leave %s out",
                         key, key)
             : ATTN_OK;
}

static int check_scaling(const struct attn_rope *r, char *err, size_t errlen)
{
  if (r->scaling < ATTN_ROPE_NONE || r->scaling > ATTN_ROPE_LLAMA3)
    return attn_fail(err, errlen, "rope: unknown scaling %d", (int)r->scaling);
  const char *name = attn_rope_names[r->scaling];
  if (!(r->factor >= 1 && isfinite(r->factor)) || (r->scaling == ATTN_ROPE_NONE && r->factor > 1))
    return attn_fail(err, errlen, "rope=%s:%g: want a factor from 1, and none with rope=none", name,
                     r->factor);
  if (needs[r->scaling].trained && r->trained < 1)
    return attn_fail(err, errlen, "rope=%s needs trained=, the positions before the extension (8k)",
                     name);
  if (!needs[r->scaling].trained && r->trained)
    return attn_fail(err, errlen, "rope=%s has no use for trained: leave it out", name);
  if (!needs[r->scaling].band && (r->band_low != 0 || r->band_high != 0))
    return attn_fail(err, errlen, "band belongs to rope=yarn and llama3: leave it out");
  if (needs[r->scaling].band &&
      !(r->band_low > 0 && r->band_high > r->band_low && isfinite(r->band_high)))
    return attn_fail(err, errlen, "band=%g:%g: want 0 < LOW < HIGH", r->band_low, r->band_high);
  if (r->ramp_by_index && r->scaling != ATTN_ROPE_YARN)
    return attn_fail(err, errlen, "ramp=index belongs to rope=yarn: leave it out");
  if (!(r->attention > 0 && isfinite(r->attention)) ||
      (r->scaling != ATTN_ROPE_YARN && r->attention != 1))
    return attn_fail(err, errlen, "attention=%g: a number above 0, and rope=yarn alone has it",
                     r->attention);
  return ATTN_OK;
}

int attn_rope_check(const struct attn_problem *p, char *err, size_t errlen)
{
  static const struct attn_rope none;
  const struct attn_rope *r = &p->rope;
  bool unset = r->scaling == none.scaling && r->factor == 0 && r->theta == 0 && !r->trained &&
               !r->rotary && !r->interleaved && !r->ramp_by_index && r->band_low == 0 &&
               r->band_high == 0 && r->attention == 0;
  if (p->op != ATTN_ROPE)
    return unset ? ATTN_OK
                 : attn_fail(
                       err, errlen,
                       "rope, theta, trained, rotary, pairs, band, ramp and attention belong to "
                       "op=rope: leave them out of op=%s",
                       attn_op_name(p->op));
  int rc = check_plain(p, err, errlen);
  if (rc)
    return rc;
  if (!(r->theta > 1 && isfinite(r->theta)))
    return attn_fail(err, errlen, "theta=%g: want a number above 1", r->theta);
  if (r->rotary < 2 || r->rotary % 2 || r->rotary > p->d)
    return attn_fail(err, errlen,
                     "rotary=%lld of d=%lld: elements rotate in pairs; give an even rotary from 2 "
                     "to d",
                     (long long)r->rotary, (long long)p->d);
  return check_scaling(r, err, errlen);
}

/* ---- print ---------------------------------------------------------------------------------- */

struct text {
  char *buf;
  size_t len, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->buf + t->used, t->len - t->used, fmt, ap);
  va_end(ap);
  t->used += n < 0 ? 0 : (size_t)n;
  if (t->used >= t->len)
    t->used = t->len - 1;
}

static void put_real(struct text *t, const char *before, double x)
{
  char text[32];
  attn_print_real(x, text);
  put(t, "%s%s", before, text);
}

void attn_rope_print(const struct attn_problem *p, char *buf, size_t len)
{
  const struct attn_rope *r = &p->rope;
  struct text t = {buf, len, 0};
  buf[0] = 0;
  if (r->scaling != ATTN_ROPE_NONE) {
    put(&t, " rope=%s", attn_rope_names[r->scaling]);
    put_real(&t, ":", r->factor);
  }
  if (r->theta != THETA)
    put_real(&t, " theta=", r->theta);
  if (r->trained)
    put(&t, " trained=%lld", (long long)r->trained);
  if (r->rotary != p->d)
    put(&t, " rotary=%lld", (long long)r->rotary);
  if (r->interleaved)
    put(&t, " pairs=interleaved");
  if (r->band_low != needs[r->scaling].low || r->band_high != needs[r->scaling].high) {
    put_real(&t, " band=", r->band_low);
    put_real(&t, ":", r->band_high);
  }
  if (r->ramp_by_index)
    put(&t, " ramp=index");
  if (r->attention != attention_of(r))
    put_real(&t, " attention=", r->attention);
}
