/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h - one measurement a GPU at a time.
 */
#ifndef ATTNBENCH_LOCK_H
#define ATTNBENCH_LOCK_H

#include <stddef.h>

struct run_options;

/*
 * The card that the process counts as its device `index` (--gpu): the entry of CUDA_VISIBLE_DEVICES
 * (`visible`, NULL when unset) in that place, else the index itself.  Letters, digits and dashes of
 * an entry alone are kept, so that it can stand in a file's name.
 */
void lock_card(const char *visible, int index, char *card, size_t len);

/* The lock's descriptor; -1 where none is wanted or can be had; -2 and a line in err when it is
 * taken. */
int lock_device(const struct run_options *o, char *err, size_t errlen);

#endif
