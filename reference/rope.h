/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.h - SEMANTICS section 8 as code, and the bound of BOUNDS section 11: frequencies, angles and
 * rotated pairs in fp64, written apart from impl/rope.h.  Numbers in brackets are sentences of
 * SEMANTICS.
 */
#ifndef REFERENCE_ROPE_H
#define REFERENCE_ROPE_H

#include "reference/bound.h"

#define REF_PI 3.141592653589793238462643383280
#define REF_ANGLE_REL 0x1p-44 /* of an angle in fp64 or fixed point */
#define REF_SINCOS_ABS 0x1p-23

/* [8.4] theta^(-2i/rotary) for a base theta */
REF_FN double ref_rope_power(double theta, int64_t rotary, int64_t i)
{
  return i == 0 ? 1 : exp2(-2.0 * (double)i / (double)rotary * log2(theta));
}

/* [8.8] the base that lets the last pair turn `stretch` times as slowly */
REF_FN double ref_rope_longer_base(const struct attn_rope *r, double stretch)
{
  return r->rotary > 2 ? r->theta * pow(stretch, (double)r->rotary / (double)(r->rotary - 2))
                       : r->theta;
}

/* [8.9] */
REF_FN double ref_rope_stretch(const struct attn_rope *r, int64_t sk)
{
  if (sk <= r->trained)
    return 1;
  return (r->factor * (double)sk - (r->factor - 1) * (double)r->trained) / (double)r->trained;
}

REF_FN double ref_rope_clamp(double x, double low, double high)
{
  return x < low ? low : x > high ? high : x;
}

/* [8.10] gamma: 1 keeps the frequency f, 0 divides it by the factor */
REF_FN double ref_rope_gamma(const struct attn_rope *r, double f)
{
  double turns = (double)r->trained / (2 * REF_PI / f);
  return ref_rope_clamp((turns - r->band_low) / (r->band_high - r->band_low), 0, 1);
}

/* [8.12] the same by index */
REF_FN double ref_rope_gamma_by_index(const struct attn_rope *r, int64_t i)
{
  double per_log = (double)r->rotary / 2 / log(r->theta);
  double from = floor(per_log * log((double)r->trained / (2 * REF_PI * r->band_high)));
  double to = ceil(per_log * log((double)r->trained / (2 * REF_PI * r->band_low)));
  from = fmax(from, 0);
  to = fmin(to, (double)r->rotary - 1);
  if (to == from)
    to += 0.001;
  return 1 - ref_rope_clamp(((double)i - from) / (to - from), 0, 1);
}

/* [8.6]-[8.13] radians per position of pair i in a sequence of sk tokens */
REF_FN double ref_rope_frequency(const struct attn_rope *r, int64_t sk, int64_t i)
{
  double f = ref_rope_power(r->theta, r->rotary, i), gamma;
  switch (r->scaling) {
  case ATTN_ROPE_NONE: return f;
  case ATTN_ROPE_LINEAR: return f / r->factor;
  case ATTN_ROPE_NTK: return ref_rope_power(ref_rope_longer_base(r, r->factor), r->rotary, i);
  case ATTN_ROPE_DYNAMIC:
    return ref_rope_power(ref_rope_longer_base(r, ref_rope_stretch(r, sk)), r->rotary, i);
  case ATTN_ROPE_YARN:
  case ATTN_ROPE_LLAMA3:
    gamma = r->ramp_by_index ? ref_rope_gamma_by_index(r, i) : ref_rope_gamma(r, f);
    return gamma * f + (1 - gamma) * f / r->factor;
  }
  return NAN;
}

/* [8.3] the elements of pair i */
REF_FN int64_t ref_rope_element(const struct attn_rope *r, int64_t i, bool second)
{
  if (r->interleaved)
    return 2 * i + (second ? 1 : 0);
  return second ? r->rotary / 2 + i : i;
}

/* A pair at an angle: what it was, what it becomes. */
struct ref_rope_pair {
  double a, b, cos, sin, angle;
  double x, y;
};

/* [8.5] */
REF_FN struct ref_rope_pair ref_rope_turn(double attention, double angle, double a, double b)
{
  struct ref_rope_pair t = {a, b, attention * cos(angle), attention * sin(angle), angle, 0, 0};
  t.x = a * t.cos - b * t.sin;
  t.y = a * t.sin + b * t.cos;
  return t;
}

/* What an implementation declares, in numbers [11.1] */
struct ref_rope_units {
  double angle_rel, sincos_abs;
};

REF_FN struct ref_rope_units ref_rope_units_of(const struct attn_numerics *num)
{
  struct ref_rope_units u = {num->angle_rel > 0 ? num->angle_rel : REF_ANGLE_REL,
                             num->sincos_abs > 0 ? num->sincos_abs : REF_SINCOS_ABS};
  return u;
}

/* [11.2]-[11.5] of the element that becomes x, or y */
REF_FN double ref_bound_rope(const struct ref_units *u, const struct ref_rope_units *w,
                             double attention, const struct ref_rope_pair *t, bool second)
{
  double value = fabs(second ? t->y : t->x), other = fabs(second ? t->x : t->y);
  double terms = second ? fabs(t->a * t->sin) + fabs(t->b * t->cos)
                        : fabs(t->a * t->cos) + fabs(t->b * t->sin);
  double turn = w->angle_rel * fabs(t->angle);
  double off = turn < 0.5 ? other * turn + value * turn * turn / 2 : 2 * hypot(t->x, t->y);
  double e = off + w->sincos_abs * attention * (fabs(t->a) + fabs(t->b)) * (1 + 4 * REF_U) +
             5 * REF_U * terms + 4 * REF_TINY * fmax(1.0, attention);
  return e + u->store * (value + e) + u->floor;
}

#endif
