/* SPDX-License-Identifier: Apache-2.0
 *
 * choices: what is written is read back the same, and the first line that fits a problem decides;
 * malformed tables are refused with file, line and reason; a device gets the table of its name and
 * no other; another variant wins only beyond doubt.  Dispatch of every implementation that has
 * variants, on the problems of suites verify and tune: names are not twice among those of a
 * problem, what is wanted is what it gets, and what is not there changes nothing.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/explain/machine-file.h"
#include "harness/tune/advice.h"
#include "harness/tune/tune.h"
#include "tests/tap.h"

static char path[] = "/tmp/attnbench-choices.XXXXXX";
static char err[1024];

static struct attn_problem problem(const char *text)
{
  struct attn_problem p;
  if (attn_problem_parse(text, &p, err, sizeof err))
    diag("%s", err);
  return p;
}

static void put(const char *text)
{
  FILE *f = fopen(path, "w");
  fputs(text, f);
  fclose(f);
}

/* ---- a table --------------------------------------------------------------------------------- */

static const char table[] = "# a comment\n"
                            "device = A GPU of tests \n"
                            "\n"
                            "no/one op=fwd d<=64 mask=some keys<=512 -> a  # why\n"
                            "no/one op=fwd d<=64 -> b\n"
                            "no/one\top=fwd d<=128 dtype=fp16 options=1 pages=0 -> c\n"
                            "no/one op=bwd deterministic=1 -> d\n"
                            "no/one op=decode group<=4 kv=e4m3 pages=1 page<=16 -> e\n"
                            "no/two rows<=96 op=fwd -> g\n"
                            "no/two -> f\n";

static const struct {
  const char *impl, *problem, *variant;
} cases[] = {
    {"no/one", "s=1k d=64 mask=causal", "b"},   /* 512.5 keys on the average */
    {"no/one", "s=1023 d=64 mask=causal", "a"}, /* 512 */
    {"no/one", "s=1025 d=64 mask=causal", "b"}, /* 513 */
    {"no/one", "s=64 d=64", "b"},
    {"no/one", "s=64 d=40 dv=64", "b"},
    {"no/one", "op=append sq=16 sk=64 d=64", "a"},
    {"no/one", "s=64 d=65", NULL},
    {"no/one", "s=64 d=72 dtype=fp16 softcap=3", "c"},
    {"no/one", "s=64 d=72 dtype=fp16 alibi=1", "c"},
    {"no/one", "s=64 d=72 dtype=fp16", NULL},
    {"no/two", "b=2 hq=3 s=16 d=64", "g"},
    {"no/two", "b=2 hq=3 s=17 d=64", "f"},
    {"no/one", "op=bwd s=64 d=64 deterministic=1", "d"},
    {"no/one", "op=bwd s=64 d=64", NULL},
    {"no/one", "op=decode hq=8 hkv=2 sk=64 d=64 page=16 kv=e4m3", "e"},
    {"no/one", "op=decode hq=8 hkv=2 sk=64 d=64 page=17 kv=e4m3", NULL},
    {"no/one", "op=decode hq=8 hkv=1 sk=64 d=64 page=16 kv=e4m3", NULL},
    {"no/one", "op=decode hq=4 hkv=2 sq=2 sk=64 d=64 page=16 kv=e4m3", "e"},
    {"no/one", "op=decode hq=8 hkv=2 sk=64 d=64 page=16", NULL},
    {"no/two", "op=decode hq=8 hkv=2 sk=64 d=64 page=16", "f"},
    {"no/three", "s=64 d=64", NULL},
};

static void look_up(void)
{
  struct choices c;
  put(table);
  ok(!choices_read(path, &c, err, sizeof err) && c.n == 7 && !strcmp(c.device, "A GPU of tests"),
     "reads a table of seven lines for a device");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct attn_problem p = problem(cases[i].problem);
    const struct choice *x = choices_find(&c, cases[i].impl, &p);
    const char *want = cases[i].variant;
    ok(want ? x && !strcmp(x->variant, want) : !x, "%s, %s: %s", cases[i].impl, cases[i].problem,
       want ? want : "its own choice");
  }
  choices_free(&c);
}

static void round_trip(void)
{
  struct choices a, b;
  put(table);
  choices_read(path, &a, err, sizeof err);
  FILE *f = fopen(path, "w");
  fprintf(f, "device = %s\n", a.device);
  for (int i = 0; i < a.n; i++) {
    choice_print(&a.item[i], f);
    fprintf(f, "\n");
  }
  fclose(f);
  ok(!choices_read(path, &b, err, sizeof err) && b.n == a.n && !strcmp(a.device, b.device),
     "what is written is a table");
  for (int i = 0; i < a.n && i < b.n; i++)
    ok(!memcmp(&a.item[i], &b.item[i], sizeof a.item[i]), "the same line %d", i);
  choices_free(&a);
  choices_free(&b);
}

/* ---- malformed ------------------------------------------------------------------------------- */

static const struct {
  const char *text;
  int line;
  const char *says;
} bad[] = {
    {"no/one -> a\n", 1, "device = NAME"},
    {"", 0, "device = NAME"},
    {"device = x\nno/one op=fwd a\n", 2, "op="},
    {"device = x\nno/one op=fwd\n", 2, "-> VARIANT"},
    {"device = x\nno/one op=fwd ->\n", 2, "-> VARIANT"},
    {"device = x\nno/one op=fwd -> a b\n", 2, "one word"},
    {"device = x\n\n# c\nno/one op=pony -> a\n", 4, "op=pony"},
    {"device = x\nno/one d<=pony -> a\n", 2, "d<=pony"},
    {"device = x\nno/one d<= -> a\n", 2, "d<="},
    {"device = x\nno/one d<=-1 -> a\n", 2, "d<=-1"},
    {"device = x\nno/one keys<=nan -> a\n", 2, "keys<=nan"},
    {"device = x\nno/one d=64 -> a\n", 2, "d=64"},
    {"device = x\nno/one mask=none mask=none -> a\n", 2, "each condition once"},
    {"device = x\nnoone -> a\n", 2, "IMPLEMENTATION"},
    {"device = x\nno/one -> "
     "0123456789012345678901234567890123456789012345678901234567890123456789\n",
     2, "no variant"},
    {"device = x\ncpu/flash -> a\n", 2, "no variant"},
};

static void malformed(void)
{
  struct choices c;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char at[64];
    put(bad[i].text);
    snprintf(at, sizeof at, "%s:%d: ", path, bad[i].line);
    err[0] = 0;
    ok(choices_read(path, &c, err, sizeof err) == -1 && !strncmp(err, at, strlen(at)) &&
           strstr(err, bad[i].says) && !strchr(err, '\n'),
       "refused: %s", err);
  }
  ok(choices_read("/nowhere/x.tune", &c, err, sizeof err) == -1 && strstr(err, "/nowhere/x.tune"),
     "no such file: %s", err);
}

/* ---- the device's table ---------------------------------------------------------------------- */

static void devices(void)
{
  static struct advice a;
  struct attn_device dev = {.kind = ATTN_CUDA, .name = "A GPU of tests"}, other = {.name = "B"};
  struct attn_problem p = problem("s=64 d=64");
  put(table);
  ok(!advice_read(&a, "none", err, sizeof err) && a.n == 0, "none is no table");
  advice_apply(&a, &dev);
  ok(!attn_wanted(&dev, "no/one", &p) && !advice_of(&dev), "and nothing is wanted");
  a.n = 1;
  ok(!choices_read(path, &a.table[0], err, sizeof err), "a table");
  advice_apply(&a, &other);
  ok(!attn_wanted(&other, "no/one", &p) && !advice_of(&other), "is not for another device");
  advice_apply(&a, &dev);
  ok(!strcmp(attn_wanted(&dev, "no/one", &p), "b") && advice_of(&dev) == &a.table[0],
     "is for the one of its name");
  advice_free(&a);
  ok(!advice_read(&a, path, err, sizeof err), "a file that is named");
  advice_apply(&a, &other);
  ok(!strcmp(attn_wanted(&other, "no/one", &p), "b"), "is for any device");
  advice_free(&a);
}

/* ---- those of this tree ---------------------------------------------------------------------- */

static int tables, unread, nameless;

static void lint(const char *name, void *ctx)
{
  char file[4300];
  struct machine_limits m;
  struct choices c;
  snprintf(file, sizeof file, "%s/machines/%s.tune", catalog_profiles(), name);
  tables++;
  if (choices_read(file, &c, err, sizeof err)) {
    diag("%s", err);
    unread++;
    return;
  }
  nameless += machine_read(name, &m, err, sizeof err) || strcmp(m.name, c.device);
  choices_free(&c);
}

static void committed(void)
{
  catalog_files("machines", ".tune", lint, NULL);
  ok(!unread, "all of %d tables of profiles/machines are well formed, and name what there is",
     tables);
  ok(!nameless, "each is of the device of the .machine file of its name");
}

/* ---- which is best --------------------------------------------------------------------------- */

static struct trial trial(double median, double half)
{
  return (struct trial){"", STATUS_PASS, median, median - half, median + half};
}

static void best(void)
{
  struct trial t[3] = {trial(100, 1), trial(90, 1), trial(80, 1)};
  ok(tune_best(t, 3) == 2, "the fastest");
  t[2].status = STATUS_FAIL;
  ok(tune_best(t, 3) == 1, "of those that passed");
  t[1] = trial(99, 0.5);
  ok(tune_best(t, 2) == 0, "the own choice where intervals meet");
  t[0] = trial(100, 0.01);
  t[1] = trial(99.9, 0.01);
  ok(tune_best(t, 2) == 0, "or where the gain is below what counts");
  t[0].status = STATUS_FAIL;
  ok(tune_best(t, 2) == 1, "another where the own choice failed");
  t[1].status = STATUS_CRASH;
  ok(tune_best(t, 3) == -1, "none where all did");
  t[0] = trial(100, NAN);
  t[1] = trial(50, NAN);
  ok(tune_best(t, 2) == 0, "without an interval nothing is beyond doubt");
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const char *want_it(const struct attn_device *dev, const char *impl,
                           const struct attn_problem *p)
{
  return dev->wanted_from;
}

struct seen {
  int problems, variants, most, twice, refused, other, changed;
};

static bool is_first(const struct attn_impl *impl, const struct attn_problem *p,
                     const struct attn_device *dev, const char *name)
{
  struct attn_variant v;
  return !impl->variant(p, dev, 0, &v) && !strcmp(v.name, name);
}

static int count(const struct attn_impl *impl, const struct attn_problem *p,
                 const struct attn_device *dev)
{
  struct attn_variant v;
  int n = 0;
  while (!impl->variant(p, dev, n, &v))
    n++;
  return n;
}

static bool listed(const struct attn_impl *impl, const char *name)
{
  struct attn_variant v;
  for (int i = 0; !impl->variant(NULL, NULL, i, &v); i++)
    if (!strcmp(v.name, name))
      return true;
  return false;
}

static void dispatch(const struct attn_impl *impl, const struct attn_problem *p,
                     const struct attn_device *dev, struct seen *s)
{
  struct attn_device asks = *dev;
  struct attn_variant own, v, w;
  int n = count(impl, p, dev);
  if (impl->variant(p, dev, 0, &own))
    return;
  s->problems++;
  s->most = n > s->most ? n : s->most;
  asks.wanted = want_it;
  for (int i = 0; i < n; i++) {
    impl->variant(p, dev, i, &v);
    for (int k = 0; k < i; k++)
      s->twice += !impl->variant(p, dev, k, &w) && !strcmp(v.name, w.name);
    asks.wanted_from = v.name;
    s->variants++;
    s->refused += attn_unsupported(impl, p, &asks) != NULL || !listed(impl, v.name);
    s->other += !is_first(impl, p, &asks, v.name) || count(impl, p, &asks) != n;
  }
  asks.wanted_from = "no such variant";
  s->changed += !is_first(impl, p, &asks, own.name);
}

static void dispatch_all(const struct attn_impl *impl, const struct attn_device *dev)
{
  struct problem_list list = {NULL, 0, 0};
  struct seen s = {0};
  if (catalog_suite(&list, "verify", err, sizeof err) ||
      catalog_suite(&list, "tune", err, sizeof err))
    diag("%s", err);
  for (int i = 0; i < list.n; i++)
    if (!attn_unsupported(impl, &list.item[i], dev))
      dispatch(impl, &list.item[i], dev, &s);
  diag("%s on %s: %d problems, %d variants of them, %d at most", impl->name, dev->name, s.problems,
       s.variants, s.most);
  ok(s.problems > 0 && s.most > 1, "%s, %s: has a choice", impl->name, dev->name);
  ok(!s.twice, "no name twice");
  ok(!s.refused, "each is taken, and listed");
  ok(!s.other, "it gets what is wanted");
  ok(!s.changed, "what is not there changes nothing");
  catalog_problems_free(&list);
}

static bool same_variant(const struct attn_variant *a, const struct attn_variant *b)
{
  return !strcmp(a->name, b->name) && a->rows == b->rows && a->keys == b->keys &&
         a->threads == b->threads && a->smem_bytes == b->smem_bytes;
}

/* make check-sanitize launches the variants of suite sanitize's problems: all that there are, but
 * for types and for forms of one name (cuda/decode), which a variant does not tell. */
static void swept(const struct attn_impl *impl, const struct attn_device *dev)
{
  struct problem_list list = {NULL, 0, 0};
  struct attn_variant v, w;
  int left_out = 0;
  if (catalog_suite(&list, "sanitize", err, sizeof err))
    diag("%s", err);
  for (int i = 0; !impl->variant(NULL, NULL, i, &v); i++) {
    bool found = false;
    for (int k = 0; k < list.n && !found; k++)
      for (int j = 0; !found && !attn_unsupported(impl, &list.item[k], dev) &&
                      !impl->variant(&list.item[k], dev, j, &w);
           j++)
        found = same_variant(&v, &w);
    left_out += !found;
    if (!found)
      diag("%s %s (%d bytes of shared memory): no problem of suite sanitize", impl->name, v.name,
           v.smem_bytes);
  }
  ok(!left_out, "%s: suite sanitize takes each variant", impl->name);
  catalog_problems_free(&list);
}

static void dispatches(void)
{
  static const struct attn_device devices[] = {{.kind = ATTN_CUDA,
                                                .name = "H200",
                                                .sm = 90,
                                                .multiprocessors = 132,
                                                .memory_bytes = (size_t)140 << 30,
                                                .sram_bytes = 232448,
                                                .l2_bytes = (size_t)60 << 20},
                                               {.kind = ATTN_CUDA,
                                                .name = "A100",
                                                .sm = 80,
                                                .multiprocessors = 108,
                                                .memory_bytes = (size_t)80 << 30,
                                                .sram_bytes = 166912,
                                                .l2_bytes = (size_t)40 << 20}};
  const struct attn_impl *impl;
  const struct attn_problem p = problem("s=64 d=64"), d = problem("op=decode sk=64 d=64");
  for (size_t k = 0; k < sizeof devices / sizeof *devices; k++)
    for (int i = 0; (impl = catalog_impl(i)); i++)
      if (impl->variant &&
          (!attn_unsupported(impl, &p, &devices[k]) || !attn_unsupported(impl, &d, &devices[k])))
        dispatch_all(impl, &devices[k]);
  for (int i = 0; (impl = catalog_impl(i)); i++)
    if (impl->variant)
      swept(impl, &devices[0]);
}

int main(void)
{
  int fd = mkstemp(path);
  if (fd < 0)
    return 1;
  close(fd);
  look_up();
  round_trip();
  malformed();
  devices();
  committed();
  best();
  dispatches();
  unlink(path);
  return done_testing();
}
