/* SPDX-License-Identifier: Apache-2.0
 *
 * load.c - results files into rows.
 *
 * What is not a record of this schema is counted and left out.  A results file is only ever
 * appended to, so the last record of a case (same file, device, implementation, problem, cache and
 * mode) is the one that counts.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/path.h"
#include "harness/record/fields.h"
#include "harness/record/store.h"
#include "reports/matrix.h"
#include "reports/model.h"
#include "reports/serving.h"

struct loading {
  struct report *r;
  int file;
};

void *report_grow(void *array, int *n, size_t size)
{
  int cap = *n;
  if (cap == 0 || (cap & (cap - 1)) == 0) /* full at every power of two */
    array = realloc(array, (cap ? 2 * (size_t)cap : 1) * size);
  if (array) {
    memset((char *)array + (size_t)cap * size, 0, size);
    ++*n;
  }
  return array;
}

static int status_of(const char *name)
{
  for (int s = 0; s < REPORT_STATUSES; s++)
    if (!strcmp(name, record_status_name((enum record_status)s)))
      return s;
  return -1;
}

/* Read + written, with what L2 still holds. The io-model has no cache, so no residue. */
static double moved_bytes(const json_t *traffic)
{
  double residue = field_number(traffic, "residue_bytes");
  if (isnan(residue) && !strcmp(field_text(traffic, "source"), "io-model"))
    residue = 0;
  return field_number(traffic, "dram_read_bytes") + field_number(traffic, "dram_write_bytes") +
         residue;
}

static void fill_numbers(struct report_row *row)
{
  const json_t *j = row->json;
  const json_t *time = json_object_get(j, "time"), *rate = json_object_get(j, "rate");
  const json_t *verify = json_object_get(j, "verify"), *traffic = json_object_get(j, "traffic");
  const json_t *memory = json_object_get(j, "memory"), *device = json_object_get(j, "device");
  row->cache = field_text(time, "cache");
  row->mode = field_text(time, "mode");
  row->median_s = field_number(time, "median_s");
  row->ci_lo_s = field_number(time, "ci_lo_s");
  row->ci_hi_s = field_number(time, "ci_hi_s");
  row->tflops = field_number(rate, "tflops");
  row->gbps = field_number(rate, "gbps");
  row->of_matmul = field_number(rate, "of_matmul");
  row->of_copy = field_number(rate, "of_copy");
  row->bound_ratio = field_number(verify, "bound_ratio");
  row->lse_bound_ratio = field_number(verify, "lse_bound_ratio");
  const json_t *rope = json_object_get(verify, "rope");
  row->position = field_number(rope, "position");
  row->angle_rms = field_number(rope, "angle_rms_rad");
  row->angle_max = field_number(rope, "angle_max_rad");
  row->logit_rel = field_number(rope, "logit_rel");
  row->compulsory_bytes = field_number(traffic, "compulsory_bytes");
  row->moved_bytes = moved_bytes(traffic);
  row->workspace_bytes = field_number(memory, "workspace_bytes");
  row->peak_bytes = field_number(memory, "peak_bytes");
  row->sram_bytes = field_number(device, "sram_bytes");
}

static int find_device(struct report *r, int file, json_t *j)
{
  const char *kind = field_text(j, "kind"), *name = field_text(j, "name"),
             *card = field_text(j, "uuid_hash");
  for (int i = 0; i < r->ndevices; i++) {
    const struct report_device *d = &r->devices[i];
    if (d->file == file && !strcmp(d->kind, kind) && !strcmp(d->name, name) &&
        !strcmp(field_text(d->json, "uuid_hash"), card))
      return i;
  }
  struct report_device *devices = report_grow(r->devices, &r->ndevices, sizeof *devices);
  if (!devices)
    return -1;
  r->devices = devices;
  devices[r->ndevices - 1] = (struct report_device){file, kind, name, j};
  return r->ndevices - 1;
}

static int add_row(struct report *r, int file, int line, json_t *j, int status)
{
  struct report_row *rows = report_grow(r->rows, &r->nloaded, sizeof *rows);
  char err[256];
  if (!rows)
    return -1;
  r->rows = rows;
  struct report_row *row = &rows[r->nloaded - 1];
  row->json = json_incref(j);
  row->file = file;
  row->line = line;
  row->problem = field_text(j, "problem");
  row->impl = field_text(j, "impl");
  row->reason = field_text(j, "reason");
  row->run_id = field_text(j, "run_id");
  row->suite = field_text(j, "suite");
  row->time_utc = field_text(j, "time_utc");
  row->status = (enum record_status)status;
  row->flops = field_number(j, "flops");
  row->parsed = attn_problem_parse(row->problem, &row->p, err, sizeof err) == ATTN_OK;
  fill_numbers(row);
  row->device = find_device(r, file, json_object_get(j, "device"));
  return row->device < 0 ? -1 : 0;
}

static int take(json_t *j, int line, void *ctx)
{
  struct loading *l = ctx;
  struct report_file *f = &l->r->files[l->file];
  int status = status_of(field_text(j, "status"));
  if (field_number(j, "schema") > RECORD_SCHEMA) {
    f->newer++;
    return 0;
  }
  if (status < 0 || !*field_text(j, "impl") || !*field_text(j, "problem") ||
      !*field_text(json_object_get(j, "device"), "name")) {
    f->bad++;
    return 0;
  }
  f->records++;
  if (json_is_object(json_object_get(j, "serve")))
    return find_device(l->r, l->file, json_object_get(j, "device")) < 0 ? -1 : serving_add(l->r, j);
  return add_row(l->r, l->file, line, j, status);
}

static bool same_number(double a, double b)
{
  return a == b || (isnan(a) && isnan(b));
}

static bool same_case(const struct report_row *a, const struct report_row *b)
{
  return a->device == b->device && same_number(a->sram_bytes, b->sram_bytes) &&
         !strcmp(a->impl, b->impl) && !strcmp(a->problem, b->problem) &&
         !strcmp(a->cache, b->cache) && !strcmp(a->mode, b->mode);
}

static bool superseded(const struct report *r, int i)
{
  for (int k = i + 1; k < r->nloaded; k++)
    if (same_case(&r->rows[i], &r->rows[k]))
      return true;
  return false;
}

/* The rows that count first, in order; those that have a later one of the same case behind them. */
static int sort_superseded(struct report *r)
{
  struct report_row *sorted = malloc((size_t)r->nloaded * sizeof *sorted);
  int old = r->nloaded;
  if (!sorted)
    return -1;
  for (int i = r->nloaded - 1; i >= 0; i--)
    if (superseded(r, i))
      sorted[--old] = r->rows[i];
  for (int i = 0; i < r->nloaded; i++)
    if (!superseded(r, i))
      sorted[r->nrows++] = r->rows[i];
  r->summary.superseded = r->nloaded - r->nrows;
  free(r->rows);
  r->rows = sorted;
  return 0;
}

/* The file's name without folder and extension; the whole path where two have the same name. */
static void label_file(struct report *r, int i)
{
  struct report_file *f = &r->files[i];
  for (int k = 0; k < r->nfiles; k++)
    if (k != i && !strcmp(path_base(r->files[k].path), path_base(f->path))) {
      snprintf(f->label, sizeof f->label, "%s", f->path);
      return;
    }
  snprintf(f->label, sizeof f->label, "%s", path_base(f->path));
  char *dot = strrchr(f->label, '.');
  if (dot && dot != f->label)
    *dot = '\0';
}

static int load_file(struct report *r, int i, char *err, size_t errlen)
{
  struct loading l = {r, i};
  struct report_file *f = &r->files[i];
  int bad = 0;
  err[0] = '\0';
  if (store_read(f->path, take, &l, &bad, err, errlen)) {
    if (!err[0])
      snprintf(err, errlen, "%s: out of memory while reading results", f->path);
    return -1;
  }
  if (matrix_load(r, f->path, &f->mutants, err, errlen))
    return -1;
  f->bad += bad - f->mutants;
  r->summary.mutants += f->mutants;
  r->summary.records += f->records;
  r->summary.bad_lines += f->bad;
  r->summary.newer += f->newer;
  return 0;
}

static void say_empty(const struct report *r, char *err, size_t errlen)
{
  const struct report_summary *s = &r->summary;
  const char *path = r->nfiles ? r->files[0].path : "(no file)";
  if (s->newer)
    snprintf(err, errlen,
             "%s: no record to report: %d of a schema newer than %d; use the attnbench "
             "that wrote them",
             path, s->newer, RECORD_SCHEMA);
  else
    snprintf(err, errlen,
             "%s: no record to report (%d other lines); write some with: attnbench "
             "run --out FILE",
             path, s->bad_lines);
}

int report_load(struct report *r, const char *const *files, int nfiles, char *err, size_t errlen)
{
  r->files = calloc((size_t)nfiles + 1, sizeof *r->files);
  if (!r->files) {
    snprintf(err, errlen, "report: out of memory");
    return -1;
  }
  r->nfiles = nfiles;
  for (int i = 0; i < nfiles; i++)
    r->files[i].path = files[i];
  for (int i = 0; i < nfiles; i++) {
    label_file(r, i);
    if (load_file(r, i, err, errlen))
      return -1;
  }
  matrix_sort(r);
  if (!r->nloaded && !r->nserving && !r->nmutants) {
    say_empty(r, err, errlen);
    return -1;
  }
  if (r->nloaded && sort_superseded(r)) {
    snprintf(err, errlen, "report: out of memory");
    return -1;
  }
  r->summary.superseded += serving_superseded(r);
  return 0;
}

void report_free(struct report *r)
{
  serving_free(r);
  for (int i = 0; i < r->nloaded; i++)
    json_decref(r->rows[i].json);
  for (int i = 0; i < r->nviews; i++) {
    for (int k = 0; k < r->views[i].npanels; k++)
      free(r->views[i].panels[k].rows);
    free(r->views[i].panels);
    free(r->views[i].rows);
  }
  for (int i = 0; i < r->nfigures; i++)
    table_free(r->figures[i].values);
  matrix_free(r);
  free(r->files);
  free(r->rows);
  free(r->devices);
  free(r->algorithms);
  free(r->views);
  free(r->figures);
}
