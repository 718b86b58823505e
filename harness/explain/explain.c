/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c - the machine that runs were on, as the model sees it.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "harness/explain/explain.h"

static double known(double x)
{
  return x > 0 ? x : NAN;
}

void explain_machine(const struct explained *x, const struct record *r, struct machine_limits *m)
{
  const struct attn_device *d = &x->device;
  *m = (struct machine_limits){.basis = "measured now",
                               .kind = d->kind,
                               .sm = d->sm,
                               .multiprocessors = d->multiprocessors,
                               .clock_hz = r ? known(1e6 * r->sample_mhz) : NAN,
                               .matmul_tflops = known(x->ceilings.matmul_tflops),
                               .read_gbps = known(x->ceilings.read_gbps),
                               .copy_gbps = known(x->ceilings.copy_gbps),
                               .exp_per_clock =
                                   d->kind == ATTN_CUDA ? explain_exp_per_clock(d->sm) : NAN};
  snprintf(m->name, sizeof m->name, "%s", d->name);
}

void explain_machine_of_all(const struct explained *x, struct machine_limits *m)
{
  const struct record *r = NULL;
  for (int i = 0; i < x->n && !r; i++)
    if (x->run[i].sample_mhz > 0)
      r = &x->run[i];
  explain_machine(x, r, m);
}

double explain_share(const struct bound *b, int l, const struct record *r)
{
  return l >= 0 && r->status == STATUS_PASS && r->median_s > 0 ? b->s[l] / r->median_s : NAN;
}
