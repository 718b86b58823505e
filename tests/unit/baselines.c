/* SPDX-License-Identifier: Apache-2.0
 *
 * baselines: recorded runs are those of the kernels in this tree.
 *
 * Every record under profiles/baselines must carry the hash of today's sources of its
 * implementation: a record older than its kernel is measured again or dropped. Peers are not ours:
 * their wrappers' hash counts all the same.
 */
#include "config.h"

#include <glob.h>

#include "harness/record/build.h"
#include "harness/record/store.h"
#include "tests/tap.h"

struct count {
  int records, stale, failed, lines;
};

static const char *text(json_t *record, const char *key)
{
  const char *s = json_string_value(json_object_get(record, key));
  return s ? s : "";
}

static int look(json_t *record, int line, void *ctx)
{
  struct count *n = ctx;
  bool backward = !strncmp(text(record, "problem"), "op=bwd ", 7);
  const char *impl = text(record, "impl"), *then = text(record, "impl_hash");
  const char *now = build_impl_hash(impl, backward ? ATTN_BWD : ATTN_FWD);
  n->records++;
  n->failed += !strcmp(text(record, "status"), "fail") || !strcmp(text(record, "status"), "crash");
  if (now && !strcmp(now, then))
    return 0;
  if (n->stale++ < 5)
    diag("line %d: %s has changed since: measure again, or drop the row", line, impl);
  return 0;
}

static void file(const char *path)
{
  struct count n = {0};
  char err[512];
  int bad = 0;
  if (!ok(!store_read(path, look, &n, &bad, err, sizeof err), "%s is read", path)) {
    diag("%s", err);
    return;
  }
  ok(n.records > 0 && bad == 0, "it holds records and nothing else: %d, %d foreign", n.records,
     bad);
  ok(n.stale == 0, "each is as new as its kernel: %d of %d are older", n.stale, n.records);
  ok(n.failed == 0, "none failed or crashed: %d did", n.failed);
}

/* The check itself: a record of unknown sources, and one of other sources, are stale. */
static void planted(void)
{
  struct count n = {0};
  json_t *old =
      json_pack("{s:s,s:s,s:s}", "impl", "cpu/flash", "impl_hash", "0123", "status", "pass");
  json_t *none = json_pack("{s:s,s:n,s:s}", "impl", "cpu/none", "impl_hash", "status", "pass");
  json_t *fresh = json_pack("{s:s,s:s,s:s}", "impl", "cpu/flash", "impl_hash",
                            build_impl_hash("cpu/flash", ATTN_FWD), "status", "fail");
  look(old, 1, &n);
  look(none, 2, &n);
  look(fresh, 3, &n);
  ok(n.stale == 2, "an old hash and a missing one are found, a fresh one is not: %d", n.stale);
  ok(n.failed == 1, "a failure is found");
  json_decref(old);
  json_decref(none);
  json_decref(fresh);
}

int main(void)
{
  char pattern[4096];
  const char *srcdir = getenv("srcdir");
  glob_t found;
  planted();
#ifdef HAVE_CUDA
  snprintf(pattern, sizeof pattern, "%s/profiles/baselines/*.jsonl", srcdir ? srcdir : ".");
  if (glob(pattern, 0, NULL, &found))
    skip("no baselines are recorded");
  else
    for (size_t i = 0; i < found.gl_pathc; i++)
      if (!strstr(found.gl_pathv[i], "/zoo-")) /* a kill matrix is no record */
        file(found.gl_pathv[i]);
  globfree(&found);
#else
  (void)pattern, (void)srcdir, (void)found, (void)file;
  skip("built without CUDA: the recorded kernels are not here to compare with");
#endif
  return done_testing();
}
