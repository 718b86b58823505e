/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd-aa.c - attnbench aa: runs of one build against each other, through the path that compare
 * takes; how often that cries wolf, and the noise floor that keeps it from doing so.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/ab.h"
#include "harness/record/store.h"
#include "impl/echo.h"

#define AA_PROCESSES 7
#define AA_COMPARISONS 5 /* of a cell, for a floor that is of use */
#define NEAR 0.01        /* medians that differ by less are counted as near */

struct aa {
  struct options *o;
  struct noise_floor floor;
  double **apart; /* by cell of the floor: log ratios, one a comparison */
  int near, alarms[QUANTITIES], judged[QUANTITIES];
};

static struct floor_cell *cell_of(struct aa *a, const struct cell *c, int *at)
{
  struct noise_floor *f = &a->floor;
  for (*at = 0; *at < f->n; ++*at)
    if (cell_same(&f->cell[*at].key, c))
      return &f->cell[*at];
  struct floor_cell *cells = realloc(f->cell, ((size_t)f->n + 1) * sizeof *cells);
  if (cells)
    f->cell = cells;
  double **apart = realloc(a->apart, ((size_t)f->n + 1) * sizeof *apart);
  if (apart)
    a->apart = apart;
  if (!cells || !apart)
    return NULL;
  struct floor_cell *fresh = &cells[f->n];
  *fresh = (struct floor_cell){.key = {.cache = c->cache, .mode = c->mode, .on = c->on}};
  fresh->key.impl = strdup(c->impl);
  fresh->key.problem = strdup(c->problem);
  apart[f->n] = NULL;
  f->n++;
  return fresh->key.impl && fresh->key.problem ? fresh : NULL;
}

static int note(struct aa *a, const struct compared *x)
{
  int at;
  double apart = log(x->of[QUANTITY_TIME].ratio);
  struct floor_cell *c = cell_of(a, x->now, &at);
  double *grown = c ? realloc(a->apart[at], ((size_t)c->comparisons + 1) * sizeof *grown) : NULL;
  if (!grown)
    return -1;
  a->apart[at] = grown;
  grown[c->comparisons++] = apart;
  c->worst = fabs(apart) > c->worst ? fabs(apart) : c->worst;
  a->near += fabs(apart) < NEAR;
  a->floor.on = x->now->on;
  return 0;
}

static int compare_runs(struct aa *a, const struct cells *base, const struct cells *now, char *err,
                        size_t errlen)
{
  struct comparison c;
  int status = compare_cells(base, now, &a->o->gate.compare, &c, err, errlen);
  for (int i = 0; i < c.n && !status; i++)
    if (c.item[i].of[QUANTITY_TIME].verdict)
      status = note(a, &c.item[i]);
  for (int q = 0; q < QUANTITIES && !status; q++) {
    a->alarms[q] += c.verdicts[q][VERDICT_BETTER] + c.verdicts[q][VERDICT_WORSE];
    for (int v = VERDICT_SAME; v < VERDICTS; v++)
      a->judged[q] += c.verdicts[q][v];
  }
  if (!status && c.processes && (!a->floor.processes || c.processes < a->floor.processes))
    a->floor.processes = c.processes;
  a->floor.comparisons++;
  comparison_free(&c);
  return status;
}

/* Every run with the next. */
static int compare_all(struct aa *a, const char *const *files, int n, char *err, size_t errlen)
{
  struct cells base, now = {0};
  int status = cells_read(&base, files[0], NULL, err, errlen);
  if (!status)
    tell_skipped(&base);
  for (int i = 1; i < n && !status; i++) {
    status = cells_read(&now, files[i], NULL, err, errlen);
    if (!status) {
      tell_skipped(&now);
      status = compare_runs(a, &base, &now, err, errlen);
    }
    cells_free(&base);
    base = now;
    now = (struct cells){0};
  }
  cells_free(&base);
  return status;
}

/* ---- the floor ------------------------------------------------------------------------------- */

static int make_floor(struct aa *a)
{
  struct noise_floor *f = &a->floor;
  double *floors = malloc(((size_t)f->n + 1) * sizeof *floors);
  if (!floors)
    return -1;
  for (int i = 0; i < f->n; i++)
    floors[i] = f->cell[i].floor = expm1(stats_floor(a->apart[i], (size_t)f->cell[i].comparisons));
  f->overall = stats_quantile(floors, (size_t)f->n, 0.99);
  f->false_alarms = a->alarms[QUANTITY_TIME];
  f->judged = a->judged[QUANTITY_TIME];
  free(floors);
  return 0;
}

/* The fewer comparisons, the more a floor is made of not knowing. */
static void show_width(const struct noise_floor *f)
{
  int fewest = f->comparisons;
  for (int i = 0; i < f->n; i++)
    fewest = f->cell[i].comparisons < fewest ? f->cell[i].comparisons : fewest;
  if (fewest < AA_COMPARISONS)
    printf("%d comparison%s a cell: a floor is %.0f times as wide as runs were apart; %d make it "
           "%.0f times\n",
           fewest, fewest == 1 ? "" : "s", stats_t_quantile(0.995, fewest), AA_COMPARISONS,
           stats_t_quantile(0.995, AA_COMPARISONS));
}

static void show_floor(const struct aa *a)
{
  const struct noise_floor *f = &a->floor;
  for (int q = 0; q < QUANTITIES; q++)
    if (a->judged[q])
      printf("%-9s  %d false alarms in %d comparisons\n", quantity_name(q), a->alarms[q],
             a->judged[q]);
  if (!f->judged)
    return;
  printf("time       %.1f %% of medians within %g %%, %zu processes a side\n",
         100.0 * a->near / f->judged, 100 * NEAR, f->processes);
  printf("floor      %.3f %% for a cell that was not measured (99th percentile of %d cells)\n",
         100 * f->overall, f->n);
  for (int i = 0; i < f->n; i++)
    printf("%7.3f %%  %-22s %s, %s, %s\n", 100 * f->cell[i].floor, f->cell[i].key.impl,
           f->cell[i].key.problem, f->cell[i].key.cache, f->cell[i].key.mode);
  show_width(f);
}

static int conclude(struct aa *a, const char *const *files, int n, char *err, size_t errlen)
{
  if (compare_all(a, files, n, err, errlen))
    return complain(EXIT_USAGE, err);
  int judged = 0;
  for (int q = 0; q < QUANTITIES; q++)
    judged += a->judged[q];
  if (!judged)
    return complain(EXIT_USAGE, "aa: no case passed in two runs in a row: nothing was compared");
  if (a->o->gate.out && !a->judged[QUANTITY_TIME])
    return complain(EXIT_USAGE, "aa: no time in two runs in a row: there is no floor to write");
  if (make_floor(a))
    return complain(EXIT_ENVIRONMENT, "out of memory");
  show_floor(a);
  if (a->o->gate.out && floor_write(&a->floor, a->o->gate.out, err, errlen))
    return complain(EXIT_ENVIRONMENT, err);
  return EXIT_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static char **run_names(const char *folder, int n)
{
  char **files = calloc((size_t)n + 1, sizeof *files), buf[512];
  for (int i = 0; files && i < n; i++) {
    snprintf(buf, sizeof buf, "%s/run%d.jsonl", folder, i + 1);
    if (!(files[i] = strdup(buf)))
      return files;
  }
  return files;
}

/* 1: interrupted. */
static int measure(struct aa *a, char *const *files, int n, char *err, size_t errlen)
{
  struct run_options run = a->o->run;
  struct run_summary sum;
  struct device_ceilings ceilings = {0, 0, 0};
  char repro[sizeof a->o->repro];
  run_repro(a->o, repro, sizeof repro);
  run.repro = repro;
  run.ceilings = &ceilings;
  run.quiet = true;
  run.group.time = true;
  for (int i = 0; i < n; i++) {
    if (run.progress)
      fprintf(stderr, "\r\033[Krun %d of %d", i + 1, n);
    unlink(files[i]);
    run.out = files[i];
    int status = run_problems(&a->o->problems, &run, &sum, err, errlen);
    if (sum.interrupted || status)
      return sum.interrupted ? 1 : -1;
  }
  if (run.progress)
    fprintf(stderr, "\r\033[K");
  return 0;
}

static int measure_and_conclude(struct aa *a, char *err, size_t errlen)
{
  char folder[400];
  int n = a->o->gate.comparisons + 1, code = EXIT_ENVIRONMENT;
  if (scratch_open(folder, sizeof folder, a->o->gate.keep, err, errlen))
    return complain(EXIT_USAGE, err);
  char **files = run_names(folder, n);
  int status = files ? measure(a, files, n, err, errlen) : -1;
  if (!status)
    code = conclude(a, (const char *const *)files, n, err, errlen);
  else if (status > 0)
    code = complain(EXIT_INTERRUPTED, "interrupted; no floor was made");
  else
    complain(code, err);
  for (int i = 0; files && files[i]; i++) {
    if (!a->o->gate.keep)
      unlink(files[i]);
    free(files[i]);
  }
  free(files);
  if (!a->o->gate.keep)
    scratch_remove(folder);
  return code;
}

/* A problem has an '='; what has none, or is there, is a file. */
static bool is_file(const char *word)
{
  return !strchr(word, '=') || !access(word, F_OK);
}

/* How many words are files; -1 and a line in err if there are problems, too. */
static int count_files(const struct options *o, char *err, size_t errlen)
{
  const char *file = NULL, *problem = NULL;
  for (int i = 0; i < o->nwords; i++)
    *(is_file(o->words[i]) ? &file : &problem) = o->words[i];
  if (!file || !problem)
    return file ? o->nwords : 0;
  snprintf(err, errlen, "aa: %s is a file and %s a problem: give files of runs, or what to run",
           ATTN_ECHOS(file), ATTN_ECHOS(problem));
  return -1;
}

static int aa(struct options *o)
{
  char err[1400] = "out of memory";
  struct aa a = {.o = o};
  int code, files = count_files(o, err, sizeof err);
  if (!o->processes_given)
    o->run.processes = AA_PROCESSES;
  if (files == 1 && access(o->words[0], R_OK)) {
    snprintf(err, sizeof err, "aa: %s: %s; and it is no problem, which is key=value",
             ATTN_ECHOS(o->words[0]), strerror(errno));
    files = -1;
  }
  if (files < 0)
    code = complain(EXIT_USAGE, err);
  else if (files)
    code = files > 1 ? conclude(&a, o->words, o->nwords, err, sizeof err)
                     : complain(EXIT_USAGE, "aa: one file has none to be compared with; give "
                                            "several runs of the same build");
  else if (o->gate.out && store_writable(o->gate.out, err, sizeof err))
    code = complain(EXIT_ENVIRONMENT, strcat(err, "; choose another --out"));
  else if (command_device(o, err, sizeof err))
    code = complain(EXIT_ENVIRONMENT, err);
  else if (command_problems(o, 0, "prefill", err, sizeof err))
    code = complain(EXIT_USAGE, err);
  else
    code = measure_and_conclude(&a, err, sizeof err);
  for (int i = 0; i < a.floor.n; i++)
    free(a.apart[i]);
  free(a.apart);
  floor_free(&a.floor);
  return code;
}

const struct command cmd_aa = {
    "aa", "[options] [PROBLEM ... | FILE FILE ...]",
    "Measures the noise floor: runs of this build against each other, or files of such runs.\n"
    "Each run is compared with the next as attnbench compare would; --out keeps the floor for its\n"
    "--floor. Without a problem or --suite: suite prefill.\n"
    "Exit: 0 done (whatever it found), 2 bad input, 3 no device or no room, 130 interrupted.",
    OPT_AA | OPT_JUDGE | OPT_SELECT | OPT_DISPATCH | OPT_MEASURE | OPT_TIME, aa};
