/* SPDX-License-Identifier: Apache-2.0
 *
 * tables.h - the tables of a report. Each returns a new table, or NULL when memory is exhausted.
 */
#ifndef REPORTS_TABLES_H
#define REPORTS_TABLES_H

#include "reports/model.h"

struct table *table_devices(const struct report *r);
struct table *table_summary(const struct report *r);
struct table *table_reasons(const struct report *r);
struct table *table_throughput_fwd(const struct report *r);
struct table *table_throughput_bwd(const struct report *r);
struct table *table_throughput_append(const struct report *r);
struct table *table_bandwidth_decode(const struct report *r);
struct table *table_against_peers_fwd(const struct report *r);
struct table *table_against_peers_bwd(const struct report *r);
struct table *table_against_peers_decode(const struct report *r);
struct table *table_training(const struct report *r);
struct table *table_results(const struct report *r);
struct table *table_fits(const struct report *r);
struct table *table_serving(const struct report *r);
struct table *table_serving_rope(const struct report *r);
struct table *table_bits(const struct report *r);
struct table *table_scores(const struct report *r);
struct table *table_matrix(const struct report *r);

/* table-panels.c: an empty table with a column for the length, another one (NULL: none), and one
 * for each algorithm that is used; and the row that heads those of a panel. */
struct attributes;
struct table *table_by_length(const struct report *r, const bool *used,
                              const struct table_column *second, const char *name,
                              const char *title, const char *caption);
void table_panel(struct table *t, const struct report *r, const struct report_view *v,
                 const struct attributes *a);

/* All of them, in order of the page. */
struct table_kind {
  const char *name;
  struct table *(*make)(const struct report *r);
};
extern const struct table_kind table_kinds[];
extern const int table_kinds_count;

#endif
