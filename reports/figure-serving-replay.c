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
    char name[256], trace[120], text[400];
    serving_name(s, name, sizeof name);
    serving_trace(s, trace, sizeof trace);
    snprintf(text, sizeof text, "%lld of %s, cache %s%s",
             (long long)json_integer_value(json_object_get(s->serve, "requests")), trace,
             cached(s) ? "on" : "off", serving_interrupted(s->serve) ? ", interrupted" : "");
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
    const char *color = style_at(k->style)->color;
    fprintf(c->gp,
            "%s '%s.dat' index %d using ($2>0?$1:NaN):4:2:3 with xerrorbars lw 1.2 lc rgb '%s' pt "
            "%d ps 1 title '%s', \\\n '' index %d using 1:4 with points lc rgb '%s' pt %d ps 1 "
            "notitle",
            begin, c->stem, block, color, k->point, k->name, block, color, k->point);
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
