/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-serving-replay.c - TTFT of a trace's requests, median and 99th percentile, with the prefix
 * cache and without: a dot plot, a line a run.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/serving.h"
#include "reports/tables.h"

#define LINE 40
#define HEAD 84
#define FOOT 60
#define LABEL 60 /* characters that fit on the left */

static bool cached(const struct report_serving *s)
{
  return json_is_true(json_object_get(s->serve, "prefix_cache"));
}

/* A quantity of the runs with the prefix cache, or of those without. */
struct set {
  const char *median, *lo, *hi, *name;
  bool with;
  int style, point;
};

static bool any(const struct report *r, bool with)
{
  const struct report_serving *s;
  for (int i = 0; (s = serving_nth(r, "replay", i)); i++)
    if (cached(s) == with)
      return true;
  return false;
}

static int write_block(struct canvas *c, const struct report *r, const struct set *k)
{
  const struct report_serving *s;
  int block = canvas_block(c, k->name, "ttft_ms lo hi line");
  for (int i = 0; (s = serving_nth(r, "replay", i)); i++) {
    if (cached(s) != k->with)
      continue;
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", k->median));
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", k->lo));
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", k->hi));
    fprintf(c->dat, "%d\n", i);
  }
  return block;
}

/* Two lines beside the axis: what was replayed, and on what. */
static int write_lines(struct canvas *c, const struct report *r)
{
  const struct report_serving *s;
  int n = 0;
  fputs("set ytics (", c->gp);
  for (; serving_nth(r, "replay", n); n++)
    fprintf(c->gp, "%s'' %d", n ? ", " : "", n);
  fputs(")\n", c->gp);
  for (int i = 0; (s = serving_nth(r, "replay", i)); i++) {
    char name[256], of[32], cache[32], text[640];
    serving_name(s, name, sizeof name);
    int used = snprintf(of, sizeof of, "%lld of ",
                        (long long)json_integer_value(json_object_get(s->serve, "requests")));
    used += snprintf(cache, sizeof cache, ", cache %s%s", cached(s) ? "on" : "off",
                     serving_interrupted(s->serve) ? ", interrupted" : "");
    snprintf(text, sizeof text, "%s%s%s", of, serving_trace(s, LABEL - used).s, cache);
    serving_lines(c, text, name, i);
  }
  return n;
}

/* A block without rows would not count in gnuplot's index: only what has some is drawn. */
static void plot(struct canvas *c, const struct report *r)
{
  static const struct set sets[] = {
      {"median", "ci_lo", "ci_hi", "p50, cache off", false, 1, 7},
      {"p99", "p99_lo", "p99_hi", "p99, cache off", false, 1, 6},
      {"median", "ci_lo", "ci_hi", "p50, cache on", true, 0, 7},
      {"p99", "p99_lo", "p99_hi", "p99, cache on", true, 0, 6},
  };
  const char *begin = "plot";
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    const struct set *k = &sets[i];
    if (!any(r, k->with))
      continue;
    int block = write_block(c, r, k);
    canvas_dots(c, begin, block, style_at(k->style)->color, k->point, k->name);
    begin = ", \\\n";
  }
  fputc('\n', c->gp);
}

int draw_serving_replay(struct report *r, char *err, size_t errlen)
{
  struct canvas c;
  int n = 0;
  while (serving_nth(r, "replay", n))
    n++;
  if (!n)
    return 0;
  int bottom = HEAD + LINE * n;
  if (serving_open(&c, r, "serve-replay", "Time to first token of a trace's requests", "", 1000,
                   bottom + FOOT, err, errlen))
    return -1;
  canvas_area(&c, 440, HEAD, 970, bottom);
  fprintf(
      c.gp,
      "set logscale x 10\nset xtics auto\nset format x '%%g'\nset yrange [%d.5:-0.5]\nset xlabel "
      "'TTFT (ms)' offset 0,0.3\nset key at screen 0.97, %.4f right center horizontal samplen "
      "1\n",
      n - 1, 1 - 62.0 / (bottom + FOOT));
  write_lines(&c, r);
  plot(&c, r);
  return figure_end(&c, r, "Time to first token of a trace's requests",
                    "Arrival to first token, open loop: median and 99th percentile with 95 % "
                    "bootstrap intervals where there are values enough.",
                    table_serving(r), err, errlen);
}
