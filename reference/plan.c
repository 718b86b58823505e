/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - a problem opened for the reference (defaults resolved, sequences laid out), and which
 * rows of it are checked.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/internal.h"

static int lay_out_sequences(const struct attn_problem *p, struct ref_problem *r)
{
  struct ref_shape *s = &r->shape;
  struct attn_run uniform = {p->b, p->sq, p->sk};
  const struct attn_run *runs = p->nruns > 0 ? p->runs : &uniform;
  int nruns = p->nruns > 0 ? p->nruns : 1;
  int64_t n = 0;

  for (int i = 0; i < nruns; i++)
    n += runs[i].count;
  r->seqs = calloc(n > 0 ? (size_t)n : 1, sizeof *r->seqs);
  if (!r->seqs)
    return ATTN_ENOMEM;
  s->b = n;
  n = 0;
  for (int i = 0; i < nruns; i++)
    for (int64_t k = 0; k < runs[i].count; k++) {
      struct ref_seq *q = &r->seqs[n++];
      *q = (struct ref_seq){runs[i].sq, runs[i].sk, 0, 0, s->total_q, s->total_k};
      if (s->packed) {
        q->q0 = s->total_q;
        q->k0 = s->total_k;
      }
      s->total_q += q->sq;
      s->total_k += q->sk;
      s->max_sq = q->sq > s->max_sq ? q->sq : s->max_sq;
      s->max_sk = q->sk > s->max_sk ? q->sk : s->max_sk;
    }
  return ATTN_OK;
}

int ref_open(const struct attn_problem *p, const struct attn_numerics *num,
             const struct attn_args *args, struct ref_problem *r)
{
  static const struct attn_numerics fp32;
  struct ref_shape *s = &r->shape;
  bool backward = p->op == ATTN_BWD;
  double outputs;
  int status;

  memset(r, 0, sizeof *r);
  if (p->page > 0 && (backward || !args->block_table))
    return ATTN_EINVAL;
  if (p->kv == ATTN_KV_E4M3 && !(p->page > 0 && args->k_scale && args->v_scale))
    return ATTN_EINVAL;
  if (p->d < 1 || p->dv < 1 || p->hkv < 1 || p->hq < 1 || p->hq % p->hkv != 0)
    return ATTN_EINVAL;
  s->dtype = p->dtype;
  s->hq = p->hq;
  s->hkv = p->hkv;
  s->group = p->hq / p->hkv;
  s->d = p->d;
  s->dv = p->dv;
  s->mask = p->mask;
  s->left = p->window_left;
  s->right = p->window_right;
  s->scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->d);
  s->cap = p->softcap;
  s->alibi = p->alibi;
  s->ragged = p->nruns > 0;
  s->packed = s->ragged || p->layout == ATTN_PACKED;
  s->drop_threshold = (uint32_t)llround(p->dropout_p * 65536);
  s->drop_seed = p->dropout_seed;
  s->page = p->page;
  s->table = args->block_table;
  s->table_stride = args->block_table_stride;
  s->e4m3 = p->kv == ATTN_KV_E4M3;
  s->k_scale = args->k_scale;
  s->v_scale = args->v_scale;
  status = lay_out_sequences(p, r);
  if (status)
    return status;
  outputs = (double)s->total_q * (double)s->hq * (double)(backward ? s->d : s->dv + 1);
  if (backward)
    outputs += (double)s->total_k * (double)s->hkv * (double)(s->d + s->dv);
  r->units = ref_units_of(s, num ? num : &fp32, outputs);
  return ATTN_OK;
}

void ref_close(struct ref_problem *r)
{
  free(r->seqs);
  r->seqs = NULL;
}

int64_t ref_lse_index(const struct ref_problem *r, int64_t seq, int64_t head, int64_t pos)
{
  const struct ref_shape *s = &r->shape;
  if (s->ragged)
    return head * s->total_q + r->seqs[seq].qfirst + pos;
  return (seq * s->hq + head) * s->max_sq + pos;
}

/* ---- which rows ------------------------------------------------------------------------------ */

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) */
static uint64_t next_random(uint64_t *state)
{
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static int64_t below(uint64_t *state, int64_t n)
{
  return (int64_t)(next_random(state) % (uint64_t)n);
}

static int compare_targets(const void *a, const void *b)
{
  const struct ref_target *x = a, *y = b;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  if (x->head != y->head)
    return x->head < y->head ? -1 : 1;
  return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static bool wanted(const struct ref_problem *r, const bool *keep, bool columns,
                   const struct ref_target *t)
{
  int64_t kv_head = columns ? t->head : t->head / r->shape.group;
  return !keep || keep[t->seq * r->shape.hkv + kv_head];
}

static int64_t all_targets(const struct ref_problem *r, bool columns, const bool *keep,
                           struct ref_target *out)
{
  int64_t heads = columns ? r->shape.hkv : r->shape.hq, n = 0;
  for (int64_t s = 0; s < r->shape.b; s++)
    for (int64_t h = 0; h < heads; h++) {
      int64_t rows = columns ? r->seqs[s].sk : r->seqs[s].sq;
      struct ref_target t = {(int32_t)s, (int32_t)h, 0};
      for (; t.pos < rows && wanted(r, keep, columns, &t); t.pos++)
        out[n++] = t;
    }
  return n;
}

/* The k-th remarkable position of a sequence of len rows: its ends, then both sides of the edges of
 * tiles of 16 to 256 from either end; -1 if there is none. */
static int64_t remarkable(int k, int64_t len)
{
  static const int64_t edge[] = {0, 64, 128, 16, 32, 256};
  int64_t e = edge[k / 4], pos = k & 1 ? len - 1 - e : e;
  if (k & 2)
    pos += k & 1 ? 1 : -1;
  return pos >= 0 && pos < len ? pos : -1;
}

/* A random head among the wanted ones of sequence s, or -1. */
static int32_t some_head(const struct ref_problem *r, const bool *keep, bool columns, int64_t s,
                         uint64_t *state)
{
  int64_t heads = columns ? r->shape.hkv : r->shape.hq, start = below(state, heads);
  for (int64_t k = 0; k < heads; k++) {
    struct ref_target t = {(int32_t)s, (int32_t)((start + k) % heads), 0};
    if (wanted(r, keep, columns, &t))
      return t.head;
  }
  return -1;
}

/* The sequence of row number row of all sequences, and the row's position in it. */
static int64_t find_row(const struct ref_problem *r, bool columns, int64_t row, int64_t *pos)
{
  int64_t lo = 0, hi = r->shape.b - 1;
  while (lo < hi) {
    int64_t mid = (lo + hi + 1) / 2;
    if ((columns ? r->seqs[mid].kfirst : r->seqs[mid].qfirst) <= row)
      lo = mid;
    else
      hi = mid - 1;
  }
  *pos = row - (columns ? r->seqs[lo].kfirst : r->seqs[lo].qfirst);
  return lo;
}

static int64_t sampled_targets(const struct ref_problem *r, int64_t max, uint64_t seed,
                               bool columns, const bool *keep, struct ref_target *out)
{
  uint64_t state = seed ^ (columns ? 0x636f6c756d6e73u : 0x726f7773u);
  int64_t total = columns ? r->shape.total_k : r->shape.total_q, n = 0, pos;
  int32_t head;

  for (int k = 0; k < 24 && n < max / 2; k++)
    for (int64_t s = 0; s < r->shape.b && n < max; s++) {
      int64_t len = columns ? r->seqs[s].sk : r->seqs[s].sq;
      pos = len ? remarkable(k, len) : -1;
      head = some_head(r, keep, columns, s, &state);
      if (pos >= 0 && head >= 0)
        out[n++] = (struct ref_target){(int32_t)s, head, pos};
    }
  for (int64_t tries = 0; n < max && tries < 64 * max; tries++) {
    int64_t s = find_row(r, columns, below(&state, total), &pos);
    head = some_head(r, keep, columns, s, &state);
    if (head >= 0)
      out[n++] = (struct ref_target){(int32_t)s, head, pos};
  }
  return n;
}

static bool takes_all(const struct ref_plan *plan, int64_t total)
{
  return !plan || plan->rows_max <= 0 || plan->rows_max >= total;
}

int ref_choose(const struct ref_problem *r, const struct ref_plan *plan, bool columns,
               const bool *keep, struct ref_target **targets, int64_t *n)
{
  int64_t total = columns ? r->shape.total_k * r->shape.hkv : r->shape.total_q * r->shape.hq;
  bool all = takes_all(plan, total);
  int64_t kept = 0, count, max = all ? total : plan->rows_max;

  *n = 0;
  *targets = malloc((size_t)(max > 0 ? max : 1) * sizeof **targets);
  if (!*targets)
    return ATTN_ENOMEM;
  count = all ? all_targets(r, columns, keep, *targets)
              : sampled_targets(r, max, plan->seed, columns, keep, *targets);
  if (!all)
    qsort(*targets, (size_t)count, sizeof **targets, compare_targets);
  for (int64_t i = 0; i < count; i++)
    if (i == 0 || compare_targets(&(*targets)[i], &(*targets)[kept - 1]) != 0)
      (*targets)[kept++] = (*targets)[i];
  *n = kept;
  return ATTN_OK;
}

void ref_limit_groups(const struct ref_problem *r, const struct ref_plan *plan, int64_t total,
                      double max_pairs, bool *keep)
{
  int64_t groups = r->shape.b * r->shape.hkv;
  uint64_t state = (plan ? plan->seed : 0) ^ 0x67726f757073u;
  bool all = takes_all(plan, total);
  double spent = 0;

  memset(keep, 0, (size_t)groups * sizeof *keep);
  int64_t start = groups ? below(&state, groups) : 0;
  for (int64_t k = 0; k < groups; k++) {
    int64_t g = (start + k) % groups;
    const struct ref_seq *q = &r->seqs[g / r->shape.hkv];
    double cost = (double)q->sq * (double)q->sk * (double)r->shape.group;
    if (!all && spent > 0 && spent + cost > max_pairs)
      continue;
    keep[g] = true;
    spent += cost;
  }
}

int64_t ref_block_end(const struct ref_problem *r, const struct ref_target *t, int64_t i, int64_t n,
                      bool columns, int64_t size)
{
  int64_t group = columns ? 1 : r->shape.group, end = i + 1;
  while (end < n && end < i + size && t[end].seq == t[i].seq &&
         t[end].head / group == t[i].head / group)
    end++;
  return end;
}
