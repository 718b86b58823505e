/* SPDX-License-Identifier: Apache-2.0
 *
 * figure-serving-bars.c - serving records as bars: KV memory wasted, the share of the KV heads, and
 * what forks add to the cache.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"
#include "reports/serving.h"

#define LINE 40
#define HEAD 84
#define FOOT 60
#define LABEL 46 /* characters that fit left of the bars of memory */

static int count_of(const struct report *r, const char *scenario)
{
  int n = 0;
  while (serving_nth(r, scenario, n))
    n++;
  return n;
}

static void put_tic(struct canvas *c, const char *what, const char *on, int at)
{
  fprintf(c->gp, "set ytics add ('' %d)\n", at);
  serving_lines(c, what, on, at);
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct table *memory_values(const struct report *r)
{
  static const struct table_column columns[] = {{"Trace", "trace", 'l'},
                                                {"Model", "model", 'l'},
                                                {"Memory", "memory", 'l'},
                                                {"Reserved", "reserved_bytes", 'r'},
                                                {"Used", "used_bytes", 'r'},
                                                {"Wasted", "wasted_bytes", 'r'},
                                                {"Share", "wasted_share", 'r'},
                                                {"Cache", "memory_bytes", 'r'},
                                                {"Largest batch", "largest_batch", 'r'}};
  struct table *t = table_new("serve-memory", "KV memory", "", columns, 9);
  const struct report_serving *s;
  char name[256];
  for (int i = 0; t && (s = serving_nth(r, "memory", i / 2)); i++) {
    const char *kind = i % 2 ? "paged_memory" : "contiguous_memory";
    double share = serving_inner(s->serve, kind, "wasted_share");
    double batch = serving_inner(s->serve, kind, "largest_batch");
    double bytes[4] = {serving_inner(s->serve, kind, "reserved_bytes"),
                       serving_inner(s->serve, kind, "used_bytes"),
                       serving_inner(s->serve, kind, "wasted_bytes"),
                       serving_number(s->serve, "memory_bytes")};
    snprintf(name, sizeof name, "%s", s->model);
    table_row(t);
    table_text(t, 0, serving_trace(s, SERVING_TRACE).s);
    table_text(t, 1, name);
    table_text(t, 2, i % 2 ? "paged" : "contiguous");
    for (int k = 0; k < 3; k++)
      table_number(t, 3 + k, bytes[k], format_binary(bytes[k]).s);
    table_number(t, 6, share, format_percent(share).s);
    table_number(t, 7, bytes[3], format_binary(bytes[3]).s);
    table_number(t, 8, batch, format_exact(batch).s);
  }
  return t;
}

/* Shares of what is reserved; the label says how many sequences fit. */
static void memory_blocks(struct canvas *c, const struct report *r, int n)
{
  canvas_block(c, "shares of what is reserved", "line used wasted");
  for (int i = 0; i < 2 * n; i++) {
    const struct report_serving *s = serving_nth(r, "memory", i / 2);
    const char *kind = i % 2 ? "paged_memory" : "contiguous_memory";
    double wasted = 100 * serving_inner(s->serve, kind, "wasted_share");
    char text[640], where[64], label[300];
    fprintf(c->dat, "%d ", i);
    canvas_number(c, 100 - wasted);
    canvas_number(c, wasted);
    fputc('\n', c->dat);
    snprintf(text, sizeof text, "%s, %s", serving_trace(s, LABEL - (int)strlen(", contiguous")).s,
             i % 2 ? "paged" : "contiguous");
    put_tic(c, text, s->model, i);
    snprintf(where, sizeof where, "first 101, first %d", i);
    snprintf(label, sizeof label, "%s %% wasted, %s sequences in %s", format_number(wasted, 3).s,
             format_exact(serving_inner(s->serve, kind, "largest_batch")).s,
             format_binary(serving_number(s->serve, "memory_bytes")).s);
    canvas_label(c, label, where, "left font ',12'");
  }
}

int draw_serving_memory(struct report *r, char *err, size_t errlen)
{
  static const char title[] = "KV memory: used and wasted";
  struct canvas c;
  int n = count_of(r, "memory"), bottom = HEAD + 2 * LINE * n;
  if (!n)
    return 0;
  if (serving_open(&c, r, "serve-memory", title, "", 1000, bottom + FOOT, err, errlen))
    return -1;
  canvas_area(&c, 340, HEAD, 660, bottom);
  fprintf(c.gp,
          "set xrange [0:100]\nset yrange [%d.5:-0.5]\nset xtics auto\nset ytics ()\nset xlabel "
          "'%% of what is "
          "reserved' offset 0,0.3\nset style fill solid 0.9 border -1\n"
          "set key at screen 0.97, %.4f right center horizontal samplen 1\n",
          2 * n - 1, 1 - 62.0 / (bottom + FOOT));
  memory_blocks(&c, r, n);
  fprintf(c.gp,
          "plot '%s.dat' index 0 using (0):1:(0):2:($1-0.32):($1+0.32) with boxxyerror lc rgb '%s' "
          "title 'used', \\\n '' index 0 using 2:1:2:(100):($1-0.32):($1+0.32) with boxxyerror lc "
          "rgb '%s' title 'wasted'\n",
          c.stem, style_at(0)->color, style_at(1)->color);
  return figure_end(&c, r, title,
                    "All sequences at their full lengths at once: a stretch of the model's "
                    "context each, against pages by the allocator; and the largest batch, the "
                    "median over 16 starts in the trace.",
                    memory_values(r), err, errlen);
}

/* ---- heads ---------------------------------------------------------------------------------- */

static const struct heads_panel {
  const char *title, *name; /* above the panel: left of it tick labels take what they need */
  double scale;
  bool quantity;
} heads_panels[] = {{"KV bytes a token", "kv_token_bytes", 1, false},
                    {"largest batch", "largest_batch", 1, false},
                    {"decode tokens/s", "tokens_per_s", 1, false},
                    {"TTFT (ms)", "ttft_s", 1e3, true}};

static size_t longest_model(const struct report *r)
{
  const struct report_serving *s;
  size_t longest = 0;
  for (int i = 0; (s = serving_nth(r, "heads", i)); i++)
    longest = strlen(s->model) > longest ? strlen(s->model) : longest;
  return longest;
}

static void heads_panel(struct canvas *c, const struct report *r, const struct heads_panel *p,
                        int at)
{
  const struct report_serving *s;
  int left = 100 + 235 * at, n = 0, turn = longest_model(r) > 14 ? 70 : 30;
  canvas_area(c, left, HEAD, left + 150, 380);
  canvas_block(c, p->title, "bar value lo hi");
  fprintf(c->gp, "unset xtics\nset xtics nomirror rotate by -%d (", turn);
  for (; (s = serving_nth(r, "heads", n)); n++) {
    const json_t *v = s->serve;
    double x = p->quantity ? serving_inner(v, p->name, "median") : serving_number(v, p->name);
    fprintf(c->dat, "%d ", n);
    canvas_number(c, p->scale * x);
    canvas_number(c, p->scale * (p->quantity ? serving_inner(v, p->name, "ci_lo") : NAN));
    canvas_number(c, p->scale * (p->quantity ? serving_inner(v, p->name, "ci_hi") : NAN));
    fputc('\n', c->dat);
    fputs(n ? ", " : "", c->gp);
    canvas_quote(c->gp, s->model);
    fprintf(c->gp, " %d", n);
  }
  fprintf(
      c->gp,
      ")\nset ytics auto\nset format y '%%g'\nset xrange [-0.6:%d.6]\nset yrange [0:*]\nset style "
      "fill solid 0.9 border -1\nset boxwidth 0.6\n",
      n - 1);
  canvas_label(c, p->title, "graph 0.5, graph 1", "center offset 0,1.2");
  fprintf(c->gp,
          "plot '%s.dat' index %d using 1:2 with boxes lc rgb '%s' notitle, \\\n '' index %d using "
          "1:3:(0):($4-$3) with vectors nohead lw 1.5 lc rgb 'black' notitle\n",
          c->stem, at, style_at(at)->color, at);
}

static struct table *heads_values(const struct report *r)
{
  static const struct table_column columns[] = {{"Model", "model", 'l'},
                                                {"KV bytes a token", "kv_token_bytes", 'r'},
                                                {"Cache", "memory_bytes", 'r'},
                                                {"Prompt", "prompt_tokens", 'r'},
                                                {"Largest batch", "largest_batch", 'r'},
                                                {"Decoding", "sequences", 'r'},
                                                {"Tokens/s", "tokens_per_s", 'r'},
                                                {"TTFT", "ttft_s", 'r'}};
  struct table *t = table_new("serve-heads", "The share of the KV heads", "", columns, 8);
  const struct report_serving *s;
  for (int i = 0; t && (s = serving_nth(r, "heads", i)); i++) {
    double ttft = serving_inner(s->serve, "ttft_s", "median");
    table_row(t);
    table_text(t, 0, s->model);
    for (int k = 1; k < 7; k++) {
      double x = serving_number(s->serve, columns[k].csv);
      table_number(t, k, x, k == 2 ? format_binary(x).s : format_number(x, 4).s);
    }
    table_number(t, 7, ttft, format_seconds(ttft).s);
  }
  return t;
}

int draw_serving_heads(struct report *r, char *err, size_t errlen)
{
  static const char title[] = "The share of the KV heads";
  struct canvas c;
  char name[256];
  if (!count_of(r, "heads"))
    return 0;
  serving_name(serving_nth(r, "heads", 0), name, sizeof name);
  if (serving_open(&c, r, "serve-heads", title, "", 1030, longest_model(r) > 14 ? 580 : 460, err,
                   errlen))
    return -1;
  for (int i = 0; i < 4; i++)
    heads_panel(&c, r, &heads_panels[i], i);
  return figure_end(&c, r, title,
                    "The same model with other KV heads: bytes of K and V a token in all layers, "
                    "sequences that fit the same cache, tokens a second while all of them (or "
                    "the most that were asked for) decode, and TTFT of a prompt alone.",
                    heads_values(r), err, errlen);
}

/* ---- forks ---------------------------------------------------------------------------------- */

static struct table *fork_values(const struct report *r)
{
  static const struct table_column columns[] = {
      {"Model", "model", 'l'},
      {"Prompt", "prompt_tokens", 'r'},
      {"Branches", "branches", 'r'},
      {"KV bytes of the prompt", "kv_bytes_prompt", 'r'},
      {"Added by forking", "kv_bytes_forked", 'r'},
      {"By first tokens", "kv_bytes_written", 'r'},
      {"Pages copied", "fork_copies", 'r'},
      {"Separate sequences", "kv_bytes_separate", 'r'},
      {"DRAM writes, forking", "dram_bytes_forked", 'r'},
      {"DRAM writes, first tokens", "dram_bytes_written", 'r'}};
  struct table *t = table_new("serve-fork", "Forks of a prompt", "", columns, 10);
  const struct report_serving *s;
  for (int i = 0; t && (s = serving_nth(r, "fork", i)); i++) {
    table_row(t);
    table_text(t, 0, s->model);
    for (int k = 1; k < 10; k++) {
      double x = serving_number(s->serve, columns[k].csv);
      table_number(t, k, x, format_exact(x).s);
    }
  }
  return t;
}

/* Bars of what is added to the prompt's pages, in MiB. */
static void fork_block(struct canvas *c, const struct report *r, int n)
{
  canvas_block(c, "KV MiB beyond the prompt's", "line forked first_tokens separate");
  for (int i = 0; i < n; i++) {
    const struct report_serving *s = serving_nth(r, "fork", i);
    double forked = serving_number(s->serve, "kv_bytes_forked");
    double written = serving_number(s->serve, "kv_bytes_written");
    double separate = serving_number(s->serve, "kv_bytes_separate");
    char text[96], label[300], where[64];
    snprintf(text, sizeof text, "%s tokens",
             format_exact(serving_number(s->serve, "prompt_tokens")).s);
    fprintf(c->dat, "%d ", i);
    canvas_number(c, forked / 0x1p20);
    canvas_number(c, (forked + written) / 0x1p20);
    canvas_number(c, separate / 0x1p20);
    fputc('\n', c->dat);
    put_tic(c, text, s->model, i);
    snprintf(where, sizeof where, "graph 1.02, first %d", i);
    snprintf(label, sizeof label, "forked: %s B; first tokens: %s; separate: %s",
             format_exact(forked).s, format_binary(written).s, format_binary(separate).s);
    canvas_label(c, label, where, "left font ',12'");
  }
}

int draw_serving_fork(struct report *r, char *err, size_t errlen)
{
  static const char title[] = "A prompt forked: KV bytes added";
  struct canvas c;
  int n = count_of(r, "fork"), bottom = HEAD + 44 * n;
  if (!n)
    return 0;
  if (serving_open(&c, r, "serve-fork", title, "", 1000, bottom + FOOT, err, errlen))
    return -1;
  canvas_area(&c, 200, HEAD, 600, bottom);
  fprintf(c.gp,
          "set xrange [0:*]\nset yrange [%d.5:-0.5]\nset xtics auto\nset ytics ()\nset xlabel 'MiB "
          "beyond the prompt' offset 0,0.3\nset style fill solid 0.9 border -1\n"
          "set key at screen 0.97, %.4f right center horizontal samplen 1\n",
          n - 1, 1 - 62.0 / (bottom + FOOT));
  fork_block(&c, r, n);
  fprintf(
      c.gp,
      "plot '%s.dat' index 0 using (0):1:(0):4:($1-0.36):($1) with boxxyerror lc rgb '%s' title "
      "'separate sequences', \\\n '' index 0 using (0):1:(0):3:($1):($1+0.36) with boxxyerror lc "
      "rgb '%s' title 'branches, first token written'\n",
      c.stem, style_at(1)->color, style_at(0)->color);
  return figure_end(&c, r, title,
                    "By the allocator's counters: forking itself adds nothing; each branch that "
                    "writes takes its own copy of the prompt's last page, or a new page where the "
                    "prompt fills its last one.",
                    fork_values(r), err, errlen);
}
