/* SPDX-License-Identifier: Apache-2.0
 *
 * law-scene.h - what the laws of the gradients share: one sequence and key head, and sums that
 * should be 0.
 */
#ifndef REFERENCE_LAW_SCENE_H
#define REFERENCE_LAW_SCENE_H

#include "reference/law.h"

/* A sum that should be 0, and what roundings may make of it. */
struct law_balance {
  double sum, bound;
};

/* A sequence and key head, with all query heads that share it. */
struct law_scene {
  const struct law_set *s;
  struct law_bounds t;
  struct ref_units u;
  int64_t seq, head;
  double terms; /* added up in a row of dK or dV, and in a row of dQ */
};

/* Adds sign * gradient * with; gradient was stored. */
static inline void law_add_product(struct law_balance *x, const struct law_scene *w, double sign,
                                   double gradient, double with)
{
  x->sum += sign * gradient * with;
  x->bound += fabs(with) * (w->u.store * fabs(gradient) * (1 + w->u.store) + w->u.floor);
}

/* Roundings of sums and partial sums, of terms that are total in size. */
static inline double law_sums(const struct law_scene *w, double total)
{
  double group = (double)w->s->r.shape.group;
  return total * ((w->u.truncates ? 4 : 2) * (w->terms + 16) * REF_U + w->u.grad * (group + 4));
}

/* Fails unless the sum is 0 within its bound. */
bool law_settle(const struct law_scene *w, const struct law_balance *x, const char *what, int64_t c,
                struct law_result *res);
/* Calls check for every sequence and key head. */
int law_each_scene(struct law_bench *b, struct law_result *res,
                   void (*check)(const struct law_scene *w, struct law_result *res));
int law_adjoint(struct law_bench *b, struct law_result *res);

#endif
