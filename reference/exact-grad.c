/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-grad.c - gradients in fp64 on the host, with the moments that their bound needs.
 *
 * A target is a query row (its partners are the keys; the result is dQ) or a key column (its
 * partners are the query rows of all heads of its group; the results are dK and dV):
 *   dS_ij = P_ij (Z_ij dO_i.V_j - D_i) (1 - tanh^2)      D_i = dO_i.O_i
 *   dQ_i = scale sum_j dS_ij K_j    dK_j = scale sum_ih dS_ij Q_i    dV_j = sum_ih P_ij Z_ij dO_i
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "reference/internal.h"
#include "reference/clones.h"

/* ---- rows: lse and D ------------------------------------------------------------------------- */

/* The error of D from the given O: known exactly, but never credited with more than the rounding of
 * O to storage, so that a wrong O cannot loosen the bound. */
static void row_stats(const struct ref_problem *r, const struct attn_args *args,
                      const struct ref_target *t, double lse, const double *o,
                      struct ref_row_stats *s)
{
  int64_t dv = r->shape.dv;
  struct ref_matrix dout = ref_matrix_of(r, &args->dout, t->seq, t->head, true, dv);
  struct ref_matrix given = ref_matrix_of(r, &args->o, t->seq, t->head, true, dv);
  int64_t dat = dout.first + t->pos * dout.stride, oat = given.first + t->pos * given.stride;
  double off = 0, most = 0;

  *s = (struct ref_row_stats){lse, 0, 0, 0};
  for (int64_t c = 0; c < dv; c++) {
    double g = attn_load(dout.dtype, dout.data, dat + c);
    double rounding = r->units.store * fabs(o[c]) + r->units.floor;
    s->dsum += g * o[c];
    s->dabs += fabs(g * o[c]);
    most += fabs(g) * rounding;
    if (given.data)
      off += g * (attn_load(given.dtype, given.data, oat + c) - o[c]);
  }
  s->dgiven = fabs(off) <= most ? off : copysign(most, off);
}

int ref_stats_compute(const struct ref_problem *r, const struct attn_args *args,
                      const struct ref_target *targets, int n, struct ref_row_stats *stats)
{
  struct ref_rows rows;
  int status = ref_rows_compute(r, args, targets, n, false, &rows);
  if (status)
    return status;
  for (int k = 0; k < n; k++)
    row_stats(r, args, &targets[k], rows.sums[k].lse, rows.o + k * r->shape.dv,
              &stats[ref_stats_index(r, targets[k].seq, targets[k].head, targets[k].pos)]);
  ref_rows_free(&rows);
  return ATTN_OK;
}

/* ---- a block of targets ---------------------------------------------------------------------- */

struct pair {
  struct ref_dot qk, vp;
  bool visible;
};

struct coef {
  double a, gross, det, lin, rnd2, sgn;
};

struct block {
  const struct ref_problem *r;
  const struct attn_args *args;
  const struct ref_row_stats *stats;
  const struct ref_target *t;
  const struct ref_seq *seq;
  int n;
  bool columns;
  int64_t kv_head, heads, len; /* partners: heads x len */
  struct pair *pairs;          /* n * heads * len */
  struct coef *ca, *cb;        /* n * heads * len: of k or q, of dO */
  double *x, *y, *tile;        /* targets (n, d) and (n, dv), one tile of partners */
};

/* Partner k of head index g of target row: the pair (query head, i, j). */
struct place {
  int64_t head, i, j;
};

static struct place place_of(const struct block *b, int row, int64_t g, int64_t k)
{
  if (b->columns)
    return (struct place){b->kv_head * b->r->shape.group + g, k, b->t[row].pos};
  return (struct place){b->t[row].head, b->t[row].pos, k};
}

static bool seen(const struct block *b, int row, int64_t k)
{
  struct place at = place_of(b, row, 0, k);
  return ref_visible(&b->r->shape, b->seq->sq, b->seq->sk, at.i, at.j);
}

static bool tile_seen(const struct block *b, int64_t k0, int64_t n)
{
  for (int row = 0; row < b->n; row++)
    for (int64_t k = k0; k < k0 + n; k++)
      if (seen(b, row, k))
        return true;
  return false;
}

/* The matrix of partners, of the tensors of keys or of the tensors of queries. */
static struct ref_matrix partners(const struct block *b, const struct attn_tensor *of_keys,
                                  const struct attn_tensor *of_queries, int64_t g, int64_t width)
{
  int64_t group = b->r->shape.group;
  return b->columns
             ? ref_matrix_of(b->r, of_queries, b->t->seq, b->kv_head * group + g, true, width)
             : ref_matrix_of(b->r, of_keys, b->t->seq, b->kv_head, false, width);
}

static void read_targets(struct block *b)
{
  const struct ref_shape *p = &b->r->shape;
  for (int row = 0; row < b->n; row++) {
    const struct ref_target *t = &b->t[row];
    struct ref_matrix x = ref_matrix_of(b->r, b->columns ? &b->args->k : &b->args->q, t->seq,
                                        t->head, !b->columns, p->d);
    struct ref_matrix y = ref_matrix_of(b->r, b->columns ? &b->args->v : &b->args->dout, t->seq,
                                        t->head, !b->columns, p->dv);
    ref_read_row(&x, t->pos, b->x + row * p->d);
    ref_read_row(&y, t->pos, b->y + row * p->dv);
  }
}

/* Both dot products of every visible pair. */
static void dots(struct block *b)
{
  const struct ref_shape *p = &b->r->shape;
  for (int64_t g = 0; g < b->heads; g++) {
    struct ref_matrix m1 = partners(b, &b->args->k, &b->args->q, g, p->d);
    struct ref_matrix m2 = partners(b, &b->args->v, &b->args->dout, g, p->dv);
    for (int64_t k0 = 0; k0 < b->len; k0 += REF_TILE) {
      int64_t n = b->len - k0 < REF_TILE ? b->len - k0 : REF_TILE;
      struct ref_dot out[2][REF_TILE];
      bool any = tile_seen(b, k0, n);
      for (int pass = 0; pass < 2 && any; pass++) {
        ref_read_transposed(pass ? &m2 : &m1, k0, n, b->tile);
        for (int row = 0; row < b->n; row++) {
          struct pair *pair = b->pairs + (row * b->heads + g) * b->len + k0;
          ref_dots(pass ? b->y + row * p->dv : b->x + row * p->d, b->tile, pass ? p->dv : p->d, n,
                   out[pass]);
          for (int64_t k = 0; k < n; k++)
            *(pass ? &pair[k].vp : &pair[k].qk) = out[pass][k];
        }
      }
      for (int row = 0; row < b->n; row++)
        for (int64_t k = k0; k < k0 + n; k++)
          b->pairs[(row * b->heads + g) * b->len + k].visible = any && seen(b, row, k);
    }
  }
}

/* What the neighbour rounded: P in the log domain, and dS. */
struct neighbour {
  bool here;
  double logp, s, x;
};

static void pair_coefs(struct block *b, int row, int64_t g, int64_t k, struct neighbour *last)
{
  const struct ref_shape *p = &b->r->shape;
  const struct ref_units *u = &b->r->units;
  int64_t at = (row * b->heads + g) * b->len + k;
  const struct pair *pair = &b->pairs[at];
  struct place w = place_of(b, row, g, k);
  const struct ref_row_stats *st = &b->stats[ref_stats_index(b->r, b->t[row].seq, w.head, w.i)];
  double slope = p->alibi ? ref_alibi_slope(p->hq, w.head) : 0;
  double z = ref_dropout(p, b->t[row].seq, w.head, w.i, w.j);
  struct ref_score s = ref_score_of(p, slope, w.i + b->seq->sk - b->seq->sq, w.j, pair->qk.dot);
  double x = exp(s.s - st->lse) * (z * pair->vp.dot - st->dsum) * (1 - s.t * s.t);
  bool tied_s = last->here && ref_tied(u, s.s, last->s);
  bool tied_p = last->here && ref_tied(u, s.s - st->lse, last->logp);
  bool tied_x = last->here && fabs(x - last->x) < 2 * u->prob * fabs(x);
  struct ref_error delta = ref_score_error(u, p, &s, &pair->qk, st->lse, 1, tied_s);
  struct ref_pair e = ref_pair_of(u, p, &s, &delta, st, &pair->vp, z, tied_p, tied_x);

  *last = (struct neighbour){true, s.s - st->lse, s.s, x};
  b->ca[at] = (struct coef){e.a, e.gross, e.ea.det, e.ea.lin, e.ea.rnd * e.ea.rnd, e.sgn};
  b->cb[at] = (struct coef){e.b, e.b, e.eb.det, e.eb.lin, e.eb.rnd * e.eb.rnd, 0};
}

static int64_t coefs(struct block *b, int row)
{
  int64_t visible = 0;
  for (int64_t g = 0; g < b->heads; g++) {
    struct neighbour last = {false, 0, 0, 0};
    for (int64_t k = 0; k < b->len; k++)
      if (b->pairs[(row * b->heads + g) * b->len + k].visible) {
        pair_coefs(b, row, g, k, &last);
        visible++;
      } else {
        last.here = false;
      }
  }
  return visible;
}

enum { SUM, ABS, GROSS, DET, LIN, RND2, SGN, HI, LO, MOMENTS };

CLONES static void add_terms(const struct coef *k, const double *restrict v, int64_t width,
                             double *restrict sum, double *restrict abs, double *restrict gross,
                             double *restrict det, double *restrict lin, double *restrict rnd2,
                             double *restrict sgn, double *restrict hi, double *restrict lo)
{
  double a = k->a, gr = k->gross, d = k->det, l = k->lin, r2 = k->rnd2, sg = k->sgn;
  for (int64_t c = 0; c < width; c++) {
    double term = a * v[c], mag = fabs(v[c]);
    sum[c] += term;
    abs[c] += fabs(term);
    gross[c] += gr * mag;
    det[c] += d * mag;
    lin[c] += l * mag;
    rnd2[c] += r2 * mag * mag;
    sgn[c] += sg * v[c];
    hi[c] = sum[c] > hi[c] ? sum[c] : hi[c];
    lo[c] = sum[c] < lo[c] ? sum[c] : lo[c];
  }
}

/* out[row][c] = sums over the partners of coefficient times partner's vector */
static int combine(struct block *b, const struct attn_tensor *of_keys,
                   const struct attn_tensor *of_queries, const struct coef *coef, int64_t width,
                   struct ref_sums *out)
{
  double *moments = calloc((size_t)(b->n * MOMENTS * width), sizeof *moments);
  if (!moments)
    return ATTN_ENOMEM;
  for (int64_t g = 0; g < b->heads; g++) {
    struct ref_matrix m = partners(b, of_keys, of_queries, g, width);
    for (int64_t k0 = 0; k0 < b->len; k0 += REF_TILE) {
      int64_t n = b->len - k0 < REF_TILE ? b->len - k0 : REF_TILE;
      if (!tile_seen(b, k0, n))
        continue;
      ref_read_tile(&m, k0, n, b->tile);
      for (int row = 0; row < b->n; row++) {
        int64_t at = (row * b->heads + g) * b->len + k0;
        double *s = moments + row * MOMENTS * width;
        for (int64_t k = 0; k < n; k++)
          if (b->pairs[at + k].visible)
            add_terms(&coef[at + k], b->tile + k * width, width, s + SUM * width, s + ABS * width,
                      s + GROSS * width, s + DET * width, s + LIN * width, s + RND2 * width,
                      s + SGN * width, s + HI * width, s + LO * width);
      }
    }
  }
  for (int64_t i = 0; i < b->n * width; i++) {
    const double *s = moments + i / width * MOMENTS * width + i % width;
    out[i] = (struct ref_sums){s[SUM * width], s[ABS * width], s[GROSS * width],
                               s[DET * width], s[LIN * width], s[RND2 * width],
                               s[SGN * width], s[HI * width],  s[LO * width]};
  }
  free(moments);
  return ATTN_OK;
}

static int compute(struct block *b, struct ref_grads *grads)
{
  const struct attn_args *a = b->args;
  int64_t d = b->r->shape.d, dv = b->r->shape.dv;
  int status;

  read_targets(b);
  dots(b);
  for (int row = 0; row < b->n; row++)
    grads->partners[row] = coefs(b, row);
  status = combine(b, &a->k, &a->q, b->ca, d, grads->qk);
  if (!status && b->columns)
    status = combine(b, NULL, &a->dout, b->cb, dv, grads->v);
  return status;
}

int ref_grads_compute(const struct ref_problem *r, const struct attn_args *args,
                      const struct ref_row_stats *stats, const struct ref_target *targets, int n,
                      bool columns, struct ref_grads *grads)
{
  const struct ref_shape *p = &r->shape;
  const struct ref_seq *seq = &r->seqs[targets->seq];
  struct block b = {r, args, stats, targets, seq, n, columns, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  int64_t width = p->d > p->dv ? p->d : p->dv;
  int status = ATTN_ENOMEM;

  b.kv_head = columns ? targets->head : targets->head / p->group;
  b.heads = columns ? p->group : 1;
  b.len = columns ? seq->sq : seq->sk;
  size_t pairs = (size_t)(n * b.heads * b.len) + 1;
  *grads = (struct ref_grads){n, columns, {0}, NULL, NULL};
  grads->qk = calloc((size_t)(n * p->d), sizeof *grads->qk);
  grads->v = calloc((size_t)(n * p->dv), sizeof *grads->v);
  b.pairs = malloc(pairs * sizeof *b.pairs);
  b.ca = malloc(pairs * sizeof *b.ca);
  b.cb = malloc(pairs * sizeof *b.cb);
  b.x = malloc((size_t)(n * p->d) * sizeof *b.x);
  b.y = malloc((size_t)(n * p->dv) * sizeof *b.y);
  b.tile = malloc((size_t)(width * REF_TILE) * sizeof *b.tile);
  if (grads->qk && grads->v && b.pairs && b.ca && b.cb && b.x && b.y && b.tile)
    status = compute(&b, grads);
  free(b.pairs);
  free(b.ca);
  free(b.cb);
  free(b.x);
  free(b.y);
  free(b.tile);
  if (status)
    ref_grads_free(grads);
  return status;
}

void ref_grads_free(struct ref_grads *grads)
{
  free(grads->qk);
  free(grads->v);
  memset(grads, 0, sizeof *grads);
}
