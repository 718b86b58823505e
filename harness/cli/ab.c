/* SPDX-License-Identifier: Apache-2.0
 *
 * ab.c - two sides in turn.
 *
 * Implementations of one build run in the same processes, sample by sample in random order (as in
 * any run).  Plugins and builds run as commands of their own, one process a round; a round's order
 * is random and the next one's is the reverse, so that drift hits both sides alike.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cli/ab.h"
#include "harness/base/rng.h"
#include "harness/run/worker.h"
#include "impl/echo.h"

#define PROBLEMS 4000                 /* on a command line */
#define WORDS (PROBLEMS + GIVEN + 16) /* of it */

/* ---- what the words name --------------------------------------------------------------------- */

static bool is_program(const char *path)
{
  struct stat st;
  return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

static int name_side(struct ab_side *s, const char *word, char *err, size_t errlen)
{
  size_t n = strlen(word);
  *s = (struct ab_side){.word = word, .impl = catalog_named(word)};
  if (s->impl)
    return 0;
  if (n > 3 && !strcmp(word + n - 3, ".so") && !access(word, R_OK)) {
    s->plugin = word;
    s->binary = "/proc/self/exe";
    return 0;
  }
  if (strchr(word, '/') && is_program(word)) {
    s->binary = word;
    return 0;
  }
  snprintf(err, errlen,
           "--ab %s: no implementation, plugin (.so) or program of this name; attnbench list names "
           "the implementations, and a program is given with its folder",
           ATTN_ECHO(word, n));
  return -1;
}

bool ab_paired(const struct ab *ab)
{
  return ab->side[0].impl && ab->side[1].impl;
}

/* ---- folders --------------------------------------------------------------------------------- */

int scratch_open(char *folder, size_t len, const char *keep, char *err, size_t errlen)
{
  const char *tmp = getenv("TMPDIR");
  if (keep) {
    snprintf(folder, len, "%s", keep);
    if (!mkdir(keep, 0777) || errno == EEXIST)
      return 0;
    snprintf(err, errlen, "--keep %s: %s", ATTN_ECHOS(keep), strerror(errno));
    return -1;
  }
  snprintf(folder, len, "%s/attnbench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (mkdtemp(folder))
    return 0;
  snprintf(err, errlen, "%s: %s; set TMPDIR to a folder that can be written", folder,
           strerror(errno));
  return -1;
}

void scratch_remove(const char *folder)
{
  if (rmdir(folder))
    fprintf(stderr, "attnbench: %s: %s\n", folder, strerror(errno));
}

int ab_open(struct ab *ab, const struct options *o, char *err, size_t errlen)
{
  *ab = (struct ab){.temporary = !o->gate.keep};
  for (int i = 0; i < 2; i++)
    if (name_side(&ab->side[i], o->words[i], err, errlen))
      return -1;
  if (!ab->side[0].impl != !ab->side[1].impl) {
    snprintf(err, errlen, "--ab: %s is an implementation and %s is none",
             ab->side[!ab->side[0].impl].word, ab->side[!!ab->side[0].impl].word);
    return -1;
  }
  if (ab_paired(ab) && ab->side[0].impl == ab->side[1].impl) {
    snprintf(err, errlen, "--ab: both are %s; attnbench aa compares a thing with itself",
             ab->side[0].word);
    return -1;
  }
  return scratch_open(ab->folder, sizeof ab->folder, o->gate.keep, err, errlen);
}

static void drop(struct ab *ab)
{
  for (int i = 0; i < 2; i++) {
    cells_free(&ab->cells[i]);
    if (ab->temporary && ab->file[i][0])
      unlink(ab->file[i]);
  }
}

void ab_close(struct ab *ab)
{
  drop(ab);
  if (ab->temporary && ab->folder[0])
    scratch_remove(ab->folder);
}

/* ---- implementations ------------------------------------------------------------------------- */

void run_repro(const struct options *o, char *repro, size_t len)
{
  const char *options = strstr(o->repro, " --");
  snprintf(repro, len, "attnbench run%s", options ? options : "");
}

static int measure_impls(struct ab *ab, const struct options *o, const struct problem_list *list,
                         char *err, size_t errlen)
{
  struct run_options run = o->run;
  struct run_summary sum;
  char both[160], repro[sizeof o->repro];
  snprintf(both, sizeof both, "%s,%s", ab->side[0].word, ab->side[1].word);
  run_repro(o, repro, sizeof repro);
  run.impls = both;
  run.out = ab->file[0];
  run.repro = repro;
  run.quiet = true;
  run.group.time = true;
  int status = run_problems(list, &run, &sum, err, errlen);
  return sum.interrupted ? 1 : status ? -1 : 0;
}

/* ---- commands -------------------------------------------------------------------------------- */

struct words {
  const char *at[WORDS];
  int n;
};

static void word(struct words *w, const char *s)
{
  if (w->n < WORDS - 1)
    w->at[w->n++] = s;
}

/* The command line of one side; names and problems are borrowed. */
static void compose(struct words *w, const struct ab *ab, int side, const struct options *o,
                    char (*option)[32], char *const *problems, int n)
{
  word(w, ab->side[side].plugin ? "attnbench" : ab->side[side].binary);
  word(w, "run");
  word(w, "--quiet");
  word(w, "--out");
  word(w, ab->file[side]);
  if (ab->side[side].plugin) {
    word(w, "--plugin");
    word(w, ab->side[side].plugin);
  }
  for (int i = 0; i < o->ngiven; i += 2) {
    if (!strcmp(o->given[i], "suite"))
      continue;
    snprintf(option[i / 2], sizeof *option, "--%s", o->given[i]);
    word(w, option[i / 2]);
    if (o->given[i + 1])
      word(w, o->given[i + 1]);
  }
  word(w, "--");
  for (int i = 0; i < n; i++)
    word(w, problems[i]);
  w->at[w->n] = NULL;
}

static void become(const char *binary, const struct words *w)
{
  int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
    _exit(127);
  execv(binary, (char *const *)w->at);
  _exit(127);
}

/* Runs the command; its verdicts are in its records, so exit 1 is as good as 0. */
static int command(const struct ab_side *side, const struct words *w, char *err, size_t errlen)
{
  int status = 0;
  pid_t child = fork();
  if (child == 0)
    become(side->binary, w);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    if (worker_interrupted())
      kill(child, SIGINT);
  if (worker_interrupted() || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_INTERRUPTED))
    return 1;
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= EXIT_VERDICT)
    return 0;
  snprintf(err, errlen, "--ab %s: the run %s %d; what it said stands above", side->word,
           WIFSIGNALED(status) ? "died of signal" : "exited with",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return -1;
}

static char **problem_texts(const struct problem_list *list)
{
  char **text = calloc((size_t)list->n + 1, sizeof *text), buf[ATTN_PROBLEM_TEXT];
  for (int i = 0; text && i < list->n; i++) {
    attn_problem_print(&list->item[i], buf, sizeof buf);
    if (!(text[i] = strdup(buf)))
      return text;
  }
  return text;
}

static int measure_commands(struct ab *ab, const struct options *o, const struct problem_list *list,
                            char *err, size_t errlen)
{
  char **problems = problem_texts(list), option[GIVEN / 2][32];
  struct words line[2] = {{.n = 0}, {.n = 0}};
  int status = problems && list->n <= PROBLEMS ? 0 : -1;
  if (status)
    snprintf(err, errlen, "--ab: %d problems are more than a command line takes (%d)", list->n,
             PROBLEMS);
  worker_catch_interrupts();
  for (int side = 0; side < 2 && !status; side++)
    compose(&line[side], ab, side, o, option, problems, list->n);
  for (int r = 0; r < o->run.processes && !status; r++) {
    int first = (int)((rng_at(o->run.group.seed, (uint64_t)r / 2) ^ (uint64_t)r) & 1);
    if (o->run.progress)
      fprintf(stderr, "\r\033[Kround %d of %d", r + 1, o->run.processes);
    status = command(&ab->side[first], &line[first], err, errlen);
    if (!status)
      status = command(&ab->side[!first], &line[!first], err, errlen);
  }
  if (o->run.progress)
    fprintf(stderr, "\r\033[K");
  for (int i = 0; problems && problems[i]; i++)
    free(problems[i]);
  free(problems);
  return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Two implementations under one name, so that their cells meet. */
static int rename_cells(struct cells *c, const char *name)
{
  for (int i = 0; i < c->n; i++) {
    char *copy = strdup(name);
    if (!copy)
      return -1;
    free(c->item[i].impl);
    c->item[i].impl = copy;
  }
  return 0;
}

static int read_sides(struct ab *ab, char *err, size_t errlen)
{
  for (int i = 0; i < 2; i++) {
    const struct attn_impl *impl = ab->side[i].impl;
    if (access(ab->file[i], F_OK)) {
      snprintf(err, errlen, "--ab %s: the run wrote no records; is this an attnbench?",
               ATTN_ECHOS(ab->side[i].word));
      return -1;
    }
    if (cells_read(&ab->cells[i], ab->file[i], impl ? impl->name : NULL, err, errlen))
      return -1;
    if (ab_paired(ab) && rename_cells(&ab->cells[i], ab->side[1].word))
      return -1;
    ab->cells[i].file = ab->side[i].word;
  }
  return 0;
}

int ab_measure(struct ab *ab, const struct options *o, const struct problem_list *list,
               const char *name, char *err, size_t errlen)
{
  drop(ab);
  for (int i = 0; i < 2; i++) {
    snprintf(ab->file[i], sizeof ab->file[i], "%s/%s%s.jsonl", ab->folder, name,
             ab_paired(ab) ? ""
             : i           ? "-b"
                           : "-a");
    unlink(ab->file[i]);
  }
  int status = ab_paired(ab) ? measure_impls(ab, o, list, err, errlen)
                             : measure_commands(ab, o, list, err, errlen);
  return status ? status : read_sides(ab, err, errlen);
}
