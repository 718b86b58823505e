/* SPDX-License-Identifier: Apache-2.0
 *
 * attributes.c - what a panel is, in words: what all panels of a figure share goes into its
 * subtitle, the rest above each panel.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "reports/figure.h"
#include "reports/format.h"

static void describe_mask(const struct attn_problem *p, char *buf, size_t len)
{
  static const char *const names[] = {"full", "causal", "causal from top left", "window"};
  char left[24] = "any", right[24] = "any";
  if (p->window_left >= 0)
    snprintf(left, sizeof left, "%lld", (long long)p->window_left);
  if (p->window_right >= 0)
    snprintf(right, sizeof right, "%lld", (long long)p->window_right);
  if (p->mask == ATTN_MASK_WINDOW)
    snprintf(buf, len, "window %s:%s", left, right);
  else
    snprintf(buf, len, "%s", names[p->mask]);
}

static void describe_batch(const struct report_panel *panel, char *buf, size_t len)
{
  const struct attn_problem *p = &panel->rows[0]->p;
  bool same_batch = true, same_tokens = true;
  for (int i = 1; i < panel->nrows; i++) {
    const struct attn_problem *q = &panel->rows[i]->p;
    same_batch = same_batch && q->b == p->b;
    same_tokens = same_tokens && q->b * q->sk == p->b * p->sk;
  }
  if (p->nruns)
    snprintf(buf, len, "%lld ragged sequences", (long long)p->b);
  else if (same_batch)
    snprintf(buf, len, "batch %lld", (long long)p->b);
  else if (same_tokens)
    snprintf(buf, len, "%s tokens", format_tokens((double)(p->b * p->sk)).s);
}

/* What the canonical string says beyond the other attributes. */
static void describe_rest(const struct attn_problem *p, char *buf, size_t len)
{
  static const char *const known[] = {
      "op=", "dtype=", "b=", "hq=", "hkv=", "sq=", "sk=", "seqs=", "d=", "dv=", "layout=", "mask="};
  char text[ATTN_PROBLEM_TEXT], *at = text, *word;
  attn_problem_print(p, text, sizeof text);
  if (report_own_queries(p))
    snprintf(buf, len, p->sq == 1 ? "%lld query" : "%lld queries", (long long)p->sq);
  while ((word = strsep(&at, " "))) {
    bool skip = !*word;
    for (size_t i = 0; i < sizeof known / sizeof *known && !skip; i++)
      skip = !strncmp(word, known[i], strlen(known[i]));
    size_t n = strlen(buf);
    if (!skip)
      snprintf(buf + n, len - n, "%s%s", n ? ", " : "", word);
  }
}

void panel_attributes(const struct report *r, const struct report_view *v,
                      const struct report_panel *panel, struct attributes *a)
{
  static const char *const ops[] = {"forward", "backward", "decode", "append", "rotation"};
  static const char *const layouts[] = {"bshd", "bhsd", "packed"};
  const struct report_row *row = panel->rows[0];
  const struct attn_problem *p = &row->p;
  enum { OP, DTYPE, D, MASK, HEADS, BATCH, LAYOUT, REST, SRAM };
  size_t len = sizeof a->text[0];
  memset(a, 0, sizeof *a);
  snprintf(a->text[OP], len, "%s", ops[p->op]);
  snprintf(a->text[DTYPE], len, "%s", attn_dtype_name(p->dtype));
  snprintf(a->text[D], len, p->d == p->dv ? "d=%lld" : "d=%lld/%lld", (long long)p->d,
           (long long)p->dv);
  if (p->op != ATTN_ROPE)
    describe_mask(p, a->text[MASK], len);
  snprintf(a->text[HEADS], len, p->hq == p->hkv ? "%lld heads" : "%lld/%lld heads",
           (long long)p->hq, (long long)p->hkv);
  describe_batch(panel, a->text[BATCH], len);
  snprintf(a->text[LAYOUT], len, "%s", layouts[p->layout]);
  describe_rest(p, a->text[REST], len);
  if (!strcmp(r->devices[v->device].kind, "cpu") && isfinite(row->sram_bytes))
    snprintf(a->text[SRAM], len, "M = %s", format_binary(row->sram_bytes).s);
}

static bool shared(const struct attributes *a, int n, int k)
{
  for (int i = 1; i < n; i++)
    if (strcmp(a[i].text[k], a[0].text[k]))
      return false;
  return true;
}

static void join(const struct attributes *a, int n, int i, bool want_shared, char *buf, size_t len)
{
  buf[0] = '\0';
  for (int k = 0; k < ATTRIBUTES; k++) {
    size_t at = strlen(buf);
    if (*a[i].text[k] && shared(a, n, k) == want_shared)
      snprintf(buf + at, len - at, "%s%s", at ? ", " : "", a[i].text[k]);
  }
}

void attributes_common(const struct attributes *a, int n, char *buf, size_t len)
{
  join(a, n, 0, true, buf, len);
}

void attributes_own(const struct attributes *a, int n, int i, char *buf, size_t len)
{
  join(a, n, i, false, buf, len);
}
