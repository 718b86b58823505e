/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - reads a trace line by line; the first line tells the format.
 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "harness/base/rng.h"
#include "harness/serve/trace.h"
#include "impl/attn.h"

#define LONGEST_S (366 * 86400.0) /* of a trace that is believed */
#define BOM "\xef\xbb\xbf"        /* the mark that some programs write before UTF-8 */

int trace_fail(const struct trace_line *l, const char *fmt, ...)
{
  int n = snprintf(l->err, l->errlen, "%s: row %d: ", l->path, l->row);
  va_list ap;
  va_start(ap, fmt);
  if (n > 0 && (size_t)n < l->errlen)
    vsnprintf(l->err + n, l->errlen - (size_t)n, fmt, ap);
  va_end(ap);
  return ATTN_EINVAL;
}

static void *grow(void *array, size_t n, size_t *room, size_t size)
{
  if (n < *room)
    return array;
  size_t more = *room ? *room * 2 : 64;
  void *larger = realloc(array, more * size);
  if (larger)
    *room = more;
  return larger;
}

int trace_id_append(struct trace *t, int64_t id)
{
  int64_t *ids = grow(t->id, t->nids, &t->id_room, sizeof *ids);
  if (!ids)
    return ATTN_ENOMEM;
  t->id = ids;
  t->id[t->nids++] = id;
  return ATTN_OK;
}

static int append(struct trace *t, const struct trace_request *r)
{
  struct trace_request *list = grow(t->request, t->n, &t->room, sizeof *list);
  if (!list)
    return ATTN_ENOMEM;
  t->request = list;
  t->request[t->n++] = *r;
  return ATTN_OK;
}

int trace_add(struct trace *t, double arrival_s, int64_t input, int64_t output, const int64_t *ids,
              size_t nids)
{
  struct trace_request r = {arrival_s, input, output, (int)t->n + 1, t->nids, nids, false};
  int status = ATTN_OK;
  for (size_t i = 0; !status && i < nids; i++)
    status = trace_id_append(t, ids[i]);
  t->format = "made";
  return status ? status : append(t, &r);
}

void trace_free(struct trace *t)
{
  free(t->request);
  free(t->id);
  memset(t, 0, sizeof *t);
}

/* ---- formats -------------------------------------------------------------------------------- */

static bool is_mooncake(const char *line)
{
  return line[strspn(line, " \t")] == '{';
}

static bool is_azure(const char *line)
{
  return !strcmp(line, "TIMESTAMP,ContextTokens,GeneratedTokens");
}

static const struct format {
  const char *name;
  bool header; /* the first line is none of the rows */
  bool (*recognises)(const char *first_line);
  int (*row)(struct trace *t, struct trace_request *r, const struct trace_line *l);
} formats[] = {
    {"mooncake", false, is_mooncake, trace_row_mooncake},
    {"azure", true, is_azure, trace_row_azure},
};

static const struct format *format_of(const char *line)
{
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].recognises(line))
      return &formats[i];
  return NULL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int check_row(const struct trace *t, const struct trace_request *r,
                     const struct trace_line *l)
{
  if (r->input < 1 || r->input > TRACE_LENGTH)
    return trace_fail(l, "a prompt of %lld tokens: want 1 to %d; correct or delete the row",
                      (long long)r->input, TRACE_LENGTH);
  if (r->output < 1 || r->output > TRACE_LENGTH)
    return trace_fail(l, "an output of %lld tokens: want 1 to %d; correct or delete the row",
                      (long long)r->output, TRACE_LENGTH);
  if (t->n && r->arrival_s < t->request[t->n - 1].arrival_s)
    return trace_fail(l, "the clock goes back by %.6g s from row %d: sort the rows by time",
                      t->request[t->n - 1].arrival_s - r->arrival_s, t->request[t->n - 1].row);
  if (t->n && !(r->arrival_s - t->request[0].arrival_s <= LONGEST_S))
    return trace_fail(l,
                      "%.3g s after row %d, which is more than a year: correct or delete the row",
                      r->arrival_s - t->request[0].arrival_s, t->request[0].row);
  return ATTN_OK;
}

/* Text has no control characters but tabs. */
static bool is_text(const char *line, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)line[i] < 0x20 && line[i] != '\t')
      return false;
  return true;
}

static int take_row(struct trace *t, const struct format *f, const struct trace_line *l)
{
  struct trace_request r = {.row = l->row, .id = t->nids};
  int status = f->row(t, &r, l);
  if (!status)
    status = check_row(t, &r, l);
  return status ? status : append(t, &r);
}

static int take_line(struct trace *t, const struct format **f, struct trace_line *l, size_t n)
{
  if (!is_text(l->text, n))
    return trace_fail(l, "binary data: want a Mooncake (JSON lines) or an Azure (CSV) trace");
  if (!l->text[strspn(l->text, " \t")])
    return ATTN_OK;
  if (*f)
    return take_row(t, *f, l);
  *f = format_of(l->text);
  if (!*f)
    return trace_fail(l,
                      "neither a Mooncake row ({\"timestamp\": ...}) nor Azure's heading "
                      "(TIMESTAMP,ContextTokens,GeneratedTokens): give a trace of one of the two");
  t->format = (*f)->name;
  return (*f)->header ? ATTN_OK : take_row(t, *f, l);
}

static int read_lines(struct trace *t, FILE *file, size_t limit, struct trace_line *l)
{
  const struct format *f = NULL;
  char *text = NULL;
  size_t size = 0;
  ssize_t n;
  int status = ATTN_OK;
  while (!status && (!limit || t->n < limit) && (n = getline(&text, &size, file)) >= 0) {
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
      text[--n] = '\0';
    size_t mark = l->row++ || strncmp(text, BOM, strlen(BOM)) ? 0 : strlen(BOM);
    l->text = text + mark;
    status = take_line(t, &f, l, (size_t)n - mark);
  }
  free(text);
  return status;
}

int trace_read(struct trace *t, const char *path, size_t limit, char *err, size_t errlen)
{
  struct trace_line l = {.path = path, .err = err, .errlen = errlen};
  *t = (struct trace){0};
  FILE *file = fopen(path, "r");
  errno = file ? 0 : errno;
  int status = file ? read_lines(t, file, limit, &l) : ATTN_EINVAL;
  if (!file || (!status && ferror(file))) {
    snprintf(err, errlen, "%s: cannot read the trace: %s", path, strerror(errno));
    status = ATTN_EINVAL;
  } else if (status == ATTN_ENOMEM) {
    trace_fail(&l, "no memory for the trace: read fewer rows, --requests N");
  } else if (!status && !t->n) {
    snprintf(err, errlen, "%s: no requests in it: give a Mooncake or an Azure trace with rows",
             path);
    status = ATTN_EINVAL;
  }
  if (file)
    fclose(file);
  for (size_t i = t->n; i-- > 0;)
    t->request[i].arrival_s -= t->request[0].arrival_s;
  if (status)
    trace_free(t);
  return status;
}

/* ---- content -------------------------------------------------------------------------------- */

/* What block `block` of request i holds: by its id, or by the request where there are no ids. */
static uint64_t block_content(const struct trace *t, size_t i, int64_t block)
{
  const struct trace_request *r = &t->request[i];
  if (r->ids)
    return rng_at(1, (uint64_t)t->id[r->id + (size_t)block]);
  return rng_at(rng_at(2, i), (uint64_t)block);
}

uint64_t trace_content(const struct trace *t, size_t i, int64_t at)
{
  return rng_at(block_content(t, i, at / TRACE_BLOCK), (uint64_t)(at % TRACE_BLOCK));
}

void trace_tokens(const struct trace *t, size_t i, uint64_t seed, int64_t vocab, int32_t *token)
{
  for (int64_t at = 0; at < t->request[i].input; at++)
    token[at] = (int32_t)rng_below(seed, trace_content(t, i, at), (uint32_t)vocab);
}
