/* SPDX-License-Identifier: Apache-2.0
 *
 * run-emit.c - where records go, and which are there already.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/base/path.h"
#include "harness/record/fields.h"
#include "harness/run/run-parts.h"
#include "impl/echo.h"

/* variant: that was forced, or "" */
static void key_of(char *key, size_t len, const char *impl, const char *variant,
                   const char *problem)
{
  snprintf(key, len, "%s %s %s", impl, variant, problem);
}

static int remember(json_t *record, int line, void *ctx)
{
  struct run *run = ctx;
  size_t size = ((size_t)run->nrecorded + 1) * sizeof *run->recorded;
  void *grown = realloc(run->recorded, size);
  const json_t *variant = json_object_get(record, "variant");
  bool forced = !strcmp(field_text(variant, "by"), "forced");
  if (!grown)
    return -1;
  run->recorded = grown;
  key_of(run->recorded[run->nrecorded++], sizeof *run->recorded,
         json_string_value(json_object_get(record, "impl")),
         forced ? field_text(variant, "name") : "",
         json_string_value(json_object_get(record, "problem")));
  return 0;
}

bool run_is_recorded(const struct run *run, const struct attn_problem *p, const char *impl)
{
  char problem[ATTN_PROBLEM_TEXT], key[sizeof *run->recorded];
  attn_problem_print(p, problem, sizeof problem);
  key_of(key, sizeof key, impl, run->o->variant ? run->o->variant : "", problem);
  for (int i = 0; i < run->nrecorded; i++)
    if (!strcmp(run->recorded[i], key))
      return true;
  return false;
}

int run_begin(struct run *run, char *err, size_t errlen)
{
  const struct run_options *o = run->o;
  enum attn_device_kind kind = strcmp(o->device->name, "cuda") ? ATTN_CPU : ATTN_CUDA;
  int bad;
  run->started = clock_now();
  snprintf(run->run_id, sizeof run->run_id, "%llx-%d", (unsigned long long)time(NULL),
           (int)getpid());
  run->nimpls = o->item ? 0 : catalog_select(kind, o->impls, run->impls, GROUP_CASES, err, errlen);
  if (run->nimpls < 0 || advice_read(&run->advice, o->choices, err, errlen))
    return ATTN_EINVAL;
  if (!o->out)
    return ATTN_OK;
  if (o->resume && !access(o->out, F_OK) && store_read(o->out, remember, run, &bad, err, errlen))
    return ATTN_EINVAL;
  return store_open(&run->store, o->out, err, errlen) ? ATTN_EINVAL : ATTN_OK;
}

/* What is printed next begins a line. */
static void clear_progress(const struct run *run)
{
  if (run->o->progress && !run->o->quiet)
    fprintf(stderr, "\r\033[K");
}

void run_end(struct run *run)
{
  store_close(&run->store);
  advice_free(&run->advice);
  free(run->recorded);
  clear_progress(run);
}

/* NAME of NAME, and of FOLDER/NAME.suite. */
static void put_suite_name(const char *suite, char *name, size_t size)
{
  const char *base = path_base(suite);
  size_t n = strlen(base), ending = strlen(".suite");
  if (n > ending && !strcmp(base + n - ending, ".suite"))
    n -= ending;
  attn_escape(name, 0, size, base, n);
}

void run_describe(const struct run *run, const struct attn_problem *p, struct group_case *c)
{
  struct record *r = &c->record;
  snprintf(r->run_id, sizeof r->run_id, "%s", run->run_id);
  put_suite_name(run->o->suite ? run->o->suite : "", r->suite, sizeof r->suite);
  snprintf(r->impl, sizeof r->impl, "%s", c->impl->name);
  snprintf(r->provenance, sizeof r->provenance, "%s",
           c->impl->provenance ? c->impl->provenance : "");
  r->problem = *p;
  r->seed = run->o->group.seed;
  if (run->o->group.regime)
    r->distribution = run->o->group.regime->name;
  r->compulsory_bytes = attn_problem_compulsory_read(p) + attn_problem_compulsory_write(p);
}

int run_emit(struct run *run, const struct group *g, struct group_case *c, char *err, size_t errlen)
{
  char repro[RUN_REPRO + 2 * ATTN_PROBLEM_TEXT], problem[ATTN_PROBLEM_TEXT];
  struct record *r = &c->record;
  int status = ATTN_OK;
  attn_problem_print(&r->problem, problem, sizeof problem);
  run->sum->count[r->status]++;
  clear_progress(run);
  if (!run->o->quiet) {
    if (!run->heading)
      show_heading(run->o->group.time);
    run->heading = true;
    show_record(r, run->o->group.time);
    if (r->status == STATUS_FAIL)
      printf("            seed %llu; again: %s --impl %s '%s'\n", (unsigned long long)r->seed,
             run->o->repro, r->impl, problem);
  }
  if (run->o->each)
    run->o->each(r, g, run->o->ctx);
  if (run->store.fd < 0)
    return status;
  snprintf(repro, sizeof repro, "%s --impl %s '%s'", run->o->repro, r->impl, problem);
  json_t *j = record_to_json(r, &g->device, repro);
  if (store_append(&run->store, j, err, errlen)) {
    snprintf(err + strlen(err), errlen - strlen(err), " with --resume");
    status = ATTN_EINVAL;
  }
  json_decref(j);
  return status;
}

void run_progress(const struct run *run, int done)
{
  double spent = clock_now() - run->started;
  if (!run->o->progress || run->o->quiet)
    return;
  fprintf(stderr, "\r\033[K%d/%d", done, run->of);
  if (done > 0)
    fprintf(stderr, ", about %.0f s left", spent / done * (run->of - done));
  fflush(stderr);
}
