/* SPDX-License-Identifier: Apache-2.0
 *
 * steady.c - plugins whose speed is known: steady/a takes A milliseconds, steady/b takes B, on any
 * machine that computes the answer sooner. Built twice, as an implementation before and after a
 * planted slowdown.
 */
#include "tests/cheats/honest.h"

#ifndef A
#define A 10
#endif
#ifndef B
#define B 60
#endif

static int run_for(void *plan, const struct attn_args *a, double ms)
{
  double until = seconds() + 1e-3 * ms;
  honest(((struct kept *)plan)->p, a);
  spin_until(until);
  return ATTN_OK;
}

static int run_a(void *plan, const struct attn_args *a, void *stream)
{
  return run_for(plan, a, A);
}

static int run_b(void *plan, const struct attn_args *a, void *stream)
{
  return run_for(plan, a, B);
}

static const struct attn_impl steady_a = {.abi = ATTN_ABI,
                                          .name = "steady/a",
                                          .device = ATTN_CPU,
                                          .summary = "takes A ms",
                                          .provenance = "made for the tests",
                                          .unsupported = honest_unsupported,
                                          .prepare = kept_prepare,
                                          .run = run_a,
                                          .finish = kept_finish};
static const struct attn_impl steady_b = {.abi = ATTN_ABI,
                                          .name = "steady/b",
                                          .device = ATTN_CPU,
                                          .summary = "takes B ms",
                                          .provenance = "made for the tests",
                                          .unsupported = honest_unsupported,
                                          .prepare = kept_prepare,
                                          .run = run_b,
                                          .finish = kept_finish};

static const struct attn_impl *const impls[] = {&steady_a, &steady_b};

const struct attn_plugin attn_plugin = {ATTN_ABI, 2, impls};
