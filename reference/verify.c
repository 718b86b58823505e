/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c - the host's verdicts: exact rows and gradients, compared element by element, on all
 * cores; and the exact results themselves (ref_forward_host, ref_exact_host, ref_row_host,
 * ref_backward_host).
 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "reference/internal.h"

/* Score computations that the forward pass of a sampled backward may cost. */
#define MAX_PAIRS 0x1p27

struct job {
  struct ref_problem r;
  const struct attn_args *args;
  struct ref_target *targets;
  int64_t n, *starts, blocks; /* block k is targets[starts[k]] .. targets[starts[k + 1]] */
  bool columns;
  struct ref_row_stats *stats;
  pthread_mutex_t lock;
  struct ref_tally tally[REF_TENSORS];
  double *exact_qk, *exact_v; /* ref_backward_host; exact_v: ref_exact_host */
};

static void job_start(struct job *j, const struct attn_args *args)
{
  memset(j, 0, sizeof *j);
  j->args = args;
  pthread_mutex_init(&j->lock, NULL);
  for (int k = 0; k < REF_TENSORS; k++)
    ref_tally_start(&j->tally[k]);
}

static void job_end(struct job *j)
{
  free(j->targets);
  free(j->starts);
  free(j->stats);
  pthread_mutex_destroy(&j->lock);
  ref_close(&j->r);
}

static void report(struct job *j, enum ref_tensor tensor, const struct ref_tally *t)
{
  pthread_mutex_lock(&j->lock);
  ref_tally_merge(&j->tally[tensor], t);
  pthread_mutex_unlock(&j->lock);
}

/* Chooses targets, cuts them into blocks and runs body over the blocks. */
static int run_blocks(struct job *j, const struct ref_plan *plan, const bool *keep, bool columns,
                      int (*body)(int64_t i, void *ctx))
{
  int status;
  free(j->targets);
  free(j->starts);
  j->starts = NULL;
  j->columns = columns;
  status = ref_choose(&j->r, plan, columns, keep, &j->targets, &j->n);
  if (status)
    return status;
  j->starts = malloc((size_t)(j->n + 1) * sizeof *j->starts);
  if (!j->starts)
    return ATTN_ENOMEM;
  j->blocks = 0;
  for (int64_t i = 0; i < j->n; i = ref_block_end(&j->r, j->targets, i, j->n, columns, REF_BLOCK))
    j->starts[j->blocks++] = i;
  j->starts[j->blocks] = j->n;
  return ref_parallel(j->blocks, body, j);
}

/* ---- non-finite outputs, in any row ---------------------------------------------------------- */

struct scan {
  struct job *job;
  enum ref_tensor tensor;
  const struct attn_tensor *data;
  int64_t heads, width;
  bool query;
};

static void scan_row(const struct scan *s, int64_t seq, int64_t head, int64_t row, bool empty,
                     struct ref_tally *t)
{
  const struct ref_problem *r = &s->job->r;
  int64_t first = s->query ? r->seqs[seq].q0 : r->seqs[seq].k0;
  int64_t at = ref_offset(&r->shape, s->data, seq, first, head, row);
  for (int64_t c = 0; c < s->width; c++) {
    double got = attn_load(r->shape.dtype, s->data->data, at + c);
    if (!isfinite(got) || (empty && got != 0))
      ref_tally_add(t, r->shape.dtype, got, empty ? 0 : NAN, empty ? 0 : NAN, 0, seq, head, row, c);
  }
}

static int scan_head(int64_t i, void *ctx)
{
  struct scan *s = ctx;
  const struct ref_problem *r = &s->job->r;
  int64_t seq = i / s->heads, head = i % s->heads;
  const struct ref_seq *q = &r->seqs[seq];
  struct ref_tally t, lse;

  ref_tally_start(&t);
  ref_tally_start(&lse);
  for (int64_t row = 0; row < (s->query ? q->sq : q->sk); row++) {
    bool empty = s->query && ref_row_empty(&r->shape, q->sq, q->sk, row);
    scan_row(s, seq, head, row, empty, &t);
    if (s->tensor != REF_O)
      continue;
    double got = s->job->args->lse[ref_lse_index(r, seq, head, row)];
    if (empty ? got != -INFINITY : !isfinite(got))
      ref_tally_add(&lse, ATTN_F32, got, empty ? -INFINITY : NAN, empty ? 0 : NAN, 0, seq, head,
                    row, 0);
  }
  report(s->job, s->tensor, &t);
  if (s->tensor == REF_O)
    report(s->job, REF_LSE, &lse);
  return ATTN_OK;
}

static int scan_tensor(struct job *j, enum ref_tensor tensor, const struct attn_tensor *data)
{
  bool query = tensor == REF_O || tensor == REF_DQ;
  const struct ref_shape *p = &j->r.shape;
  struct scan s = {j,
                   tensor,
                   data,
                   query ? p->hq : p->hkv,
                   tensor == REF_O || tensor == REF_DV ? p->dv : p->d,
                   query};
  return ref_parallel(p->b * s.heads, scan_head, &s);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static int check_rows(int64_t i, void *ctx)
{
  struct job *j = ctx;
  const struct ref_problem *r = &j->r;
  const struct ref_target *t = &j->targets[j->starts[i]];
  int64_t dv = r->shape.dv;
  struct ref_rows rows;
  struct ref_tally o, lse;
  int n = (int)(j->starts[i + 1] - j->starts[i]), status;

  status = ref_rows_compute(r, j->args, t, n, true, &rows);
  if (status)
    return status;
  ref_tally_start(&o);
  ref_tally_start(&lse);
  for (int k = 0; k < n; k++) {
    const struct ref_row_sums *row = &rows.sums[k];
    double got = j->args->lse[ref_lse_index(r, t[k].seq, t[k].head, t[k].pos)];
    struct ref_matrix m = ref_matrix_of(r, &j->args->o, t[k].seq, t[k].head, true, dv);
    ref_tally_add(&lse, ATTN_F32, got, row->lse, ref_bound_lse(&r->units, row), 0, t[k].seq,
                  t[k].head, t[k].pos, 0);
    for (int64_t c = 0; c < dv; c++) {
      const struct ref_sums *x = &rows.terms[k * dv + c];
      got = attn_load(m.dtype, m.data, m.first + t[k].pos * m.stride + c);
      ref_tally_add(&o, m.dtype, got, x->val, ref_bound_o(&r->units, row, x), x->abs, t[k].seq,
                    t[k].head, t[k].pos, c);
    }
  }
  ref_rows_free(&rows);
  report(j, REF_O, &o);
  report(j, REF_LSE, &lse);
  return ATTN_OK;
}

static int stat_rows(int64_t i, void *ctx)
{
  struct job *j = ctx;
  return ref_stats_compute(&j->r, j->args, &j->targets[j->starts[i]],
                           (int)(j->starts[i + 1] - j->starts[i]), j->stats);
}

/* One tensor of a block of gradients. */
static void check_block(struct job *j, enum ref_tensor tensor, const struct attn_tensor *data,
                        const struct ref_target *t, const struct ref_grads *g,
                        const struct ref_sums *terms, int64_t width)
{
  const struct ref_problem *r = &j->r;
  const struct ref_seq *q = &r->seqs[t->seq];
  double heads = j->columns ? (double)r->shape.group : 1;
  double tiles = heads * (ceil((double)(j->columns ? q->sq : q->sk) / 64) + 1);
  struct ref_tally tally;

  ref_tally_start(&tally);
  for (int k = 0; k < g->n; k++) {
    struct ref_matrix m = ref_matrix_of(r, data, t[k].seq, t[k].head, !j->columns, width);
    for (int64_t c = 0; c < width; c++) {
      const struct ref_sums *x = &terms[k * width + c];
      double got = attn_load(m.dtype, m.data, m.first + t[k].pos * m.stride + c);
      double bound = ref_bound_grad(&r->units, (double)g->partners[k], tiles, x);
      ref_tally_add(&tally, m.dtype, got, x->val, bound, x->gross, t[k].seq, t[k].head, t[k].pos,
                    c);
    }
  }
  report(j, tensor, &tally);
}

static int check_grads(int64_t i, void *ctx)
{
  struct job *j = ctx;
  const struct ref_target *t = &j->targets[j->starts[i]];
  const struct ref_shape *p = &j->r.shape;
  struct ref_grads g;
  int n = (int)(j->starts[i + 1] - j->starts[i]);
  int status = ref_grads_compute(&j->r, j->args, j->stats, t, n, j->columns, &g);
  if (status)
    return status;
  if (j->columns) {
    check_block(j, REF_DK, &j->args->dk, t, &g, g.qk, p->d);
    check_block(j, REF_DV, &j->args->dv, t, &g, g.v, p->dv);
  } else {
    check_block(j, REF_DQ, &j->args->dq, t, &g, g.qk, p->d);
  }
  ref_grads_free(&g);
  return ATTN_OK;
}

static int verify_forward(struct job *j, const struct ref_plan *plan, struct ref_verdict *v)
{
  int status = run_blocks(j, plan, NULL, false, check_rows);
  v->checked_rows = j->n;
  v->total_rows = j->r.shape.total_q * j->r.shape.hq;
  return status ? status : scan_tensor(j, REF_O, &j->args->o);
}

/* Stats of the rows of all groups, or of those in keep. */
static int make_stats(struct job *j, const bool *keep)
{
  size_t rows = (size_t)(j->r.shape.total_q * j->r.shape.hq);
  j->stats = calloc(rows ? rows : 1, sizeof *j->stats);
  return j->stats ? run_blocks(j, NULL, keep, false, stat_rows) : ATTN_ENOMEM;
}

static int verify_backward(struct job *j, const struct ref_plan *plan, struct ref_verdict *v)
{
  const struct ref_shape *p = &j->r.shape;
  const struct attn_tensor *data[] = {&j->args->dq, &j->args->dk, &j->args->dv};
  bool *keep = calloc((size_t)(p->b * p->hkv) + 1, sizeof *keep);
  int status = ATTN_ENOMEM;

  v->total_rows = p->total_q * p->hq + p->total_k * p->hkv;
  if (!keep)
    return status;
  ref_limit_groups(&j->r, plan, v->total_rows, MAX_PAIRS, keep);
  status = make_stats(j, keep);
  for (int columns = 0; columns < 2 && !status; columns++) {
    status = run_blocks(j, plan, keep, columns, check_grads);
    v->checked_rows += j->n;
  }
  for (int k = 0; k < 3 && !status; k++)
    status = scan_tensor(j, REF_DQ + k, data[k]);
  free(keep);
  return status;
}

int ref_verify_host(const struct attn_problem *p, const struct attn_numerics *num,
                    const struct attn_args *got, const struct ref_plan *plan, struct ref_verdict *v)
{
  struct job j;
  int status;

  if (p->op == ATTN_ROPE)
    return ref_verify_rope(p, num, got, plan, NULL, v);
  memset(v, 0, sizeof *v);
  job_start(&j, got);
  status = ref_open(p, num, got, &j.r);
  if (!status)
    status = p->op == ATTN_BWD ? verify_backward(&j, plan, v) : verify_forward(&j, plan, v);
  if (!status)
    ref_conclude(j.tally, v);
  job_end(&j);
  return status;
}

/* ---- exact results --------------------------------------------------------------------------- */

static int store_rows(int64_t i, void *ctx)
{
  struct job *j = ctx;
  const struct ref_target *t = &j->targets[j->starts[i]];
  int64_t dv = j->r.shape.dv;
  struct ref_rows rows;
  int n = (int)(j->starts[i + 1] - j->starts[i]);
  int status = ref_rows_compute(&j->r, j->args, t, n, false, &rows);
  if (status)
    return status;
  for (int k = 0; k < n; k++) {
    struct ref_matrix m = ref_matrix_of(&j->r, &j->args->o, t[k].seq, t[k].head, true, dv);
    int64_t at = m.first + t[k].pos * m.stride;
    if (j->exact_v)
      memcpy(j->exact_v + at, rows.o + k * dv, (size_t)dv * sizeof *rows.o);
    for (int64_t c = 0; c < dv && !j->exact_v; c++)
      ref_store(m.dtype, j->args->o.data, at + c, rows.o[k * dv + c]);
    if (!j->exact_v)
      j->args->lse[ref_lse_index(&j->r, t[k].seq, t[k].head, t[k].pos)] = (float)rows.sums[k].lse;
  }
  ref_rows_free(&rows);
  return ATTN_OK;
}

static int forward(const struct attn_problem *p, const struct attn_args *args, double *o)
{
  struct job j;
  int status;

  job_start(&j, args);
  j.exact_v = o;
  status = ref_open(p, NULL, args, &j.r);
  if (!status)
    status = run_blocks(&j, NULL, NULL, false, store_rows);
  job_end(&j);
  return status;
}

int ref_forward_host(const struct attn_problem *p, const struct attn_args *args)
{
  return forward(p, args, NULL);
}

int ref_exact_host(const struct attn_problem *p, const struct attn_args *args, double *o)
{
  return forward(p, args, o);
}

int ref_row_host(const struct attn_problem *p, const struct attn_args *args, int64_t seq,
                 int64_t head, int64_t row, double *o, double *lse)
{
  struct ref_problem r;
  struct ref_rows rows;
  struct ref_target t = {(int32_t)seq, (int32_t)head, row};
  int status = ref_open(p, NULL, args, &r);
  if (!status)
    status = ref_rows_compute(&r, args, &t, 1, false, &rows);
  if (!status) {
    memcpy(o, rows.o, (size_t)r.shape.dv * sizeof *o);
    *lse = rows.sums[0].lse;
    ref_rows_free(&rows);
  }
  ref_close(&r);
  return status;
}

static int store_grads(int64_t i, void *ctx)
{
  struct job *j = ctx;
  const struct ref_target *t = &j->targets[j->starts[i]];
  int64_t d = j->r.shape.d, dv = j->r.shape.dv;
  const struct attn_tensor *qk = j->columns ? &j->args->dk : &j->args->dq;
  struct ref_grads g;
  int n = (int)(j->starts[i + 1] - j->starts[i]);
  int status = ref_grads_compute(&j->r, j->args, j->stats, t, n, j->columns, &g);
  if (status)
    return status;
  for (int k = 0; k < n; k++) {
    int64_t first = j->columns ? j->r.seqs[t->seq].k0 : j->r.seqs[t->seq].q0;
    double *out = j->exact_qk + ref_offset(&j->r.shape, qk, t->seq, first, t[k].head, t[k].pos);
    for (int64_t c = 0; c < d; c++)
      out[c] = g.qk[k * d + c].val;
    out = j->exact_v + ref_offset(&j->r.shape, &j->args->dv, t->seq, first, t[k].head, t[k].pos);
    for (int64_t c = 0; c < dv && j->columns; c++)
      out[c] = g.v[k * dv + c].val;
  }
  ref_grads_free(&g);
  return ATTN_OK;
}

int ref_backward_host(const struct attn_problem *p, const struct attn_args *args, double *dq,
                      double *dk, double *dv)
{
  struct job j;
  int status;

  job_start(&j, args);
  status = ref_open(p, NULL, args, &j.r);
  if (!status)
    status = make_stats(&j, NULL);
  j.exact_v = dv;
  for (int columns = 0; columns < 2 && !status; columns++) {
    j.exact_qk = columns ? dk : dq;
    status = run_blocks(&j, NULL, NULL, columns, store_grads);
  }
  job_end(&j);
  return status;
}
