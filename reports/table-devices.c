/* SPDX-License-Identifier: Apache-2.0
 *
 * table-devices.c - what was measured on, in which state, and the ceilings that it showed.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/format.h"
#include "reports/tables.h"

static const struct table_column columns[] = {{"Device", "device", 'l'},
                                              {"Cache, mode", "state", 'l'},
                                              {"SM", "sm", 'r'},
                                              {"Driver", "driver", 'l'},
                                              {"CUDA", "cuda", 'l'},
                                              {"ECC", "ecc", 'l'},
                                              {"Copy GB/s", "copy_gbps", 'r'},
                                              {"Read GB/s", "read_gbps", 'r'},
                                              {"Matmul TFLOP/s", "matmul_tflops", 'r'},
                                              {"MHz in kernel", "kernel_mhz", 'r'},
                                              {"W", "power_w", 'r'},
                                              {"°C", "temperature_c", 'r'},
                                              {"Throttle reasons", "throttle", 'w'}};

static const json_t *device_of(const struct report_row *row)
{
  return json_object_get(row->json, "device");
}

/* "1335–1590", or one number if they are the same. */
static void add_range(struct table *t, int column, const struct report_view *v, const char *name)
{
  double lo = INFINITY, hi = -INFINITY;
  char text[160] = "";
  for (int i = 0; i < v->nrows; i++) {
    const json_t *j = json_object_get(device_of(v->rows[i]), name);
    if (json_is_number(j)) {
      lo = fmin(lo, json_number_value(j));
      hi = fmax(hi, json_number_value(j));
    }
  }
  if (lo < hi)
    snprintf(text, sizeof text, "%s–%s", format_number(lo, 3).s, format_number(hi, 3).s);
  else if (isfinite(lo))
    snprintf(text, sizeof text, "%s", format_number(lo, 3).s);
  table_text(t, column, text);
}

static void add_text(struct table *t, int column, const struct report_view *v, const char *name)
{
  const char *s = json_string_value(json_object_get(device_of(v->rows[0]), name));
  table_text(t, column, s ? s : "");
}

static void add_throttle(struct table *t, int column, const struct report_view *v)
{
  char text[512] = "";
  for (int i = 0; i < v->nrows; i++) {
    const json_t *list = json_object_get(device_of(v->rows[i]), "throttle");
    for (size_t k = 0; k < json_array_size(list); k++) {
      const char *s = json_string_value(json_array_get(list, k));
      size_t n = strlen(text);
      if (s && !strstr(text, s))
        snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", s);
    }
  }
  table_text(t, column, text);
}

struct table *table_devices(const struct report *r)
{
  struct table *t =
      table_new("devices", "Devices",
                "What the results were measured on; clock, power and temperature over all rows.",
                columns, sizeof columns / sizeof *columns);
  for (int i = 0; t && i < r->nviews; i++) {
    const struct report_view *v = &r->views[i];
    const json_t *device = device_of(v->rows[0]);
    const json_t *sm = json_object_get(device, "sm"), *ecc = json_object_get(device, "ecc");
    char title[256], state[64];
    report_device_title(r, &r->devices[v->device], title, sizeof title);
    snprintf(state, sizeof state, "%s%s%s", v->cache, *v->mode ? ", " : "", v->mode);
    table_row(t);
    table_text(t, 0, title);
    table_text(t, 1, state);
    if (json_is_integer(sm))
      table_number(t, 2, (double)json_integer_value(sm), format_exact(json_number_value(sm)).s);
    add_text(t, 3, v, "driver");
    add_text(t, 4, v, "cuda");
    table_text(t, 5, json_is_true(ecc) ? "on" : json_is_false(ecc) ? "off" : "");
    table_number(t, 6, v->copy_gbps, format_number(v->copy_gbps, 4).s);
    table_number(t, 7, v->read_gbps, format_number(v->read_gbps, 4).s);
    table_number(t, 8, v->matmul_tflops, format_number(v->matmul_tflops, 3).s);
    add_range(t, 9, v, "kernel_mhz");
    add_range(t, 10, v, "power_w");
    add_range(t, 11, v, "temperature_c");
    add_throttle(t, 12, v);
  }
  return t;
}
