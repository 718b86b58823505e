/* SPDX-License-Identifier: Apache-2.0
 *
 * gnuplot.c - finds gnuplot and runs it on a script.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reports/canvas.h"

const char *gnuplot_find(char *buf, size_t len)
{
  const char *name = getenv("GNUPLOT"), *path = getenv("PATH");
  name = name && *name ? name : "gnuplot";
  if (strchr(name, '/')) {
    snprintf(buf, len, "%s", name);
    return access(buf, X_OK) ? NULL : buf;
  }
  while (path && *path) {
    size_t n = strcspn(path, ":");
    snprintf(buf, len, "%.*s/%s", n ? (int)n : 1, n ? path : ".", name);
    if (!access(buf, X_OK))
      return buf;
    path += n + (path[n] == ':');
  }
  return NULL;
}

static void become(const char *gnuplot, const char *folder, const char *script, int out)
{
  int null = open("/dev/null", O_RDONLY);
  if (chdir(folder) || null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
    _exit(127);
  execl(gnuplot, gnuplot, "-d", script, (char *)NULL);
  _exit(127);
}

/* The first line that says something; gnuplot shows the command first and points below it. */
static void read_complaint(int from, char *said, size_t len)
{
  FILE *in = fdopen(from, "r");
  char line[512];
  if (!in) {
    close(from);
    return;
  }
  while (fgets(line, sizeof line, in))
    if (strstr(line, "line ") && !said[0])
      snprintf(said, len, "%.*s", (int)strcspn(line, "\n"), line);
  fclose(in);
}

int gnuplot_run(const char *gnuplot, const char *folder, const char *script, char *said, size_t len)
{
  int ends[2], status = 0;
  said[0] = '\0';
  if (pipe(ends))
    return -1;
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    become(gnuplot, folder, script, ends[1]);
  }
  close(ends[1]);
  read_complaint(ends[0], said, len);
  if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
    if (!said[0])
      snprintf(said, len, "%s did not run", gnuplot);
    return -1;
  }
  return 0;
}
