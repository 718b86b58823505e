/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h - what this binary was built from, and the hash of each implementation's sources.
 */
#ifndef HARNESS_BUILD_H
#define HARNESS_BUILD_H

#include "impl/attn.h"

struct build_info {
  const char *version, *commit, *compiler, *nvcc, *flags; /* nvcc: "" without CUDA */
};

const struct build_info *build_info(void);

/* SHA-256 of the implementation's sources for an operation, comments and white space stripped;
 * NULL: not built in. */
const char *build_impl_hash(const char *impl, enum attn_op op);

#endif
