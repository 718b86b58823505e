/* SPDX-License-Identifier: Apache-2.0
 *
 * length-words.c - what is written into a panel over the sequence length: its title, reference
 * lines, and a mark with a word where an implementation was refused or failed.
 *
 * Words never cover curves: an implementation that fails at some lengths gets a lane of its own
 * below (or above) all curves, one that fails at all of them is named above the panel.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/format.h"
#include "reports/length-panel.h"

/* ---- what an implementation did in this panel --------------------------------------------------
 */

void length_value(const struct length_figure *lf, const struct report_row *row, double v[3])
{
  lf->plot->value(lf->view, row, v);
  for (int i = 0; i < 3; i++)
    v[i] *= lf->scale;
}

bool length_refused(const struct length_figure *lf, const struct report_row *row)
{
  double v[3];
  length_value(lf, row, v);
  bool base = lf->plot->over_base && lf->view->base && !strcmp(row->impl, lf->view->base);
  if (base || (lf->plot->fits_only && !report_too_large(row)))
    return false;
  return !isfinite(v[0]) && row->status != STATUS_SKIP && report_refusal(row);
}

double length_refused_at(const struct length_figure *lf, const struct report_row *row)
{
  return lf->plot->refused ? lf->plot->refused(row) : NAN;
}

struct tally length_tally(const struct length_figure *lf, const struct report_panel *panel,
                          int style)
{
  struct tally t = {0, 0};
  for (int i = 0; i < panel->nrows; i++) {
    double v[3];
    if (panel->rows[i]->style != style)
      continue;
    length_value(lf, panel->rows[i], v);
    t.values += isfinite(v[0]);
    t.refusals += length_refused(lf, panel->rows[i]);
  }
  return t;
}

/* Refused somewhere where it is not known how high that would be. */
bool length_lane(const struct length_figure *lf, const struct report_panel *panel, int style)
{
  if (!length_tally(lf, panel, style).values)
    return false;
  for (int i = 0; i < panel->nrows; i++)
    if (panel->rows[i]->style == style && length_refused(lf, panel->rows[i]) &&
        isnan(length_refused_at(lf, panel->rows[i])))
      return true;
  return false;
}

/* ---- words ----------------------------------------------------------------------------------- */

bool length_drawn(const struct length_figure *lf, int style)
{
  for (int i = 0; i < lf->n; i++)
    if (length_tally(lf, lf->panels[i], style).values)
      return true;
  return false;
}

/* An implementation that takes no problem of the whole figure is not spoken of. */
void length_title(const struct length_figure *lf, const struct report_panel *panel, const char *own,
                  char *buf, size_t len)
{
  snprintf(buf, len, "%s", own);
  for (int s = 0; s < lf->report->nalgorithms; s++) {
    struct tally t = length_tally(lf, panel, s);
    size_t n = strlen(buf);
    if (t.values || !t.refusals)
      continue;
    for (int i = 0; i < panel->nrows; i++)
      if (panel->rows[i]->style == s && length_refused(lf, panel->rows[i])) {
        if (panel->rows[i]->status == STATUS_UNSUPPORTED && !length_drawn(lf, s))
          break;
        snprintf(buf + n, len - n, "%s%s: %s", n ? "  ·  " : "", lf->report->algorithms[s],
                 report_refusal(panel->rows[i]));
        break;
      }
  }
}

static void write_reference(const struct length_figure *lf, struct canvas *c,
                            const struct report_panel *panel)
{
  struct reference_line line;
  char where[64];
  if (!lf->plot->reference || !lf->plot->reference(lf->view, panel->rows[0], &line))
    return;
  fprintf(c->gp,
          "set arrow from graph 0, first %.9g to graph 1, first %.9g nohead back lw 1.2 lc rgb "
          "'" CANVAS_GREY "' dt (8,4)\n",
          line.y * lf->scale, line.y * lf->scale);
  if (lf->plot->axis == AXIS_RATIO)
    return;
  snprintf(where, sizeof where, "graph 0.01, first %.9g", line.y * lf->scale);
  canvas_label(c, lf->plot->format(line.y * lf->scale).s, where,
               "left offset 0,0.55 font ',11' textcolor rgb '" CANVAS_GREY "'");
}

static void write_mark(struct canvas *c, const struct style *s, const char *where)
{
  fprintf(c->gp, "set label '' at %s point pt 2 ps 0.9 lw 1.6 lc rgb '%s' front\n", where,
          s->color);
}

/* The refused rows of one implementation, by length. */
struct refusals {
  const struct report_row *rows[64];
  int n;
};

static struct refusals refusals_of(const struct length_figure *lf, const struct report_panel *panel,
                                   int style)
{
  struct refusals f = {.n = 0};
  for (int i = 0; i < panel->nrows && f.n < 64; i++)
    if (panel->rows[i]->style == style && length_refused(lf, panel->rows[i]))
      f.rows[f.n++] = panel->rows[i];
  return f;
}

/* "naive: does not fit", every word once. */
static void refusal_text(const struct length_figure *lf, const struct refusals *f, char *buf,
                         size_t len)
{
  snprintf(buf, len, "%s", lf->report->algorithms[f->rows[0]->style]);
  for (int i = 0; i < f->n; i++) {
    const char *word = report_refusal(f->rows[i]);
    size_t n = strlen(buf);
    if (!strstr(buf, word))
      snprintf(buf + n, len - n, "%s%s", i ? ", " : ": ", word);
  }
}

/* One word where there is room for no more; the color says whose it is. */
static const char *refusal_word(const struct refusals *f)
{
  const char *word = report_refusal(f->rows[0]);
  for (int i = 1; i < f->n; i++)
    if (strcmp(report_refusal(f->rows[i]), word))
      return "refused";
  return word;
}

#define LABEL_WIDTH(text) (24 + 6.4 * (double)strlen(text))

/* The mark that the text stands beside, where there is room for it; -1: left of the first; -2:
 * none. */
static int choose_side(const struct refusals *f, const struct length_ranges *g, double width,
                       double wanted)
{
  double scale = width / (log(g->xhi / g->xlo) + 2 * log(1.15)), left = log(g->xlo / 1.15);
  double at = (log((double)f->rows[0]->p.sk) - left) * scale;
  if (at > wanted)
    return -1;
  for (int i = 0; i < f->n; i++) {
    at = (log((double)f->rows[i]->p.sk) - left) * scale;
    double next = i + 1 < f->n ? (log((double)f->rows[i + 1]->p.sk) - left) * scale : width;
    if (next - at > wanted)
      return i;
  }
  return -2;
}

static void write_refusal(const struct length_figure *lf, struct canvas *c,
                          const struct refusals *f, const struct length_ranges *g,
                          const struct length_area *area, double lane)
{
  const struct style *style = style_at(f->rows[0]->style);
  char text[160], where[80], options[128];
  double width = area->right - area->left;
  refusal_text(lf, f, text, sizeof text);
  int side = choose_side(f, g, width, LABEL_WIDTH(text));
  if (side == -2) {
    snprintf(text, sizeof text, "%s", refusal_word(f));
    side = choose_side(f, g, width, LABEL_WIDTH(text));
  }
  if (side == -2)
    side = f->n - 1;
  for (int i = 0; i < f->n; i++) {
    double at = length_refused_at(lf, f->rows[i]);
    snprintf(where, sizeof where, "first %lld, %s %.9g", (long long)f->rows[i]->p.sk,
             isfinite(at) ? "first" : "graph", isfinite(at) ? at : lane);
    write_mark(c, style, where);
    if (i != (side < 0 ? 0 : side))
      continue;
    snprintf(options, sizeof options,
             "%s offset character %s,0 font ',12' textcolor rgb '%s' front",
             side < 0 ? "right" : "left", side < 0 ? "-1" : "1", style->color);
    canvas_label(c, text, where, options);
  }
}

static void write_refusals(const struct length_figure *lf, struct canvas *c,
                           const struct report_panel *panel, const struct length_ranges *g,
                           const struct length_area *area)
{
  int lanes = 0;
  for (int s = 0; s < lf->report->nalgorithms; s++) {
    struct refusals f = refusals_of(lf, panel, s);
    double lane = (lanes + 0.5) * LENGTH_LANE / (area->bottom - area->top);
    if (!f.n || !length_tally(lf, panel, s).values)
      continue;
    lanes += length_lane(lf, panel, s);
    write_refusal(lf, c, &f, g, area, lf->plot->lanes_above ? 1 - lane : lane);
  }
}

void length_words(const struct length_figure *lf, struct canvas *c,
                  const struct report_panel *panel, const struct length_ranges *g,
                  const struct length_area *area)
{
  canvas_label(c, area->title, "graph 0, graph 1", "left offset character 0,0.9");
  write_reference(lf, c, panel);
  write_refusals(lf, c, panel, g, area);
}
