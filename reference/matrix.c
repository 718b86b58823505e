/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c - rows of a tensor as doubles, alone or in tiles, and dot products with a tile: tiles
 * are transposed, so that the loops run over neighbouring rows.
 */
#include "config.h"

#include "impl/convert.h"
#include "reference/internal.h"
#include "reference/clones.h"

struct ref_matrix ref_matrix_of(const struct ref_problem *r, const struct attn_tensor *t,
                                int64_t seq, int64_t head, bool query, int64_t width)
{
  const struct ref_seq *q = &r->seqs[seq];
  const struct ref_shape *p = &r->shape;
  struct ref_matrix m = {p->dtype, t->data, 0, t->ss, query ? q->sq : q->sk, width, 0, 0, NULL, 1};
  m.first = ref_offset(p, t, seq, query ? q->q0 : q->k0, head, 0);
  if (!query && p->page) {
    m.first = head * t->sh;
    m.page = p->page;
    m.page_stride = t->sb;
    m.table = p->table + seq * p->table_stride;
  }
  return m;
}

static struct ref_matrix scaled(const struct ref_problem *r, struct ref_matrix m,
                                const float *scale, int64_t head)
{
  if (r->shape.e4m3) {
    m.dtype = ATTN_E4M3;
    m.factor = scale[head];
  }
  return m;
}

struct ref_matrix ref_keys_of(const struct ref_problem *r, const struct attn_args *args,
                              int64_t seq, int64_t head)
{
  struct ref_matrix m = ref_matrix_of(r, &args->k, seq, head, false, r->shape.d);
  return scaled(r, m, r->shape.k_scale, head);
}

struct ref_matrix ref_values_of(const struct ref_problem *r, const struct attn_args *args,
                                int64_t seq, int64_t head)
{
  struct ref_matrix m = ref_matrix_of(r, &args->v, seq, head, false, r->shape.dv);
  return scaled(r, m, r->shape.v_scale, head);
}

static int64_t place_of(const struct ref_matrix *m, int64_t row)
{
  if (!m->page)
    return m->first + row * m->stride;
  return m->first + m->table[row / m->page] * m->page_stride + row % m->page * m->stride;
}

void ref_read_row(const struct ref_matrix *m, int64_t row, double *out)
{
  int64_t at = place_of(m, row);
  for (int64_t c = 0; c < m->width; c++)
    out[c] = m->factor * attn_load(m->dtype, m->data, at + c);
}

void ref_read_tile(const struct ref_matrix *m, int64_t row0, int64_t n, double *tile)
{
  for (int64_t k = 0; k < n; k++)
    ref_read_row(m, row0 + k, tile + k * m->width);
}

void ref_read_transposed(const struct ref_matrix *m, int64_t row0, int64_t n, double *tile)
{
  for (int64_t k = 0; k < REF_TILE; k++) {
    int64_t at = k < n ? place_of(m, row0 + k) : 0;
    for (int64_t c = 0; c < m->width; c++)
      tile[c * REF_TILE + k] = k < n ? m->factor * attn_load(m->dtype, m->data, at + c) : 0;
  }
}

/* ---- dot products ---------------------------------------------------------------------------- */

#define LANES 8

CLONES static void dots_of_lanes(const double *restrict x, const double *restrict tile,
                                 int64_t width, double *restrict dot, double *restrict abs,
                                 double *restrict range)
{
  double sum[LANES] = {0}, mag[LANES] = {0}, hi[LANES] = {0}, lo[LANES] = {0};
  for (int64_t c = 0; c < width; c++)
    for (int k = 0; k < LANES; k++) {
      double term = x[c] * tile[c * REF_TILE + k];
      sum[k] += term;
      mag[k] += fabs(term);
      hi[k] = sum[k] > hi[k] ? sum[k] : hi[k];
      lo[k] = sum[k] < lo[k] ? sum[k] : lo[k];
    }
  for (int k = 0; k < LANES; k++) {
    dot[k] = sum[k];
    abs[k] = mag[k];
    range[k] = hi[k] - lo[k];
  }
}

void ref_dots(const double *x, const double *tile, int64_t width, int64_t n, struct ref_dot *out)
{
  for (int64_t k0 = 0; k0 < n; k0 += LANES) {
    double dot[LANES], abs[LANES], range[LANES];
    dots_of_lanes(x, tile + k0, width, dot, abs, range);
    for (int64_t k = k0; k < n && k < k0 + LANES; k++)
      out[k] = (struct ref_dot){dot[k - k0], abs[k - k0], range[k - k0]};
  }
}
