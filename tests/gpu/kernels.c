/* SPDX-License-Identifier: Apache-2.0
 *
 * Every cuda implementation of ours in the registry, against the componentwise bound of the
 * reference, on shapes that kernels get wrong: one more and one less than a tile, primes that all
 * differ, more queries than keys, rows that see no key, empty sequences, tiny and huge batches,
 * uneven groups, head dims that need padding, every mask and option, gaps between the rows, offsets
 * beyond 2^31 elements.  Outputs and workspaces start as NaN, guards and gaps must stay as they
 * were, inputs unchanged, and a second run must give the same bits (backward: where asked).
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>

#include "harness/base/clock.h"
#include "harness/run/group.h"
#include "harness/run/tensors.h"
#include "tests/gpu/open.h"
#include "tests/tap.h"

#define COUNT(x) (int)(sizeof(x) / sizeof *(x))

static struct device dev = {.ops = &device_cuda};
static struct group group;
static volatile uint64_t beats;
static const struct attn_impl *impls[GROUP_CASES];
static int nimpls, taken[GROUP_CASES];
static bool lost;

static const char *const masks[] = {"",
                                    " mask=causal",
                                    " mask=causal-topleft",
                                    " mask=window:37:0",
                                    " mask=window:-1:5",
                                    " mask=window:100:20",
                                    " mask=window:0:0"};
static const char *const ops[] = {"fwd", "bwd"};
static const char *const types[] = {"bf16", "fp16"};
static const int dims[] = {64, 128, 256};

static void find_impls(void)
{
  for (const struct attn_impl *const *i = attn_builtins(); *i; i++)
    if ((*i)->device == ATTN_CUDA && !strncmp((*i)->name, "cuda/", 5) && nimpls < GROUP_CASES)
      impls[nimpls++] = *i;
}

static bool parse(const char *text, struct attn_problem *p)
{
  char err[256];
  bool good = !attn_problem_parse(text, p, err, sizeof err);
  if (!good)
    ok(false, "%s: %s", text, err);
  return good;
}

static bool repeatable(const struct attn_problem *p)
{
  return p->op != ATTN_BWD || p->deterministic;
}

static void judge(int i, const char *text)
{
  const struct record *r = &group.cases[i].record;
  if (r->status == STATUS_UNSUPPORTED)
    return;
  taken[i]++;
  bool same = r->rerun_bitwise == 1 || !repeatable(&group.problem);
  ok(r->status == STATUS_PASS && same, "%s %s: %.3f of the bound", impls[i]->name, text,
     r->verdict.bound_ratio);
  if (r->status != STATUS_PASS)
    diag("%s: %s", record_status_name(r->status), r->reason);
  if (!same)
    diag("a second run gave other bits");
}

/* One problem on every implementation that takes it. */
__attribute__((format(printf, 1, 2))) static void check(const char *format, ...)
{
  const struct group_options o = {.seed = 1};
  char text[512];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  memset(&group, 0, sizeof group);
  if (lost || !parse(text, &group.problem))
    return;
  group.n = nimpls;
  group.beats = &beats;
  for (int i = 0; i < nimpls; i++) {
    group.cases[i].impl = impls[i];
    record_init(&group.cases[i].record);
    snprintf(group.cases[i].record.impl, sizeof group.cases[i].record.impl, "%s", impls[i]->name);
  }
  lost = group_run(&group, &dev, &o) != ATTN_OK;
  for (int i = 0; i < nimpls; i++)
    if (group.cases[i].done)
      judge(i, text);
}

static int check_problem(const struct attn_problem *p, void *ctx)
{
  char text[ATTN_PROBLEM_TEXT];
  attn_problem_print(p, text, sizeof text);
  check("%s", text);
  return 0;
}

/* ---- dense tensors -------------------------------------------------------------------------- */

static void test_shapes(void)
{
  static const char *const shapes[] = {
      "b=2 hq=3 hkv=1 sq=127 sk=129", "b=1 hq=4 hkv=2 sq=129 sk=127",
      "b=2 hq=2 sq=65 sk=257",        "b=3 hq=10 hkv=5 sq=131 sk=61",
      "b=1 hq=2 sq=1 sk=1031",        "b=1 hq=2 sq=1031 sk=1",
      "b=5 hq=14 hkv=7 sq=11 sk=13",  "b=1 hq=1 sq=63 sk=383",
      "b=1 hq=2 hkv=1 sq=193 sk=65"};
  static const char *const layouts[] = {"", " layout=bhsd"};
  for (int i = 0; i < COUNT(shapes); i++)
    for (int j = 0; j < COUNT(masks); j++)
      for (int k = 0; k < 2; k++)
        check("op=%s dtype=%s %s d=%d%s%s", ops[k], types[(i + j / 2) % 2], shapes[i],
              dims[(i + j) % 3], masks[j], layouts[(i + j / 3 + k) % 2]);
}

static void test_head_dims(void)
{
  static const int pairs[][2] = {{8, 8},     {16, 24},   {40, 40},   {72, 72},   {80, 80},
                                 {96, 96},   {104, 128}, {136, 136}, {160, 160}, {192, 128},
                                 {248, 256}, {64, 128},  {128, 40},  {65, 33}};
  for (int i = 0; i < COUNT(pairs); i++)
    for (int k = 0; k < 2; k++)
      check("op=%s dtype=%s b=2 hq=2 hkv=1 sq=70 sk=203 d=%d dv=%d%s", ops[k], types[i % 2],
            pairs[i][0], pairs[i][1], masks[(i + k) % COUNT(masks)]);
  for (int j = 0; j < COUNT(masks); j++)
    for (int k = 0; k < 2; k++)
      check("op=%s dtype=fp32 b=2 hq=4 hkv=2 sq=257 sk=131 d=64%s", ops[k], masks[j]);
}

static void test_options(void)
{
  static const char *const options[] = {"softcap=5", "alibi=1", "dropout=0.2@77",
                                        "softcap=20 alibi=1 dropout=0.5@3"};
  for (int i = 0; i < COUNT(options); i++)
    for (int j = 0; j < COUNT(masks); j += 3)
      for (int n = 0; n < COUNT(dims); n++)
        for (int k = 0; k < 2; k++)
          check("op=%s dtype=%s b=2 hq=6 hkv=2 sq=101 sk=263 d=%d%s %s", ops[k], types[(i + n) % 2],
                dims[n], masks[j], options[i]);
  check("op=fwd dtype=bf16 b=1 hq=2 hkv=1 sq=3 sk=26003 d=64 dropout=0.1@9 alibi=1");
  for (int k = 0; k < 2; k++) {
    check("op=%s dtype=bf16 b=1 hq=2 hkv=1 sq=67 sk=71 d=64 dropout=0.999999@5", ops[k]);
    check("op=%s dtype=fp16 b=1 hq=2 hkv=1 sq=67 sk=71 d=128 scale=0.7", ops[k]);
  }
}

static void test_ragged(void)
{
  const char *seqs = "3x1/700+2x200/200+1x0/77+2x130/33+1x50/0+1x333/512";
  for (int j = 0; j < COUNT(masks); j++)
    for (int k = 0; k < 2; k++)
      check("op=%s dtype=%s seqs=%s hq=8 hkv=2 d=%d%s", ops[k], types[j % 2], seqs, dims[j % 3],
            masks[j]);
  for (int n = 0; n < COUNT(dims); n++)
    for (int k = 0; k < 2; k++)
      check("op=%s dtype=bf16 seqs=%s hq=6 hkv=3 d=%d mask=causal alibi=1 dropout=0.3@8", ops[k],
            seqs, dims[n]);
  check("op=fwd dtype=bf16 seqs=4x0/9+1x3/5 hq=2 hkv=1 d=64");
  check("op=bwd dtype=bf16 seqs=4x0/9+1x3/5 hq=2 hkv=1 d=64");
  check("op=bwd dtype=bf16 seqs=4x9/0+1x3/5 hq=2 hkv=1 d=128");
}

static void test_batches_and_lengths(void)
{
  for (int k = 0; k < 2; k++) {
    check("op=%s dtype=bf16 b=70001 hq=1 sq=3 sk=5 d=64", ops[k]);
    check("op=%s dtype=fp16 b=2 hq=71 hkv=1 sq=37 sk=41 d=128 mask=causal", ops[k]);
    check("op=%s dtype=bf16 b=1 hq=2 hkv=1 sq=4097 sk=4099 d=128 mask=causal", ops[k]);
    check("op=%s dtype=bf16 b=1 hq=2 hkv=1 sq=997 sk=20011 d=64 mask=causal", ops[k]);
    check("op=%s dtype=fp16 b=1 hq=1 sq=4099 sk=1009 d=256", ops[k]);
    check("op=%s dtype=bf16 b=1 hq=1 sq=1 sk=1 d=128", ops[k]);
  }
  check("op=decode dtype=bf16 b=4 hq=8 hkv=2 sk=1000 d=128");
  check("op=append dtype=fp16 b=2 hq=8 hkv=2 sq=77 sk=1000 d=128");
}

/* Pages, a prefix that all sequences share, and pages of 8 bits. */
static void test_pages(void)
{
  for (int n = 0; n < COUNT(dims); n++)
    for (int k = 0; k < COUNT(types); k++) {
      check("op=decode dtype=%s b=3 hq=8 hkv=2 sq=2 sk=1000 d=%d page=16", types[k], dims[n]);
      check("op=decode dtype=%s b=5 hq=8 hkv=2 sk=777 d=%d page=16 prefix=512", types[k], dims[n]);
    }
  check("op=append dtype=bf16 b=2 hq=8 hkv=2 sq=77 sk=1000 d=128 page=64");
  check("op=decode dtype=bf16 b=4 hq=8 hkv=2 sk=1000 d=128 page=16 kv=e4m3");
}

/* Rotation and append: vectors of 16 bytes, of pairs and of nothing; pages, runs, every scaling. */
static void test_rope(void)
{
  static const char *const shapes[] = {
      "b=2 hq=8 hkv=2 sq=67 sk=131 d=128 page=0,16",
      "b=3 hq=3 hkv=1 sq=5 sk=77 d=36 dv=50 rotary=10 pairs=half,interleaved page=0,8",
      "b=3 hq=6 hkv=3 sq=9 sk=77 d=128 rotary=64 pairs=interleaved layout=bhsd page=0,1",
      "hq=4 hkv=2 d=64 rope=dyn:4 trained=100 page=0,16 seqs=2x7/130+1x0/5+3x1/401+1x33/33",
      "b=1 hq=2 hkv=1 sq=9 sk=1048576 d=64 rope=linear:8,ntk:8",
      "b=70001 hq=2 hkv=1 sq=1 sk=3 d=64"};
  static const char *const types3[] = {"bf16", "fp16", "fp32"};
  for (int i = 0; i < COUNT(shapes); i++)
    for (int k = 0; k < COUNT(types3); k++) {
      char text[256], e[256];
      snprintf(text, sizeof text, "op=rope dtype=%s %s", types3[k], shapes[i]);
      if (attn_problem_sweep(text, NULL, check_problem, NULL, e, sizeof e))
        ok(false, "%s: %s", text, e);
    }
}

static void test_deterministic(void)
{
  for (int n = 0; n < COUNT(dims); n++) {
    for (int j = 0; j < COUNT(masks); j += 2)
      check("op=bwd dtype=bf16 b=2 hq=6 hkv=2 sq=401 sk=523 d=%d%s deterministic=1", dims[n],
            masks[j]);
    check("op=bwd dtype=fp16 seqs=2x200/200+1x0/77+2x130/33+1x50/0+1x333/512 hq=4 hkv=2 d=%d "
          "mask=causal deterministic=1",
          dims[n]);
    check("op=bwd dtype=bf16 b=1 hq=4 sq=1999 sk=2003 d=%d dropout=0.1@4 deterministic=1", dims[n]);
  }
}

/* ---- tensors with gaps ---------------------------------------------------------------------- */

#define BLANK 0xff /* bytes of a gap; NaN in every type */

/* Rows that lie together, `width` elements of `pitch`. */
struct placed {
  struct arena_buffer *buffer;
  int64_t rows, width, pitch;
};

static struct attn_tensor *slot(struct attn_args *a, enum operand op)
{
  struct attn_tensor *slots[] = {&a->q, &a->k, &a->v, &a->o, &a->dout, &a->dq, &a->dk, &a->dv};
  return slots[op];
}

static int64_t with_gaps(int64_t stride, const struct placed *x)
{
  return stride % x->width ? stride : stride / x->width * x->pitch;
}

/* Calls on the default stream wait for nothing that the device's stream does, nor it for them. */
static bool settled(void)
{
  return !cudaDeviceSynchronize();
}

static bool copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t rows)
{
  return settled() &&
         !cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice) &&
         settled();
}

/* A copy of operand op whose rows are gap elements apart, and its strides. */
static int place(struct tensors *t, enum operand op, int64_t gap, struct placed *x,
                 struct attn_tensor *to)
{
  const struct attn_problem *p = t->p;
  size_t size = attn_dtype_size(p->dtype);
  struct attn_tensor s = operand_strides(p, op);
  x->width = s.ss;
  x->rows = (int64_t)(t->bytes[op] / size) / x->width;
  x->pitch = x->width + gap;
  int status =
      arena_alloc(t->arena, operand_name(op), (size_t)(x->rows * x->pitch) * size, &x->buffer);
  if (status)
    return status;
  *to = (struct attn_tensor){x->buffer->data, with_gaps(s.sb, x), with_gaps(s.ss, x),
                             with_gaps(s.sh, x)};
  size_t width = (size_t)x->width * size, pitch = (size_t)x->pitch * size;
  bool blank = settled() && !cudaMemset(x->buffer->data, BLANK, x->buffer->bytes) && settled();
  bool copied = t->output[op] || copy_rows(x->buffer->data, pitch, t->buffer[op]->data, width,
                                           width, (size_t)x->rows);
  return blank && copied ? ATTN_OK : ATTN_EDEVICE;
}

/* Brings an output back among the dense tensors; are its gaps as they were? */
static bool collect(struct tensors *t, enum operand op, const struct placed *x, bool look)
{
  size_t size = attn_dtype_size(t->p->dtype), width = (size_t)x->width * size;
  size_t pitch = (size_t)x->pitch * size, n = x->buffer->bytes, touched = 0;
  if (!copy_rows(t->buffer[op]->data, width, x->buffer->data, pitch, width, (size_t)x->rows))
    return false;
  if (!look)
    return true;
  unsigned char *host = malloc(n);
  if (!host || cudaMemcpy(host, x->buffer->data, n, cudaMemcpyDeviceToHost))
    touched = n;
  for (size_t i = 0; i < n && touched < n; i++)
    touched += i % pitch >= width && host[i] != BLANK;
  free(host);
  return touched == 0;
}

static int run_on(const struct attn_impl *impl, struct tensors *t, struct attn_args args)
{
  struct arena_buffer *workspace = NULL;
  void *plan = (void *)t->p;
  size_t bytes = impl->workspace ? impl->workspace(t->p, &dev.info) : 0;
  int status = arena_alloc(t->arena, "workspace", bytes, &workspace);
  if (!status && impl->prepare)
    status = impl->prepare(t->p, &dev.info, &plan);
  if (!status) {
    args.workspace = workspace->data;
    args.workspace_bytes = bytes;
    status = impl->run(plan, &args, device_cuda.stream(&dev));
    int synced = device_cuda.sync(&dev);
    status = status ? status : synced;
    if (impl->prepare && impl->finish)
      impl->finish(plan);
  }
  if (workspace)
    arena_free(t->arena, workspace);
  return status;
}

static void judge_gaps(int i, struct tensors *t, struct placed *x, struct attn_args *args,
                       const char *text, int64_t gap)
{
  const struct ref_plan all = {0};
  struct ref_verdict v = {0};
  char why[256] = "";
  bool clean = true;
  if (attn_unsupported(impls[i], t->p, &dev.info))
    return;
  taken[i]++;
  int status = tensors_poison_outputs(t);
  if (!status)
    status = run_on(impls[i], t, *args);
  for (int op = 0; op < OP_LSE && !status; op++)
    if (t->output[op])
      clean = collect(t, op, &x[op], gap < 1000) && clean;
  if (!status)
    status = arena_check_guards(t->arena, why, sizeof why);
  if (!status)
    status =
        ref_verify_cuda(t->p, &impls[i]->numerics, &t->args, &all, device_cuda.stream(&dev), &v);
  ok(!status && clean && v.pass, "%s %s, gaps of %" PRId64 ": %.3f of the bound", impls[i]->name,
     text, gap, v.bound_ratio);
  if (status || !clean)
    diag("status %d, gaps %s %s", status, clean ? "clean" : "written", why);
}

static void check_gaps(const char *text, int64_t gap)
{
  struct arena arena;
  struct tensors t;
  struct attn_problem p;
  struct placed x[OPERANDS] = {0};
  if (lost || !parse(text, &p))
    return;
  arena_init(&arena, &dev);
  int status = tensors_create(&t, &p, &arena);
  if (!status)
    status = tensors_draw(&t, 2);
  struct attn_args args = t.args;
  for (int op = 0; op < OP_LSE && !status; op++)
    if (t.used[op])
      status = place(&t, op, gap, &x[op], slot(&args, op));
  if (status)
    ok(false, "%s: operands: %s", text, dev.error);
  for (int i = 0; i < nimpls && !status; i++)
    judge_gaps(i, &t, x, &args, text, gap);
  tensors_destroy(&t);
  arena_destroy(&arena);
}

static void test_gaps(void)
{
  char text[256];
  for (int n = 0; n < COUNT(dims); n++)
    for (int k = 0; k < 2; k++) {
      snprintf(text, sizeof text,
               "op=%s dtype=bf16 b=2 hq=4 hkv=2 sq=257 sk=140 d=%d mask=causal%s", ops[k], dims[n],
               n % 2 ? " layout=bhsd" : "");
      check_gaps(text, 24);
    }
  check_gaps("op=bwd dtype=fp16 seqs=2x200/200+1x0/77+2x130/33+1x50/0 hq=4 hkv=2 d=64", 40);
}

/* Rows so far apart that a sequence spans more than 2^31 elements. */
static void test_far(void)
{
  const int64_t gap = 7400000;
  size_t available = 0;
  if (device_cuda.available(&dev, &available) ||
      available < 8 * 301 * 2 * gap + ((size_t)1 << 30)) {
    skip("needs 36 GB of device memory");
    return;
  }
  check_gaps("op=fwd dtype=bf16 b=1 hq=2 hkv=1 sq=299 sk=301 d=128 mask=causal", gap);
  check_gaps("op=bwd dtype=bf16 b=1 hq=2 hkv=1 sq=299 sk=301 d=64", gap);
}

int main(void)
{
  open_gpu(&dev);
  double start = clock_now();
  find_impls();
  test_shapes();
  test_head_dims();
  test_options();
  test_ragged();
  test_batches_and_lengths();
  test_pages();
  test_rope();
  test_deterministic();
  test_gaps();
  test_far();
  for (int i = 0; i < nimpls; i++)
    ok(taken[i] > 0, "%s took %d problems", impls[i]->name, taken[i]);
  ok(!lost, "the device is still there");
  diag("%.1f s", clock_now() - start);
  if (!lost)
    device_cuda.close(&dev);
  return done_testing();
}
