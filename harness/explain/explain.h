/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h - one problem on one machine: what bounds it, and what its runs made of that.
 */
#ifndef HARNESS_EXPLAIN_H
#define HARNESS_EXPLAIN_H

#include <jansson.h>

#include "harness/explain/limits.h"
#include "harness/run/run.h"

/* A problem and the runs of it, n of them; none where only the model was asked for. */
struct explained {
  struct attn_problem problem;
  struct attn_device device; /* that they ran on */
  struct device_ceilings ceilings;
  struct record run[GROUP_CASES];
  int n;
  int chosen; /* of run[] where nothing was run: what each implementation would choose */
};

/* The device of the runs: ceilings as measured beside them, the clock as it was inside r's. */
void explain_machine(const struct explained *x, const struct record *r, struct machine_limits *m);
/* The same for all of them: of the first run that has a clock. */
void explain_machine_of_all(const struct explained *x, struct machine_limits *m);

/* Modelled seconds of limit l over the run's; NaN: one of them is not known. */
double explain_share(const struct bound *b, int l, const struct record *r);

/* explain-variant.c: what implementations that have variants would choose for the problem on a
 * known machine, by its table or another (see struct run_options). -1 and a line in err. */
int explain_choose(struct explained *x, const struct machine_limits *m, const struct run_options *o,
                   char *err, size_t errlen);
/* A record's variant, tile and shared memory; nothing where it has none. */
void explain_print_variant(const struct attn_problem *p, const struct record *r,
                           const struct bound *b, FILE *out);
/* The same; null where it has none. */
json_t *explain_variant_json(const struct attn_problem *p, const struct record *r,
                             const struct bound *b);

/* explain-print.c: as text. m: a machine that nothing was run on, or NULL. */
void explain_print(const struct explained *x, const struct machine_limits *m, FILE *out);
/* explain-json.c: one object a run, or one without a run; each a line. */
void explain_print_json(const struct explained *x, const struct machine_limits *m, FILE *out);

#endif
