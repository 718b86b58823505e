/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c - rows into views and panels: what belongs on one plot follows from the records alone.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/record/fields.h"
#include "reports/model.h"

bool report_timed(const struct report_row *row)
{
  return row->status == STATUS_PASS && isfinite(row->median_s);
}

const char *report_algorithm(const char *impl)
{
  return !strncmp(impl, "cpu/", 4) ? impl + 4 : !strncmp(impl, "cuda/", 5) ? impl + 5 : impl;
}

/* The largest number of GiB that a reason speaks of; 0: none. */
static double most_gib(const char *reason)
{
  double most = 0;
  for (const char *at = reason; (at = strstr(at, " GiB")); at++) {
    const char *from = at;
    while (from > reason && strchr("0123456789.", from[-1]))
      from--;
    most = fmax(most, strtod(from, NULL));
  }
  return most;
}

/* Refusals for lack of memory say how much was wanted. What the device would hold is refused for
 * another reason. */
bool report_too_large(const struct report_row *row)
{
  if (row->status != STATUS_UNSUPPORTED)
    return row->status == STATUS_OOM;
  double wanted = 0x1p30 * most_gib(row->reason);
  double memory = field_number(json_object_get(row->json, "device"), "memory_bytes");
  return wanted > 0 && !(wanted < memory);
}

const char *report_refusal(const struct report_row *row)
{
  static const char *const words[REPORT_STATUSES] = {
      [STATUS_FAIL] = "wrong result",      [STATUS_INVALID] = "invalid", [STATUS_SKIP] = "skipped",
      [STATUS_OOM] = "does not fit",       [STATUS_TIMEOUT] = "timeout", [STATUS_CRASH] = "crash",
      [STATUS_UNSUPPORTED] = "unsupported"};
  return words[report_too_large(row) ? STATUS_OOM : row->status];
}

/* ---- views ---------------------------------------------------------------------------------- */

static struct report_view *find_view(struct report *r, const struct report_row *row)
{
  for (int i = 0; i < r->nviews; i++) {
    struct report_view *v = &r->views[i];
    if (v->device == row->device && !strcmp(v->cache, row->cache) && !strcmp(v->mode, row->mode))
      return v;
  }
  return NULL;
}

static bool device_has_view(const struct report *r, int device)
{
  for (int i = 0; i < r->nviews; i++)
    if (r->views[i].device == device)
      return true;
  return false;
}

static int add_view(struct report *r, const struct report_row *row)
{
  bool first = !device_has_view(r, row->device);
  struct report_view *views = report_grow(r->views, &r->nviews, sizeof *views);
  if (!views)
    return -1;
  r->views = views;
  views[r->nviews - 1] = (struct report_view){
      .device = row->device, .cache = row->cache, .mode = row->mode, .first = first};
  return 0;
}

/* A row that was not timed is in every view of its device. */
static int fill_view(struct report *r, struct report_view *v)
{
  for (int i = 0; i < r->nrows; i++) {
    const struct report_row *row = &r->rows[i];
    if (row->device != v->device || (*row->cache && find_view(r, row) != v))
      continue;
    const struct report_row **rows = report_grow(v->rows, &v->nrows, sizeof *rows);
    if (!rows)
      return -1;
    v->rows = rows;
    rows[v->nrows - 1] = row;
  }
  return 0;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median over the view's rows of a number of the device object; NaN if it is nowhere. */
static double device_median(const struct report_view *v, const char *name)
{
  double *x = malloc(((size_t)v->nrows + 1) * sizeof *x);
  int n = 0;
  for (int i = 0; x && i < v->nrows; i++) {
    const json_t *j = json_object_get(json_object_get(v->rows[i]->json, "device"), name);
    if (json_is_number(j))
      x[n++] = json_number_value(j);
  }
  if (n)
    qsort(x, (size_t)n, sizeof *x, by_value);
  double median = n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : NAN;
  free(x);
  return median;
}

/* A peer, because it is the yardstick; where there is none, naive. */
static const char *choose_base(const struct report_view *v)
{
  const char *naive = NULL;
  for (int i = 0; i < v->nrows; i++) {
    const struct report_row *row = v->rows[i];
    if (!report_timed(row))
      continue;
    if (!strncmp(row->impl, "peer/", 5))
      return row->impl;
    if (!strcmp(report_algorithm(row->impl), "naive"))
      naive = row->impl;
  }
  return naive;
}

const struct report_row *report_base(const struct report_view *v, const struct report_row *row)
{
  for (int i = 0; v->base && i < v->nrows; i++) {
    const struct report_row *b = v->rows[i];
    if (!strcmp(b->impl, v->base) && report_timed(b) && !strcmp(b->run_id, row->run_id) &&
        !strcmp(b->problem, row->problem))
      return b;
  }
  return NULL;
}

/* ---- panels --------------------------------------------------------------------------------- */

enum split { SPLIT_NOT, SPLIT_BATCH, SPLIT_TOKENS };

static double split_value(const struct report_row *row, enum split split)
{
  return split == SPLIT_BATCH    ? (double)row->p.b
         : split == SPLIT_TOKENS ? (double)row->p.b * (double)row->p.sk
                                 : 0;
}

bool report_own_queries(const struct attn_problem *p)
{
  return !p->nruns && p->sq != (p->op == ATTN_DECODE ? 1 : p->sk);
}

/* All that makes a panel but its lengths: the problem with lengths and batch of 1, and the queries
 * where they are not as many as the keys. A ragged batch is a panel of its own. */
static void panel_key(const struct report_row *row, enum split split, char *key, size_t len)
{
  struct attn_problem p = row->p;
  char text[ATTN_PROBLEM_TEXT];
  bool own_queries = report_own_queries(&p);
  if (!p.nruns)
    p.b = p.sq = p.sk = 1;
  attn_problem_print(&p, text, sizeof text);
  snprintf(key, len, "%s|%lld|%.0f|%.0f", text, own_queries ? (long long)row->p.sq : 0,
           split_value(row, split), isfinite(row->sram_bytes) ? row->sram_bytes : 0);
}

struct panels {
  struct report_panel *list;
  int n;
};

static int add_to_panel(struct panels *ps, const struct report_row *row, enum split split)
{
  char key[sizeof ps->list->key];
  struct report_panel *panel = NULL;
  panel_key(row, split, key, sizeof key);
  for (int i = 0; i < ps->n && !panel; i++)
    if (!strcmp(ps->list[i].key, key))
      panel = &ps->list[i];
  if (!panel) {
    struct report_panel *list = report_grow(ps->list, &ps->n, sizeof *list);
    if (!list)
      return -1;
    ps->list = list;
    panel = &list[ps->n - 1];
    snprintf(panel->key, sizeof panel->key, "%s", key);
  }
  const struct report_row **rows = report_grow(panel->rows, &panel->nrows, sizeof *rows);
  if (!rows)
    return -1;
  panel->rows = rows;
  rows[panel->nrows - 1] = row;
  return 0;
}

static int distinct(const struct report_panel *panel, enum split split)
{
  int n = 0;
  for (int i = 0; i < panel->nrows; i++) {
    bool seen = false;
    for (int k = 0; k < i && !seen; k++)
      seen = split_value(panel->rows[i], split) == split_value(panel->rows[k], split);
    n += !seen;
  }
  return n;
}

/* A line joins problems of one batch, or of one number of tokens; a panel that has several of both
 * is told apart by whichever makes fewer panels. */
static enum split choose_split(const struct report_panel *panel)
{
  int batches = distinct(panel, SPLIT_BATCH), tokens = distinct(panel, SPLIT_TOKENS);
  if (batches == 1 || tokens == 1)
    return SPLIT_NOT;
  return tokens < batches ? SPLIT_TOKENS : SPLIT_BATCH;
}

static int count_lengths(const struct report_panel *panel)
{
  int n = 0;
  for (int i = 0; i < panel->nrows; i++) {
    bool seen = false;
    for (int k = 0; k < i && !seen; k++)
      seen = panel->rows[i]->p.sk == panel->rows[k]->p.sk;
    n += !seen;
  }
  return n;
}

static int by_length(const void *a, const void *b)
{
  const struct report_row *x = *(const struct report_row *const *)a;
  const struct report_row *y = *(const struct report_row *const *)b;
  return x->p.sk != y->p.sk ? (x->p.sk > y->p.sk) - (x->p.sk < y->p.sk) : (x > y) - (x < y);
}

static int fill_panels(struct report_view *v)
{
  struct panels coarse = {NULL, 0}, fine = {NULL, 0};
  int status = 0;
  for (int i = 0; i < v->nrows && !status; i++)
    if (v->rows[i]->parsed)
      status = add_to_panel(&coarse, v->rows[i], SPLIT_NOT);
  for (int i = 0; i < coarse.n; i++) {
    enum split split = choose_split(&coarse.list[i]);
    for (int k = 0; k < coarse.list[i].nrows && !status; k++)
      status = add_to_panel(&fine, coarse.list[i].rows[k], split);
    free(coarse.list[i].rows);
  }
  free(coarse.list);
  for (int i = 0; i < fine.n; i++) {
    qsort(fine.list[i].rows, (size_t)fine.list[i].nrows, sizeof *fine.list[i].rows, by_length);
    fine.list[i].nlengths = count_lengths(&fine.list[i]);
  }
  v->panels = fine.list;
  v->npanels = fine.n;
  return status;
}

static int name_algorithm(struct report *r, struct report_row *row)
{
  const char *name = report_algorithm(row->impl);
  int k = 0;
  while (k < r->nalgorithms && strcmp(r->algorithms[k], name))
    k++;
  row->style = k;
  if (k < r->nalgorithms)
    return 0;
  const char **names = report_grow(r->algorithms, &r->nalgorithms, sizeof *names);
  if (!names)
    return -1;
  r->algorithms = names;
  names[k] = name;
  return 0;
}

/* One style an algorithm, so that naive looks the same on every device; peers behind all others. */
static int name_algorithms(struct report *r)
{
  for (int peers = 0; peers <= 1; peers++)
    for (int i = 0; i < r->nrows; i++)
      if ((strncmp(r->rows[i].impl, "peer/", 5) == 0) == peers && name_algorithm(r, &r->rows[i]))
        return -1;
  return 0;
}

int report_views(struct report *r)
{
  if (name_algorithms(r))
    return -1;
  for (int i = 0; i < r->nrows; i++)
    if (*r->rows[i].cache && !find_view(r, &r->rows[i]) && add_view(r, &r->rows[i]))
      return -1;
  for (int i = 0; i < r->nrows; i++)
    if (!device_has_view(r, r->rows[i].device) && add_view(r, &r->rows[i]))
      return -1;
  for (int i = 0; i < r->nviews; i++) {
    struct report_view *v = &r->views[i];
    if (fill_view(r, v) || fill_panels(v))
      return -1;
    v->cuda = !strcmp(r->devices[v->device].kind, "cuda");
    v->copy_gbps = device_median(v, "peak_copy_gbps");
    v->read_gbps = device_median(v, "peak_read_gbps");
    v->matmul_tflops = device_median(v, "peak_matmul_tflops");
    v->memory_bytes = device_median(v, "memory_bytes");
    v->base = choose_base(v);
  }
  return 0;
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool has_rows(const struct report *r, const struct report_device *d)
{
  for (int i = 0; i < r->nrows; i++)
    if (&r->devices[r->rows[i].device] == d)
      return true;
  return false;
}

/* Serving, measured on another card of the same name, stands in no view. */
static bool same_name_elsewhere(const struct report *r, const struct report_device *d)
{
  for (int i = 0; i < r->ndevices; i++)
    if (&r->devices[i] != d && r->devices[i].file == d->file &&
        !strcmp(r->devices[i].name, d->name) && has_rows(r, d) == has_rows(r, &r->devices[i]))
      return true;
  return false;
}

/* Files with devices: a kill matrix has none. */
static bool several_files(const struct report *r)
{
  for (int i = 1; i < r->ndevices; i++)
    if (r->devices[i].file != r->devices[0].file)
      return true;
  return false;
}

void report_device_title(const struct report *r, const struct report_device *d, char *buf,
                         size_t len)
{
  const char *card = json_string_value(json_object_get(d->json, "uuid_hash"));
  bool several = several_files(r);
  snprintf(buf, len, "%s%s%s", several ? r->files[d->file].label : "", several ? ": " : "",
           d->name);
  size_t n = strlen(buf);
  if (card && same_name_elsewhere(r, d))
    snprintf(buf + n, len - n, " (%.4s)", card);
}

void report_view_title(const struct report *r, const struct report_view *v, char *buf, size_t len)
{
  size_t n;
  report_device_title(r, &r->devices[v->device], buf, len);
  n = strlen(buf);
  if (*v->cache)
    snprintf(buf + n, len - n, " · %s cache, %s", v->cache, v->mode);
}
