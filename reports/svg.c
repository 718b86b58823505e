/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.c - a drawing into a page: without prologue and namespaces, and with names of its own, since
 * all drawings of gnuplot use the same ones.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reports/page.h"

static char *read_all(const char *path)
{
  FILE *in = fopen(path, "r");
  char *text = NULL;
  size_t n = 0;
  if (!in)
    return NULL;
  if (getdelim(&text, &n, '\0', in) < 0) {
    free(text);
    text = NULL;
  }
  fclose(in);
  return text;
}

static bool starts(const char *s, const char *word)
{
  return !strncmp(s, word, strlen(word));
}

/* Length of what must go at s: a namespace attribute, or gnuplot's own title and description. */
static size_t dropped(const char *s)
{
  static const struct {
    const char *start, *end;
  } spans[] = {
      {"xmlns=\"", "\""}, {"xmlns:xlink=\"", "\""}, {"<title>", "</title>"}, {"<desc>", "</desc>"}};
  for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
    if (!starts(s, spans[i].start))
      continue;
    const char *from = s + strlen(spans[i].start), *end = strstr(from, spans[i].end);
    return end ? (size_t)(end - s) + strlen(spans[i].end) : 0;
  }
  return 0;
}

/* Length of what ends where a name begins: id=" href="# url(# */
static size_t before_name(const char *s)
{
  static const char *const words[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (starts(s, words[i]))
      return strlen(words[i]);
  return 0;
}

int page_svg(FILE *out, const char *path, const char *label, int number, char *err, size_t errlen)
{
  char *text = read_all(path);
  const char *s = text ? strstr(text, "<svg") : NULL;
  if (!s) {
    snprintf(err, errlen, "%s: cannot read the drawing: %s", path, strerror(errno));
    free(text);
    return -1;
  }
  s += strlen("<svg");
  fputs("<svg role=\"img\" aria-label=\"", out);
  write_escaped(out, ESCAPE_HTML, label);
  fputs("\" ", out);
  while (*s) {
    size_t drop = dropped(s), name = before_name(s);
    if (drop) {
      s += drop;
    } else if (name) {
      fprintf(out, "%.*sf%d-", (int)name, s, number);
      s += name;
    } else {
      fputc(*s++, out);
    }
  }
  free(text);
  return 0;
}
