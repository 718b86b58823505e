/* SPDX-License-Identifier: Apache-2.0
 *
 * law-rotation.c - laws of op=rope, which need no angle: what is appended in parts is what is
 * appended whole, pairs keep their length, logits depend on distances, position 0 turns nothing.
 */
#include "config.h"

#include <stdlib.h>

#include "reference/law.h"
#include "reference/rope.h"

/* Rotated inputs and where they end up. */
static const enum law_operand from[] = {LAW_Q, LAW_K_NEW}, to[] = {LAW_O, LAW_K};

/* The place in the cache of a new token. */
static struct law_place cached(const struct law_set *s, struct law_place at)
{
  at.row += s->r.seqs[at.seq].sk - s->r.seqs[at.seq].sq;
  return at;
}

static struct law_place place_of(const struct law_set *s, int which, struct law_place at)
{
  return which ? cached(s, at) : at;
}

/* ---- in parts -------------------------------------------------------------------------------- */

static bool has_parts(const struct law_bench *b)
{
  return !b->base.p.nruns && b->base.p.sq > 1;
}

/* The first or the last new tokens of each sequence, so many; the cache is as long as it is then.
 */
struct part {
  int64_t first, tokens; /* of the new ones */
  int64_t sk;
};

static void of_whole(const void *ctx, enum law_operand op, struct law_place *at)
{
  at->row += ((const struct part *)ctx)->first;
}

/* From the whole to the part; what was in the cache before is in it in both. */
static bool in_part(const void *ctx, enum law_operand op, struct law_place *at)
{
  const struct part *x = ctx;
  if (op == LAW_O)
    at->row -= x->first;
  return op == LAW_O ? at->row >= 0 && at->row < x->tokens
                     : at->row >= x->sk - x->tokens && at->row < x->sk;
}

static int part_alone(struct law_bench *b, const struct part *x, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.sq = x->tokens;
  p.sk = x->sk;
  int status = law_set_like(&y, &p, &b->base, of_whole, x, false);
  if (status)
    return status;
  status = law_run(b, &y);
  for (int op = 0; op < LAW_OPERANDS && !status; op++)
    law_compare_bits(b, &b->base, &y, op, 1, in_part, x, res);
  law_set_free(&y);
  return law_refused(status);
}

/* Precondition: a uniform batch of two tokens or more; of the first part, no dynamic base. The
 * first new tokens alone, on a cache that is shorter then, and the last ones alone, give the bits
 * that all of them give together. */
static int parts(struct law_bench *b, struct law_result *res)
{
  const struct attn_problem *p = &b->base.p;
  int64_t half = p->sq / 2;
  struct part first = {0, half, p->sk - p->sq + half}, last = {half, p->sq - half, p->sk};
  int status = part_alone(b, &last, res);
  if (!status && p->rope.scaling != ATTN_ROPE_DYNAMIC)
    status = part_alone(b, &first, res);
  return status;
}

/* ---- lengths --------------------------------------------------------------------------------- */

static bool always(const struct law_bench *b)
{
  return true;
}

/* What an element may be off by, the angle apart [11.3]-[11.5]; size is that of the pair. */
static double slack(const struct law_bench *b, double size)
{
  struct ref_units u = ref_units_of(&b->base.r.shape, b->subject->numerics, 1);
  struct ref_rope_units w = ref_rope_units_of(b->subject->numerics);
  double e = size * (1.5 * w.sincos_abs + 10 * REF_U) + 8 * REF_TINY;
  return e + u.store * (size + e) + u.floor;
}

static bool keeps_length(const struct law_bench *b, int which, const struct law_place *at,
                         double *x, double *y, struct law_result *res)
{
  const struct attn_rope *r = &b->base.p.rope;
  struct law_place out = place_of(&b->base, which, *at);
  law_read(&b->base, from[which], at, x);
  law_read(&b->base, to[which], &out, y);
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    int64_t u = ref_rope_element(r, i, false), v = ref_rope_element(r, i, true);
    double want = r->attention * hypot(x[u], x[v]);
    if (!law_near(res, law_operand_name(to[which]), &out, u, hypot(y[u], y[v]), want,
                  2 * slack(b, want)))
      return false;
  }
  return true;
}

/* Every pair keeps its length, times the attention factor, wherever it is. */
static int lengths(struct law_bench *b, struct law_result *res)
{
  double *rows = calloc((size_t)b->base.p.d * 2, sizeof *rows);
  if (!rows)
    return ATTN_ENOMEM;
  for (int k = 0; k < 2; k++)
    for (struct law_place at = law_first(&b->base, from[k]); law_there(&b->base, &at);
         law_next(&b->base, from[k], &at))
      if (!keeps_length(b, k, &at, rows, rows + b->base.p.d, res))
        goto out;
out:
  free(rows);
  return ATTN_OK;
}

/* ---- distances ------------------------------------------------------------------------------- */

static bool has_distances(const struct law_bench *b)
{
  return !b->base.p.nruns && b->base.p.sq > 3;
}

static void first_row(const void *ctx, enum law_operand op, struct law_place *at)
{
  at->row = 0;
}

/* q_i . k_j of new tokens, and what it may be off by. */
static double logit(const struct law_bench *b, const struct law_set *y, int64_t i, int64_t j,
                    double *q, double *k, double *bound)
{
  const struct attn_problem *p = &y->p;
  struct ref_rope_units w = ref_rope_units_of(b->subject->numerics);
  double turn = w.angle_rel * (double)p->sk, sum = 0;
  struct law_place key = cached(y, (struct law_place){0, 0, j});
  law_read(y, LAW_O, &(struct law_place){0, 0, i}, q);
  law_read(y, LAW_K, &key, k);
  *bound = 0;
  for (int64_t c = 0; c < p->rope.rotary / 2; c++) {
    int64_t u = ref_rope_element(&p->rope, c, false), v = ref_rope_element(&p->rope, c, true);
    double a = hypot(q[u], q[v]), e = hypot(k[u], k[v]), sa = slack(b, a), se = slack(b, e);
    double off = turn * ref_rope_frequency(&p->rope, p->sk, c);
    sum += q[u] * k[u] + q[v] * k[v];
    *bound += 2 * a * e * fmin(off, 1) + 2 * (sa * (e + se) + se * a);
  }
  return sum;
}

/* Precondition: a uniform batch of four tokens or more. With one query and one key for all tokens,
 * q_i . k_j depends on i - j alone. */
static int distances(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  int64_t last = b->base.p.sq - 1, half = b->base.p.sq / 2;
  double *rows = calloc((size_t)b->base.p.d * 2, sizeof *rows), near, far;
  int status = rows ? law_set_like(&y, &b->base.p, &b->base, first_row, NULL, false) : ATTN_ENOMEM;
  if (status)
    goto out;
  status = law_run(b, &y);
  if (!status) {
    double late = logit(b, &y, last, half, rows, rows + b->base.p.d, &near);
    double early = logit(b, &y, last - half, 0, rows, rows + b->base.p.d, &far);
    law_near(res, "q.k", &(struct law_place){0, 0, last}, 0, late, early, near + far);
  }
  law_set_free(&y);
out:
  free(rows);
  return law_refused(status);
}

/* ---- the origin ------------------------------------------------------------------------------ */

static bool has_origin(const struct law_bench *b)
{
  return !b->base.p.nruns && b->base.p.rope.attention == 1;
}

/* Precondition: a uniform batch, attention factor 1. The first token of an empty cache, at position
 * 0, comes out as it went in. */
static int origin(struct law_bench *b, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.sk = p.sq;
  int status = law_set_like(&y, &p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  status = law_run(b, &y);
  for (int k = 0; k < 2 && !status; k++)
    for (struct law_place at = law_first(&y, from[k]); law_there(&y, &at);
         law_next(&y, from[k], &at))
      for (int64_t c = 0; at.row == 0 && c < p.d; c++) {
        double want = law_get(&y, from[k], &at, c);
        if (fabs(want) > REF_TINY &&
            !law_near(res, law_operand_name(to[k]), &at, c, law_get(&y, to[k], &at, c), want, 0))
          break;
      }
  law_set_free(&y);
  return law_refused(status);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static bool on_pages(const struct law_bench *b)
{
  return b->base.p.page > 0;
}

static int cached_elsewhere(struct law_bench *b, int64_t page, struct law_result *res)
{
  struct law_set y;
  struct attn_problem p = b->base.p;
  p.page = page;
  p.prefix = 0;
  int status = law_set_like(&y, &p, &b->base, NULL, NULL, false);
  if (status)
    return status;
  status = law_run(b, &y);
  for (int op = 0; op < LAW_OPERANDS && !status; op++)
    law_compare_bits(b, &b->base, &y, op, 1, NULL, NULL, res);
  law_set_free(&y);
  return law_refused(status);
}

/* Precondition: a paged cache. Into a contiguous one: the same bits, those of the old tokens too.
 */
static int into_contiguous(struct law_bench *b, struct law_result *res)
{
  return cached_elsewhere(b, 0, res);
}

/* Precondition: likewise. Into pages of another size: the same bits. */
static int into_pages(struct law_bench *b, struct law_result *res)
{
  int64_t page = b->base.p.page;
  return cached_elsewhere(b, page % 16 ? 16 : page / 16 + 3, res);
}

const struct law law_rotations[] = {{"rotation-parts", has_parts, parts, 1},
                                    {"rotation-lengths", always, lengths, 1},
                                    {"rotation-distances", has_distances, distances, 1},
                                    {"rotation-origin", has_origin, origin, 1},
                                    {"rotation-contiguous", on_pages, into_contiguous, 1},
                                    {"rotation-page-size", on_pages, into_pages, 1},
                                    {NULL, NULL, NULL, 0}};
