/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h - the customary rules by which kernels are checked elsewhere, for comparison only: no
 * verdict of attnbench depends on them.
 */
#ifndef HARNESS_RULES_H
#define HARNESS_RULES_H

#include "reference/law.h"

enum rule {
  RULE_TWICE, /* error at most twice (gradients: three times) that of plain attention in the same
               * types, as in FlashAttention's tests */
  RULE_CLOSE, /* |got - want| <= 1e-2 + 2e-2 |want| */
  RULE_NMSE,  /* sum of squared errors at most 5e-4 of the sum of squares, as in llama.cpp */
  RULES
};

const char *rule_name(enum rule r);

/* What the rules need of a problem: fp64 results, and the largest error of plain attention that
 * rounds every intermediate to the problem's type. */
struct rule_truth {
  double *want[LAW_OPERANDS]; /* where the operand's elements are */
  double same_types[LAW_OPERANDS];
};

/* s holds the inputs; *beats grows with every head. */
int rules_prepare(const struct law_set *s, struct rule_truth *t, volatile uint64_t *beats);
void rules_free(struct rule_truth *t);
/* Does the output of s pass? */
bool rules_pass(const struct rule_truth *t, const struct law_set *s, enum rule r);

/* rules-plain.c: plain attention, every intermediate rounded to the problem's type: the outputs of
 * s. */
int rules_plain(struct law_set *s, volatile uint64_t *beats);

#endif
