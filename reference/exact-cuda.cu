/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-cuda.cu - the reference on the GPU: the same truth and bounds as exact.c and exact-grad.c,
 * with the verdict computed on the device, so that only tallies are copied back.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "reference/exact-passes.cuh"

/* Score computations that a sampled backward's forward may cost; and for each row of the sample. */
#define MAX_PAIRS 0x1p32
#define ROW_PAIRS 0x1p22

/* In the order of the stream, which the default one does not wait for; done when it returns. */
static void copy(struct session *s, void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
  keep_error(s, cudaMemcpyAsync(to, from, bytes, kind, s->stream));
  keep_error(s, cudaStreamSynchronize(s->stream));
}

/* ---- whole tensors --------------------------------------------------------------------------- */

static struct rows_view view_of(const struct session *s, const struct attn_tensor *t, bool query,
                                int64_t width)
{
  const struct ref_shape *p = &s->r.shape;
  int64_t heads = query ? p->hq : p->hkv;
  struct rows_view v = {*t, heads * (query ? p->total_q : p->total_k), heads, (int)width, query};
  return v;
}

/* The exponents of the largest inputs. */
static int find_exponents(struct session *s, bool backward)
{
  const struct attn_args *a = &s->D.a;
  const struct ref_shape *p = &s->r.shape;
  const struct rows_view views[OPERANDS] = {
      view_of(s, &a->q, true, p->d), view_of(s, &a->k, false, p->d),
      view_of(s, &a->v, false, p->dv), view_of(s, &a->dout, true, p->dv)};
  unsigned int *device = (unsigned int *)device_alloc(s, sizeof(int) * OPERANDS);
  unsigned int bits[OPERANDS] = {0};

  if (s->error)
    return status_of(s);
  keep_error(s, cudaMemsetAsync(device, 0, sizeof bits, s->stream));
  for (int k = 0; k < OPERANDS; k++)
    if (backward || k == OF_V)
      largest_kernel<<<1024, 256, 0, s->stream>>>(s->D, views[k], k, device + k);
  copy(s, bits, device, sizeof bits, cudaMemcpyDeviceToHost);
  for (int k = 0; k < OPERANDS; k++) {
    float top;
    memcpy(&top, &bits[k], sizeof top);
    s->D.exponent[k] = 0;
    if (top > 0 && top < INFINITY)
      frexpf(top, &s->D.exponent[k]);
  }
  return status_of(s);
}

/* The row and head of row number `row` in the order (seq, head, position). */
static struct ref_target find_target(const struct session *s, const struct rows_view *v,
                                     int64_t row)
{
  int64_t seq = 0, len = 0;
  for (; seq < s->r.shape.b; seq++) {
    len = v->query ? s->r.seqs[seq].sq : s->r.seqs[seq].sk;
    if (row < v->heads * len)
      break;
    row -= v->heads * len;
  }
  struct ref_target t = {(int32_t)seq, (int32_t)(row / len), row % len};
  return t;
}

/* Adds a bad output to a tally: only what the host can read back and say of it. */
static void add_bad(struct session *s, struct ref_tally *tally, const struct rows_view *v,
                    int64_t at, const float *lse)
{
  const struct ref_shape *p = &s->r.shape;
  struct ref_target t = find_target(s, v, at / v->width);
  const struct ref_seq *q = &s->r.seqs[t.seq];
  bool empty = v->query && ref_row_empty(p, q->sq, q->sk, t.pos);
  size_t size = lse || p->dtype == ATTN_F32 ? 4 : 2;
  int64_t offset = ref_offset(p, &v->tensor, t.seq, v->query ? q->q0 : q->k0, t.head, t.pos);
  const char *from = lse ? (const char *)(lse + ref_lse_index(&s->r, t.seq, t.head, t.pos))
                         : (const char *)v->tensor.data + (offset + at % v->width) * (int64_t)size;
  double want = !empty ? NAN : lse ? -INFINITY : 0;
  uint32_t raw = 0;

  copy(s, &raw, from, size, cudaMemcpyDeviceToHost);
  double got = size == 4 ? attn_float(raw) : attn_load(p->dtype, &raw, 0);
  ref_tally_add(tally, p->dtype, got, want, empty ? 0 : NAN, 0, t.seq, t.head, t.pos,
                at % v->width);
}

/* Every output must be finite, and exactly zero (LSE: -inf) where a row sees no key. */
static int scan(struct session *s, enum ref_tensor tensor, const struct attn_tensor *t,
                struct ref_tally tally[REF_TENSORS])
{
  const struct ref_shape *p = &s->r.shape;
  bool query = tensor == REF_O || tensor == REF_DQ;
  struct rows_view v = view_of(s, t, query, tensor == REF_O || tensor == REF_DV ? p->dv : p->d);
  const float *lse = tensor == REF_O ? s->D.a.lse : NULL;
  unsigned long long first[2], *device = (unsigned long long *)s->scratch;

  if (v.rows == 0)
    return ATTN_OK;
  keep_error(s, cudaMemsetAsync(device, 0xff, sizeof first, s->stream));
  scan_kernel<<<1024, 256, 0, s->stream>>>(s->D, v, lse, device, device + 1);
  copy(s, first, device, sizeof first, cudaMemcpyDeviceToHost);
  if (s->error)
    return status_of(s);
  if (first[0] != ~0ull)
    add_bad(s, &tally[tensor], &v, (int64_t)first[0], NULL);
  v.width = 1;
  if (lse && first[1] != ~0ull)
    add_bad(s, &tally[REF_LSE], &v, (int64_t)first[1], lse);
  return status_of(s);
}

/* ---- the session ----------------------------------------------------------------------------- */

static int session_open(struct session *s, const struct attn_problem *p,
                        const struct attn_numerics *num, const struct attn_args *args, void *stream)
{
  struct ref_tally start[REF_TENSORS];
  struct ref_seq *seqs;
  int status;

  memset(s, 0, sizeof *s);
  s->stream = (cudaStream_t)stream;
  status = ref_open(p, num, args, &s->r);
  if (status)
    return status;
  s->D.p = s->r.shape;
  s->D.u = s->r.units;
  s->D.a = *args;
  seqs = (struct ref_seq *)device_alloc(s, (size_t)s->r.shape.b * sizeof *seqs);
  s->tally = (struct ref_tally *)device_alloc(s, sizeof start);
  for (int k = 0; k < REF_TENSORS; k++)
    ref_tally_start(&start[k]);
  if (!s->error) {
    s->D.seqs = seqs;
    copy(s, s->tally, start, sizeof start, cudaMemcpyHostToDevice);
    copy(s, seqs, s->r.seqs, (size_t)s->r.shape.b * sizeof *seqs, cudaMemcpyHostToDevice);
  }
  return status_of(s);
}

static void session_close(struct session *s)
{
  for (int k = 0; k < s->nallocations; k++)
    cudaFree(s->allocations[k]);
  ref_close(&s->r);
}

static int verify_forward(struct session *s, const struct ref_plan *plan, struct ref_verdict *v)
{
  int status = find_exponents(s, false);
  v->total_rows = s->r.shape.total_q * s->r.shape.hq;
  return status ? status : run_plan(s, CHECK_ROWS, plan, NULL, &v->checked_rows);
}

static int verify_backward(struct session *s, const struct ref_plan *plan, struct ref_verdict *v)
{
  const struct ref_shape *p = &s->r.shape;
  int64_t rows = p->total_q * p->hq, ignored = 0;
  bool *keep = (bool *)calloc((size_t)(p->b * p->hkv) + 1, sizeof *keep);
  int status = find_exponents(s, true);

  v->total_rows = rows + p->total_k * p->hkv;
  s->stats = (struct ref_row_stats *)device_alloc(s, (size_t)rows * sizeof *s->stats);
  if (!keep)
    status = ATTN_ENOMEM;
  if (!status)
    status = status_of(s);
  if (!status) {
    double most = plan ? fmin(MAX_PAIRS, ROW_PAIRS * (double)plan->rows_max) : MAX_PAIRS;
    ref_limit_groups(&s->r, plan, v->total_rows, most, keep);
    status = run_plan(s, STATS_OF_ROWS, NULL, keep, &ignored);
  }
  if (!status)
    status = run_plan(s, CHECK_DQ, plan, keep, &v->checked_rows);
  if (!status)
    status = run_plan(s, CHECK_COLUMNS, plan, keep, &v->checked_rows);
  free(keep);
  return status;
}

extern "C" int ref_verify_cuda(const struct attn_problem *p, const struct attn_numerics *num,
                               const struct attn_args *got, const struct ref_plan *plan,
                               void *stream, struct ref_verdict *v)
{
  struct session s;
  struct ref_tally tally[REF_TENSORS];
  const struct attn_tensor *data[REF_TENSORS] = {&got->o, NULL, &got->dq, &got->dk, &got->dv};
  bool backward = p->op == ATTN_BWD;
  int status = session_open(&s, p, num, got, stream);

  memset(v, 0, sizeof *v);
  if (!status)
    status = backward ? verify_backward(&s, plan, v) : verify_forward(&s, plan, v);
  if (!status && !s.scratch)
    s.scratch = (char *)device_alloc(&s, 256);
  if (!status) {
    copy(&s, tally, s.tally, sizeof tally, cudaMemcpyDeviceToHost);
    status = status_of(&s);
  }
  for (int k = backward ? REF_DQ : REF_O; k < (backward ? REF_TENSORS : REF_LSE) && !status; k++)
    status = scan(&s, (enum ref_tensor)k, data[k], tally);
  if (!status)
    ref_conclude(tally, v);
  session_close(&s);
  return status;
}

extern "C" int ref_forward_cuda(const struct attn_problem *p, const struct attn_args *args,
                                void *stream)
{
  struct session s;
  int64_t rows = 0;
  int status = session_open(&s, p, NULL, args, stream);
  if (!status)
    status = run_plan(&s, STORE_ROWS, NULL, NULL, &rows);
  session_close(&s);
  return status;
}
