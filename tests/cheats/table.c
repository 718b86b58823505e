/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - the zoo as a plugin.
 */
#include "tests/cheats/cheats.h"

static const struct attn_impl *const impls[] = {&cheat_first_output,
                                                &cheat_watches_inputs,
                                                &cheat_skips_after_third,
                                                &cheat_batched,
                                                &cheat_foreseen,
                                                &cheat_thread,
                                                &cheat_zeros,
                                                &cheat_nans,
                                                &cheat_copies_v,
                                                &cheat_mean_v,
                                                &cheat_nothing,
                                                &cheat_first_rows,
                                                &cheat_leaves_rows_later,
                                                &cheat_reads_less,
                                                &cheat_reads_less_later,
                                                &cheat_other_problem,
                                                &cheat_no_lse,
                                                &cheat_zeroes_inputs,
                                                &cheat_zeroes_later,
                                                &cheat_overrun,
                                                &cheat_spots_poison,
                                                &cheat_slow_clock,
                                                &cheat_fair};

const struct attn_plugin attn_plugin = {ATTN_ABI, sizeof impls / sizeof *impls, impls};
