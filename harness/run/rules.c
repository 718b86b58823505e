/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c - the customary rules.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "harness/run/rules.h"

const char *rule_name(enum rule r)
{
  static const char *const names[RULES] = {"2x", "allclose", "nmse"};
  return names[r];
}

static double largest_error(const struct law_set *s, enum law_operand op, const double *want)
{
  double most = 0;
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
    for (int64_t c = 0; c < law_width(s, op); c++) {
      double e = fabs(law_get(s, op, &at, c) - want[law_at(s, op, &at) + c]);
      most = e > most || isnan(e) ? e : most;
      if (isnan(most))
        return most;
    }
  return most;
}

static int same_types(const struct law_set *s, struct rule_truth *t, volatile uint64_t *beats)
{
  struct law_set plain;
  int status = law_set_like(&plain, &s->p, s, NULL, NULL, false);
  if (status)
    return status;
  status = rules_plain(&plain, beats);
  for (int op = 0; op < LAW_OPERANDS && !status; op++)
    if (t->want[op])
      t->same_types[op] = largest_error(&plain, op, t->want[op]);
  law_set_free(&plain);
  return status;
}

int rules_prepare(const struct law_set *s, struct rule_truth *t, volatile uint64_t *beats)
{
  memset(t, 0, sizeof *t);
  for (int op = 0; op < LAW_OPERANDS; op++) {
    if (!s->output[op] || op == LAW_LSE)
      continue;
    t->want[op] = calloc(s->bytes[op] / attn_dtype_size(s->p.dtype) + 1, sizeof *t->want[op]);
    if (!t->want[op])
      return ATTN_ENOMEM;
  }
  struct attn_args args = law_args(s);
  int status = s->p.op == ATTN_BWD ? ref_backward_host(&s->p, &args, t->want[LAW_DQ],
                                                       t->want[LAW_DK], t->want[LAW_DV])
                                   : ref_exact_host(&s->p, &args, t->want[LAW_O]);
  return status ? status : same_types(s, t, beats);
}

void rules_free(struct rule_truth *t)
{
  for (int op = 0; op < LAW_OPERANDS; op++)
    free(t->want[op]);
  memset(t, 0, sizeof *t);
}

static bool close_enough(const struct law_set *s, enum law_operand op, const double *want)
{
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
    for (int64_t c = 0; c < law_width(s, op); c++) {
      double w = want[law_at(s, op, &at) + c];
      if (!(fabs(law_get(s, op, &at, c) - w) <= 1e-2 + 2e-2 * fabs(w)))
        return false;
    }
  return true;
}

static bool small_nmse(const struct law_set *s, enum law_operand op, const double *want)
{
  double errors = 0, squares = 0;
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
    for (int64_t c = 0; c < law_width(s, op); c++) {
      double w = want[law_at(s, op, &at) + c], e = law_get(s, op, &at, c) - w;
      errors += e * e;
      squares += w * w;
    }
  return errors <= 5e-4 * squares;
}

bool rules_pass(const struct rule_truth *t, const struct law_set *s, enum rule r)
{
  bool pass = true;
  for (int op = 0; op < LAW_OPERANDS && pass; op++) {
    if (!t->want[op])
      continue;
    double times = op == LAW_O ? 2 : 3;
    if (r == RULE_TWICE)
      pass = largest_error(s, op, t->want[op]) <= times * t->same_types[op] + 1e-5;
    else
      pass = r == RULE_CLOSE ? close_enough(s, op, t->want[op]) : small_nmse(s, op, t->want[op]);
  }
  return pass;
}
