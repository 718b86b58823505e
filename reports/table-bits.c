/* SPDX-License-Identifier: Apache-2.0
 *
 * table-bits.c - what is the same bit for bit: two runs, a sequence alone and in its batch, an
 * implementation and the one that it claims to be another form of.
 */
#include "config.h"

#include <string.h>

#include "harness/record/fields.h"
#include "reports/tables.h"

enum { RERUN, BATCH, TWIN, KINDS };

struct bits {
  int same[KINDS], of[KINDS];
};

static void see(struct bits *b, int kind, const json_t *answer)
{
  bool same = json_is_true(answer) ||
              !strcmp(json_is_string(answer) ? json_string_value(answer) : "", "pass");
  if (!answer || json_is_null(answer))
    return;
  b->of[kind]++;
  b->same[kind] += same;
}

static struct bits count(const struct report *r, int device, const char *impl)
{
  struct bits b = {{0}, {0}};
  for (int i = 0; i < r->nrows; i++) {
    const json_t *v = json_object_get(r->rows[i].json, "verify");
    if (r->rows[i].device != device || strcmp(r->rows[i].impl, impl) || !json_is_object(v))
      continue;
    see(&b, RERUN, json_object_get(v, "rerun_bitwise"));
    see(&b, BATCH, json_object_get(json_object_get(v, "properties"), "batch_invariant"));
    see(&b, TWIN, json_object_get(json_object_get(v, "checks"), "same-bits"));
  }
  return b;
}

static void add(const struct report *r, struct table *t, int device, const char *impl)
{
  struct bits b = count(r, device, impl);
  char text[48];
  if (!b.of[RERUN] && !b.of[BATCH] && !b.of[TWIN])
    return;
  table_row(t);
  table_text(t, 0, r->devices[device].name);
  table_text(t, 1, impl);
  for (int k = 0; k < KINDS; k++) {
    snprintf(text, sizeof text, "%d of %d", b.same[k], b.of[k]);
    table_text(t, 2 + k, b.of[k] ? text : "");
  }
}

static bool seen(const struct report *r, int i)
{
  for (int k = 0; k < i; k++)
    if (r->rows[k].device == r->rows[i].device && !strcmp(r->rows[k].impl, r->rows[i].impl))
      return true;
  return false;
}

struct table *table_bits(const struct report *r)
{
  static const struct table_column columns[] = {{"Device", "device", 'l'},
                                                {"Implementation", "impl", 'l'},
                                                {"run twice", "rerun", 'l'},
                                                {"alone and in its batch", "batch", 'l'},
                                                {"as its twin", "twin", 'l'}};
  struct table *t = table_new(
      "bits", "Bit for bit",
      "Cases with the same bits in two runs, of a sequence alone and in its batch, and of an "
      "implementation and the one whose bits it claims (flash-materialised: flash). Observed, but "
      "for the last, which is judged.",
      columns, sizeof columns / sizeof *columns);
  for (int d = 0; t && d < r->ndevices; d++)
    for (int i = 0; i < r->nrows; i++)
      if (r->rows[i].device == d && !seen(r, i))
        add(r, t, d, r->rows[i].impl);
  return t;
}
