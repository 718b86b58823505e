/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - reads a model's shape; every key must be there, but window.
 */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "impl/echo.h"
#include "impl/model.h"
#include "impl/problem.h"

static const struct {
  const char *name;
  size_t offset;
} counts[] = {
    {"layers", offsetof(struct attn_model, layers)},
    {"hidden", offsetof(struct attn_model, hidden)},
    {"ffn", offsetof(struct attn_model, ffn)},
    {"vocab", offsetof(struct attn_model, vocab)},
    {"hq", offsetof(struct attn_model, hq)},
    {"hkv", offsetof(struct attn_model, hkv)},
    {"d", offsetof(struct attn_model, d)},
    {"context", offsetof(struct attn_model, context)},
    {"window", offsetof(struct attn_model, window)},
};
enum { NCOUNTS = sizeof counts / sizeof *counts };

static int64_t *count_at(struct attn_model *m, int i)
{
  return (int64_t *)((char *)m + counts[i].offset);
}

static bool set_pair(struct attn_model *m, struct attn_slice key, struct attn_slice value)
{
  char text[64];
  for (int i = 0; i < NCOUNTS; i++)
    if (attn_slice_is(key, counts[i].name))
      return attn_parse_count(value, count_at(m, i));
  if (!attn_slice_is(key, "rope_theta") || value.len >= sizeof text)
    return false;
  memcpy(text, value.text, value.len);
  text[value.len] = 0;
  return attn_parse_real(text, &m->rope_theta) && m->rope_theta > 0;
}

static int read_lines(FILE *f, const char *path, struct attn_model *m, char *err, size_t errlen)
{
  char line[512];
  for (int number = 1; fgets(line, sizeof line, f); number++) {
    struct attn_slice piece, key, value;
    const char *at = line;
    line[strcspn(line, "#")] = 0;
    while (attn_next_piece(&at, &piece))
      if (!attn_split_pair(piece, &key, &value) || !set_pair(m, key, value))
        return attn_fail(err, errlen,
                         "%s:%d: \"%s\": want key=number with the keys of a model: layers "
                         "hidden ffn vocab hq hkv d context window rope_theta",
                         path, number, ATTN_ECHO(piece.text, piece.len));
  }
  return ferror(f) ? attn_fail(err, errlen, "%s: %s", path, strerror(errno)) : ATTN_OK;
}

static int check(const char *path, struct attn_model *m, char *err, size_t errlen)
{
  for (int i = 0; i < NCOUNTS; i++)
    if (!*count_at(m, i) && strcmp(counts[i].name, "window"))
      return attn_fail(err, errlen, "%s: %s is missing", path, counts[i].name);
  if (!m->rope_theta)
    return attn_fail(err, errlen, "%s: rope_theta is missing", path);
  return ATTN_OK;
}

int attn_model_read(const char *models_dir, const char *name, struct attn_model *m, char *err,
                    size_t errlen)
{
  char path[1024];
  memset(m, 0, sizeof *m);
  if (strchr(name, '/') || !*name || strlen(name) >= sizeof m->name)
    return attn_fail(err, errlen, "model=%s: want the name of a file NAME.model in %s",
                     ATTN_ECHOS(name), models_dir);
  strcpy(m->name, name);
  if (snprintf(path, sizeof path, "%s/%s.model", models_dir, name) >= (int)sizeof path)
    return attn_fail(err, errlen, "model=%s: the path of the models is too long", name);
  FILE *f = fopen(path, "r");
  if (!f)
    return attn_fail(err, errlen, "model=%s: cannot read %s: %s; models are the .model files there",
                     name, path, strerror(errno));
  int rc = read_lines(f, path, m, err, errlen);
  fclose(f);
  return rc ? rc : check(path, m, err, errlen);
}
