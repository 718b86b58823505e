/* SPDX-License-Identifier: Apache-2.0
 *
 * zoo-print.c - the kill matrix as text and as JSON, the scores, and what is wrong.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "harness/cli/zoo.h"

#define LETTERS "nxvkrfgls" /* of the regimes, in their order */

const char *zoo_check_name(int check)
{
  static const char *const names[ZOO_LAWS] = {"ends", "guards", "inputs", "bound", "lse"};
  if (check < ZOO_LAWS)
    return names[check];
  if (check < ZOO_RULES)
    return law_name(check - ZOO_LAWS);
  return rule_name(check - ZOO_RULES);
}

bool zoo_dead(const struct zoo_row *r)
{
  for (int c = 0; c < ZOO_RULES; c++)
    if (r->killed[c])
      return true;
  return false;
}

bool zoo_race(const struct zoo_row *r)
{
  return !strncmp(r->kind, "race: ", 6);
}

static const char *letters(uint16_t regimes, char *buf)
{
  char *to = buf;
  for (int i = 0; regime_at(i); i++)
    if (regimes >> i & 1)
      *to++ = LETTERS[i];
  if (to == buf)
    *to++ = '-';
  *to = 0;
  return buf;
}

static void print_row(const struct zoo_row *r)
{
  char a[20], b[20], c[20], d[20], e[20], f[20];
  uint16_t ends = r->killed[ZOO_ENDS] | r->killed[ZOO_GUARDS] | r->killed[ZOO_INPUTS];
  printf("%-30s %-9s %-9s %-9s %-9s %-9s %-9s", r->name, letters(r->killed[ZOO_BOUND], a),
         letters(r->killed[ZOO_LSE], b), letters(ends, c), letters(r->killed[ZOO_RULES], d),
         letters(r->killed[ZOO_RULES + 1], e), letters(r->killed[ZOO_RULES + 2], f));
  for (int i = 0; i < law_count(); i++)
    if (r->killed[ZOO_LAWS + i])
      printf(" %s", law_name(i));
  printf("\n");
}

static void print_matrix(const struct zoo *z)
{
  printf("A letter is a regime in which the check sees the fault on some problem. Customary rules\n"
         "count only where they pass the correct build.\n\n");
  printf("regimes:");
  for (int i = 0; regime_at(i); i++)
    printf(" %c %s", LETTERS[i], regime_at(i)->name);
  printf("\n\n%-30s %-9s %-9s %-9s %-9s %-9s %-9s %s\n", "planted fault", "bound", "lse", "ends",
         "2x", "allclose", "nmse", "laws and probes");
  for (int i = 0; i < z->n; i++)
    if (!z->row[i].clean)
      print_row(&z->row[i]);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Mutants, and mutants x regimes, that checks from..to kill. */
struct score {
  int killed, cells;
};

static struct score score_of(const struct zoo *z, int from, int to)
{
  struct score s = {0, 0};
  for (int i = 0; i < z->n; i++) {
    uint16_t any = 0;
    for (int c = from; c < to && !z->row[i].clean; c++)
      any |= z->row[i].killed[c];
    s.killed += any != 0;
    s.cells += __builtin_popcount(any);
  }
  return s;
}

static int false_alarms(const struct zoo *z, int from, int to)
{
  int sum = 0;
  for (int i = 0; i < z->n; i++)
    for (int c = from; c < to && z->row[i].clean; c++)
      sum += z->row[i].alarms[c];
  return sum;
}

static void print_score(const struct zoo *z, const char *name, int from, int to, int of, int cells)
{
  struct score s = score_of(z, from, to);
  printf("%-28s %4d of %d   %5d of %d   %6d\n", name, s.killed, of, s.cells, cells,
         false_alarms(z, from, to));
}

static void print_scores(const struct zoo *z)
{
  int of = 0, cases = 0, regimes = __builtin_popcount(z->regimes);
  for (int i = 0; i < z->n; i++) {
    of += !z->row[i].clean && !z->row[i].equivalent[0];
    cases += z->row[i].clean ? z->row[i].cases : 0;
  }
  printf("\n%-28s %-12s %-16s %s\n", "", "killed", "fault x regime",
         "false alarms on correct implementations");
  print_score(z, "bound on O or gradients", ZOO_BOUND, ZOO_BOUND + 1, of, of * regimes);
  print_score(z, "bound on LSE", ZOO_LSE, ZOO_LSE + 1, of, of * regimes);
  print_score(z, "laws and probes", ZOO_LAWS, ZOO_RULES, of, of * regimes);
  print_score(z, "attnbench, all of it", 0, ZOO_RULES, of, of * regimes);
  for (int r = 0; r < RULES; r++)
    print_score(z, rule_name(r), ZOO_RULES + r, ZOO_RULES + r + 1, of, of * regimes);
  printf("%d cases of correct implementations\n", cases);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

/* Is it one of the names, separated by ", "? */
static bool named(const char *names, const char *name)
{
  size_t n = strlen(name);
  for (const char *at = names; at; at = strchr(at, ','), at = at ? at + 2 : NULL)
    if (strcspn(at, ",") == n && !strncmp(at, name, n))
      return true;
  return false;
}

static bool killed_by_name(const struct zoo_row *r)
{
  for (int c = 0; c < ZOO_RULES; c++)
    if (r->killed[c] && named(r->killer, zoo_check_name(c)))
      return true;
  return false;
}

static const char *flaw(const struct zoo_row *r)
{
  if (r->clean)
    return zoo_dead(r) ? "is correct and was accused" : r->cases ? NULL : "was never run";
  if (r->equivalent[0])
    return zoo_dead(r) ? "is listed as equivalent and died" : NULL;
  if (zoo_race(r) && !zoo_dead(r))
    return NULL;
  if (!r->reached && !zoo_dead(r))
    return "was not reached: its outputs were those of the clean build everywhere";
  if (!zoo_dead(r))
    return "survived";
  return killed_by_name(r) ? NULL : "died, but not by the check that it names";
}

bool zoo_print(const struct zoo *z)
{
  bool fine = true;
  print_matrix(z);
  print_scores(z);
  for (int i = 0; i < z->n; i++)
    if (z->row[i].equivalent[0])
      printf("suspected equivalent: %s: %s\n", z->row[i].name, z->row[i].equivalent);
  for (int i = 0; i < z->n; i++)
    if (zoo_race(&z->row[i]) && !zoo_dead(&z->row[i]))
      printf("alive, a race that this machine did not lose: %s (%s)\n", z->row[i].name,
             z->row[i].kind);
  for (int i = 0; i < z->n; i++) {
    const struct zoo_row *r = &z->row[i];
    if (!flaw(r))
      continue;
    fine = false;
    printf("%s %s (kind: %s; check: %s)%s%s\n", r->name, flaw(r), r->kind, r->killer,
           r->example[0] ? "; " : "", r->example);
  }
  return fine;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *regimes_json(unsigned regimes)
{
  json_t *list = json_array();
  for (int i = 0; regime_at(i); i++)
    if (regimes >> i & 1)
      json_array_append_new(list, json_string(regime_at(i)->name));
  return list;
}

static json_t *row_json(const struct zoo_row *r, unsigned regimes)
{
  json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:b,s:i}", "schema", ZOO_SCHEMA, "mutant",
                        r->name, "kind", r->kind, "base", r->base, "check", r->killer, "clean",
                        r->clean, "reached", r->reached, "cases", r->cases);
  json_t *killed = json_object(), *alarms = json_object();
  for (int c = 0; c < ZOO_CHECKS; c++) {
    if (!r->killed[c])
      continue;
    json_object_set_new(killed, zoo_check_name(c), regimes_json(r->killed[c]));
    json_object_set_new(alarms, zoo_check_name(c), json_integer(r->alarms[c]));
  }
  json_object_set_new(o, "regimes", regimes_json(regimes));
  json_object_set_new(o, "killed", killed);
  json_object_set_new(o, "alarms", alarms);
  json_object_set_new(o, "equivalent", r->equivalent[0] ? json_string(r->equivalent) : json_null());
  return o;
}

int zoo_keep_finished(struct zoo *z, int *of)
{
  int kept = 0, mutants = 0;
  *of = 0;
  for (int i = 0; i < z->n; i++) {
    const struct zoo_row *r = &z->row[i];
    *of += !r->clean;
    if (r->clean ? !r->cases : r->left > 0)
      continue;
    mutants += !r->clean;
    z->row[kept++] = *r;
  }
  z->n = kept;
  return mutants;
}

void zoo_write_row(const struct zoo *z, const struct zoo_row *r, FILE *f)
{
  json_t *o = row_json(r, z->regimes);
  json_dumpf(o, f, JSON_COMPACT);
  fputc('\n', f);
  fflush(f);
  json_decref(o);
}

int zoo_write(const struct zoo *z, const char *file, char *err, size_t errlen)
{
  FILE *f = fopen(file, "w");
  bool fine = f != NULL;
  for (int i = 0; i < z->n && fine; i++) {
    zoo_write_row(z, &z->row[i], f);
    fine = !ferror(f);
  }
  if (f && fclose(f))
    fine = false;
  if (!fine)
    snprintf(err, errlen, "--out %s: cannot be written", file);
  return fine ? 0 : -1;
}
