/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - attnbench.
 */
#include "config.h"

#include <stdio.h>

int main(void)
{
  printf("%s %s\n", PACKAGE_NAME, PACKAGE_VERSION);
  return 0;
}
