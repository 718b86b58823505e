/* SPDX-License-Identifier: Apache-2.0
 *
 * law-set.c - operands of related problems in host memory, dense or with gaps between their rows.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "reference/law.h"

#define POISON 0x7fffdeadu /* NaN as fp32, and in its upper half as bf16 and fp16 */

static const struct {
  const char *name;
  bool query, query_heads, value_dim;
  bool fwd_out, bwd_in, bwd_out, rope_in, rope_out;
} kinds[LAW_OPERANDS] = {
    [LAW_Q] = {"q", true, true, false, false, true, false, true},
    [LAW_K] = {"k", false, false, false, false, true, false, false, true},
    [LAW_V] = {"v", false, false, true, false, true, false, false, true},
    [LAW_O] = {"o", true, true, true, true, true, false, false, true},
    [LAW_DOUT] = {"dout", true, true, true, false, true, false},
    [LAW_DQ] = {"dq", true, true, false, false, false, true},
    [LAW_DK] = {"dk", false, false, false, false, false, true},
    [LAW_DV] = {"dv", false, false, true, false, false, true},
    [LAW_LSE] = {"lse", true, true, false, true, true, false},
    [LAW_K_NEW] = {"k_new", true, false, false, .rope_in = true},
    [LAW_V_NEW] = {"v_new", true, false, true, .rope_in = true},
};

const char *law_operand_name(enum law_operand op)
{
  return kinds[op].name;
}

int64_t law_width(const struct law_set *s, enum law_operand op)
{
  bool rotated = op == LAW_O && s->p.op == ATTN_ROPE;
  return op == LAW_LSE ? 1 : kinds[op].value_dim && !rotated ? s->p.dv : s->p.d;
}

int64_t law_heads(const struct law_set *s, enum law_operand op)
{
  return kinds[op].query_heads ? s->p.hq : s->p.hkv;
}

int64_t law_rows(const struct law_set *s, enum law_operand op, int64_t seq)
{
  return kinds[op].query ? s->r.seqs[seq].sq : s->r.seqs[seq].sk;
}

static bool paged(const struct law_set *s, enum law_operand op)
{
  return s->p.page > 0 && (op == LAW_K || op == LAW_V);
}

static int64_t all_rows(const struct law_set *s, enum law_operand op)
{
  return kinds[op].query ? s->r.shape.total_q : s->r.shape.total_k;
}

/* ---- strides --------------------------------------------------------------------------------- */

/* With gaps every tensor has strides of its own, all multiples of 16 bytes at the least; the stride
 * of an axis of size 1 means nothing, and is odd in both senses. */
static struct attn_tensor strides_of(const struct law_set *s, enum law_operand op, bool gaps)
{
  int64_t rows = kinds[op].query ? s->r.shape.max_sq : s->r.shape.max_sk, h = law_heads(s, op);
  bool packed = s->r.shape.packed && !paged(s, op);
  int64_t w = law_width(s, op), least = 16 / (int64_t)attn_dtype_size(law_type(s, op));
  int64_t more = gaps ? (least > 8 ? least : 8) * (op + 1) : 0;
  struct attn_tensor t = {NULL, 0, 0, 0};
  if (paged(s, op))
    rows = s->p.page;
  if (s->p.layout == ATTN_BHSD) {
    t.ss = w + more;
    t.sh = rows * t.ss + more;
    t.sb = h * t.sh + more;
  } else {
    t.sh = w + more;
    t.ss = h * t.sh + more;
    t.sb = packed ? 0 : rows * t.ss + more;
  }
  if (gaps && s->p.b == 1 && !packed && !paged(s, op))
    t.sb = 8 * (op + 3);
  if (gaps && h == 1)
    t.sh = 8 * (op + 5);
  return t;
}

static size_t bytes_of(const struct law_set *s, enum law_operand op)
{
  int64_t rows = all_rows(s, op), h = law_heads(s, op);
  const struct attn_tensor *t = &s->t[op];
  if (op == LAW_LSE)
    return (size_t)(rows * h) * sizeof(float);
  if (paged(s, op))
    return (size_t)(s->pages * t->sb) * attn_dtype_size(law_type(s, op));
  if (s->r.shape.packed)
    return (size_t)(rows * t->ss) * attn_dtype_size(law_type(s, op));
  int64_t len = kinds[op].query ? s->r.shape.max_sq : s->r.shape.max_sk;
  int64_t one = s->p.layout == ATTN_BHSD ? (h > 1 ? h * t->sh : len * t->ss) : len * t->ss;
  return (size_t)(s->p.b > 1 ? s->p.b * t->sb : one) * attn_dtype_size(law_type(s, op));
}

/* ---- sets ------------------------------------------------------------------------------------ */

static void poison(void *data, size_t bytes, uint32_t pattern)
{
  unsigned char *to = data;
  size_t i = 0;
  for (; i + 4 <= bytes; i += 4)
    memcpy(to + i, &pattern, 4);
  memcpy(to + i, &pattern, bytes - i);
}

int law_open(const struct attn_problem *p, const struct attn_numerics *num, struct ref_problem *r)
{
  static const int32_t none;
  static const float one = 1;
  static const struct attn_args a_table = {.block_table = &none, .k_scale = &one, .v_scale = &one};
  return ref_open(p, num, &a_table, r);
}

/* By the problem's op. */
static void give_role(struct law_set *s, int op)
{
  enum attn_op of = s->p.op;
  bool in = of == ATTN_BWD ? kinds[op].bwd_in : of == ATTN_ROPE ? kinds[op].rope_in : op <= LAW_V;
  s->output[op] = of == ATTN_BWD    ? kinds[op].bwd_out
                  : of == ATTN_ROPE ? kinds[op].rope_out
                                    : kinds[op].fwd_out;
  s->used[op] = in || s->output[op];
}

static int give_scales(struct law_set *s)
{
  for (int i = 0; i < 2; i++) {
    if (!(s->scale[i] = malloc((size_t)s->p.hkv * sizeof *s->scale[i])))
      return ATTN_ENOMEM;
    for (int64_t h = 0; h < s->p.hkv; h++)
      s->scale[i][h] = (float)(i ? LAW_V_SCALE : LAW_K_SCALE);
  }
  return ATTN_OK;
}

int law_set_make(struct law_set *s, const struct attn_problem *p, bool gaps)
{
  memset(s, 0, sizeof *s);
  s->p = *p;
  s->gaps = gaps;
  int status = law_open(p, NULL, &s->r);
  if (!status && p->page)
    status = law_pages_make(s);
  if (!status && p->kv)
    status = give_scales(s);
  for (int op = 0; op < LAW_OPERANDS && !status; op++) {
    give_role(s, op);
    if (!s->used[op])
      continue;
    if (op != LAW_LSE)
      s->t[op] = strides_of(s, op, gaps);
    s->bytes[op] = bytes_of(s, op);
    s->t[op].data = malloc(s->bytes[op] + 8);
    if (!s->t[op].data)
      status = ATTN_ENOMEM;
    else
      poison(s->t[op].data, s->bytes[op], POISON);
  }
  if (status)
    law_set_free(s);
  return status;
}

void law_set_free(struct law_set *s)
{
  for (int op = 0; op < LAW_OPERANDS; op++)
    free(s->t[op].data);
  free(s->table);
  free(s->lengths);
  free(s->scale[0]);
  free(s->scale[1]);
  ref_close(&s->r);
  memset(s, 0, sizeof *s);
}

struct attn_args law_args(const struct law_set *s)
{
  return (struct attn_args){.q = s->t[LAW_Q],
                            .k = s->t[LAW_K],
                            .v = s->t[LAW_V],
                            .o = s->t[LAW_O],
                            .dout = s->t[LAW_DOUT],
                            .dq = s->t[LAW_DQ],
                            .dk = s->t[LAW_DK],
                            .dv = s->t[LAW_DV],
                            .lse = s->t[LAW_LSE].data,
                            .k_new = s->t[LAW_K_NEW],
                            .v_new = s->t[LAW_V_NEW],
                            .block_table = s->table,
                            .block_table_stride = s->table_stride,
                            .seqlens_k = s->lengths,
                            .k_scale = s->scale[0],
                            .v_scale = s->scale[1]};
}

int law_set_forward(struct law_set *s)
{
  struct attn_args args = law_args(s);
  return s->p.op == ATTN_BWD ? ref_forward_host(&s->p, &args) : ATTN_OK;
}

static void copy_row(struct law_set *s, const struct law_place *at, const struct law_set *x,
                     const struct law_place *from, enum law_operand op)
{
  size_t size = attn_dtype_size(law_type(s, op));
  int64_t to = law_at(s, op, at), of = law_at(x, op, from), n = law_width(s, op);
  if (law_type(s, op) == law_type(x, op))
    memcpy((char *)s->t[op].data + (size_t)to * size,
           (const char *)x->t[op].data + (size_t)of * size, (size_t)n * size);
  else
    for (int64_t c = 0; c < n; c++)
      law_store(s, op, to + c, law_load(x, op, of + c));
}

int law_set_like(struct law_set *s, const struct attn_problem *p, const struct law_set *x,
                 law_map *map, const void *ctx, bool gaps)
{
  int status = law_set_make(s, p, gaps);
  for (int op = 0; op < LAW_OPERANDS && !status; op++) {
    if (!s->used[op] || s->output[op])
      continue;
    for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at)) {
      struct law_place from = at;
      if (map)
        map(ctx, op, &from);
      copy_row(s, &at, x, &from, op);
    }
  }
  return status;
}

static void fill_row(struct law_set *s, enum law_operand op, int64_t from, float x)
{
  int64_t n = law_width(s, op);
  for (int64_t c = 0; c < n; c++)
    law_store(s, op, from + c, x);
}

static bool is_old(const struct law_set *s, enum law_operand op, const struct law_place *at)
{
  const struct ref_seq *q = &s->r.seqs[at->seq];
  return s->p.op == ATTN_ROPE && !kinds[op].query && at->row < q->sk - q->sq;
}

int law_run(const struct law_bench *b, struct law_set *s)
{
  for (int op = 0; op < LAW_OPERANDS; op++) {
    if (!s->output[op])
      continue;
    for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
      fill_row(s, op, law_at(s, op, &at), is_old(s, op, &at) ? 1 : NAN);
  }
  return b->subject->run(b->subject->ctx, s);
}

/* ---- places ---------------------------------------------------------------------------------- */

static void settle(const struct law_set *s, enum law_operand op, struct law_place *at)
{
  while (at->seq < s->r.shape.b && at->row >= law_rows(s, op, at->seq)) {
    at->row = 0;
    if (++at->head < law_heads(s, op) && law_rows(s, op, at->seq) > 0)
      return;
    at->head = 0;
    at->seq++;
  }
}

struct law_place law_first(const struct law_set *s, enum law_operand op)
{
  struct law_place at = {0, 0, 0};
  settle(s, op, &at);
  return at;
}

bool law_there(const struct law_set *s, const struct law_place *at)
{
  return at->seq < s->r.shape.b;
}

void law_next(const struct law_set *s, enum law_operand op, struct law_place *at)
{
  at->row++;
  settle(s, op, at);
}

int64_t law_at(const struct law_set *s, enum law_operand op, const struct law_place *at)
{
  const struct ref_seq *q = &s->r.seqs[at->seq];
  if (op == LAW_LSE)
    return ref_lse_index(&s->r, at->seq, at->head, at->row);
  if (paged(s, op))
    return ref_key_offset(&s->r.shape, &s->t[op], at->seq, 0, at->head, at->row);
  return ref_offset(&s->r.shape, &s->t[op], at->seq, kinds[op].query ? q->q0 : q->k0, at->head,
                    at->row);
}

double law_get(const struct law_set *s, enum law_operand op, const struct law_place *at,
               int64_t col)
{
  return law_load(s, op, law_at(s, op, at) + col);
}

void law_put(struct law_set *s, enum law_operand op, const struct law_place *at, int64_t col,
             double x)
{
  law_store(s, op, law_at(s, op, at) + col, x);
}

void law_read(const struct law_set *s, enum law_operand op, const struct law_place *at, double *to)
{
  int64_t from = law_at(s, op, at), n = law_width(s, op);
  for (int64_t c = 0; c < n; c++)
    to[c] = law_load(s, op, from + c);
}

void law_scale(struct law_set *s, enum law_operand op, double factor)
{
  int64_t n = law_width(s, op);
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at)) {
    int64_t from = law_at(s, op, &at);
    if (paged(s, op) && at.seq > 0 && at.row < s->p.prefix)
      continue; /* the first sequence's, and scaled */
    for (int64_t c = 0; c < n; c++)
      law_store(s, op, from + c, factor * law_load(s, op, from + c));
  }
}

bool law_sees(const struct law_set *s, int64_t seq, int64_t row, int64_t j)
{
  const struct ref_seq *q = &s->r.seqs[seq];
  return ref_visible(&s->r.shape, q->sq, q->sk, row, j);
}

int64_t law_visible(const struct law_set *s, int64_t seq, int64_t row)
{
  int64_t n = 0;
  for (int64_t j = 0; j < s->r.seqs[seq].sk; j++)
    n += law_sees(s, seq, row, j);
  return n;
}

/* ---- gaps ------------------------------------------------------------------------------------ */

/* Marks the bytes of an operand that belong to its elements. */
static unsigned char *owned(const struct law_set *s, enum law_operand op)
{
  size_t size = attn_dtype_size(law_type(s, op));
  unsigned char *mark = calloc(s->bytes[op] + 1, 1);
  if (!mark)
    return NULL;
  for (struct law_place at = law_first(s, op); law_there(s, &at); law_next(s, op, &at))
    memset(mark + (size_t)law_at(s, op, &at) * size, 1, (size_t)law_width(s, op) * size);
  return mark;
}

static unsigned char pattern_byte(uint32_t pattern, size_t i)
{
  return (unsigned char)(pattern >> 8 * (i % 4));
}

void law_fill_gaps(struct law_set *s, uint32_t pattern)
{
  for (int op = 0; op < LAW_OPERANDS; op++) {
    unsigned char *mark = s->used[op] && !s->output[op] ? owned(s, op) : NULL;
    for (size_t i = 0; mark && i < s->bytes[op]; i++)
      if (!mark[i])
        ((unsigned char *)s->t[op].data)[i] = pattern_byte(pattern, i);
    free(mark);
  }
}

bool law_gaps_kept(const struct law_set *s, enum law_operand *op)
{
  bool kept = true;
  for (int o = 0; o < LAW_OPERANDS && kept; o++) {
    unsigned char *mark = s->output[o] ? owned(s, o) : NULL;
    for (size_t i = 0; mark && i < s->bytes[o]; i++)
      if (!mark[i] && ((unsigned char *)s->t[o].data)[i] != pattern_byte(POISON, i))
        kept = false;
    free(mark);
    *op = o;
  }
  return kept;
}

bool law_same_bits(const struct law_set *x, const struct law_set *y, enum law_operand op)
{
  return x->bytes[op] == y->bytes[op] &&
         (!x->bytes[op] || !memcmp(x->t[op].data, y->t[op].data, x->bytes[op]));
}
