/* SPDX-License-Identifier: Apache-2.0
 *
 * advice.h - the choices that a device gets: those of its name in profiles/machines/NAME.tune, of a
 * file that was named, or none.
 */
#ifndef HARNESS_ADVICE_H
#define HARNESS_ADVICE_H

#include "harness/tune/choices.h"

#define ADVICE_TABLES 32

/* All tables that there are; which of them is a device's is known when it is open. Read before the
 * workers start, which see the same memory. */
struct advice {
  struct choices table[ADVICE_TABLES];
  int n;
};

/* from: a file; "none"; or NULL, every profiles/machines/NAME.tune. -1 and a line in err. */
int advice_read(struct advice *a, const char *from, char *err, size_t errlen);
void advice_free(struct advice *a);

/* The device wants what the table of its name says; without one each implementation chooses
 * itself. A table of a file that was named is for any device. */
void advice_apply(const struct advice *a, struct attn_device *dev);
/* The device wants this variant of everything. */
void advice_force(const char *variant, struct attn_device *dev);
/* Of an implementation that must be a variant that it has not. */
#define ADVICE_NO_VARIANT "it has no such variant for this problem; attnbench list --variants"
/* Which variant a problem gets from an implementation that takes it, and by whose choice: "default"
 * (its own), "table" or "forced"; NULL: it has no variants. */
const char *advice_variant(const struct attn_impl *impl, const struct attn_problem *p,
                           const struct attn_device *dev, struct attn_variant *v);
/* The table that a device goes by; NULL: none. */
const struct choices *advice_of(const struct attn_device *dev);
/* Its file, without the folder; "": none. */
void advice_name(const struct attn_device *dev, char *name, size_t len);

#endif
