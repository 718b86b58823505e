/* SPDX-License-Identifier: Apache-2.0
 *
 * exact.c - attention in fp64 on the host: scores, weights, O, LSE and the moments that the bound
 * needs, for a block of rows that share their keys.
 *
 * K is read tile by tile, transposed (matrix.c); V is read twice, because |v - O| needs O.
 * Shapes: q (d), K tile (d, REF_TILE), V tile (REF_TILE, dv), O and moments (rows, dv).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reference/internal.h"
#include "reference/clones.h"

/* ---- a block of rows ------------------------------------------------------------------------- */

/* One key of one row; s is -inf where the row does not see it. */
struct key {
  struct ref_dot qk;
  double s;
};

struct coef {
  double a, z; /* weight times dropout factor, dropout factor */
  double gdet, glin, grnd2, rdet, rlin, rrnd2;
  bool visible;
};

struct block {
  const struct ref_problem *r;
  const struct attn_args *args;
  const struct ref_target *t;
  const struct ref_seq *seq;
  int64_t kv_head;
  struct ref_rows *rows;
  struct key *keys;   /* n * sk */
  struct coef *coefs; /* n * sk */
  double *x, *tile;
};

static bool sees(const struct block *b, int row, int64_t j)
{
  return ref_visible(&b->r->shape, b->seq->sq, b->seq->sk, b->t[row].pos, j);
}

static bool tile_visible(const struct block *b, int64_t j0, int64_t n)
{
  for (int row = 0; row < b->rows->n; row++)
    for (int64_t j = j0; j < j0 + n; j++)
      if (sees(b, row, j))
        return true;
  return false;
}

static void score_tile(struct block *b, int row, double slope, int64_t j0, int64_t n)
{
  const struct ref_shape *p = &b->r->shape;
  int64_t diagonal = b->t[row].pos + b->seq->sk - b->seq->sq;
  struct key *key = b->keys + row * b->seq->sk + j0;
  struct ref_dot dots[REF_TILE];

  ref_dots(b->x + row * p->d, b->tile, p->d, n, dots);
  for (int64_t k = 0; k < n; k++) {
    key[k].qk = dots[k];
    key[k].s =
        sees(b, row, j0 + k) ? ref_score_of(p, slope, diagonal, j0 + k, dots[k].dot).s : -INFINITY;
  }
}

static void scores(struct block *b)
{
  const struct ref_shape *p = &b->r->shape;
  struct ref_matrix k = ref_keys_of(b->r, b->args, b->t->seq, b->kv_head);
  double slope[REF_BLOCK];

  for (int row = 0; row < b->rows->n; row++) {
    struct ref_matrix q = ref_matrix_of(b->r, &b->args->q, b->t->seq, b->t[row].head, true, p->d);
    ref_read_row(&q, b->t[row].pos, b->x + row * p->d);
    slope[row] = p->alibi ? ref_alibi_slope(p->hq, b->t[row].head) : 0;
  }
  for (int64_t j0 = 0; j0 < b->seq->sk; j0 += REF_TILE) {
    int64_t n = b->seq->sk - j0 < REF_TILE ? b->seq->sk - j0 : REF_TILE;
    bool any = tile_visible(b, j0, n);
    if (any)
      ref_read_transposed(&k, j0, n, b->tile);
    for (int row = 0; row < b->rows->n; row++)
      if (any)
        score_tile(b, row, slope[row], j0, n);
      else
        for (int64_t j = j0; j < j0 + n; j++)
          b->keys[row * b->seq->sk + j].s = -INFINITY;
  }
}

/* How often a running maximum changes over the keys, in the worse of the two directions. */
static double maximum_changes(const struct key *key, int64_t n)
{
  double up = -INFINITY, down = -INFINITY;
  int64_t ups = 0, downs = 0;
  for (int64_t j = 0; j < n; j++) {
    if (key[j].s > up) {
      up = key[j].s;
      ups++;
    }
    if (key[n - 1 - j].s > down) {
      down = key[n - 1 - j].s;
      downs++;
    }
  }
  return (double)(ups > downs ? ups : downs);
}

/* m, l, lse and the number of keys */
static void normalise(const struct key *key, int64_t n, struct ref_row_sums *sums)
{
  memset(sums, 0, sizeof *sums);
  sums->m = sums->lse = -INFINITY;
  for (int64_t j = 0; j < n; j++)
    sums->m = key[j].s > sums->m ? key[j].s : sums->m;
  for (int64_t j = 0; j < n; j++)
    if (key[j].s > -INFINITY) {
      sums->l += exp(key[j].s - sums->m);
      sums->n++;
    }
  if (sums->n > 0)
    sums->lse = sums->m + log(sums->l);
}

/* Weights of a row, without their errors. */
static void weigh(struct block *b, int row)
{
  const struct ref_target *t = &b->t[row];
  const struct key *key = b->keys + row * b->seq->sk;
  struct coef *coef = b->coefs + row * b->seq->sk;

  for (int64_t j = 0; j < b->seq->sk; j++) {
    coef[j].visible = key[j].s > -INFINITY;
    if (!coef[j].visible)
      continue;
    coef[j].z = ref_dropout(&b->r->shape, t->seq, t->head, t->pos, j);
    coef[j].a = exp(key[j].s - b->rows->sums[row].lse) * coef[j].z;
  }
}

/* The largest total weight of the twins of one of REF_PROBES keys. */
static double weight_of_twins(const struct block *b, int row)
{
  const struct ref_row_sums *sums = &b->rows->sums[row];
  const struct key *key = b->keys + row * b->seq->sk;
  double most = 0;
  int64_t first = 0;

  while (first < b->seq->sk && !(key[first].s > -INFINITY))
    first++;
  for (int k = 0; k < REF_PROBES && sums->n > 1; k++) {
    int64_t probe = ref_probe(first, sums->n, k);
    double twins = 0;
    for (int64_t j = 0; j < b->seq->sk; j++)
      if (j != probe && ref_twin(&b->r->units, key[j].s, key[probe].s))
        twins += exp(key[j].s - sums->lse);
    most = twins > most ? twins : most;
  }
  return most;
}

static void weigh_errors(struct block *b, int row)
{
  const struct ref_shape *p = &b->r->shape;
  const struct ref_units *u = &b->r->units;
  struct ref_row_sums *sums = &b->rows->sums[row];
  const struct key *key = b->keys + row * b->seq->sk;
  struct coef *coef = b->coefs + row * b->seq->sk;
  int64_t diagonal = b->t[row].pos + b->seq->sk - b->seq->sq;
  double slope = p->alibi ? ref_alibi_slope(p->hq, b->t[row].head) : 0;

  sums->changes = maximum_changes(key, b->seq->sk) + 2;
  sums->twins = weight_of_twins(b, row);
  for (int64_t j = 0; j < b->seq->sk; j++) {
    if (!coef[j].visible)
      continue;
    struct ref_score s = ref_score_of(p, slope, diagonal, j, key[j].qk.dot);
    bool tied = j > 0 && ref_tied(u, key[j].s, key[j - 1].s);
    struct ref_error delta = ref_score_error(u, p, &s, &key[j].qk, sums->m, sums->changes, tied);
    struct ref_weight w = ref_weight_of(u, sums, s.s, &delta, tied);
    ref_row_add(u, sums, &w, delta.det);
    coef[j].gdet = w.g.det;
    coef[j].glin = w.g.lin;
    coef[j].grnd2 = w.g.rnd * w.g.rnd;
    coef[j].rdet = w.r.det;
    coef[j].rlin = w.r.lin;
    coef[j].rrnd2 = w.r.rnd * w.r.rnd;
  }
}

CLONES static void add_values(double a, const double *restrict v, int64_t width, double *restrict o)
{
  for (int64_t c = 0; c < width; c++)
    o[c] += a * v[c];
}

CLONES static void add_moments(const struct coef *k, const double *restrict v, int64_t width,
                               const double *restrict o, double *restrict sum, double *restrict abs,
                               double *restrict det, double *restrict lin, double *restrict rnd2,
                               double *restrict hi, double *restrict lo)
{
  double a = k->a, z = k->z, gdet = k->gdet, glin = k->glin, grnd2 = k->grnd2, rdet = k->rdet,
         rlin = k->rlin, rrnd2 = k->rrnd2;
  for (int64_t c = 0; c < width; c++) {
    double term = a * v[c], kept = fabs(z * v[c]), dev = fabs(z * v[c] - o[c]);
    sum[c] += term;
    abs[c] += fabs(term);
    det[c] += gdet * dev + rdet * kept;
    lin[c] += glin * dev + rlin * kept;
    rnd2[c] += grnd2 * dev * dev + rrnd2 * kept * kept;
    hi[c] = sum[c] > hi[c] ? sum[c] : hi[c];
    lo[c] = sum[c] < lo[c] ? sum[c] : lo[c];
  }
}

enum { SUM, ABS, DET, LIN, RND2, HI, LO, MOMENTS };

static void combine(struct block *b, double *moments, bool wanted)
{
  int64_t dv = b->r->shape.dv, sk = b->seq->sk;
  struct ref_matrix v = ref_values_of(b->r, b->args, b->t->seq, b->kv_head);

  for (int64_t j0 = 0; j0 < sk; j0 += REF_TILE) {
    int64_t n = sk - j0 < REF_TILE ? sk - j0 : REF_TILE;
    if (!tile_visible(b, j0, n))
      continue;
    ref_read_tile(&v, j0, n, b->tile);
    for (int row = 0; row < b->rows->n; row++) {
      double *o = b->rows->o + row * dv, *m = moments + row * MOMENTS * dv;
      for (int64_t k = 0; k < n; k++) {
        const struct coef *coef = &b->coefs[row * sk + j0 + k];
        const double *value = b->tile + k * dv;
        if (!coef->visible)
          continue;
        if (!wanted)
          add_values(coef->a, value, dv, o);
        else
          add_moments(coef, value, dv, o, m + SUM * dv, m + ABS * dv, m + DET * dv, m + LIN * dv,
                      m + RND2 * dv, m + HI * dv, m + LO * dv);
      }
    }
  }
}

static int moments_of_block(struct block *b)
{
  int64_t dv = b->r->shape.dv;
  double *m = calloc((size_t)(b->rows->n * MOMENTS * dv), sizeof *m);

  b->rows->terms = malloc((size_t)(b->rows->n * dv) * sizeof *b->rows->terms);
  if (!m || !b->rows->terms) {
    free(m);
    return ATTN_ENOMEM;
  }
  for (int row = 0; row < b->rows->n; row++)
    weigh_errors(b, row);
  combine(b, m, true);
  for (int64_t i = 0; i < b->rows->n * dv; i++) {
    const double *x = m + i / dv * MOMENTS * dv + i % dv;
    b->rows->terms[i] =
        (struct ref_sums){b->rows->o[i], x[ABS * dv], x[ABS * dv], x[DET * dv], x[LIN * dv],
                          x[RND2 * dv],  0,           x[HI * dv],  x[LO * dv]};
  }
  free(m);
  return ATTN_OK;
}

int ref_rows_compute(const struct ref_problem *r, const struct attn_args *args,
                     const struct ref_target *targets, int n, bool moments, struct ref_rows *rows)
{
  const struct ref_seq *seq = &r->seqs[targets->seq];
  int64_t width = r->shape.d > r->shape.dv ? r->shape.d : r->shape.dv;
  size_t pairs = (size_t)n * (size_t)seq->sk + 1;
  int64_t kv_head = targets->head / r->shape.group;
  struct block b = {r, args, targets, seq, kv_head, rows, NULL, NULL, NULL, NULL};
  int status = ATTN_ENOMEM;

  memset(rows, 0, sizeof *rows);
  rows->n = n;
  rows->o = calloc((size_t)(n * r->shape.dv), sizeof *rows->o);
  b.keys = malloc(pairs * sizeof *b.keys);
  b.coefs = malloc(pairs * sizeof *b.coefs);
  b.x = malloc((size_t)(n * r->shape.d) * sizeof *b.x);
  b.tile = malloc((size_t)(width * REF_TILE) * sizeof *b.tile);
  if (!rows->o || !b.keys || !b.coefs || !b.x || !b.tile)
    goto out;
  scores(&b);
  for (int row = 0; row < n; row++) {
    normalise(b.keys + row * seq->sk, seq->sk, &rows->sums[row]);
    weigh(&b, row);
  }
  combine(&b, NULL, false);
  status = moments ? moments_of_block(&b) : ATTN_OK;
out:
  free(b.keys);
  free(b.coefs);
  free(b.x);
  free(b.tile);
  if (status)
    ref_rows_free(rows);
  return status;
}

void ref_rows_free(struct ref_rows *rows)
{
  free(rows->o);
  free(rows->terms);
  memset(rows, 0, sizeof *rows);
}
