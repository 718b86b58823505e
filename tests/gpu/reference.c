/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference on the GPU against the reference on the host, on small problems with every option:
 * O and LSE agree to the rounding of their types; verdicts agree, on right outputs and on wrong
 * ones, and so do the ratios to the bound, to 2 % (moments are fp32 sums there).  Two backward runs
 * and sampled rows included.  Argument "big": times the verdict of large problems.
 */
#include "config.h"

#include <time.h>

#include "harness/device/device.h"
#include "tests/unit/reference-emulate.h"

static struct device dev;

/* The tensors of a fixture on the device. */
struct twin {
  struct attn_args a;
};

static struct attn_tensor *tensor_of(struct attn_args *a, int k)
{
  struct attn_tensor *t[] = {&a->q, &a->k, &a->v, &a->o, &a->dout, &a->dq, &a->dk, &a->dv};
  return t[k];
}

static size_t bytes_of(const struct fixture *f, int k)
{
  bool query = k == 0 || k == 3 || k == 4 || k == 5;
  int64_t width = k == 2 || k == 3 || k == 4 || k == 7 ? f->p.dv : f->p.d;
  int64_t rows = (query ? f->total_q : f->total_k) + 1;
  return (size_t)(rows * (query ? f->p.hq : f->p.hkv) * width) * attn_dtype_size(f->p.dtype);
}

static size_t lse_bytes(const struct fixture *f)
{
  return (size_t)(f->total_q * f->p.hq + 1) * sizeof(float);
}

static int twin_open(struct twin *t, struct fixture *f)
{
  int status = ATTN_OK;
  t->a = f->a;
  for (int k = 0; k < 8 && !status; k++) {
    struct attn_tensor *x = tensor_of(&t->a, k);
    status = dev.ops->alloc(&dev, bytes_of(f, k), &x->data);
    if (!status)
      status = dev.ops->upload(&dev, x->data, tensor_of(&f->a, k)->data, bytes_of(f, k));
  }
  if (!status)
    status = dev.ops->alloc(&dev, lse_bytes(f), (void **)&t->a.lse);
  if (!status)
    status = dev.ops->upload(&dev, t->a.lse, f->a.lse, lse_bytes(f));
  return status;
}

static void twin_close(struct twin *t)
{
  for (int k = 0; k < 8; k++)
    dev.ops->free(&dev, tensor_of(&t->a, k)->data);
  dev.ops->free(&dev, t->a.lse);
}

/* Largest difference of o, in ulps of storage at the value, and of lse, in fp32 ulps. */
static bool forward_agrees(struct fixture *f, struct twin *t, const char *name)
{
  void *o = malloc(bytes_of(f, 3));
  float *lse = malloc(lse_bytes(f));
  int64_t wrong = 0, other = 0, n = (int64_t)(bytes_of(f, 3) / attn_dtype_size(f->p.dtype));
  double u = f->p.dtype == ATTN_BF16 ? 0x1p-7 : f->p.dtype == ATTN_F16 ? 0x1p-10 : 0x1p-23;
  int status = ref_forward_cuda(&f->p, &t->a, dev.ops->stream(&dev));

  if (!status)
    status = dev.ops->download(&dev, o, t->a.o.data, bytes_of(f, 3));
  if (!status)
    status = dev.ops->download(&dev, lse, t->a.lse, lse_bytes(f));
  ref_forward_host(&f->p, &f->a);
  for (int64_t i = 0; i < n && !status; i++) {
    double x = attn_load(f->p.dtype, o, i), y = attn_load(f->p.dtype, f->a.o.data, i);
    other += !(x == y) && !(isnan(x) && isnan(y));
    wrong += !(fabs(x - y) <= u * fabs(y)) && !(isnan(x) && isnan(y));
  }
  for (int64_t i = 0; i < f->total_q * f->p.hq && !status; i++)
    wrong += !(lse[i] == f->a.lse[i] || fabs(lse[i] - f->a.lse[i]) <= 0x1p-23 * fabs(lse[i]));
  free(o);
  free(lse);
  return ok(!status && wrong == 0 && other <= n / 100, "%s: O and LSE as on the host", name);
}

static bool close_to(double x, double y)
{
  return x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 0.02 * fmax(fabs(x), fabs(y));
}

static bool verdicts_agree(struct fixture *f, struct twin *t, const struct attn_numerics *num,
                           const struct ref_plan *plan, bool pass, const char *name,
                           const char *what)
{
  struct ref_verdict host, gpu;
  int status = ref_verify_host(&f->p, num, &f->a, plan, &host);
  int other = ref_verify_cuda(&f->p, num, &t->a, plan, dev.ops->stream(&dev), &gpu);
  bool same = status == ATTN_OK && other == ATTN_OK && host.pass == pass && gpu.pass == pass &&
              close_to(host.bound_ratio, gpu.bound_ratio) &&
              close_to(host.lse_bound_ratio, gpu.lse_bound_ratio) &&
              close_to(host.rel_fro, gpu.rel_fro) && close_to(host.max_ulp, gpu.max_ulp) &&
              host.checked_rows == gpu.checked_rows && host.total_rows == gpu.total_rows &&
              host.worst.tensor && gpu.worst.tensor &&
              (pass || !strcmp(host.worst.tensor, gpu.worst.tensor));
  if (!same)
    diag("host %d: pass %d ratio %g lse %g fro %g ulp %g, worst %s (%d %d %d %d) %g want %g +- %g; "
         "gpu %d: pass %d ratio %g lse %g fro %g ulp %g, worst %s (%d %d %d %d) %g want %g +- %g",
         status, host.pass, host.bound_ratio, host.lse_bound_ratio, host.rel_fro, host.max_ulp,
         host.worst.tensor, (int)host.worst.seq, (int)host.worst.head, (int)host.worst.row,
         (int)host.worst.col, host.worst.got, host.worst.want, host.worst.bound, other, gpu.pass,
         gpu.bound_ratio, gpu.lse_bound_ratio, gpu.rel_fro, gpu.max_ulp, gpu.worst.tensor,
         (int)gpu.worst.seq, (int)gpu.worst.head, (int)gpu.worst.row, (int)gpu.worst.col,
         gpu.worst.got, gpu.worst.want, gpu.worst.bound);
  return ok(same, "%s: %s, the same verdict (ratio %.3f)", name, what, gpu.bound_ratio);
}

static int upload_outputs(struct fixture *f, struct twin *t)
{
  int status = ATTN_OK;
  for (int k = 3; k < 8 && !status; k++)
    if (k != 4)
      status = dev.ops->upload(&dev, tensor_of(&t->a, k)->data, tensor_of(&f->a, k)->data,
                               bytes_of(f, k));
  return status ? status : dev.ops->upload(&dev, t->a.lse, f->a.lse, lse_bytes(f));
}

static void check(const char *name, struct attn_problem p, enum regime regime)
{
  struct attn_numerics num = {.prob = ATTN_ROUND_STORAGE};
  struct emulation e = {num, 64, false, NO_FAULT};
  const enum fault bad[2] = {SCALE_1_PERCENT, WRITES_NAN};
  const struct ref_plan some = {24, 5};
  struct fixture f;
  struct twin t;

  p.op = ATTN_FWD;
  fixture_open(&f, &p, regime, 7);
  if (!ok(twin_open(&t, &f) == ATTN_OK, "%s: tensors on the device", name))
    return;
  forward_agrees(&f, &t, name);
  emulate_forward(&f, &e);
  upload_outputs(&f, &t);
  verdicts_agree(&f, &t, &num, NULL, true, name, "a right kernel");
  verdicts_agree(&f, &t, &num, &some, true, name, "a right kernel, some rows");
  for (int k = 0; k < 2; k++) {
    e.fault = bad[k];
    emulate_forward(&f, &e);
    upload_outputs(&f, &t);
    verdicts_agree(&f, &t, &num, NULL, false, name, fault_name[bad[k]]);
  }
  f.p.op = ATTN_BWD;
  ref_forward_host(&f.p, &f.a);
  for (int k = 0; k < 3; k++) {
    e.fault = k == 0 ? NO_FAULT : k == 1 ? NO_D : HEADS_NOT_SUMMED;
    if (k == 2 && p.hq == p.hkv)
      break;
    emulate_backward(&f, &e);
    upload_outputs(&f, &t);
    verdicts_agree(&f, &t, &num, NULL, k == 0, name,
                   k == 0 ? "right gradients" : fault_name[e.fault]);
  }
  verdicts_agree(&f, &t, &num, &some, false, name, "wrong gradients, some rows");
  twin_close(&t);
  fixture_close(&f);
}

/* ---- large problems -------------------------------------------------------------------------- */

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill_fast(struct fixture *f)
{
  for (int k = 0; k < 5; k++) {
    uint16_t *x = tensor_of(&f->a, k)->data;
    for (size_t i = 0; i < bytes_of(f, k) / 2; i++) {
      fixture_state = fixture_state * 6364136223846793005u + 1442695040888963407u;
      x[i] = attn_to_bf16((float)(int32_t)(fixture_state >> 32) * 0x1p-31f * 1.7f);
    }
  }
}

static void time_verdict(int64_t s, int64_t rows, enum attn_op op)
{
  struct attn_problem p = {.op = op,
                           .dtype = ATTN_BF16,
                           .b = 1,
                           .hq = 32,
                           .hkv = 8,
                           .sq = s,
                           .sk = s,
                           .d = 128,
                           .dv = 128,
                           .mask = ATTN_MASK_CAUSAL};
  struct attn_numerics num = {.prob = ATTN_ROUND_STORAGE, .accum_truncates = true};
  struct ref_plan plan = {rows, 1};
  struct ref_verdict v;
  struct fixture f;
  struct twin t;
  double t0, t1, t2;

  memset(&f, 0, sizeof f);
  f.p = p;
  lay_out(&f);
  for (int k = 0; k < 8; k++) {
    bool query = k == 0 || k == 3 || k == 4 || k == 5;
    *tensor_of(&f.a, k) =
        (struct attn_tensor){calloc(bytes_of(&f, k), 1), 0, (query ? p.hq : p.hkv) * 128, 128};
  }
  f.a.lse = calloc(lse_bytes(&f), 1);
  fill_fast(&f);
  int status = twin_open(&t, &f);
  t0 = now();
  if (!status && s <= 16384)
    status = ref_forward_cuda(&p, &t.a, dev.ops->stream(&dev));
  t1 = now();
  if (!status)
    status = ref_verify_cuda(&p, &num, &t.a, &plan, dev.ops->stream(&dev), &v);
  t2 = now();
  diag("%s s=%d: forward %.3f s, verdict on %d of %d rows %.3f s, status %d", attn_op_name(op),
       (int)s, t1 - t0, (int)v.checked_rows, (int)v.total_rows, t2 - t1, status);
  if (op == ATTN_FWD && s <= 16384)
    ok(!status && v.pass, "s=%d: the reference passes its own verdict (ratio %.3f, LSE %.4f)",
       (int)s, v.bound_ratio, v.lse_bound_ratio);
  twin_close(&t);
  fixture_close(&f);
}

static void big(void)
{
  time_verdict(2048, 0, ATTN_FWD);
  time_verdict(8192, 4096, ATTN_FWD);
  time_verdict(8192, 0, ATTN_FWD);
  time_verdict(16384, 4096, ATTN_FWD);
  time_verdict(131072, 512, ATTN_FWD);
  time_verdict(2048, 0, ATTN_BWD);
  time_verdict(8192, 1024, ATTN_BWD);
  time_verdict(16384, 512, ATTN_BWD);
}

int main(int argc, char **argv)
{
  static const struct attn_problem base = {
      .dtype = ATTN_BF16, .b = 2, .hq = 4, .hkv = 2, .sq = 67, .sk = 83, .d = 64, .dv = 64};
  struct device_options o = {0};
  struct attn_problem p;

  if (device_cuda.absent())
    skip_all(device_cuda.absent());
  if (!ok(device_cuda.open(&dev, &o) == ATTN_OK, "the device opens: %s", dev.error))
    return done_testing();
  p = base;
  check("bf16", p, IID);
  p.mask = ATTN_MASK_CAUSAL;
  check("causal, x6", p, LARGE_SCORES);
  p.dtype = ATTN_F16;
  p.layout = ATTN_BHSD;
  check("fp16 bhsd, V mean 8", p, V_MEAN_8);
  p.dtype = ATTN_F32;
  p.d = 40;
  p.dv = 24;
  p.sk = 50;
  check("fp32 d=40 dv=24 sq>sk", p, IID);
  p = base;
  p.mask = ATTN_MASK_WINDOW;
  p.window_left = 9;
  p.window_right = 2;
  p.softcap = 3;
  p.alibi = true;
  check("window, softcap, alibi", p, IID);
  p = base;
  p.dropout_p = 0.2;
  p.dropout_seed = 0x123456789abcdef0u;
  p.mask = ATTN_MASK_CAUSAL_TOPLEFT;
  check("dropout, causal-topleft", p, IID);
  p = base;
  p.nruns = 3;
  p.runs[0] = (struct attn_run){2, 31, 50};
  p.runs[1] = (struct attn_run){1, 0, 7};
  p.runs[2] = (struct attn_run){2, 40, 1100};
  p.b = 5;
  p.sq = 40;
  p.sk = 1100;
  p.layout = ATTN_PACKED;
  p.mask = ATTN_MASK_CAUSAL;
  p.d = p.dv = 128;
  check("ragged", p, IID);
  if (argc > 1 && !strcmp(argv[1], "big"))
    big();
  device_cuda.close(&dev);
  return done_testing();
}
