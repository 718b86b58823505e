/* SPDX-License-Identifier: Apache-2.0
 *
 * Lint of profiles/models and profiles/suites.  Laws: every line of every suite parses; every model
 * is complete and consistent (hq a multiple of hkv, hidden = hq * d) and makes a valid problem.
 */
#include "config.h"

#include <dirent.h>

#include "impl/attn.h"
#include "impl/model.h"
#include "tests/tap.h"

static char models[512];

/* Calls check(path, name without its ending) for each file of folder with that ending. */
static int each_file(const char *folder, const char *ending, void (*check)(const char *, char *))
{
  int count = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char path[1024], *dot = strrchr(e->d_name, '.');
    if (!dot || strcmp(dot, ending))
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    *dot = 0;
    check(path, e->d_name);
    count++;
  }
  if (dir)
    closedir(dir);
  return count;
}

static void check_model(const char *path, char *name)
{
  struct attn_model m;
  struct attn_problem p;
  char err[512] = "", text[128];
  bool fine = !attn_model_read(models, name, &m, err, sizeof err);
  if (fine) {
    fine = m.hq % m.hkv == 0 && m.hidden == m.hq * m.d && m.window <= m.context;
    snprintf(text, sizeof text, "hq=%lld hkv=%lld d=%lld sq=%lld", (long long)m.hq,
             (long long)m.hkv, (long long)m.d, (long long)m.context);
    fine &= !attn_problem_parse(text, &p, err, sizeof err);
  }
  if (!fine)
    diag("%s: %s", path, err);
  ok(fine, "model %s", name);
}

static int count_one(const struct attn_problem *p, void *ctx)
{
  *(int *)ctx += attn_problem_flops(p) > 0;
  return ATTN_OK;
}

static void check_suite(const char *path, char *name)
{
  char line[4096], err[512];
  int problems = 0, bad = 0;
  FILE *f = fopen(path, "r");
  for (int number = 1; f && fgets(line, sizeof line, f); number++) {
    line[strcspn(line, "#\n")] = 0;
    if (!line[strspn(line, " \t")])
      continue;
    if (attn_problem_sweep(line, models, count_one, &problems, err, sizeof err) && ++bad)
      diag("%s:%d: %s", path, number, err);
  }
  if (f)
    fclose(f);
  ok(f && problems && !bad, "suite %s: %d problems", name, problems);
}

int main(void)
{
  const char *srcdir = getenv("srcdir");
  char suites[512];
  snprintf(models, sizeof models, "%s/profiles/models", srcdir ? srcdir : ".");
  snprintf(suites, sizeof suites, "%s/profiles/suites", srcdir ? srcdir : ".");
  ok(each_file(models, ".model", check_model) >= 6, "six models or more");
  ok(each_file(suites, ".suite", check_suite) >= 6, "six suites or more");
  return done_testing();
}
