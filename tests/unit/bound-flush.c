/* SPDX-License-Identifier: Apache-2.0
 *
 * bound-flush: law of a probability near the end of fp32's normal range (BOUNDS 6.2): whatever lies
 * below it as computed may be lost whole, also where its exact value lies above; and nothing more
 * is allowed where it cannot fall below.
 */
#include "config.h"

#include "reference/bound.h"
#include "tests/tap.h"

#define STEPS 400

/* For probabilities p in units of 1/z around 2^-126, known up to a share of themselves. */
static void around(double share, double z)
{
  const struct ref_units u = {.store = 0x1p-8, .prob = 0x1p-8};
  int lost = 0, loose = 0, below = 0;
  for (int i = 1; i <= STEPS; i++) {
    double p = z * REF_TINY * i / 100, off = share * p;
    double allowed = off + ref_prob_rounding(&u, p, off, z);
    bool flushed = p - off < z * REF_TINY;
    below += flushed;
    lost += flushed && allowed < p;
    loose += allowed > (off + u.prob * (p + off) + (flushed ? z * REF_TINY : 0)) * (1 + 1e-12);
  }
  ok(below > 0 && below < STEPS && !lost, "known to %g, factor %g: what may be flushed may be 0",
     share, z);
  ok(!loose, "and no more than that");
}

int main(void)
{
  around(0, 1);
  around(0.2, 1);
  around(0.4, 1 / 0.7);
  return done_testing();
}
