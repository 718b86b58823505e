/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c - JSON lines that survive: one write and one fsync a record, no partial line left behind.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/record/record.h"
#include "harness/record/store.h"
#include "impl/echo.h"

static int write_all(int fd, const char *text, size_t n)
{
  while (n > 0) {
    ssize_t k = write(fd, text, n);
    if (k < 0 && errno == EINTR)
      continue;
    if (k <= 0)
      return -1;
    text += k;
    n -= (size_t)k;
  }
  return 0;
}

/* Nothing at all, or an object. */
static bool is_ours(int fd)
{
  char first = '{';
  return pread(fd, &first, 1, 0) < 0 || first == '{';
}

/* A writer that was killed may have left half a line: end it, so that it stays one bad line. */
static int end_torn_line(int fd)
{
  off_t end = lseek(fd, 0, SEEK_END);
  char last = '\n';
  if (end <= 0)
    return 0;
  if (pread(fd, &last, 1, end - 1) != 1)
    return -1;
  return last == '\n' ? 0 : write_all(fd, "\n", 1);
}

int store_open(struct store *s, const char *path, char *err, size_t errlen)
{
  struct stat st;
  snprintf(s->path, sizeof s->path, "%s", path);
  s->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (s->fd < 0) {
    snprintf(err, errlen, "%s: cannot write results: %s; choose another --out", ATTN_ECHOS(path),
             strerror(errno));
    return -1;
  }
  bool regular = fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode);
  if (regular && !is_ours(s->fd)) {
    snprintf(err, errlen, "%s: is no results file, and is left as it is; choose another --out",
             ATTN_ECHOS(path));
    store_close(s);
    return -1;
  }
  if (regular && end_torn_line(s->fd)) {
    snprintf(err, errlen, "%s: cannot append: %s", ATTN_ECHOS(path), strerror(errno));
    store_close(s);
    return -1;
  }
  return 0;
}

int store_append(struct store *s, json_t *record, char *err, size_t errlen)
{
  char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
  size_t n = text ? strlen(text) : 0;
  off_t start = lseek(s->fd, 0, SEEK_END);
  int failed = !text;
  if (text) {
    text[n] = '\n'; /* in place of the terminator: the record goes out in one write */
    failed = write_all(s->fd, text, n + 1) || (fsync(s->fd) && errno != EINVAL && errno != EROFS);
  }
  if (failed) {
    int why = text ? errno : ENOMEM;
    if (start >= 0 && ftruncate(s->fd, start))
      why = why ? why : errno;
    snprintf(err, errlen,
             "%s: record not written: %s; earlier records are intact, make room and "
             "run again",
             s->path, strerror(why));
  }
  free(text);
  return failed ? -1 : 0;
}

void store_close(struct store *s)
{
  if (s->fd >= 0)
    close(s->fd);
  s->fd = -1;
}

int store_writable(const char *path, char *err, size_t errlen)
{
  bool there = !access(path, F_OK);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    snprintf(err, errlen, "%s: %s", ATTN_ECHOS(path), strerror(errno));
    return -1;
  }
  close(fd);
  if (!there)
    unlink(path);
  return 0;
}

static int write_object(int fd, json_t *object)
{
  int bad = json_dumpfd(object, fd, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) ||
            write_all(fd, "\n", 1) || (fsync(fd) && errno != EINVAL && errno != EROFS);
  int why = errno;
  return close(fd) || bad ? (errno = bad ? why : errno, -1) : 0;
}

int store_replace(const char *path, json_t *object, char *err, size_t errlen)
{
  char part[4200];
  struct stat st;
  bool special =
      !stat(path, &st) && !S_ISREG(st.st_mode); /* a terminal, a pipe: written in place */
  snprintf(part, sizeof part, "%s%s", path, special ? "" : ".part");
  int fd = open(part, O_WRONLY | O_CREAT | (special ? 0 : O_TRUNC) | O_CLOEXEC, 0666);
  if (fd >= 0 && !write_object(fd, object) && (special || !rename(part, path)))
    return 0;
  snprintf(err, errlen, "%s: %s", ATTN_ECHOS(path), strerror(errno));
  if (fd >= 0 && !special)
    unlink(part);
  return -1;
}

/* A record of this project: an object with a schema number, a problem and an implementation. */
static int is_record(json_t *j)
{
  return json_is_object(j) && json_is_integer(json_object_get(j, "schema")) &&
         json_is_string(json_object_get(j, "problem")) &&
         json_is_string(json_object_get(j, "impl")) && json_is_string(json_object_get(j, "status"));
}

static int is_zoo(json_t *j)
{
  const char *schema = json_string_value(json_object_get(j, "schema"));
  return schema && !strcmp(schema, ZOO_SCHEMA) && json_is_string(json_object_get(j, "mutant")) &&
         json_is_object(json_object_get(j, "killed")) &&
         json_is_array(json_object_get(j, "regimes"));
}

static int read_lines(const char *path, int (*is)(json_t *j),
                      int (*each)(json_t *record, int line, void *ctx), void *ctx, int *bad,
                      char *err, size_t errlen)
{
  FILE *f = fopen(path, "r");
  char *text = NULL;
  size_t size = 0;
  int status = 0, line = 0;
  *bad = 0;
  if (!f) {
    snprintf(err, errlen, "%s: cannot read results: %s", ATTN_ECHOS(path), strerror(errno));
    return -1;
  }
  while (!status && getline(&text, &size, f) >= 0) {
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    line++;
    if (is(j))
      status = each(j, line, ctx);
    else if (text[strspn(text, " \t\r\n")])
      ++*bad;
    json_decref(j);
  }
  if (ferror(f)) {
    snprintf(err, errlen, "%s: cannot read results: %s", path, strerror(errno));
    status = -1;
  }
  free(text);
  fclose(f);
  return status;
}

int store_read(const char *path, int (*each)(json_t *record, int line, void *ctx), void *ctx,
               int *bad, char *err, size_t errlen)
{
  return read_lines(path, is_record, each, ctx, bad, err, errlen);
}

int store_read_zoo(const char *path, int (*each)(json_t *line, int number, void *ctx), void *ctx,
                   int *bad, char *err, size_t errlen)
{
  return read_lines(path, is_zoo, each, ctx, bad, err, errlen);
}
