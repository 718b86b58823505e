/* SPDX-License-Identifier: Apache-2.0
 *
 * serving.h - serving records in a report: a list of their own, and the figures and table of it.
 */
#ifndef REPORTS_SERVING_H
#define REPORTS_SERVING_H

#include "reports/canvas.h"
#include "reports/model.h"

struct report_serving {
  json_t *json;        /* owned */
  const json_t *serve; /* of json */
  const char *scenario;
  char model[240];       /* with " on NVIDIA H200" where the records are of several devices */
  bool pass, superseded; /* superseded: a later record of the same measurement is there */
};

/* Takes a record that has a serve object; a later one of the same measurement wins, unless it was
 * interrupted and the earlier one was not. -1: no memory. */
int serving_add(struct report *r, json_t *record);
/* How many have a later one. */
int serving_superseded(const struct report *r);
void serving_free(struct report *r);
/* All figures of serving records. -1 and a line in err. */
int serving_figures(struct report *r, char *err, size_t errlen);

/* ---- for the figures --------------------------------------------------------------------------
 */

double serving_number(const json_t *o, const char *name);
const char *serving_text(const json_t *o, const char *name);
double serving_inner(const json_t *serve, const char *object, const char *name);
/* The i-th passed record of a scenario; NULL behind the last. */
const struct report_serving *serving_nth(const struct report *r, const char *scenario, int i);
/* "llama3-8b, 32 layers, cpu/flash" */
void serving_name(const struct report_serving *s, char *buf, size_t len);
bool serving_interrupted(const json_t *serve);
/* The trace's file name without folder and extension; "azure x10" at another rate than its own. In
 * at most `most` characters: of a longer name the first ones and "...". */
#define SERVING_TRACE 100 /* in a table */
struct trace_name {
  char s[512];
};
struct trace_name serving_trace(const struct report_serving *s, int most);
/* Two lines beside the axis at line `at`: what was measured, and on what. */
void serving_lines(struct canvas *c, const char *what, const char *on, int at);
int serving_open(struct canvas *c, const struct report *r, const char *stem, const char *title,
                 const char *subtitle, int width, int height, char *err, size_t errlen);

int draw_serving_prefill(struct report *r, char *err, size_t errlen);
int draw_serving_replay(struct report *r, char *err, size_t errlen);
int draw_serving_memory(struct report *r, char *err, size_t errlen);
int draw_serving_heads(struct report *r, char *err, size_t errlen);
int draw_serving_fork(struct report *r, char *err, size_t errlen);

#endif
