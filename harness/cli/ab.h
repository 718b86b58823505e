/* SPDX-License-Identifier: Apache-2.0
 *
 * ab.h - A and B measured now, interleaved: two implementations, two plugins, or two builds.
 */
#ifndef HARNESS_AB_H
#define HARNESS_AB_H

#include "harness/cli/options.h"

/* One side: an implementation of this build, or an attnbench (this one, for a plugin). */
struct ab_side {
  const char *word;
  const struct attn_impl *impl;
  const char *binary, *plugin;
};

struct ab {
  struct ab_side side[2];
  char folder[400];
  bool temporary; /* the folder goes when the comparison is done */
  char file[2][448];
  struct cells cells[2];
};

/* What the two words name, and where records go. -1 and a line in err. */
int ab_open(struct ab *ab, const struct options *o, char *err, size_t errlen);
/* Measures list on both sides in rounds processes each and reads the records, which are called
 * name. ATTN_OK; 1: interrupted; -1 and a line in err. */
int ab_measure(struct ab *ab, const struct options *o, const struct problem_list *list,
               const char *name, char *err, size_t errlen);
bool ab_paired(const struct ab *ab); /* both sides run in the same processes */
void ab_close(struct ab *ab);

/* A folder for records: keep (created), or a temporary one; and its end. */
int scratch_open(char *folder, size_t len, const char *keep, char *err, size_t errlen);
void scratch_remove(const char *folder);
/* "attnbench run" and the options of a record's repro line that were given to another command. */
void run_repro(const struct options *o, char *repro, size_t len);

#endif
