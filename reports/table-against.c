/* SPDX-License-Identifier: Apache-2.0
 *
 * table-against.c - how much faster than the fastest peer, a table an operation: a row a length, a
 * column an implementation. Only times of the same run are compared.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/tables.h"

#define PROCESSES 1 /* its column */
static const struct table_column processes_column = {"Processes", "processes", 'r'};

#define CAPTION                                                                                \
  "How often an implementation runs while the fastest peer runs once: the peer's median time " \
  "over its own, of the same run."

static bool is_peer(const struct report_row *row)
{
  return !strncmp(row->impl, "peer/", 5);
}

/* The fastest peer of the row's run on the row's problem; NULL: none. */
static const struct report_row *peer_of(const struct report_panel *panel,
                                        const struct report_row *row)
{
  const struct report_row *best = NULL;
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *p = panel->rows[i];
    if (is_peer(p) && report_timed(p) && !strcmp(p->run_id, row->run_id) &&
        !strcmp(p->problem, row->problem) && (!best || p->median_s < best->median_s))
      best = p;
  }
  return best;
}

struct kind {
  enum attn_op op;
  const char *name, *title;
};

static const struct kind kinds[] = {
    {ATTN_FWD, "against-peers-fwd", "Forward against the fastest peer"},
    {ATTN_BWD, "against-peers-bwd", "Backward against the fastest peer"},
    {ATTN_DECODE, "against-peers-decode", "Decode against the fastest peer"},
};

static const struct report_row *compared(const struct kind *k, const struct report_panel *panel,
                                         const struct report_row *row)
{
  bool ours = row->parsed && row->p.op == k->op && !is_peer(row) && report_timed(row);
  return ours ? peer_of(panel, row) : NULL;
}

/* Which algorithms have a peer beside them anywhere. */
static bool *compared_algorithms(const struct kind *k, const struct report *r)
{
  bool *used = calloc((size_t)r->nalgorithms + 1, sizeof *used);
  for (int v = 0; used && v < r->nviews; v++)
    for (int p = 0; p < r->views[v].npanels; p++) {
      const struct report_panel *panel = &r->views[v].panels[p];
      for (int i = 0; i < panel->nrows; i++)
        used[panel->rows[i]->style] |= compared(k, panel, panel->rows[i]) != NULL;
    }
  return used;
}

static int column_of(const bool *used, int style)
{
  int column = PROCESSES + 1;
  for (int s = 0; s < style; s++)
    column += used[s];
  return column;
}

static double processes(const struct report_row *row)
{
  return (double)json_integer_value(
      json_object_get(json_object_get(row->json, "time"), "processes"));
}

static void add_panel(const struct kind *k, const struct report *r, const struct report_view *v,
                      struct table *t, const bool *used, const struct report_panel *panel)
{
  int64_t length = -1;
  struct attributes a;
  char text[24];
  panel_attributes(r, v, panel, &a);
  for (int i = 0; i < panel->nrows; i++) {
    const struct report_row *row = panel->rows[i], *peer = compared(k, panel, row);
    if (!peer)
      continue;
    double ratio = peer->median_s / row->median_s;
    if (length < 0)
      table_panel(t, r, v, &a);
    if (row->p.sk != length) {
      length = row->p.sk;
      table_row(t);
      table_number(t, 0, (double)length, format_tokens((double)length).s);
      snprintf(text, sizeof text, "%.0f", processes(row));
      table_number(t, PROCESSES, processes(row), text);
    }
    table_number(t, column_of(used, row->style), ratio, format_number(ratio, 3).s);
  }
}

static struct table *of_kind(const struct kind *k, const struct report *r)
{
  bool *used = compared_algorithms(k, r);
  struct table *t =
      used ? table_by_length(r, used, &processes_column, k->name, k->title, CAPTION) : NULL;
  for (int v = 0; t && v < r->nviews; v++)
    for (int p = 0; p < r->views[v].npanels; p++)
      add_panel(k, r, &r->views[v], t, used, &r->views[v].panels[p]);
  free(used);
  return t;
}

struct table *table_against_peers_fwd(const struct report *r)
{
  return of_kind(&kinds[0], r);
}

struct table *table_against_peers_bwd(const struct report *r)
{
  return of_kind(&kinds[1], r);
}

struct table *table_against_peers_decode(const struct report *r)
{
  return of_kind(&kinds[2], r);
}
