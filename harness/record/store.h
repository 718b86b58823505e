/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h - results files: JSON lines, appended and fsynced one record at a time.
 */
#ifndef HARNESS_STORE_H
#define HARNESS_STORE_H

#include <jansson.h>
#include <stddef.h>

struct store {
  int fd;
  char path[512];
};

/* Opens for appending, creating the file. A torn last line (a writer was killed) is completed
 * with a newline so that it stays one bad line. A file that begins with anything but a record is
 * somebody else's, and refused. On failure -1 and one line in err. */
int store_open(struct store *s, const char *path, char *err, size_t errlen);
/* Appends one record and fsyncs. -1 and a line in err on a full disk; the file keeps every earlier
 * record and no partial line. */
int store_append(struct store *s, json_t *record, char *err, size_t errlen);
void store_close(struct store *s);

/* One object as a file of its own: the old one stays until the new one is whole on disk. -1 and a
 * line in err, without the name of what was to be written. */
int store_replace(const char *path, json_t *object, char *err, size_t errlen);
/* Whether path could be written, asked before what takes long; leaves no file that was not there.
 */
int store_writable(const char *path, char *err, size_t errlen);

/* Calls each(record, line number, ctx) for every record of the file; torn or foreign lines are
 * counted in *bad and skipped. -1 and a line in err if the file cannot be read. */
int store_read(const char *path, int (*each)(json_t *record, int line, void *ctx), void *ctx,
               int *bad, char *err, size_t errlen);
/* The same for the lines of a kill matrix (verify --mutants --out). */
int store_read_zoo(const char *path, int (*each)(json_t *line, int number, void *ctx), void *ctx,
                   int *bad, char *err, size_t errlen);

#endif
