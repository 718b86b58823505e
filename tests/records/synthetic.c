/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.c - prints the synthetic records as a results file.
 */
#include "config.h"

#include "tests/records/synthetic.h"

static int print(json_t *record, void *ctx)
{
  json_dumpf(record, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
  putchar('\n');
  return ferror(stdout);
}

int main(void)
{
  return synthetic_records(print, NULL) != 0;
}
