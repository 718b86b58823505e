/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.c - exports the implementation of a copy of impl/cpu, one line of which was changed, under
 * a name of its own. build.sh compiles it with -DIMPL=attn_cpu_... -DNAME="mutant/...".
 */
#include "impl/attn.h"

extern const struct attn_impl IMPL;

static struct attn_impl mutant;
static const struct attn_impl *const impls[] = {&mutant};

__attribute__((constructor)) static void name(void)
{
  mutant = IMPL;
  mutant.name = NAME;
}

__attribute__((visibility("default"))) const struct attn_plugin attn_plugin = {ATTN_ABI, 1, impls};
