/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.c - implementations and problems by name.
 */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/run/catalog.h"
#include "impl/echo.h"

#define MAX_PLUGIN_IMPLS 256

static const struct attn_impl *loaded[MAX_PLUGIN_IMPLS];
static int loaded_count;

/* ---- implementations --------------------------------------------------------------------------
 */

const struct attn_impl *catalog_impl(int i)
{
  const struct attn_impl *const *builtin = attn_builtins();
  int n = 0;
  while (builtin[n])
    n++;
  if (i < n)
    return builtin[i];
  return i - n < loaded_count ? loaded[i - n] : NULL;
}

const struct attn_impl *catalog_named(const char *name)
{
  const struct attn_impl *impl;
  for (int i = 0; (impl = catalog_impl(i)); i++)
    if (!strcmp(impl->name, name))
      return impl;
  return NULL;
}

/* Why a plugin's descriptor cannot be used, or NULL. */
static const char *flaw(const struct attn_impl *impl)
{
  if (!impl || !impl->name || !strchr(impl->name, '/'))
    return "has an implementation without a name of the form device/algorithm";
  if (impl->abi != ATTN_ABI)
    return "has an implementation built for another ABI";
  if (!impl->unsupported || !impl->run)
    return "has an implementation without unsupported() or run()";
  if (impl->prepare && !impl->finish)
    return "has an implementation with prepare() but no finish()";
  if (catalog_named(impl->name))
    return "has an implementation whose name is taken: rename it";
  return loaded_count == MAX_PLUGIN_IMPLS ? "has too many implementations" : NULL;
}

int catalog_plugin(const char *file, char *err, size_t errlen)
{
  char path[4096];
  snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file);
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const struct attn_plugin *plugin = so ? dlsym(so, "attn_plugin") : NULL;
  if (!so) {
    snprintf(err, errlen, "--plugin %s", ATTN_ECHOS(dlerror()));
    return -1;
  }
  if (!plugin) {
    snprintf(err, errlen,
             "--plugin %s: exports no symbol attn_plugin (struct attn_plugin, see attn.h)", file);
    return -1;
  }
  if (plugin->abi != ATTN_ABI) {
    snprintf(err, errlen,
             "--plugin %s: built for ABI %d, this attnbench has %d; rebuild it with this "
             "attn.h",
             file, plugin->abi, ATTN_ABI);
    return -1;
  }
  for (int i = 0; i < plugin->count; i++) {
    const char *why = flaw(plugin->impls[i]);
    if (why) {
      snprintf(err, errlen, "--plugin %s: %s", file, why);
      return -1;
    }
    loaded[loaded_count++] = plugin->impls[i];
  }
  return 0;
}

/* Calls fnmatch for each of the comma-separated patterns; marks those that matched. */
static bool matches(const char *patterns, const char *name, uint64_t *used)
{
  bool any = !patterns;
  const char *at = patterns;
  for (int i = 0; at && i < 64; i++) {
    char one[128];
    size_t n = strcspn(at, ",");
    snprintf(one, sizeof one, "%.*s", (int)n, at);
    if (!fnmatch(one, name, 0)) {
      any = true;
      *used |= UINT64_C(1) << i;
    }
    at = at[n] ? at + n + 1 : NULL;
  }
  return any;
}

static int unmatched(const char *patterns, uint64_t used, const char *device, char *err,
                     size_t errlen)
{
  const char *at = patterns;
  for (int i = 0; at && i < 64; i++) {
    size_t n = strcspn(at, ",");
    if (!(used >> i & 1)) {
      snprintf(err, errlen, "--impl %s: no such implementation%s; attnbench list shows them",
               ATTN_ECHO(at, n), device);
      return -1;
    }
    at = at[n] ? at + n + 1 : NULL;
  }
  return 0;
}

int catalog_select(int kind, const char *patterns, const struct attn_impl **list, int max,
                   char *err, size_t errlen)
{
  const struct attn_impl *impl;
  uint64_t used = 0;
  int n = 0;
  for (int i = 0; (impl = catalog_impl(i)); i++)
    if ((kind == CATALOG_ANY_DEVICE || (int)impl->device == kind) &&
        matches(patterns, impl->name, &used) && n < max)
      list[n++] = impl;
  if (unmatched(patterns, used,
                kind == ATTN_CUDA  ? " for device cuda"
                : kind == ATTN_CPU ? " for device cpu"
                                   : "",
                err, errlen))
    return -1;
  return n;
}

/* ---- problems ---------------------------------------------------------------------------------
 */

static int append(const struct attn_problem *p, void *ctx)
{
  struct problem_list *list = ctx;
  if (list->n == list->room) {
    int room = list->room ? 2 * list->room : 64;
    struct attn_problem *grown = realloc(list->item, (size_t)room * sizeof *grown);
    if (!grown)
      return ATTN_ENOMEM;
    list->item = grown;
    list->room = room;
  }
  list->item[list->n++] = *p;
  return ATTN_OK;
}

int catalog_problems(struct problem_list *list, const char *text, char *err, size_t errlen)
{
  char models[4096];
  const char *profiles = catalog_profiles();
  snprintf(models, sizeof models, "%s/models", profiles ? profiles : "profiles");
  return attn_problem_sweep(text, models, append, list, err, errlen) ? -1 : 0;
}

static FILE *open_suite(const char *name, char *path, size_t len, char *err, size_t errlen)
{
  const char *profiles = catalog_profiles();
  FILE *f = NULL;
  snprintf(path, len, "%s", name);
  if (!strchr(name, '/') && profiles) {
    snprintf(path, len, "%s/suites/%s.suite", profiles, name);
    f = fopen(path, "r");
  }
  if (!f) {
    snprintf(path, len, "%s", name);
    f = fopen(path, "r");
  }
  if (!f)
    snprintf(err, errlen, "--suite %s: no such suite (%s); attnbench list --suites shows them",
             ATTN_ECHOS(name), strerror(errno));
  return f;
}

int catalog_suite(struct problem_list *list, const char *name, char *err, size_t errlen)
{
  char path[4096], why[512], *text = NULL;
  size_t size = 0;
  FILE *f = open_suite(name, path, sizeof path, err, errlen);
  int status = 0, before = list->n;
  if (!f)
    return -1;
  for (int line = 1; !status && getline(&text, &size, f) >= 0; line++) {
    text[strcspn(text, "#\n")] = 0;
    if (!text[strspn(text, " \t\r")])
      continue;
    status = catalog_problems(list, text, why, sizeof why);
    if (status)
      snprintf(err, errlen, "%s:%d: %s", path, line, why);
  }
  if (!status && list->n == before) {
    snprintf(err, errlen, "%s: holds no problem%s", path, ferror(f) ? " (cannot be read)" : "");
    status = -1;
  }
  free(text);
  fclose(f);
  return status;
}

void catalog_problems_free(struct problem_list *list)
{
  free(list->item);
  *list = (struct problem_list){NULL, 0, 0};
}

/* ---- data files -------------------------------------------------------------------------------
 */

static bool is_folder(const char *path)
{
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

const char *catalog_profiles(void)
{
  static char path[4096];
  const char *env = getenv("ATTNBENCH_DATADIR");
  const char *const roots[] = {env, PKGDATADIR, SOURCEDIR};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
    if (!roots[i])
      continue;
    snprintf(path, sizeof path, "%s/profiles", roots[i]);
    if (is_folder(path))
      return path;
  }
  return NULL;
}

int catalog_files(const char *folder, const char *suffix, void (*each)(const char *name, void *ctx),
                  void *ctx)
{
  char path[4200];
  struct dirent **entry;
  const char *profiles = catalog_profiles();
  snprintf(path, sizeof path, "%s/%s", profiles ? profiles : ".", folder);
  int n = scandir(path, &entry, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    size_t len = strlen(entry[i]->d_name), tail = strlen(suffix);
    if (len > tail && !strcmp(entry[i]->d_name + len - tail, suffix)) {
      entry[i]->d_name[len - tail] = 0;
      each(entry[i]->d_name, ctx);
    }
    free(entry[i]);
  }
  if (n >= 0)
    free(entry);
  return n < 0 ? -1 : 0;
}
