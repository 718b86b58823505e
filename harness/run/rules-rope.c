/* SPDX-License-Identifier: Apache-2.0
 *
 * rules-rope.c - the customary rules on op=rope, for the kill matrix: rotated Q and K and appended
 * V against the exact rows, and against rotation as it is written without much thought, cosine,
 * sine, products and sums all in the problem's type.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "harness/run/group.h"
#include "harness/run/rules.h"
#include "impl/convert.h"
#include "reference/rope.h"

/* Inputs and where they end up. */
static const struct {
  enum operand from, to;
} moves[] = {{OP_Q, OP_O}, {OP_K_NEW, OP_K}, {OP_V_NEW, OP_V}};
#define MOVES (sizeof moves / sizeof *moves)

struct scores {
  double worst, plain; /* largest errors: of the run, and in the problem's type throughout */
  double errors, squares;
  bool close;
};

/* A row, as given, as it should be, as it comes out in the problem's type, and as it came out. */
struct row {
  double *given, *want, *plain, *got;
};

static double rounded(enum attn_dtype t, double x)
{
  float stored;
  attn_store(t, &stored, 0, (float)x);
  return attn_load(t, &stored, 0);
}

static void turn_plainly(const struct attn_problem *p, int64_t sk, int64_t position,
                         const double *x, double *y)
{
  const struct attn_rope *r = &p->rope;
  enum attn_dtype t = p->dtype;
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    int64_t a = ref_rope_element(r, i, false), b = ref_rope_element(r, i, true);
    double angle = (double)position * ref_rope_frequency(r, sk, i);
    double c = rounded(t, r->attention * cos(angle)), s = rounded(t, r->attention * sin(angle));
    y[a] = rounded(t, rounded(t, x[a] * c) - rounded(t, x[b] * s));
    y[b] = rounded(t, rounded(t, x[a] * s) + rounded(t, x[b] * c));
  }
}

static void score(struct scores *s, const struct row *x, int64_t width)
{
  for (int64_t c = 0; c < width; c++) {
    double e = fabs(x->got[c] - x->want[c]);
    s->worst = e > s->worst || isnan(e) ? e : s->worst;
    s->plain = fmax(s->plain, fabs(x->plain[c] - x->want[c]));
    s->close = s->close && e <= 1e-2 + 2e-2 * fabs(x->want[c]);
    s->errors += e * e;
    s->squares += x->want[c] * x->want[c];
  }
}

/* One new token of one head. */
static int add_row(const struct tensors *t, size_t move, const void *out, int64_t from, int64_t to,
                   int64_t sk, int64_t position, struct row *x, struct scores *s)
{
  const struct attn_problem *p = t->p;
  bool value = moves[move].from == OP_V_NEW;
  int64_t width = value ? p->dv : p->d;
  for (int64_t c = 0; c < width; c++) {
    x->given[c] = attn_load(p->dtype, t->host[moves[move].from], from + c);
    x->got[c] = attn_load(p->dtype, out, to + c);
    x->want[c] = x->plain[c] = x->given[c];
  }
  int status = value ? ATTN_OK : ref_rope_row(p, sk, position, x->given, x->want);
  if (!value)
    turn_plainly(p, sk, position, x->given, x->plain);
  score(s, x, width);
  return status;
}

static int add_sequence(const struct tensors *t, size_t move, const void *out, int64_t seq,
                        int64_t q0, int64_t k0, struct row *x, struct scores *s)
{
  enum operand in = moves[move].from, to = moves[move].to;
  struct attn_tensor a = operand_strides(t->p, in), b = operand_strides(t->p, to);
  int64_t sq, sk, heads = in == OP_Q ? t->p->hq : t->p->hkv;
  int status = ATTN_OK;
  attn_problem_seq(t->p, seq, &sq, &sk);
  for (int64_t n = 0; n < sq; n++) {
    int64_t from = seq * a.sb + (q0 + n) * a.ss;
    int64_t slot = in == OP_Q ? from : tensors_cache_slot(t, to, seq, k0, sk - sq + n);
    for (int64_t h = 0; h < heads && !status; h++)
      status = add_row(t, move, out, from + h * a.sh, slot + h * b.sh, sk, sk - sq + n, x, s);
  }
  return status;
}

static int add_tensor(const struct tensors *t, size_t move, const void *out, struct row *x,
                      struct scores *s)
{
  bool packed = t->p->layout == ATTN_PACKED;
  int status = ATTN_OK;
  for (int64_t seq = 0, q0 = 0, k0 = 0; seq < t->p->b && !status; seq++) {
    int64_t sq, sk;
    status = add_sequence(t, move, out, seq, q0, k0, x, s);
    attn_problem_seq(t->p, seq, &sq, &sk);
    q0 += packed ? sq : 0;
    k0 += packed ? sk : 0;
  }
  return status;
}

int group_rope_rules(struct group_work *w, bool *pass)
{
  const struct tensors *t = w->tensors;
  size_t width = (size_t)(t->p->d > t->p->dv ? t->p->d : t->p->dv);
  double *rows = calloc(4 * width, sizeof *rows);
  struct row x = {rows, rows + width, rows + 2 * width, rows + 3 * width};
  int status = rows ? ATTN_OK : ATTN_ENOMEM;
  pass[RULE_TWICE] = pass[RULE_CLOSE] = pass[RULE_NMSE] = true;
  for (size_t i = 0; i < MOVES && !status; i++) {
    enum operand to = moves[i].to;
    struct scores s = {0, 0, 0, 0, true};
    void *out = malloc(t->bytes[to] + 1);
    status =
        out ? w->dev->ops->download(w->dev, out, t->buffer[to]->data, t->bytes[to]) : ATTN_ENOMEM;
    if (!status)
      status = add_tensor(t, i, out, &x, &s);
    free(out);
    pass[RULE_TWICE] &= s.worst <= 2 * s.plain + 1e-5;
    pass[RULE_CLOSE] &= s.close;
    pass[RULE_NMSE] &= s.errors <= 5e-4 * s.squares;
  }
  free(rows);
  return status;
}
