/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.h - the componentwise a-priori error bound of attention and its gradients, for the host and
 * for CUDA.  Derivation and sources: reference/BOUNDS, whose numbers stand in brackets.  Inputs are
 * exact fp64 moments of one row or one output element; outputs are absolute errors that no correct
 * implementation with the declared numerics exceeds (deterministic form), or exceeds with
 * probability below REF_ALPHA per verdict (probabilistic form).  The bound is the smaller one.
 */
#ifndef REFERENCE_BOUND_H
#define REFERENCE_BOUND_H

#include "reference/semantics.h"

#define REF_U 0x1p-24       /* unit roundoff of fp32 */
#define REF_TINY 0x1p-126   /* fp32 and bf16 subnormals may be flushed to zero */
#define REF_F16_MIN 0x1p-14 /* smallest normal fp16 */
#define REF_F16_ETA 0x1p-25 /* half of the smallest subnormal fp16 */
#define REF_ALPHA 1e-6
#define REF_PROBES 8   /* keys of a row whose twins are counted, [6.5] */
#define REF_TWINS 1e-3 /* weight of one key's twins above which roundings are not independent */

/* [2] what the arithmetic does, in numbers */
struct ref_units {
  double store; /* unit roundoff of the storage type */
  double eta;   /* absolute rounding error below its normal range */
  double floor; /* of an output: eta, or a flushed subnormal */
  double score; /* relative rounding of a score: store or 0 */
  double prob;  /* of P and dS: store or 0 */
  double grad;  /* of partial gradients: store or 0 */
  double exp_rel, tanh_rel;
  double descale; /* relative, of an element that is multiplied by its scale, or 0 */
  double lambda;
  bool truncates, sum_of_rounded, normalize_first, dropout;
};

/* A dot product in fp64: its value, sum |x_i y_i|, and the range of its prefix sums. */
struct ref_dot {
  double dot, abs, range;
};

/* An absolute error split by how it behaves over many keys: det bounds all of it; lin (may have one
 * sign everywhere) and rnd (root of a sum of squares of mean-independent roundings) are the parts
 * of the probabilistic form. */
struct ref_error {
  double det, lin, rnd;
};

REF_FN struct ref_units ref_units_of(const struct ref_shape *p, const struct attn_numerics *num,
                                     double outputs)
{
  struct ref_units u;
  u.store = p->dtype == ATTN_BF16 ? 0x1p-8 : p->dtype == ATTN_F16 ? 0x1p-11 : REF_U;
  u.eta = p->dtype == ATTN_F16 ? REF_F16_ETA : 0;
  u.floor = p->dtype == ATTN_F16 ? REF_F16_ETA : REF_TINY;
  u.score = num->score == ATTN_ROUND_STORAGE ? u.store : 0;
  u.prob = num->prob == ATTN_ROUND_STORAGE ? u.store : 0;
  u.grad = num->grad == ATTN_ROUND_STORAGE ? u.store : 0;
  u.exp_rel = num->exp_rel > 0 ? num->exp_rel : 4 * REF_U;
  u.tanh_rel = num->tanh_rel > 0 ? num->tanh_rel : 8 * REF_U;
  u.descale = p->e4m3 ? 2 * REF_U : 0;
  u.lambda = sqrt(2 * log(2 * (outputs > 1 ? outputs : 1) / REF_ALPHA));
  u.truncates = num->accum_truncates;
  u.sum_of_rounded = num->sum_of_rounded;
  u.normalize_first = num->normalize_first;
  u.dropout = p->drop_threshold > 0;
  return u;
}

/* [3] n products summed in fp32, in any order; truncating adders: [3.3] */
REF_FN struct ref_error ref_sum_error(const struct ref_units *u, double n, double abs, double range)
{
  struct ref_error e;
  e.det = (n + 2) * REF_U * abs * (u->truncates ? 2 : 1);
  e.rnd = sqrt(2 * n + 2) * REF_U * range;
  e.lin = u->truncates ? REF_U * (1.5 * (n + 8) * range + 9 * abs) : 0;
  return e;
}

/* [4] absolute error of the score s, as it enters exp(s - shift); changes is how often the running
 * maximum may change, tied says that the neighbour's score rounds alike. */
REF_FN struct ref_error ref_score_error(const struct ref_units *u, const struct ref_shape *p,
                                        const struct ref_score *r, const struct ref_dot *qk,
                                        double shift, double changes, bool tied)
{
  double scale = fabs(p->scale);
  struct ref_error e = ref_sum_error(u, (double)p->d, scale * qk->abs, scale * qk->range);
  double descaled = u->descale * scale * qk->abs;
  double stored = u->score > 0 ? u->score * fmax(fabs(r->x), fabs(r->s)) + u->eta * scale : 0;
  double other = 4 * REF_U * (fabs(r->s - shift) + fabs(shift)) + u->exp_rel +
                 changes * (u->exp_rel + 2 * REF_U) + 6 * REF_U * fabs(r->bias);
  e.det += descaled;
  e.lin += descaled;
  if (p->cap > 0) {
    double lever = fmin(1.0, 1 - r->t * r->t + 2 * e.det / p->cap);
    e.det *= lever;
    e.lin *= lever;
    e.rnd *= lever;
    other += p->cap * (4 * REF_U + u->tanh_rel * fabs(r->t)) + 4 * REF_U * p->cap * fabs(r->t);
  }
  e.det += other + stored;
  e.lin += other + (tied ? stored : 0);
  if (!tied)
    e.rnd = sqrt(e.rnd * e.rnd + stored * stored);
  return e;
}

/* [6.4] do two neighbouring values in the log domain round alike, because they are nearly equal? */
REF_FN bool ref_tied(const struct ref_units *u, double s, double neighbour)
{
  double unit = u->prob > u->score ? u->prob : u->score;
  return fabs(s - neighbour) < 2 * unit * fmax(1.0, fabs(s));
}

/* [6.5] is s the score of a twin of the key that has the score probe? */
REF_FN bool ref_twin(const struct ref_units *u, double s, double probe)
{
  double unit = u->prob > u->score ? u->prob : u->score;
  return fabs(s - probe) < 0x1p-10 * unit * fmax(1.0, fabs(s));
}

/* [6.5] probe k of a row that sees n keys from key first */
REF_FN int64_t ref_probe(int64_t first, double n, int k)
{
  return first + (int64_t)(n * k / REF_PROBES);
}

/* exp without overflow: a bound beyond e^300 says nothing, but must not become 0 * infinity */
REF_FN double ref_exp(double x)
{
  return exp(x < 300 ? x : 300);
}

/* w (exp(e) - 1), where w = exp(logw); never below it */
REF_FN double ref_grown(double w, double logw, double e)
{
  if (fabs(e) < 0.01)
    return w * e * (1 + e * (0.5 + 0.17 * fabs(e)));
  return e < 0.5 ? w * expm1(e) : ref_exp(logw + e) - w;
}

/* [5.1] the error of a weight w = exp(logw) whose score is off by e */
REF_FN struct ref_error ref_weight_error(const struct ref_units *u, double w, double logw,
                                         const struct ref_error *e)
{
  double even = fmin(u->lambda * e->rnd, e->det);
  struct ref_error f;
  f.det = ref_grown(w, logw, e->det);
  if (even < 0.01) {
    f.rnd = w * e->rnd * (1 + even * even);
    f.lin = ref_grown(w, logw, e->lin) * (1 + 2 * even) + w * even * even;
    return f;
  }
  f.rnd = (ref_grown(w, logw, e->rnd) - ref_grown(w, logw, -e->rnd)) / 2;
  f.lin = ref_grown(ref_exp(logw + e->rnd), logw + e->rnd, e->lin) +
          (ref_grown(w, logw, even) + ref_grown(w, logw, -even)) / 2;
  return f;
}

/* [6.2] absolute error of storing what is x up to an error of off in the type of P, in units of
 * `unit`; fp32 results below its normal range may be flushed, and what lies above it may have been
 * computed below */
REF_FN double ref_prob_rounding(const struct ref_units *u, double x, double off, double unit)
{
  double most = x + off, small = x - off < REF_TINY * unit ? fmin(most, REF_TINY * unit) : 0;
  if (u->prob > 0 && most < REF_F16_MIN * unit)
    small = fmax(small, fmin(most, u->eta * unit));
  return u->prob * most + small;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* One key of one row: its weight, the error g of the weight's factor (acts on v - O) and the error
 * r of storing P (acts on v). */
struct ref_weight {
  double w;
  struct ref_error g, r;
};

/* Sums over the keys of one row. */
struct ref_row_sums {
  double m, l, lse, n, changes;
  double shrink;         /* sum w exp(-delta): the denominator is never smaller */
  double twins;          /* the largest total weight of one probed key's twins */
  double det, lin, rnd2; /* of g */
};

REF_FN struct ref_weight ref_weight_of(const struct ref_units *u, const struct ref_row_sums *row,
                                       double s, const struct ref_error *delta, bool tied)
{
  struct ref_weight k;
  k.w = exp(s - row->lse);
  k.g = ref_weight_error(u, k.w, s - row->lse, delta);
  double unit = u->normalize_first ? 1 : 1 / row->l, put;
  double others = row->n == 1 ? 0 : 1; /* then P is 1, whatever its score */
  k.r.det = ref_prob_rounding(u, k.w, others * k.g.det, unit);
  put = ref_prob_rounding(u, k.w, others * fmin(k.g.det, k.g.lin + u->lambda * k.g.rnd), unit);
  k.r.lin = tied ? put : 0;
  k.r.rnd = tied ? 0 : put;
  if (u->sum_of_rounded) {
    double left = u->dropout ? 2 : 0;
    k.g.det += k.r.det;
    k.g.lin += k.r.lin;
    k.g.rnd = sqrt(k.g.rnd * k.g.rnd + k.r.rnd * k.r.rnd);
    k.r.det *= left;
    k.r.lin *= left;
    k.r.rnd *= left;
  }
  return k;
}

REF_FN void ref_row_add(const struct ref_units *u, struct ref_row_sums *row,
                        const struct ref_weight *k, double delta)
{
  row->shrink += k->w * exp(-delta) * (u->sum_of_rounded ? 1 - u->prob : 1);
  row->det += k->g.det;
  row->lin += k->g.lin;
  row->rnd2 += k->g.rnd * k->g.rnd;
}

/* Sums over the keys (or queries) of one output element: its value, the sum of absolute terms, the
 * same before dP and D cancel, the three errors, the signed error of the given D, and the extremes
 * of the prefix sums. */
struct ref_sums {
  double val, abs, gross, det, lin, rnd2, sgn, hi, lo;
};

/* [6.3] error of adding up n terms of an output element in fp32 */
REF_FN struct ref_error ref_accumulation(const struct ref_units *u, double n,
                                         const struct ref_sums *x)
{
  double range = x->hi - x->lo;
  struct ref_error e = ref_sum_error(u, 1.25 * n + 8, x->abs, range);
  e.lin *= 2;
  return e;
}

/* [6] */
REF_FN double ref_bound_o(const struct ref_units *u, const struct ref_row_sums *row,
                          const struct ref_sums *x)
{
  if (row->n == 0)
    return 0;
  struct ref_error acc = ref_accumulation(u, row->n, x);
  double shrink = row->n == 1 ? 1 : row->shrink; /* one weight is 1, whatever its score */
  double mag = fabs(x->val), sum = (row->n + 8) * REF_U * mag;
  double srnd2 = row->n * REF_U * REF_U * mag * mag;
  double det = x->det / shrink + acc.det + sum;
  double rnd2 = x->rnd2 / (shrink * shrink) + acc.rnd * acc.rnd + srnd2;
  double prob = row->twins > REF_TWINS ? det : x->lin / shrink + acc.lin + u->lambda * sqrt(rnd2);
  double e = fmin(det, prob) + 8 * REF_U * mag + u->descale * x->abs;
  return e + u->store * (mag + e) + u->floor;
}

/* [7] */
REF_FN double ref_bound_lse(const struct ref_units *u, const struct ref_row_sums *row)
{
  if (row->n == 0)
    return 0;
  double det = fmax(log1p(row->det), -log(row->shrink)) + (row->n + 8) * REF_U;
  double rnd2 = row->rnd2 / (row->shrink * row->shrink) + row->n * REF_U * REF_U;
  double prob = row->twins > REF_TWINS ? det : row->lin / row->shrink + u->lambda * sqrt(rnd2);
  return fmin(det, prob) + 4 * REF_U * (fabs(row->lse) + fabs(row->m) + 1);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* What backward needs of a query row: exact lse and D = dO.O; the known error of D from the given,
 * rounded O; and sum |dO_c O_c|. */
struct ref_row_stats {
  double lse, dsum, dgiven, dabs;
};

/* One (query, key) pair: coefficient a of k (or q) in dQ (or dK) and b of dO in dV, their errors,
 * the size of a before dP and D cancel, and the signed effect of the given D on it. */
struct ref_pair {
  double a, b, gross, sgn;
  struct ref_error ea, eb;
};

/* [8.2] z is the dropout factor, vp = dO.v, tied_p and tied_x: P and dS round like the neighbour's
 */
REF_FN struct ref_pair ref_pair_of(const struct ref_units *u, const struct ref_shape *p,
                                   const struct ref_score *r, const struct ref_error *delta,
                                   const struct ref_row_stats *row, const struct ref_dot *vp,
                                   double z, bool tied_p, bool tied_x)
{
  struct ref_pair k;
  double prob = exp(r->s - row->lse), y = z * vp->dot - row->dsum, lever = 1 - r->t * r->t;
  double turn = p->cap > 0 ? 2 * fabs(r->t) / p->cap : 0, ay = fabs(y), py = prob * ay;
  double x = prob * y * lever, ax = fabs(x), scale = fabs(p->scale);
  struct ref_error g = ref_weight_error(u, prob, r->s - row->lse, delta);
  struct ref_error e = ref_sum_error(u, (double)p->dv, z * vp->abs, z * vp->range);
  double stored = u->score * fabs(z * vp->dot), d32 = ((double)p->dv + 4) * REF_U * row->dabs;
  double off = e.det + stored + d32 + fabs(row->dgiven), odd; /* of Y */
  double flat = 8 * REF_U * ax + py * (p->cap > 0 ? 4 * REF_U + 2 * u->tanh_rel : 0);
  double kept = lever * (ay + off) * ref_prob_rounding(u, prob, g.det, 1), put;

  k.ea.det =
      (prob + g.det) * lever * off + g.det * lever * ay + py * turn * delta->det + flat + kept;
  put = ref_prob_rounding(u, ax, k.ea.det, scale < 1 ? 1 / scale : 1);
  k.ea.det += put;
  k.ea.lin = (prob + g.det) * lever * (e.lin + d32) + g.lin * lever * ay + py * turn * delta->lin +
             flat + (tied_p ? kept : 0) + (tied_x ? put : 0);
  odd = g.rnd * lever * ay + py * turn * delta->rnd;
  k.ea.rnd = sqrt(odd * odd + prob * lever * prob * lever * (e.rnd * e.rnd + stored * stored) +
                  (tied_p ? 0 : kept * kept) + (tied_x ? 0 : put * put));
  k.a = p->scale * x;
  k.gross = scale * prob * lever * (fabs(z * vp->dot) + fabs(row->dsum));
  k.sgn = p->scale * prob * lever * row->dgiven;
  k.ea.det *= scale;
  k.ea.lin *= scale;
  k.ea.rnd *= scale;

  k.b = z * prob;
  put = ref_prob_rounding(u, k.b, z * g.det, z > 1 ? z : 1);
  k.eb.det = z * g.det + 4 * REF_U * k.b + put;
  k.eb.lin = z * g.lin + 4 * REF_U * k.b + (tied_p ? put : 0);
  k.eb.rnd = sqrt(z * g.rnd * z * g.rnd + (tied_p ? 0 : put * put));
  return k;
}

/* [8.3] n terms, rounded to storage `parts` times when partial gradients are */
REF_FN double ref_bound_grad(const struct ref_units *u, double n, double parts,
                             const struct ref_sums *x)
{
  if (n == 0)
    return 0;
  struct ref_error acc = ref_accumulation(u, n, x);
  double mag = fabs(x->val), range = x->hi - x->lo, part = u->grad * range;
  double det = x->det + acc.det + parts * u->grad * x->abs;
  double rnd = sqrt(x->rnd2 + acc.rnd * acc.rnd + parts * part * part);
  double prob = x->lin + 1.25 * fabs(x->sgn) + acc.lin + u->lambda * rnd;
  double e = fmin(det, prob) + 8 * REF_U * mag;
  return e + u->store * (mag + e) + u->floor;
}

#endif
