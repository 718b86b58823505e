/* SPDX-License-Identifier: Apache-2.0
 *
 * page.h - between the parts of the page.
 */
#ifndef REPORTS_PAGE_H
#define REPORTS_PAGE_H

#include "reports/format.h"
#include "reports/model.h"

/* The drawing in path, inline; number tells its names from those of others. */
int page_svg(FILE *out, const char *path, const char *label, int number, char *err, size_t errlen);
/* page-words.c: heading and verdict; how it was measured. */
void page_heading(const struct report *r, FILE *out);
void page_method(const struct report *r, FILE *out);

#endif
