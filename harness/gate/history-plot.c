/* SPDX-License-Identifier: Apache-2.0
 *
 * history-plot.c - the series that changed, one panel each: values, and the levels of the regimes.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/path.h"
#include "harness/gate/history.h"
#include "reports/canvas.h"

#define PANELS 24
#define PANEL_HEIGHT 260

static int chosen(const struct history *h, const struct series **panel)
{
  int n = 0;
  for (int i = 0; i < h->n && n < PANELS; i++)
    if (h->series[i].changes)
      panel[n++] = &h->series[i];
  return n;
}

/* The base name of a file, without .jsonl. */
static void label(const char *file, char *buf, size_t len)
{
  snprintf(buf, len, "%s", path_base(file));
  char *dot = strstr(buf, ".jsonl");
  if (dot)
    *dot = '\0';
}

/* One block a series: number, label, value, level of the regime. */
static void write_data(const struct history *h, const struct series *s, FILE *out)
{
  char name[80];
  size_t k = 0;
  fprintf(out, "# %s %s %s\n", quantity_name(s->quantity), s->key->impl, s->key->problem);
  for (size_t i = 0; i < s->n; i++) {
    while (k < s->changes && i >= s->change[k])
      k++;
    label(h->files[s->file[i]], name, sizeof name);
    fprintf(out, "%zu \"%s\" %.9g %.9g\n", s->file[i] + 1, name, s->value[s->file[i]],
            history_level(s, k ? k - 1 : 0, k > 0));
  }
  fprintf(out, "\n\n");
}

static void write_panel(const struct series *s, int block, FILE *gp)
{
  static const char *const units[] = {"s", "bytes", "bytes", "of the bound"};
  char title[512];
  snprintf(title, sizeof title, "%s (%s), %s, %.300s", quantity_name(s->quantity),
           units[s->quantity], s->key->impl, s->key->problem);
  fprintf(gp, "set title ");
  canvas_quote(gp, title);
  fprintf(gp, " noenhanced\nunset arrow\n");
  for (size_t k = 0; k < s->changes; k++)
    fprintf(gp, "set arrow from %g, graph 0 to %g, graph 1 nohead dashtype 2 linecolor '#d55e00'\n",
            (double)s->file[s->change[k]] + 0.5, (double)s->file[s->change[k]] + 0.5);
  fprintf(
      gp,
      "plot 'history.dat' index %d using 1:3:xticlabels(2) with points pointtype 7 pointsize "
      "0.5 linecolor '#0072b2' notitle, '' index %d using 1:4 with histeps linewidth 2 linecolor "
      "'#000000' notitle\n",
      block, block);
}

int history_plot(const struct history *h, const char *folder, bool *drawn, char *err, size_t errlen)
{
  const struct series *panel[PANELS];
  char path[1024], gnuplot[4096], said[256];
  int n = chosen(h, panel);
  FILE *gp = NULL, *dat = NULL;
  *drawn = false;
  if (!mkdir(folder, 0777) || errno == EEXIST) {
    snprintf(path, sizeof path, "%s/history.gp", folder);
    gp = fopen(path, "w");
    snprintf(path, sizeof path, "%s/history.dat", folder);
    dat = fopen(path, "w");
  }
  if (gp && dat) {
    fprintf(gp,
            "set terminal svg size 900,%d font 'sans,11' background 'white'\nset output "
            "'history.svg'\nset multiplot layout %d,1\nset xtics rotate by -45 "
            "noenhanced\nset format y '%%.4g'\nset offsets 0.5, 0.5, graph 0.1, graph 0.1\n",
            (n ? n : 1) * PANEL_HEIGHT + 40, n ? n : 1);
    for (int i = 0; i < n; i++) {
      write_data(h, panel[i], dat);
      write_panel(panel[i], i, gp);
    }
    fprintf(gp, "unset multiplot\n");
  }
  int failed = !gp || !dat || ferror(gp) || ferror(dat);
  failed |= gp && fclose(gp);
  failed |= dat && fclose(dat);
  if (failed)
    snprintf(err, errlen, "--out %.400s: %s", folder, strerror(errno));
  else if (n && gnuplot_find(gnuplot, sizeof gnuplot))
    *drawn = !gnuplot_run(gnuplot, folder, "history.gp", said, sizeof said);
  return failed ? -1 : 0;
}
