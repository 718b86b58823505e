/* SPDX-License-Identifier: Apache-2.0
 *
 * choices.c - reads, writes and looks up the choices of a device.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/catalog.h"
#include "harness/tune/choices.h"
#include "impl/echo.h"

static const struct row {
  const char *name;    /* with its relation */
  const char *word[4]; /* values by name; NULL: a number */
  bool most;           /* holds for all that is not above it */
} rows[CONDITIONS] = {
    [CHOICE_OP] = {"op=", {"fwd", "bwd", "decode"}, false},
    [CHOICE_D] = {"d<=", {NULL}, true},
    [CHOICE_DTYPE] = {"dtype=", {"fp32", "bf16", "fp16"}, false},
    [CHOICE_MASK] = {"mask=", {"none", "some"}, false},
    [CHOICE_OPTIONS] = {"options=", {"0", "1"}, false},
    [CHOICE_PAGES] = {"pages=", {"0", "1"}, false},
    [CHOICE_PAGE] = {"page<=", {NULL}, true},
    [CHOICE_KV] = {"kv=", {"dtype", "e4m3"}, false},
    [CHOICE_DETERMINISTIC] = {"deterministic=", {"0", "1"}, false},
    [CHOICE_GROUP] = {"group<=", {NULL}, true},
    [CHOICE_ROWS] = {"rows<=", {NULL}, true},
    [CHOICE_KEYS] = {"keys<=", {NULL}, true},
};

/* ---- look up --------------------------------------------------------------------------------- */

struct choice_key choice_key_of(const struct attn_problem *p)
{
  double queries = (double)attn_problem_total_q(p);
  int op = p->op == ATTN_APPEND ? ATTN_FWD : (int)p->op;
  return (struct choice_key){{[CHOICE_OP] = op,
                              [CHOICE_D] = (double)(p->d > p->dv ? p->d : p->dv),
                              [CHOICE_DTYPE] = p->dtype,
                              [CHOICE_MASK] = p->mask != ATTN_MASK_NONE,
                              [CHOICE_OPTIONS] = p->softcap > 0 || p->alibi || p->dropout_p > 0,
                              [CHOICE_PAGES] = p->page > 0,
                              [CHOICE_PAGE] = (double)p->page,
                              [CHOICE_KV] = p->kv,
                              [CHOICE_DETERMINISTIC] = p->deterministic,
                              [CHOICE_GROUP] = (double)(p->hq / p->hkv * p->sq),
                              [CHOICE_ROWS] = queries * (double)p->hq,
                              [CHOICE_KEYS] = queries > 0 ? attn_problem_pairs(p) / queries : 0}};
}

static bool holds(const struct choice *c, const struct choice_key *key)
{
  for (enum condition i = 0; i < CONDITIONS; i++) {
    double want = c->key.value[i], is = key->value[i];
    if (c->given >> i & 1 && (rows[i].most ? is > want : is != want))
      return false;
  }
  return true;
}

const struct choice *choices_find(const struct choices *c, const char *impl,
                                  const struct attn_problem *p)
{
  struct choice_key key = choice_key_of(p);
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->item[i].impl, impl) && holds(&c->item[i], &key))
      return &c->item[i];
  return NULL;
}

/* ---- write ----------------------------------------------------------------------------------- */

void choice_print(const struct choice *c, FILE *out)
{
  fprintf(out, "%s", c->impl);
  for (enum condition i = 0; i < CONDITIONS; i++) {
    double x = c->key.value[i];
    if (c->given >> i & 1 && rows[i].word[0])
      fprintf(out, " %s%s", rows[i].name, rows[i].word[(int)x]);
    else if (c->given >> i & 1)
      fprintf(out, " %s%.0f", rows[i].name, x);
  }
  fprintf(out, " -> %s", c->variant);
}

/* ---- read ------------------------------------------------------------------------------------ */

static bool set_value(const struct row *r, const char *text, double *x)
{
  char *end;
  for (int i = 0; i < 4 && r->word[i]; i++)
    if (!strcmp(text, r->word[i])) {
      *x = i;
      return true;
    }
  *x = strtod(text, &end);
  return !r->word[0] && end != text && !*end && *x >= 0 && isfinite(*x);
}

/* One condition; false: not understood, or given twice. */
static bool take_condition(struct choice *c, const char *word)
{
  for (enum condition i = 0; i < CONDITIONS; i++) {
    size_t n = strlen(rows[i].name);
    if (strncmp(word, rows[i].name, n))
      continue;
    bool twice = c->given >> i & 1;
    c->given |= 1u << i;
    return !twice && set_value(&rows[i], word + n, &c->key.value[i]);
  }
  return false;
}

static bool has_variant(const struct attn_impl *impl, const char *name)
{
  struct attn_variant v;
  for (int i = 0; impl->variant && !impl->variant(NULL, NULL, i, &v); i++)
    if (!strcmp(v.name, name))
      return true;
  return false;
}

struct reading {
  struct choices *c;
  const char *path;
  int line;
  char *err;
  size_t errlen;
};

static int refuse(const struct reading *r, const char *word, const char *why)
{
  snprintf(r->err, r->errlen, "%s:%d: %s: %s", ATTN_ECHOS(r->path), r->line, ATTN_ECHOS(word), why);
  return -1;
}

static int append(struct reading *r, const struct choice *c)
{
  struct choice *grown = realloc(r->c->item, ((size_t)r->c->n + 1) * sizeof *grown);
  if (!grown)
    return refuse(r, c->impl, "out of memory");
  r->c->item = grown;
  grown[r->c->n++] = *c;
  return 0;
}

static int take_choice(struct reading *r, char *line)
{
  static const char blanks[] = " \t\r\n";
  struct choice c = {.given = 0};
  char *save, *word = strtok_r(line, blanks, &save);
  const struct attn_impl *impl = catalog_named(word);
  if (snprintf(c.impl, sizeof c.impl, "%s", word) >= (int)sizeof c.impl || !strchr(word, '/'))
    return refuse(r, word, "want 'device = NAME' or 'IMPLEMENTATION CONDITION ... -> VARIANT'");
  while ((word = strtok_r(NULL, blanks, &save)) && strcmp(word, "->"))
    if (!take_condition(&c, word))
      return refuse(r, word,
                    "want each condition once: op= d<=N dtype= mask=none|some options=0|1 "
                    "pages=0|1 page<=N kv=dtype|e4m3 deterministic=0|1 group<=N rows<=N keys<=N");
  word = word ? strtok_r(NULL, blanks, &save) : NULL;
  if (!word || strtok_r(NULL, blanks, &save))
    return refuse(r, c.impl, "want '-> VARIANT' at the end of the line, one word");
  if (snprintf(c.variant, sizeof c.variant, "%s", word) >= (int)sizeof c.variant ||
      (impl && !has_variant(impl, word)))
    return refuse(r, word, "no variant of this implementation; attnbench list --variants");
  return append(r, &c);
}

/* "device = NAME" */
static bool take_device(struct reading *r, const char *line)
{
  const char *at = line + strspn(line, " \t");
  if (strncmp(at, "device", 6) || (at += 6, at += strspn(at, " \t"), *at != '='))
    return false;
  at += 1 + strspn(at + 1, " \t");
  int n = (int)strcspn(at, "\r\n");
  while (n > 0 && strchr(" \t", at[n - 1]))
    n--;
  snprintf(r->c->device, sizeof r->c->device, "%.*s", n, at);
  return true;
}

static int take_line(struct reading *r, char *line)
{
  line[strcspn(line, "#\n")] = 0;
  if (!line[strspn(line, " \t\r")] || take_device(r, line))
    return 0;
  if (!r->c->device[0])
    return refuse(r, line, "want 'device = NAME' in front of the first choice");
  return take_choice(r, line);
}

int choices_read(const char *path, struct choices *c, char *err, size_t errlen)
{
  struct reading r = {c, path, 0, err, errlen};
  char *text = NULL;
  size_t size = 0;
  int status = 0;
  *c = (struct choices){.n = 0};
  snprintf(c->path, sizeof c->path, "%s", path);
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(err, errlen, "%s: no choices of variants (%s)", ATTN_ECHOS(path), strerror(errno));
    return -1;
  }
  while (!status && getline(&text, &size, f) >= 0) {
    r.line++;
    status = take_line(&r, text);
  }
  if (!status && !c->device[0])
    status = refuse(&r, "the end", "want 'device = NAME', the GPU whose choices these are");
  free(text);
  fclose(f);
  if (status)
    choices_free(c);
  return status;
}

void choices_free(struct choices *c)
{
  free(c->item);
  *c = (struct choices){.n = 0};
}
