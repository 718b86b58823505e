/* SPDX-License-Identifier: Apache-2.0
 *
 * law.h - laws that every correct implementation obeys, and probes whose answer is known to the
 * bit.
 *
 * A law needs no exact result: it runs an implementation on related inputs and compares its outputs
 * with each other, bit for bit where the arithmetic allows it, otherwise within bounds that follow
 * from norms of the inputs in O(N d).  A probe makes inputs for which all correct algorithms, in
 * any order, tiling or split, give the same bits.  Precondition and statement stand above each
 * check.
 *
 * Everything here is on the host; the caller's run() takes the operands wherever it computes.
 */
#ifndef REFERENCE_LAW_H
#define REFERENCE_LAW_H

#include "impl/convert.h"
#include "reference/internal.h"

enum law_operand {
  LAW_Q,
  LAW_K,
  LAW_V,
  LAW_O,
  LAW_DOUT,
  LAW_DQ,
  LAW_DK,
  LAW_DV,
  LAW_LSE,
  LAW_K_NEW,
  LAW_V_NEW,
  LAW_OPERANDS
};

/* Operands of a problem, in host memory. Strides may leave gaps. */
struct law_set {
  struct attn_problem p;
  struct ref_problem r;
  struct attn_tensor t[LAW_OPERANDS]; /* lse: data alone */
  size_t bytes[LAW_OPERANDS];
  bool used[LAW_OPERANDS], output[LAW_OPERANDS];
  bool gaps;                /* strides of its own, not those of the problem's layout */
  int32_t *table, *lengths; /* of a paged cache */
  float *scale[2];          /* (hkv), of the keys and of the values of an e4m3 cache */
  int64_t table_stride, pages;
};

/* Row (seq, head, row) of an operand. */
struct law_place {
  int64_t seq, head, row;
};

/* What is under test. */
struct law_subject {
  const struct attn_numerics *numerics;
  /* Computes the outputs of s, which are full of NaN. ATTN_EUNSUPPORTED: the problem is refused, or
   * (with gaps) its strides. */
  int (*run)(void *ctx, struct law_set *s);
  /* The inputs q, k, v (and dout) that the problem was verified with. */
  void (*fill)(void *ctx, struct law_set *s);
  void *ctx;
  uint64_t seed;
  /* Beyond so many scores only laws are tried whose work (multiply-adds, about) is below this, on a
   * problem of few scores a token, forward; and of rows that take a look at every key, some. */
  double scores_max, work_max;
  /* Outputs are added up in an order that may differ from run to run: no bits are asked of them,
   * also where two runs agree. */
  bool unordered;
};

enum law_state { LAW_UNTRIED = -2, LAW_NONE, LAW_FAIL, LAW_PASS };

#define LAW_TEXT 224
struct law_result {
  enum law_state state; /* LAW_NONE: does not apply, or the related problem is refused; LAW_UNTRIED:
                           law_too_long says why */
  char text[LAW_TEXT];  /* what failed */
};

/* Properties that are reported and not judged. */
struct law_properties {
  int batch_invariant, nan_robust; /* 1, 0, -1 unknown */
  char reduction[48];              /* keys and a hash of the tree that adds them, or "" */
};

#define LAWS_MAX 48
int law_count(void);
const char *law_name(int i);

/* Checks every law that applies to p. Stops at the first status that is neither ATTN_OK nor a
 * refusal. */
int law_check(const struct attn_problem *p, const struct law_subject *subject,
              struct law_result result[LAWS_MAX]);
/* NULL, or why law i is not tried on p. */
const char *law_too_long(const struct attn_problem *p, const struct law_subject *subject, int i);
int law_observe(const struct attn_problem *p, const struct law_subject *subject,
                struct law_properties *out);

/* ---- between the files of the laws ----------------------------------------------------------- */

/* A subject on one problem: its operands, computed once. */
struct law_bench {
  const struct law_subject *subject;
  struct law_set base;
  bool repeats[LAW_OPERANDS]; /* two runs gave the same bits */
  int64_t stride;             /* of the rows that a look at all keys is taken for */
  double score_unit;          /* relative rounding of scores where they are stored; 0: fp32 */
};

struct law {
  const char *name;
  bool (*applies)(const struct law_bench *b);
  int (*check)(struct law_bench *b, struct law_result *res);
  int runs; /* that it makes, about */
};

/* NULL-ended */
extern const struct law law_probes[], law_bits[], law_relations[], law_values[], law_gradients[],
    law_rotations[], law_caches[], law_eight_bit[];

/* law-set.c */
int law_open(const struct attn_problem *p, const struct attn_numerics *num, struct ref_problem *r);
int law_set_make(struct law_set *s, const struct attn_problem *p, bool gaps);
void law_set_free(struct law_set *s);
/* law-pages.c: the table of a paged cache, shared prefix and all, and its pages in some order. */
int law_pages_make(struct law_set *s);
/* A set for p with the values of x where map says (NULL: the same places), for all inputs; those of
 * backward include o and lse. */
typedef void law_map(const void *ctx, enum law_operand op, struct law_place *at);
int law_set_like(struct law_set *s, const struct attn_problem *p, const struct law_set *x,
                 law_map *map, const void *ctx, bool gaps);
/* o and lse as an exact forward leaves them, for a backward problem. */
int law_set_forward(struct law_set *s);
/* law.c: does a sequence alone give the bits that it gives in its batch? Left as it is where that
 * is not known. */
int law_batch_invariance(const struct law_bench *b, int *answer);
/* Poisons the outputs (with op=rope all but the old tokens of the cache, which are 1) and runs. */
int law_run(const struct law_bench *b, struct law_set *s);
/* Fills what lies between the rows of every operand; checks that it is still there in outputs. */
void law_fill_gaps(struct law_set *s, uint32_t pattern);
bool law_gaps_kept(const struct law_set *s, enum law_operand *op);
struct attn_args law_args(const struct law_set *s);
bool law_same_bits(const struct law_set *x, const struct law_set *y, enum law_operand op);

int64_t law_width(const struct law_set *s, enum law_operand op);
int64_t law_heads(const struct law_set *s, enum law_operand op);
int64_t law_rows(const struct law_set *s, enum law_operand op, int64_t seq);
/* for (at = law_first(s, op); law_there(s, &at); law_next(s, op, &at)) visits all rows */
struct law_place law_first(const struct law_set *s, enum law_operand op);
bool law_there(const struct law_set *s, const struct law_place *at);
void law_next(const struct law_set *s, enum law_operand op, struct law_place *at);
int64_t law_at(const struct law_set *s, enum law_operand op, const struct law_place *at);
double law_get(const struct law_set *s, enum law_operand op, const struct law_place *at,
               int64_t col);
/* Element i of an operand, i = law_at() + column: law_get where it is called a thousand times. */
/* An e4m3 cache has one scale for all keys and one for all values, powers of two, so that a number
 * and its product are the same to every rounding. */
#define LAW_K_SCALE 0.5
#define LAW_V_SCALE 2.
static inline bool law_scaled(const struct law_set *s, enum law_operand op)
{
  return s->p.kv == ATTN_KV_E4M3 && (op == LAW_K || op == LAW_V);
}
static inline enum attn_dtype law_type(const struct law_set *s, enum law_operand op)
{
  return op == LAW_LSE ? ATTN_F32 : law_scaled(s, op) ? ATTN_E4M3 : s->p.dtype;
}
static inline double law_factor(const struct law_set *s, enum law_operand op)
{
  return !law_scaled(s, op) ? 1 : op == LAW_K ? LAW_K_SCALE : LAW_V_SCALE;
}
static inline double law_load(const struct law_set *s, enum law_operand op, int64_t i)
{
  return law_factor(s, op) * attn_load(law_type(s, op), s->t[op].data, i);
}
/* i: of law_at, and a column. */
static inline void law_store(struct law_set *s, enum law_operand op, int64_t i, double x)
{
  ref_store(law_type(s, op), s->t[op].data, i, x / law_factor(s, op));
}
void law_put(struct law_set *s, enum law_operand op, const struct law_place *at, int64_t col,
             double x);
void law_scale(struct law_set *s, enum law_operand op, double factor);
/* One row, as doubles. */
void law_read(const struct law_set *s, enum law_operand op, const struct law_place *at, double *to);
/* Hash of (seed, i), and a number of it: bell-shaped, mean 0, variance 1. */
uint64_t law_hash(uint64_t seed, uint64_t i);
double law_random(uint64_t seed, uint64_t i);
const char *law_operand_name(enum law_operand op);

/* Does query `row` of a sequence see key j? How many keys does it see? */
bool law_sees(const struct law_set *s, int64_t seq, int64_t row, int64_t j);
int64_t law_visible(const struct law_set *s, int64_t seq, int64_t row);

/* Is this one of the rows for which laws look at every key? All of a short problem; of a long one
 * the last of each sequence and every so many. */
static inline bool law_looks(const struct law_bench *b, const struct law_place *at)
{
  return at->row % b->stride == 0 || at->row == b->base.r.seqs[at->seq].sq - 1;
}

/* law-reduction.c */
int law_reduction(const struct law_bench *b, char *text, size_t len);

/* law-compare.c: bounds from norms, one for each row of queries (ref_stats_index) */
struct law_bounds {
  double *o, *lse;
  double *reach;        /* largest |x|, the score before softcap */
  double *weight;       /* of all weights of the row together, relative to their sum */
  double *grad, *total; /* of dX: the sum of its errors, and of |dX| itself */
};
int law_bounds_make(const struct law_set *s, const struct attn_numerics *num, struct law_bounds *t);
void law_bounds_free(struct law_bounds *t);
/* 1 if |got - want| <= bound; otherwise says where and fails. */
bool law_near(struct law_result *res, const char *what, const struct law_place *at, int64_t col,
              double got, double want, double bound);

/* Which row of y a row of x belongs to; false: not to be compared. */
typedef bool law_match(const void *ctx, enum law_operand op, struct law_place *at);
/* O and LSE of y against x within the sum of their bounds; shift is added to the LSE of x. */
int law_compare(const struct law_bench *b, const struct law_set *x, const struct law_set *y,
                law_match *match, const void *ctx,
                double (*shift)(const void *ctx, const struct law_place *at),
                struct law_result *res);
/* Bit for bit: y = factor * x, for outputs that repeat their bits. */
void law_compare_bits(const struct law_bench *b, const struct law_set *x, const struct law_set *y,
                      enum law_operand op, double factor, law_match *match, const void *ctx,
                      struct law_result *res);

/* NONE is left as it is after a refusal; other statuses are relayed. */
static inline int law_refused(int status)
{
  return status == ATTN_EUNSUPPORTED ? ATTN_OK : status;
}

#endif
