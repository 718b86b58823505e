/* SPDX-License-Identifier: Apache-2.0
 *
 * explain-variant.c - the compiled variant that a problem gets: its tile, who chose it, and what
 * its tiles ask of shared memory.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/explain/explain.h"
#include "harness/explain/text.h"
#include "harness/record/fields.h"
#include "harness/tune/advice.h"
#include "impl/echo.h"

/* ---- without a run --------------------------------------------------------------------------- */

static struct attn_device device_of(const struct machine_limits *m)
{
  struct attn_device dev = {.kind = m->kind,
                            .sm = m->sm,
                            .multiprocessors = m->multiprocessors,
                            .memory_bytes = SIZE_MAX,
                            .sram_bytes = explain_sram(m->sm)};
  memcpy(dev.name, m->name, sizeof dev.name);
  return dev;
}

/* want: the variant that it must be, or NULL. True if it has that. */
static bool choose(struct explained *x, const struct attn_impl *impl, const struct attn_device *dev,
                   const char *want)
{
  struct record *r = &x->run[x->chosen];
  record_init(r);
  if (attn_unsupported(impl, &x->problem, dev))
    return false;
  r->status = STATUS_SKIP;
  r->variant_by = advice_variant(impl, &x->problem, dev, &r->variant);
  advice_name(dev, r->variant_table, sizeof r->variant_table);
  snprintf(r->impl, sizeof r->impl, "%s", impl->name);
  if (!r->variant_by)
    return false;
  x->chosen++;
  if (!want || !strcmp(r->variant_by, "forced"))
    return true;
  r->variant_by = NULL;
  snprintf(r->reason, sizeof r->reason, "--variant %.64s: %s", want, ADVICE_NO_VARIANT);
  return false;
}

int explain_choose(struct explained *x, const struct machine_limits *m, const struct run_options *o,
                   char *err, size_t errlen)
{
  const struct attn_impl *impl[GROUP_CASES];
  static struct advice advice;
  struct attn_device dev = device_of(m);
  bool found = !o->variant;
  int n = catalog_select(CATALOG_ANY_DEVICE, o->impls, impl, GROUP_CASES, err, errlen);
  x->chosen = 0;
  if (n < 0 || advice_read(&advice, o->choices, err, errlen))
    return -1;
  if (o->variant)
    advice_force(o->variant, &dev);
  else
    advice_apply(&advice, &dev);
  for (int i = 0; i < n; i++)
    if (impl[i]->device == m->kind)
      found |= choose(x, impl[i], &dev, o->variant);
  advice_free(&advice);
  if (!found)
    snprintf(err, errlen,
             "--variant %s: no implementation here has such a variant for this "
             "problem; attnbench list --variants",
             ATTN_ECHOS(o->variant));
  return found ? 0 : -1;
}

/* ---- as text --------------------------------------------------------------------------------- */

static void print_choice(const struct record *r, FILE *out)
{
  if (!strcmp(r->variant_by, "table"))
    fprintf(out, "chosen by %s\n", r->variant_table);
  else if (!strcmp(r->variant_by, "forced"))
    fprintf(out, "forced by --variant\n");
  else if (r->variant_table[0])
    fprintf(out, "its own choice, of which %s says nothing\n", r->variant_table);
  else
    fprintf(out, "its own choice, without a table of this device\n");
}

void explain_print_variant(const struct attn_problem *p, const struct record *r,
                           const struct bound *b, FILE *out)
{
  const struct attn_variant *v = &r->variant;
  if (!r->variant_by) {
    if (r->status == STATUS_SKIP)
      fprintf(out, "  variant   %s\n", r->reason);
    return;
  }
  struct tiling t = explain_tiling(p, v);
  fprintf(out, "  variant   %s, tile %d x %d", v->name, v->rows, v->keys);
  if (v->stages)
    fprintf(out, ", %d stage%s", v->stages, v->stages == 1 ? "" : "s");
  if (v->threads)
    fprintf(out, ", %d threads", v->threads);
  if (v->smem_bytes)
    fprintf(out, ", %d bytes of shared memory", v->smem_bytes);
  fprintf(out, "; ");
  print_choice(r, out);
  if (!(t.shared_bytes > 0))
    return;
  fprintf(out, "  shared    %s in %s of %s, %s: modelled %s%s\n", amount(t.shared_bytes, "B").s,
          amount(t.steps, " steps").s, amount(v->step_smem_bytes, "B").s,
          amount(t.tiles, " tiles").s, duration(b->s[LIMIT_SHARED]).s,
          b->by == LIMIT_SHARED ? ", the bound" : "");
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *known(double x)
{
  return x > 0 ? json_real(x) : json_null();
}

json_t *explain_variant_json(const struct attn_problem *p, const struct record *r,
                             const struct bound *b)
{
  const struct attn_variant *v = &r->variant;
  if (!r->variant_by)
    return json_null();
  struct tiling t = explain_tiling(p, v);
  return json_pack("{s:s,s:s,s:s?,s:i,s:i,s:i,s:i,s:i,s:o,s:o,s:o,s:o,s:o}", "name", v->name, "by",
                   r->variant_by, "table", r->variant_table[0] ? r->variant_table : NULL, "rows",
                   v->rows, "keys", v->keys, "stages", v->stages, "threads", v->threads,
                   "block_shared_bytes", v->smem_bytes, "tiles", known(t.tiles), "steps",
                   known(t.steps), "step_shared_bytes", known(v->step_smem_bytes), "shared_bytes",
                   known(t.shared_bytes), "shared_memory_s", field_real(b->s[LIMIT_SHARED]));
}
