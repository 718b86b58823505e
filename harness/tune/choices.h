/* SPDX-License-Identifier: Apache-2.0
 *
 * choices.h - which compiled variant a problem gets on a device, as plain data that attnbench tune
 * writes: profiles/machines/NAME.tune.
 *
 *   device = NVIDIA H200
 *   cuda/flash-sm90 op=fwd d<=128 mask=some keys<=724 -> 128x128-turns   # a comment
 *
 * The first line whose implementation and conditions are those of a problem decides; where none
 * does, and where the named variant does not take the problem, the implementation chooses itself.
 * Lines of implementations that are not there are of no consequence.
 */
#ifndef HARNESS_CHOICES_H
#define HARNESS_CHOICES_H

#include <stdio.h>

#include "impl/attn.h"

/* Conditions on a problem, in the order in which they are written. */
enum condition {
  CHOICE_OP,            /* op=fwd (and append), bwd, decode */
  CHOICE_D,             /* d<=N: the wider of d and dv */
  CHOICE_DTYPE,         /* dtype=bf16 or fp16 */
  CHOICE_MASK,          /* mask=none, or some */
  CHOICE_OPTIONS,       /* options=0 or 1: softcap, ALiBi, dropout */
  CHOICE_PAGES,         /* pages=0 or 1 */
  CHOICE_PAGE,          /* page<=N: tokens of one */
  CHOICE_KV,            /* kv=dtype or e4m3 */
  CHOICE_DETERMINISTIC, /* deterministic=0 or 1 */
  CHOICE_GROUP,         /* group<=N: queries on one K/V head, of all its query heads */
  CHOICE_ROWS, /* rows<=N: queries of all heads and sequences, what there is to share out */
  CHOICE_KEYS, /* keys<=N: those that a query sees, on the average */
  CONDITIONS
};

/* A problem as the conditions see it, or the values of a line's conditions. */
struct choice_key {
  double value[CONDITIONS];
};

struct choice {
  char impl[64], variant[ATTN_VARIANT_NAME];
  unsigned given; /* bit c: condition c must hold */
  struct choice_key key;
};

/* The table of one device. */
struct choices {
  char path[4200], device[128];
  struct choice *item;
  int n;
};

struct choice_key choice_key_of(const struct attn_problem *p);
/* The line that decides; NULL: none. */
const struct choice *choices_find(const struct choices *c, const char *impl,
                                  const struct attn_problem *p);
/* Writes a line without its end. */
void choice_print(const struct choice *c, FILE *out);

/* -1 and a line in err ("FILE:LINE: ..."): not readable, malformed, a variant that its
 * implementation does not have. */
int choices_read(const char *path, struct choices *c, char *err, size_t errlen);
void choices_free(struct choices *c);

#endif
