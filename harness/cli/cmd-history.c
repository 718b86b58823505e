/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-history.c - attnbench history: results files in order in, change points out.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/gate/history.h"
#include "harness/cli/options.h"

#define LEVEL 0.005 /* of the permutation test of a change point */

static void show_change(const struct history *h, const struct series *s, size_t k)
{
  char what[256];
  struct finding f = {.base = history_level(s, k, false), .now = history_level(s, k, true)};
  f.ratio = f.now / f.base;
  f.lo = f.hi = f.mde = NAN;
  finding_text(s->quantity, &f, what, sizeof what);
  printf("%-9s  %-9s  %-18s  %-40s  %s, %s, %s\n           since %s, the %zu. of %d\n",
         verdict_word(s->quantity, f.ratio > 1 ? VERDICT_WORSE : VERDICT_BETTER),
         quantity_name(s->quantity), s->key->impl, what, s->key->problem,
         s->key->cache[0] ? s->key->cache : "-", s->key->mode[0] ? s->key->mode : "-",
         h->files[s->file[s->change[k]]], s->file[s->change[k]] + 1, h->nfiles);
}

static void show_count(const struct history *h, int changes)
{
  size_t longest = 0;
  for (int i = 0; i < h->n; i++)
    longest = h->series[i].n > longest ? h->series[i].n : longest;
  printf("%d change%s in %d series of %d files\n", changes, changes == 1 ? "" : "s", h->n,
         h->nfiles);
  if (longest < HISTORY_FEWEST)
    printf(
        "the longest series has %zu values: with fewer than %d hardly any change is significant\n",
        longest, HISTORY_FEWEST);
}

static int plot(const struct options *o, const struct history *h, int changes, char *err,
                size_t errlen)
{
  bool drawn;
  if (!o->gate.out)
    return EXIT_OK;
  if (history_plot(h, o->gate.out, &drawn, err, errlen))
    return complain(EXIT_ENVIRONMENT, err);
  printf("%s: history.dat, history.gp%s\n", o->gate.out,
         drawn     ? ", history.svg"
         : changes ? "; no figure: gnuplot is not there, or failed"
                   : "; no figure: nothing changed");
  return EXIT_OK;
}

static int history(struct options *o)
{
  char err[1024];
  const struct compare_options *c = &o->gate.compare;
  const struct history_options how = {
      c->quantities,
      LEVEL,
      {c->threshold, c->bytes_threshold, c->bytes_threshold, c->error_threshold},
      c->anyway};
  struct history h = {0};
  int code = EXIT_OK, changes = 0;
  if (o->nwords < 2)
    return complain(EXIT_USAGE, "history needs results files in their order; attnbench run --out "
                                "writes them");
  if (history_read(&h, o->words, o->nwords, &how, err, sizeof err))
    code = complain(EXIT_USAGE, err);
  for (int i = 0; i < h.nfiles && !code; i++)
    tell_skipped(&h.cells[i]);
  for (int i = 0; i < h.n && !code; i++)
    for (size_t k = 0; k < h.series[i].changes; k++, changes++)
      show_change(&h, &h.series[i], k);
  if (!code) {
    show_count(&h, changes);
    code = plot(o, &h, changes, err, sizeof err);
  }
  history_free(&h);
  return code;
}

const struct command cmd_history = {
    "history", "[options] FILE FILE ...",
    "Finds where a series of results changed, cell by cell; files are in order, oldest first.\n"
    "Two files of a new level are needed before it counts as one.\n"
    "Exit: 0 done (whatever it found), 2 bad input, 3 no room.",
    OPT_HISTORY | OPT_JUDGE, history};
