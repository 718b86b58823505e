/* SPDX-License-Identifier: Apache-2.0
 *
 * serving.c - serving records into a report.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/path.h"
#include "reports/format.h"
#include "reports/serving.h"

double serving_number(const json_t *o, const char *name)
{
  const json_t *j = json_object_get(o, name);
  return json_is_number(j) ? json_number_value(j) : NAN;
}

const char *serving_text(const json_t *o, const char *name)
{
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

double serving_inner(const json_t *serve, const char *object, const char *name)
{
  return serving_number(json_object_get(serve, object), name);
}

/* What tells measurements apart; the rest is what was measured. */
static bool same(const json_t *a, const json_t *b)
{
  static const char *const names[] = {
      "scenario",    "model",         "layers",        "decode_impl",  "rope",      "contiguous",
      "page_tokens", "pages",         "budget_tokens", "batch",        "trace",     "prefix_cache",
      "rate",        "prompt_tokens", "requests",      "cached_share", "max_length"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *x = json_object_get(a, names[i]), *y = json_object_get(b, names[i]);
    if (!x != !y || (x && !json_equal(x, y)))
      return false;
  }
  /* Other tokens are another trace, though its name and number of rows are the same. */
  double used = serving_inner(a, "contiguous_memory", "used_bytes");
  return isnan(used) || used == serving_inner(b, "contiguous_memory", "used_bytes");
}

static const char *device_of(const json_t *record)
{
  return serving_text(json_object_get(record, "device"), "name");
}

static bool one_device(const struct report *r)
{
  for (int i = 1; i < r->nserving; i++)
    if (strcmp(device_of(r->serving[i].json), device_of(r->serving[0].json)))
      return false;
  return true;
}

static void name_models(struct report *r)
{
  bool one = one_device(r);
  for (int i = 0; i < r->nserving; i++) {
    struct report_serving *s = &r->serving[i];
    snprintf(s->model, sizeof s->model, "%.100s%s%.100s", serving_text(s->serve, "model"),
             one ? "" : " on ", one ? "" : device_of(s->json));
  }
}

static bool same_record(const json_t *a, const json_t *b)
{
  return !strcmp(serving_text(a, "impl"), serving_text(b, "impl")) &&
         !strcmp(device_of(a), device_of(b)) &&
         same(json_object_get(a, "serve"), json_object_get(b, "serve"));
}

bool serving_interrupted(const json_t *serve)
{
  return json_is_true(json_object_get(serve, "interrupted"));
}

int serving_add(struct report *r, json_t *record)
{
  bool whole = !serving_interrupted(json_object_get(record, "serve"));
  for (int i = 0; i < r->nserving; i++)
    r->serving[i].superseded |= (whole || serving_interrupted(r->serving[i].serve)) &&
                                same_record(r->serving[i].json, record);
  struct report_serving *list = report_grow(r->serving, &r->nserving, sizeof *list);
  if (!list)
    return -1;
  r->serving = list;
  struct report_serving *s = &list[r->nserving - 1];
  s->json = json_incref(record);
  s->serve = json_object_get(record, "serve");
  s->scenario = serving_text(s->serve, "scenario");
  s->pass = !strcmp(serving_text(record, "status"), "pass");
  name_models(r);
  return 0;
}

int serving_superseded(const struct report *r)
{
  int n = 0;
  for (int i = 0; i < r->nserving; i++)
    n += r->serving[i].superseded;
  return n;
}

void serving_free(struct report *r)
{
  for (int i = 0; i < r->nserving; i++)
    json_decref(r->serving[i].json);
  free(r->serving);
}

const struct report_serving *serving_nth(const struct report *r, const char *scenario, int i)
{
  for (int k = 0; k < r->nserving; k++)
    if (r->serving[k].pass && !r->serving[k].superseded &&
        !strcmp(r->serving[k].scenario, scenario) && !i--)
      return &r->serving[k];
  return NULL;
}

void serving_name(const struct report_serving *s, char *buf, size_t len)
{
  const char *prefill = serving_text(s->json, "impl"),
             *decode = serving_text(s->serve, "decode_impl");
  double layers = serving_number(s->serve, "layers");
  snprintf(buf, len, "%s, %.0f layer%s, %s%s%s%s", s->model, layers, layers == 1 ? "" : "s",
           prefill, strcmp(prefill, decode) ? " and " : "", strcmp(prefill, decode) ? decode : "",
           json_is_true(json_object_get(s->serve, "contiguous")) ? ", contiguous" : "");
}

struct trace_name serving_trace(const struct report_serving *s, int most)
{
  struct trace_name t;
  char speed[32] = "";
  double rate = serving_number(s->serve, "rate");
  if (!isnan(rate) && rate != 1)
    snprintf(speed, sizeof speed, " x%g", rate);
  const char *file = path_base(serving_text(s->serve, "trace")), *dot = strrchr(file, '.');
  size_t len = dot && dot != file ? (size_t)(dot - file) : strlen(file);
  most -= (int)strlen(speed);
  bool fits = format_characters(file, most) >= len;
  if (!fits)
    len = format_characters(file, most - 3);
  snprintf(t.s, sizeof t.s, "%.*s%s%s", (int)len, file, fits ? "" : "...", speed);
  return t;
}

void serving_lines(struct canvas *c, const char *what, const char *on, int at)
{
  char where[64];
  snprintf(where, sizeof where, "graph -0.03, first %d", at);
  canvas_label(c, what, where, "right font ',12' offset 0,0.5");
  canvas_label(c, on, where, "right font ',11' textcolor rgb '" CANVAS_GREY "' offset 0,-0.5");
}

int serving_open(struct canvas *c, const struct report *r, const char *stem, const char *title,
                 const char *subtitle, int width, int height, char *err, size_t errlen)
{
  char device[256] = "";
  bool one = r->nserving && one_device(r);
  snprintf(device, sizeof device, "%s%s%.180s", title, one ? " · " : "",
           one ? device_of(r->serving[0].json) : "");
  if (!canvas_open(c, r, stem, device, subtitle, width, height))
    return 0;
  snprintf(err, errlen, "%s/figures/%s.gp: cannot write: %s", r->outdir, stem, strerror(errno));
  return -1;
}

int serving_figures(struct report *r, char *err, size_t errlen)
{
  static int (*const draw[])(struct report * r, char *err, size_t errlen) = {
      draw_serving_prefill, draw_serving_replay, draw_serving_memory, draw_serving_heads,
      draw_serving_fork};
  int status = 0;
  for (size_t i = 0; !status && i < sizeof draw / sizeof *draw; i++)
    status = draw[i](r, err, errlen);
  return status;
}
