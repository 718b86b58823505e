/* SPDX-License-Identifier: Apache-2.0
 *
 * figure.c - the table of figures, and what they have in common.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/lengths.h"
#include "reports/matrix.h"

static const struct figure figures[] = {
    {"throughput", "Throughput",
     "FLOPs of the problem (unmasked pairs only) over the median time, with its 95 % interval, "
     "against the matrix product measured in the same run: a yardstick, which a kernel may pass "
     "that leaves a power-limited card a higher clock.",
     .plot = &plot_throughput, .draw = draw_lengths},
    {"bandwidth", "Bandwidth of decode and rotation",
     "Compulsory bytes over the median time, with its 95 % interval, against what a read, for "
     "decode, or a copy, for rotation, reached in the same run.",
     .plot = &plot_bandwidth, .draw = draw_lengths},
    {"single", "Throughput of problems at one length",
     "FLOPs of the problem (unmasked pairs only) over the median time, with its 95 % interval.",
     .plot = &plot_throughput, .draw = draw_single},
    {"single-bandwidth", "Bandwidth of problems at one length",
     "Compulsory bytes of decoding and rotation over the median time, with its 95 % interval.",
     .plot = &plot_bandwidth, .draw = draw_single},
    {"relative", "Relative speed",
     "Time of the yardstick over time of the implementation, same problem and same run: above 1 is "
     "faster.",
     .plot = &plot_relative, .draw = draw_lengths},
    {"traffic", "HBM traffic",
     "Counted bytes read and written, those still in L2 included, against the compulsory bytes; "
     "exponents are fitted over the longest lengths.",
     .plot = &plot_traffic, .draw = draw_lengths},
    {"amplification", "HBM traffic over compulsory bytes",
     "How many times the compulsory bytes each implementation moves.", .plot = &plot_amplification,
     .draw = draw_lengths},
    {"memory", "Device memory",
     "Inputs, outputs and workspace at their peak (thick) and workspace alone (thin, open marks), "
     "counted by the arena; refusals stand at the bytes that they would have taken, where known.",
     .plot = &plot_memory, .draw = draw_lengths},
    {"roofline", "Roofline",
     "FLOP/s over FLOPs per counted HBM byte, one mark a problem, under the measured copy and "
     "matrix-product ceilings.",
     .draw = draw_roofline},
    {"error", "Error against bound",
     "Largest error of each verified problem over its a-priori bound: a mark right of 1 is a "
     "wrong result; no error at all stands at the left edge.",
     .per_device = true, .draw = draw_error},
    {"rotation", "Rotation at long positions",
     "Error of the angles of rotated queries, and of the logits of rotated queries and keys, "
     "against "
     "fp64 from the same inputs; one column a factor of context extension.",
     .per_device = true, .draw = draw_drift},
};

int report_figures(struct report *r, char *err, size_t errlen)
{
  for (int i = 0; i < r->nviews; i++)
    for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
      const struct figure *f = &figures[k];
      if (f->per_device && !r->views[i].first)
        continue;
      if (f->draw(r, &r->views[i], f, err, errlen))
        return -1;
    }
  return draw_matrix(r, err, errlen);
}

/* "NVIDIA H200 · cold cache, rested" -> "nvidia-h200-cold-cache-rested" */
static void slug(const char *text, char *buf, size_t len)
{
  size_t n = 0;
  for (; *text && n + 1 < len; text++) {
    if (isalnum((unsigned char)*text))
      buf[n++] = (char)tolower((unsigned char)*text);
    else if (n && buf[n - 1] != '-')
      buf[n++] = '-';
  }
  while (n && buf[n - 1] == '-')
    n--;
  buf[n] = '\0';
}

static void title_of(const struct report *r, const struct report_view *v, const struct figure *f,
                     char *buf, size_t len)
{
  if (f->per_device)
    report_device_title(r, &r->devices[v->device], buf, len);
  else
    report_view_title(r, v, buf, len);
}

static int views_of(const struct report *r, int device)
{
  int n = 0;
  for (int i = 0; i < r->nviews; i++)
    n += r->views[i].device == device;
  return n;
}

static bool several_devices(const struct report *r)
{
  for (int i = 1; i < r->nviews; i++)
    if (r->views[i].device != r->views[0].device)
      return true;
  return false;
}

static bool stem_taken(const struct report *r, const char *stem)
{
  for (int i = 0; i < r->nfigures; i++)
    if (!strcmp(r->figures[i].stem, stem))
      return true;
  return false;
}

/* What tells this view's files from those of others: the device, cache and mode, where there are
 * several; a number where that is not enough. */
static void stem_of(const struct report *r, const struct report_view *v, const struct figure *f,
                    const char *part, char *buf, size_t len)
{
  char device[256], tail[300], slugged[48];
  report_device_title(r, &r->devices[v->device], device, sizeof device);
  bool states = !f->per_device && views_of(r, v->device) > 1;
  snprintf(tail, sizeof tail, "%s %s %s", several_devices(r) ? device : "", states ? v->cache : "",
           states ? v->mode : "");
  slug(tail, slugged, sizeof slugged);
  snprintf(buf, len, "%.16s%s%s%s%.12s", f->name, *slugged ? "-" : "", slugged, *part ? "-" : "",
           part);
  size_t n = strlen(buf);
  for (int k = 2; stem_taken(r, buf); k++)
    snprintf(buf + n, len - n, "-%d", k);
}

int figure_open(struct canvas *c, const struct report *r, const struct report_view *v,
                const struct figure *f, const char *part, const char *subtitle, int width,
                int height, char *err, size_t errlen)
{
  char where[256], title[384], stem[96];
  title_of(r, v, f, where, sizeof where);
  snprintf(title, sizeof title, "%s · %s", f->title, where);
  stem_of(r, v, f, part, stem, sizeof stem);
  if (canvas_open(c, r, stem, title, subtitle, width, height)) {
    snprintf(err, errlen, "%s/figures/%s.gp: cannot write: %s", r->outdir, stem, strerror(errno));
    return -1;
  }
  return 0;
}

int figure_end(struct canvas *c, struct report *r, const char *title, const char *caption,
               struct table *values, char *err, size_t errlen)
{
  struct report_figure *list = report_grow(r->figures, &r->nfigures, sizeof *list);
  if (!list) {
    table_free(values);
    snprintf(err, errlen, "report: out of memory");
    return -1;
  }
  r->figures = list;
  struct report_figure *out = &list[r->nfigures - 1];
  out->values = values;
  snprintf(out->title, sizeof out->title, "%s", title);
  snprintf(out->caption, sizeof out->caption, "%s", caption);
  return canvas_close(c, r, out, err, errlen);
}

int figure_close(struct canvas *c, struct report *r, const struct report_view *v,
                 const struct figure *f, const char *subtitle, struct table *values, char *err,
                 size_t errlen)
{
  char where[256], title[sizeof r->figures->title];
  title_of(r, v, f, where, sizeof where);
  snprintf(title, sizeof title, "%s · %s%s%s", f->title, where, *subtitle ? ": " : "", subtitle);
  return figure_end(c, r, title, f->caption, values, err, errlen);
}
