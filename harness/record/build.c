/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c - generated tables behind build.h: harness/record/build-info.h and impl/impl-hash.h.
 */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "harness/record/build.h"
#include "harness/record/build-info.h"

static const struct {
  const char *impl, *part, *hash;
} hashes[] = {
#include "impl/impl-hash.h"
    {NULL, NULL, NULL},
};

const struct build_info *build_info(void)
{
  static const struct build_info info = {PACKAGE_VERSION, BUILD_COMMIT, __VERSION__, BUILD_NVCC,
                                         BUILD_FLAGS};
  return &info;
}

const char *build_impl_hash(const char *impl, enum attn_op op)
{
  const char *part = op == ATTN_BWD ? "bwd" : "fwd";
  for (int i = 0; hashes[i].impl; i++)
    if (!strcmp(hashes[i].impl, impl) && (!*hashes[i].part || !strcmp(hashes[i].part, part)))
      return hashes[i].hash;
  return NULL;
}
