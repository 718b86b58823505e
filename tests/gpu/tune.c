/* SPDX-License-Identifier: Apache-2.0
 *
 * On a GPU: every compiled variant of every implementation passes its verdict on problems of all
 * classes, before and after timing; the table that a sweep writes is read back, names what was best
 * at each of its problems, and is what the same problems then get.
 */
#include "config.h"

#include <unistd.h>

#include "harness/tune/tune.h"
#include "tests/tap.h"

static const char *const problems[] = {
    "b=2 hq=4 hkv=2 s=300 d=64,128,256 mask=none,causal dtype=bf16,fp16",
    "b=2 hq=4 hkv=2 s=300 d=128 mask=causal softcap=20",
    "b=1 hq=8 hkv=2 s=1100 d=40,128 mask=window:200:0",
    "op=append b=2 hq=4 hkv=2 sq=200 sk=500 d=64,128,256 page=16",
    "op=bwd b=2 hq=4 hkv=2 s=300 d=64,128,256 mask=none,causal dtype=bf16,fp16",
    "op=bwd b=2 hq=4 hkv=2 s=300 d=128,256 mask=none,causal deterministic=1",
    "op=decode b=4 hq=8 hkv=2 sk=700 d=64,128,256 page=0,16",
    "op=decode b=4 hq=8 hkv=2 sq=4 sk=700 d=128 page=16 kv=e4m3",
};

static void no_progress(const struct tune_point *p)
{
}

static void verdicts(const struct tune_result *t)
{
  for (int i = 0; i < t->n; i++) {
    const struct tune_point *p = &t->point[i];
    char text[ATTN_PROBLEM_TEXT];
    int passed = 0;
    attn_problem_print(&p->problem, text, sizeof text);
    for (int k = 0; k < p->n; k++) {
      passed += p->trial[k].status == STATUS_PASS;
      if (p->trial[k].status != STATUS_PASS)
        diag("%s: %s", p->trial[k].variant, record_status_name(p->trial[k].status));
    }
    ok(p->n > 1 && passed == p->n, "%s, %s: all of %d variants pass", p->impl, text, p->n);
  }
}

/* ---- dispatch by the table ------------------------------------------------------------------- */

struct seen {
  const struct tune_result *t;
  int n, wrong;
};

static void see(const struct record *r, const struct group *g, void *ctx)
{
  struct seen *s = ctx;
  char a[ATTN_PROBLEM_TEXT], b[ATTN_PROBLEM_TEXT];
  attn_problem_print(&r->problem, a, sizeof a);
  for (int i = 0; i < s->t->n; i++) {
    const struct tune_point *p = &s->t->point[i];
    attn_problem_print(&p->problem, b, sizeof b);
    if (strcmp(p->impl, r->impl) || strcmp(a, b))
      continue;
    bool right = r->status == STATUS_PASS && r->variant_by && !strcmp(r->variant_by, "table") &&
                 !strcmp(r->variant.name, p->trial[p->best].variant);
    if (!right)
      diag("%s, %s: %s %s", r->impl, a, record_status_name(r->status), r->variant.name);
    s->wrong += !right;
    s->n++;
  }
}

static void dispatch(const struct problem_list *list, const struct run_options *given,
                     struct tune_result *t, const char *path)
{
  struct seen s = {t, 0, 0};
  struct run_options o = *given;
  struct run_summary sum;
  char err[1024] = "";
  ok(!tune_write(t, path, "a test", err, sizeof err), "writes the table %s", err);
  o.choices = path;
  o.group.time = o.group.count = false;
  o.each = see;
  o.ctx = &s;
  ok(!run_problems(list, &o, &sum, err, sizeof err), "the problems again, by the table %s", err);
  ok(s.n == t->n && !s.wrong, "each of %d gets what was best, and passes", t->n);
}

int main(void)
{
  char path[] = "/tmp/attnbench-tune.XXXXXX", err[1024] = "";
  struct problem_list list = {NULL, 0, 0};
  struct tune_result t;
  struct device_ceilings none = {.copy_gbps = 1e6, .read_gbps = 1e6, .matmul_tflops = 1e6};
  struct run_options o = {.device = &device_cuda,
                          .processes = 1,
                          .timeout_s = 120,
                          .quiet = true,
                          .ceilings = &none,
                          .group = {.timing = {CACHE_COLD, MODE_RESTED, 0.001},
                                    .samples_min = 6,
                                    .samples_max = 6,
                                    .seconds = 1,
                                    .seed = 1,
                                    .recheck = true}};
  if (o.device->absent())
    skip_all(o.device->absent());
  int fd = mkstemp(path);
  close(fd);
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
    if (catalog_problems(&list, problems[i], err, sizeof err))
      diag("%s", err);
  ok(!tune_sweep(&list, &o, no_progress, &t, err, sizeof err), "a sweep %s", err);
  ok(t.n > 0, "finds %d times that there is a choice", t.n);
  verdicts(&t);
  dispatch(&list, &o, &t, path);
  tune_free(&t);
  catalog_problems_free(&list);
  unlink(path);
  return done_testing();
}
