/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h - the last part of a path.
 */
#ifndef HARNESS_BASE_PATH_H
#define HARNESS_BASE_PATH_H

#include <string.h>

/* A file's name without its folders, in place. */
static inline const char *path_base(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

#endif
