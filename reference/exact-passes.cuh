/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-passes.cuh - targets cut into chunks whose scratch fits on the GPU, and the kernels of
 * exact-dots.cuh to exact-scan.cuh enqueued over each chunk.
 */
#ifndef REFERENCE_EXACT_PASSES_CUH
#define REFERENCE_EXACT_PASSES_CUH

#include <stdlib.h>
#include <string.h>

#include "reference/exact-dots.cuh"
#include "reference/exact-finish.cuh"
#include "reference/exact-rows.cuh"
#include "reference/exact-scan.cuh"
#include "reference/exact-values.cuh"

#define SCRATCH_MOST ((size_t)4 << 30)
#define MAX_ALLOCATIONS 8

struct session {
  struct ref_problem r;
  struct device_problem D;
  cudaStream_t stream;
  cudaError_t error;
  void *allocations[MAX_ALLOCATIONS];
  int nallocations;
  struct ref_tally *tally; /* on the device, REF_TENSORS */
  struct ref_row_stats *stats;
  char *scratch;
  size_t scratch_bytes;
};

static int status_of(struct session *s)
{
  if (s->error == cudaSuccess)
    s->error = cudaGetLastError();
  if (s->error == cudaErrorMemoryAllocation)
    return ATTN_ENOMEM;
  return s->error == cudaSuccess ? ATTN_OK : ATTN_EDEVICE;
}

static void keep_error(struct session *s, cudaError_t e)
{
  if (s->error == cudaSuccess)
    s->error = e;
}

static void *device_alloc(struct session *s, size_t bytes)
{
  void *p = NULL;
  if (s->nallocations == MAX_ALLOCATIONS) {
    keep_error(s, cudaErrorMemoryAllocation);
    return NULL;
  }
  keep_error(s, cudaMalloc(&p, bytes ? bytes : 1));
  if (p)
    s->allocations[s->nallocations++] = p;
  return p;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* What a pass over targets does, and so what scratch it needs. */
enum pass { STORE_ROWS, STATS_OF_ROWS, CHECK_ROWS, CHECK_DQ, CHECK_COLUMNS };

static bool wants_moments(enum pass pass)
{
  return pass >= CHECK_ROWS;
}

/* Gives out aligned pieces of the scratch, or only adds up their sizes when base is NULL. */
static void *carve(char *base, size_t *used, size_t bytes)
{
  void *p = base ? base + *used : NULL;
  *used += (bytes + 255) / 256 * 256;
  return p;
}

/* Lays the scratch for n targets out from base; returns its size. */
static size_t lay_out(struct chunk *c, enum pass pass, int64_t n, int64_t width, char *base)
{
  size_t used = 0, pairs = (size_t)(n * c->pitch), parts = (size_t)(n * c->splits * width);
  bool moments = wants_moments(pass);
  int kinds = pass == CHECK_COLUMNS ? 2 : 1;

  c->starts = (int *)carve(base, &used, (size_t)(n + 1) * sizeof(int));
  c->qk = (struct dot *)carve(base, &used, pairs * sizeof *c->qk);
  if (pass >= CHECK_DQ)
    c->vp = (struct dot *)carve(base, &used, pairs * sizeof *c->vp);
  for (int k = 0; k < kinds; k++) {
    c->a[k] = (double *)carve(base, &used, pairs * sizeof *c->a[k]);
    if (moments)
      c->c[k] = (struct coef *)carve(base, &used, pairs * sizeof *c->c[k]);
  }
  c->part = (double *)carve(base, &used, parts * sizeof *c->part);
  if (moments)
    c->sums = (struct moments *)carve(base, &used, parts * sizeof *c->sums);
  c->o = (double *)carve(base, &used, (size_t)(n * width) * sizeof *c->o);
  c->rows = (struct ref_row_sums *)carve(base, &used, (size_t)n * sizeof *c->rows);
  c->count = (double *)carve(base, &used, (size_t)n * sizeof *c->count);
  c->tally = (struct ref_tally *)carve(base, &used, (size_t)n * sizeof *c->tally);
  return used;
}

static int64_t most_partners(const struct session *s, const struct ref_target *t, int64_t n,
                             bool columns)
{
  int64_t most = 0, last = -1;
  for (int64_t i = 0; i < n; i++) {
    const struct ref_seq *q = &s->r.seqs[t[i].seq];
    int64_t np = columns ? s->r.shape.group * q->sq : q->sk;
    if (t[i].seq != last && np > most)
      most = np;
    last = t[i].seq;
  }
  return most;
}

/* ---- the passes over one chunk --------------------------------------------------------------- */

static void run_dots(struct session *s, const struct chunk *c, bool moments, int of_target,
                     int of_partner, int width, struct dot *out)
{
  dim3 grid((unsigned)((c->pitch + WIDE - 1) / WIDE), (unsigned)c->blocks);
  if (moments)
    dots_kernel<true><<<grid, 256, 0, s->stream>>>(s->D, *c, of_target, of_partner, width, out);
  else
    dots_kernel<false><<<grid, 256, 0, s->stream>>>(s->D, *c, of_target, of_partner, width, out);
}

static void run_values(struct session *s, const struct chunk *c, bool moments, int of_partner,
                       int width, int kind)
{
  dim3 grid((unsigned)c->splits, (unsigned)c->blocks, (unsigned)(width + 127) / 128);
  if (moments)
    values_kernel<BLOCK><<<grid, 128, 0, s->stream>>>(s->D, *c, of_partner, width, c->a[kind]);
  else
    values_kernel<CROWD><<<grid, 128, 0, s->stream>>>(s->D, *c, of_partner, width, c->a[kind]);
}

static void run_moments(struct session *s, const struct chunk *c, bool backward, int of_partner,
                        int width, int kind)
{
  dim3 grid((unsigned)c->splits, (unsigned)c->blocks, (unsigned)(width + 63) / 64);
  if (backward)
    moments_kernel<true><<<grid, 128, 0, s->stream>>>(s->D, *c, of_partner, width, c->c[kind]);
  else
    moments_kernel<false><<<grid, 128, 0, s->stream>>>(s->D, *c, of_partner, width, c->c[kind]);
}

static void run_merge(struct session *s, const struct chunk *c, enum ref_tensor tensor)
{
  merge_kernel<<<1, 128, 0, s->stream>>>(c->tally, c->n, s->tally + tensor);
}

/* Scores, weights and O of rows. */
static void run_rows(struct session *s, const struct chunk *c, bool errors)
{
  int d = (int)s->r.shape.d, dv = (int)s->r.shape.dv;
  run_dots(s, c, errors, OF_Q, OF_K, d, c->qk);
  rows_kernel<<<(unsigned)c->n, ROW_THREADS, 0, s->stream>>>(s->D, *c, errors, s->D.a.lse,
                                                             c->tally);
  if (errors)
    run_merge(s, c, REF_LSE);
  run_values(s, c, errors, OF_V, dv, 0);
  total_kernel<<<(unsigned)c->n, 128, 0, s->stream>>>(*c, dv);
}

static void check_rows(struct session *s, const struct chunk *c)
{
  int dv = (int)s->r.shape.dv;
  run_rows(s, c, true);
  run_moments(s, c, false, OF_V, dv, 0);
  finish_kernel<<<(unsigned)c->n, 128, 0, s->stream>>>(s->D, *c, s->D.a.o, false, dv,
                                                       ldexp(1, s->D.exponent[OF_V]));
  run_merge(s, c, REF_O);
}

/* One tensor of gradients: sums over the partners' rows of of_partner. */
static void check_tensor(struct session *s, const struct chunk *c, enum ref_tensor tensor,
                         int of_partner, int width, int kind, double unit)
{
  const struct attn_args *a = &s->D.a;
  struct attn_tensor out = tensor == REF_DQ ? a->dq : tensor == REF_DK ? a->dk : a->dv;
  run_values(s, c, true, of_partner, width, kind);
  run_moments(s, c, true, of_partner, width, kind);
  finish_kernel<<<(unsigned)c->n, 128, 0, s->stream>>>(s->D, *c, out, true, width,
                                                       ldexp(1, s->D.exponent[of_partner]) / unit);
  run_merge(s, c, tensor);
}

static void check_grads(struct session *s, const struct chunk *c)
{
  int d = (int)s->r.shape.d, dv = (int)s->r.shape.dv;
  int e = s->D.exponent[OF_DOUT] + s->D.exponent[OF_V] + ilogb(s->r.shape.scale);
  double unit = ldexp(1, -e);

  run_dots(s, c, true, c->columns ? OF_K : OF_Q, c->columns ? OF_Q : OF_K, d, c->qk);
  run_dots(s, c, true, c->columns ? OF_V : OF_DOUT, c->columns ? OF_DOUT : OF_V, dv, c->vp);
  pairs_kernel<<<(unsigned)c->n, ROW_THREADS, 0, s->stream>>>(s->D, *c, unit);
  check_tensor(s, c, c->columns ? REF_DK : REF_DQ, c->columns ? OF_Q : OF_K, d, 0, unit);
  if (c->columns)
    check_tensor(s, c, REF_DV, OF_DOUT, dv, 1, 1);
}

static void run_pass(struct session *s, const struct chunk *c, enum pass pass)
{
  switch (pass) {
  case STORE_ROWS:
    run_rows(s, c, false);
    store_kernel<<<(unsigned)c->n, 128, 0, s->stream>>>(s->D, *c);
    break;
  case STATS_OF_ROWS:
    run_rows(s, c, false);
    stats_kernel<<<(unsigned)c->n, ROW_THREADS, 0, s->stream>>>(s->D, *c);
    break;
  case CHECK_ROWS: check_rows(s, c); break;
  case CHECK_DQ:
  case CHECK_COLUMNS: check_grads(s, c); break;
  }
}

/* ---- all targets, chunk by chunk ------------------------------------------------------------- */

/* How many targets fit into the scratch, which is allocated on first use. */
static int64_t targets_that_fit(struct session *s, struct chunk *c, enum pass pass, int64_t n,
                                int64_t width)
{
  size_t available, total, need = lay_out(c, pass, n, width, NULL);
  int64_t fit = n;

  keep_error(s, cudaMemGetInfo(&available, &total));
  if (s->error)
    return 0;
  if (!s->scratch || s->scratch_bytes < need) {
    size_t most = available / 2 < SCRATCH_MOST ? available / 2 : SCRATCH_MOST;
    size_t bytes = need < most ? need : most;
    if (!s->scratch || s->scratch_bytes < bytes) {
      s->scratch = (char *)device_alloc(s, bytes);
      s->scratch_bytes = bytes;
    }
  }
  while (fit > 1 && lay_out(c, pass, fit, width, NULL) > s->scratch_bytes)
    fit = fit > 64 ? fit - fit / 16 : fit - 1;
  if (lay_out(c, pass, fit, width, NULL) > s->scratch_bytes)
    keep_error(s, cudaErrorMemoryAllocation);
  return fit < 65535 ? fit : 65535;
}

static int run_chunk(struct session *s, struct chunk *c, enum pass pass,
                     const struct ref_target *host, int64_t n, int *starts)
{
  int most = wants_moments(pass) ? BLOCK : CROWD;
  c->n = (int)n;
  c->blocks = 0;
  for (int64_t i = 0; i < n; i = ref_block_end(&s->r, host, i, n, c->columns, most))
    starts[c->blocks++] = (int)i;
  starts[c->blocks] = (int)n;
  keep_error(s, cudaMemcpyAsync((void *)c->starts, starts, (size_t)(c->blocks + 1) * sizeof *starts,
                                cudaMemcpyHostToDevice, s->stream));
  if (!s->error)
    run_pass(s, c, pass);
  keep_error(s, cudaStreamSynchronize(s->stream));
  return status_of(s);
}

static int run_targets(struct session *s, enum pass pass, const struct ref_target *targets,
                       int64_t n)
{
  int64_t width = s->r.shape.d > s->r.shape.dv ? s->r.shape.d : s->r.shape.dv, fit;
  struct ref_target *device = NULL;
  struct chunk c;
  int *starts = NULL, status;

  if (n == 0)
    return ATTN_OK;
  memset(&c, 0, sizeof c);
  c.columns = pass == CHECK_COLUMNS;
  c.stats = s->stats;
  int64_t most = most_partners(s, targets, n, c.columns);
  if (most >= INT32_MAX / 2)
    return ATTN_EUNSUPPORTED;
  c.pitch = (most + WIDE - 1) / WIDE * WIDE + WIDE;
  c.splits = most ? (int)((most + SPLIT - 1) / SPLIT) : 1;
  fit = targets_that_fit(s, &c, pass, n, width);
  keep_error(s, cudaMalloc(&device, (size_t)n * sizeof *targets));
  starts = (int *)malloc((size_t)(fit + 1) * sizeof *starts);
  status = !starts ? ATTN_ENOMEM : status_of(s);
  if (status)
    goto out;
  keep_error(s, cudaMemcpyAsync(device, targets, (size_t)n * sizeof *targets,
                                cudaMemcpyHostToDevice, s->stream));
  for (int64_t i = 0; i < n && !status; i += fit) {
    int64_t count = n - i < fit ? n - i : fit;
    lay_out(&c, pass, count, width, s->scratch);
    c.targets = device + i;
    status = run_chunk(s, &c, pass, targets + i, count, starts);
  }
out:
  free(starts);
  cudaFree(device);
  return status;
}

/* Chooses targets and runs a pass over them. */
static int run_plan(struct session *s, enum pass pass, const struct ref_plan *plan,
                    const bool *keep, int64_t *checked)
{
  struct ref_target *targets = NULL;
  int64_t n = 0;
  int status = ref_choose(&s->r, plan, pass == CHECK_COLUMNS, keep, &targets, &n);
  if (!status)
    status = run_targets(s, pass, targets, n);
  free(targets);
  *checked += n;
  return status;
}

#endif
