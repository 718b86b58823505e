/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-serving-prefill.c - TTFT of one prompt over its length, a line a cached share, with the
 * prediction dashed beside it.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/serving.h"

#define SHARES 16

/* The shares that were asked for, ascending; whole pages leave a little less. */
static int shares_of(const struct report *r, double *share)
{
  const struct report_serving *s;
  int n = 0;
  for (int i = 0; (s = serving_nth(r, "prefill", i)); i++) {
    double x = serving_number(s->serve, "asked_share");
    int at = 0;
    while (at < n && share[at] < x)
      at++;
    if (n == SHARES || isnan(x) || (at < n && share[at] == x))
      continue;
    memmove(share + at + 1, share + at, (size_t)(n - at) * sizeof *share);
    share[at] = x;
    n++;
  }
  return n;
}

static int by_length(const void *a, const void *b)
{
  const struct report_serving *const *x = a, *const *y = b;
  double left = serving_number((*x)->serve, "prompt_tokens"),
         right = serving_number((*y)->serve, "prompt_tokens");
  return left != right ? (left > right) - (left < right) : (*x > *y) - (*x < *y);
}

/* Those of a name, and of a share unless that is NaN, by length, in whatever order they were
 * measured; to be freed. */
static const struct report_serving **points_of(const struct report *r, const char *name,
                                               double share, int *n)
{
  const struct report_serving *s, **list = malloc((size_t)(r->nserving + 1) * sizeof *list);
  char own[256];
  *n = 0;
  for (int i = 0; list && (s = serving_nth(r, "prefill", i)); i++) {
    serving_name(s, own, sizeof own);
    if (!strcmp(own, name) && (isnan(share) || serving_number(s->serve, "asked_share") == share))
      list[(*n)++] = s;
  }
  if (list)
    qsort(list, (size_t)*n, sizeof *list, by_length);
  return list;
}

/* Rows written; interval: does one of them have ends of an interval? */
static int write_share(struct canvas *c, const struct report *r, const char *name, double share,
                       bool *interval)
{
  char what[64];
  int n;
  const struct report_serving **point = points_of(r, name, share, &n);
  *interval = false;
  if (!n) { /* a block without rows would not count in gnuplot's index */
    free(point);
    return 0;
  }
  snprintf(what, sizeof what, "%.0f %% cached", 100 * share);
  canvas_block(c, what, "tokens ttft_ms lo hi predicted_ms");
  for (int i = 0; i < n; i++) {
    const struct report_serving *s = point[i];
    canvas_number(c, serving_number(s->serve, "prompt_tokens"));
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", "median"));
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", "ci_lo"));
    canvas_number(c, 1e3 * serving_inner(s->serve, "ttft_s", "ci_hi"));
    canvas_number(c, 1e3 * serving_inner(s->serve, "predicted_s", "total"));
    fputc('\n', c->dat);
    *interval |= isfinite(serving_inner(s->serve, "ttft_s", "ci_lo"));
  }
  free(point);
  return n;
}

static struct table *values_of(const struct report *r, const char *name)
{
  static const struct table_column columns[] = {
      {"Prompt", "prompt_tokens", 'r'},  {"Cached", "cached_tokens", 'r'},
      {"TTFT", "ttft_s", 'r'},           {"GEMM", "gemm_s", 'r'},
      {"Attention", "attention_s", 'r'}, {"Launch", "launch_s", 'r'},
      {"Rest", "other_s", 'r'},          {"Predicted", "predicted_s", 'r'}};
  struct table *t = table_new("serve-prefill", "TTFT by cached share", "", columns, 8);
  int n;
  const struct report_serving **point = points_of(r, name, NAN, &n);
  for (int i = 0; t && i < n; i++) {
    const json_t *v = point[i]->serve;
    double x[8] = {serving_number(v, "prompt_tokens"),
                   serving_number(v, "cached_tokens"),
                   serving_inner(v, "ttft_s", "median"),
                   serving_inner(v, "ttft_parts_s", "gemm"),
                   serving_inner(v, "ttft_parts_s", "attention"),
                   serving_inner(v, "ttft_parts_s", "launch"),
                   serving_inner(v, "ttft_parts_s", "other"),
                   serving_inner(v, "predicted_s", "total")};
    table_row(t);
    for (int k = 0; k < 8; k++)
      table_number(t, k, x[k], k < 2 ? format_exact(x[k]).s : format_seconds(x[k]).s);
  }
  free(point);
  return t;
}

/* The curves, each with its prediction. */
static void plot(struct canvas *c, const struct report *r, const char *name)
{
  double shares[SHARES];
  int drawn = 0, n = shares_of(r, shares);
  for (int k = 0; k < n; k++) {
    bool interval;
    if (!write_share(c, r, name, shares[k], &interval))
      continue;
    const struct style *style = style_at(k);
    fprintf(c->gp,
            "%s '%s.dat' index %d using %s lw 1.8 lc rgb '%s' pt %d ps 0.8 title '%.0f %% cached', "
            "\\\n '' index %d using 1:5 with lines lw 1.2 dt (4,3) lc rgb "
            "'%s' notitle",
            drawn++ ? ", \\\n" : "plot", c->stem, c->blocks - 1,
            interval ? "1:2:3:4 with yerrorlines" : "1:2 with linespoints", style->color,
            style->point, 100 * shares[k], c->blocks - 1, style->color);
  }
  fputs(", \\\n 1/0 with lines lw 1.2 dt (4,3) lc rgb '" CANVAS_GREY "' title 'predicted'\n",
        c->gp);
}

static int draw(struct report *r, const char *name, int number, char *err, size_t errlen)
{
  struct canvas c;
  char stem[40];
  snprintf(stem, sizeof stem, number ? "serve-prefill-%d" : "serve-prefill", number + 1);
  if (serving_open(&c, r, stem, "Time to first token by cached prefix", name, 900, 520, err,
                   errlen))
    return -1;
  canvas_area(&c, 90, 70, 690, 460);
  fputs("set logscale x 2\nset logscale y 10\nset xtics auto\nset ytics auto\nset format y '%g'\n"
        "set xlabel 'prompt tokens' offset 0,0.3\nset key at screen 0.98, 0.86 right top reverse "
        "Left spacing 1.3\nset offsets graph 0.03, graph 0.03, 0, 0\n",
        c.gp);
  canvas_ylabel(&c, "TTFT (ms)", 90, 70, 460);
  plot(&c, r, name);
  return figure_end(&c, r, "Time to first token by cached prefix",
                    "Median over repetitions with its 95 % interval, one prompt alone; dashed: "
                    "what FLOPs and bytes allow at the ceilings measured in the same run.",
                    values_of(r, name), err, errlen);
}

int draw_serving_prefill(struct report *r, char *err, size_t errlen)
{
  const struct report_serving *s, *before;
  int number = 0, status = 0;
  for (int i = 0; !status && (s = serving_nth(r, "prefill", i)); i++) {
    char name[256], other[256];
    bool drawn = false;
    serving_name(s, name, sizeof name);
    for (int k = 0; k < i && (before = serving_nth(r, "prefill", k)); k++) {
      serving_name(before, other, sizeof other);
      drawn |= !strcmp(name, other);
    }
    if (!drawn)
      status = draw(r, name, number++, err, errlen);
  }
  return status;
}
