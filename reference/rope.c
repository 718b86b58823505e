/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.c - the verdict on op=rope: rotated Q and K within the bound, appended V and what lies
 * beyond the rotated elements bit for bit; and how far angles and logits are off.
 *
 * Rows are fetched through the caller, so that tensors may lie on a device.
 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "impl/convert.h"
#include "reference/internal.h"
#include "reference/rope.h"

#define BLOCK 64    /* targets that one task checks */
#define SAMPLES 64  /* queries whose angles and logits are looked at */
#define PARTNERS 4  /* keys for each of them */
#define ANGLES 1e-3 /* pairs smaller than this part of the largest have no angle to speak of */

enum { ROPE_Q, ROPE_K, ROPE_V, ROPE_TENSORS };
static const char *const names[ROPE_TENSORS] = {"o", "k", "v"};

struct job {
  struct ref_problem r;
  struct ref_rope_units units;
  const struct attn_rope *rope;
  const struct attn_args *args;
  const struct ref_source *source;
  bool all; /* every row is a target */
  struct ref_target *targets;
  int64_t n;
  pthread_mutex_t lock;
  struct ref_tally tally[ROPE_TENSORS];
};

/* Rows at work, and the frequencies of their sequence. */
struct bench {
  const struct job *job;
  int64_t seq;
  double *frequency, *given, *got, *want;
  void *raw;
  int status; /* of fetching */
};

/* ---- exact rows ------------------------------------------------------------------------------ */

static void find_frequencies(const struct attn_rope *r, int64_t sk, double *frequency)
{
  for (int64_t i = 0; i < r->rotary / 2; i++)
    frequency[i] = ref_rope_frequency(r, sk, i);
}

static void turn_row(const struct attn_rope *r, const double *frequency, int64_t position,
                     int64_t width, const double *x, double *y)
{
  for (int64_t c = r->rotary; c < width; c++)
    y[c] = x[c];
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    int64_t a = ref_rope_element(r, i, false), b = ref_rope_element(r, i, true);
    struct ref_rope_pair t =
        ref_rope_turn(r->attention, (double)position * frequency[i], x[a], x[b]);
    y[a] = t.x;
    y[b] = t.y;
  }
}

int ref_rope_row(const struct attn_problem *p, int64_t sk, int64_t position, const double *x,
                 double *y)
{
  double *frequency = malloc((size_t)p->rope.rotary * sizeof *frequency);
  if (!frequency)
    return ATTN_ENOMEM;
  find_frequencies(&p->rope, sk, frequency);
  turn_row(&p->rope, frequency, position, p->d, x, y);
  free(frequency);
  return ATTN_OK;
}

/* ---- rows of tensors ------------------------------------------------------------------------- */

static int bench_open(struct bench *b, const struct job *j)
{
  const struct ref_shape *s = &j->r.shape;
  size_t width = (size_t)(s->d > s->dv ? s->d : s->dv);
  *b = (struct bench){.job = j, .seq = -1};
  b->frequency = calloc(4 * width, sizeof *b->frequency);
  b->raw = malloc(width * sizeof(float));
  if (!b->frequency || !b->raw)
    return ATTN_ENOMEM;
  b->given = b->frequency + width;
  b->got = b->given + width;
  b->want = b->got + width;
  return ATTN_OK;
}

static void bench_close(struct bench *b)
{
  free(b->frequency);
  free(b->raw);
}

/* width elements from element at on. */
static void fetch(struct bench *b, const struct attn_tensor *t, int64_t at, int64_t width,
                  double *to)
{
  const struct ref_source *source = b->job->source;
  enum attn_dtype type = b->job->r.shape.dtype;
  size_t size = attn_dtype_size(type);
  const char *from = (const char *)t->data + at * (int64_t)size;
  if (source) {
    int status = source->read(source->ctx, b->raw, from, (size_t)width * size);
    b->status = b->status ? b->status : status;
  } else {
    memcpy(b->raw, from, (size_t)width * size);
  }
  for (int64_t c = 0; c < width && !b->status; c++)
    to[c] = attn_load(type, b->raw, c);
}

/* The new token pos of a sequence: in tensors of new tokens, and in the cache. */
static void fetch_new(struct bench *b, const struct attn_tensor *t, int64_t seq, int64_t head,
                      int64_t pos, int64_t width, double *to)
{
  const struct ref_problem *r = &b->job->r;
  fetch(b, t, ref_offset(&r->shape, t, seq, r->seqs[seq].q0, head, pos), width, to);
}

static void fetch_cached(struct bench *b, const struct attn_tensor *t, int64_t seq, int64_t head,
                         int64_t pos, int64_t width, double *to)
{
  const struct ref_seq *q = &b->job->r.seqs[seq];
  int64_t slot = q->sk - q->sq + pos;
  fetch(b, t, ref_key_offset(&b->job->r.shape, t, seq, q->k0, head, slot), width, to);
}

/* ---- verdict --------------------------------------------------------------------------------- */

static void compare_element(struct ref_tally *t, const struct bench *b, const struct ref_target *at,
                            int64_t head, int64_t c, double want, double bound)
{
  ref_tally_add(t, b->job->r.shape.dtype, b->got[c], want, bound, fabs(want), at->seq, head,
                at->pos, c);
}

static void compare_rotated(struct ref_tally *t, const struct bench *b, const struct ref_target *at,
                            int64_t head)
{
  const struct job *j = b->job;
  const struct attn_rope *r = j->rope;
  const struct ref_seq *q = &j->r.seqs[at->seq];
  double position = (double)(q->sk - q->sq + at->pos);
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    int64_t c[2] = {ref_rope_element(r, i, false), ref_rope_element(r, i, true)};
    struct ref_rope_pair pair =
        ref_rope_turn(r->attention, position * b->frequency[i], b->given[c[0]], b->given[c[1]]);
    for (int k = 0; k < 2; k++)
      compare_element(t, b, at, head, c[k], k ? pair.y : pair.x,
                      ref_bound_rope(&j->r.units, &j->units, r->attention, &pair, k));
  }
  for (int64_t c = r->rotary; c < j->r.shape.d; c++)
    compare_element(t, b, at, head, c, b->given[c], 0);
}

static void check_target(struct bench *b, const struct ref_target *at,
                         struct ref_tally tally[ROPE_TENSORS])
{
  const struct job *j = b->job;
  const struct ref_shape *s = &j->r.shape;
  const struct attn_args *a = j->args;
  int64_t kv = at->head / s->group;
  fetch_new(b, &a->q, at->seq, at->head, at->pos, s->d, b->given);
  fetch_new(b, &a->o, at->seq, at->head, at->pos, s->d, b->got);
  compare_rotated(&tally[ROPE_Q], b, at, at->head);
  if (j->all && at->head % s->group)
    return; /* the group's first head has seen to the others */
  fetch_new(b, &a->k_new, at->seq, kv, at->pos, s->d, b->given);
  fetch_cached(b, &a->k, at->seq, kv, at->pos, s->d, b->got);
  compare_rotated(&tally[ROPE_K], b, at, kv);
  fetch_new(b, &a->v_new, at->seq, kv, at->pos, s->dv, b->given);
  fetch_cached(b, &a->v, at->seq, kv, at->pos, s->dv, b->got);
  for (int64_t c = 0; c < s->dv; c++)
    compare_element(&tally[ROPE_V], b, at, kv, c, b->given[c], 0);
}

static void enter(struct bench *b, int64_t seq)
{
  if (seq != b->seq)
    find_frequencies(b->job->rope, b->job->r.seqs[seq].sk, b->frequency);
  b->seq = seq;
}

static int check_block(int64_t k, void *ctx)
{
  struct job *j = ctx;
  struct ref_tally tally[ROPE_TENSORS];
  struct bench b;
  int status = bench_open(&b, j);
  for (int i = 0; i < ROPE_TENSORS; i++)
    ref_tally_start(&tally[i]);
  for (int64_t i = k * BLOCK; !status && i < j->n && i < (k + 1) * BLOCK; i++) {
    enter(&b, j->targets[i].seq);
    check_target(&b, &j->targets[i], tally);
    status = b.status;
  }
  pthread_mutex_lock(&j->lock);
  for (int i = 0; i < ROPE_TENSORS; i++)
    ref_tally_merge(&j->tally[i], &tally[i]);
  pthread_mutex_unlock(&j->lock);
  bench_close(&b);
  return status;
}

/* A device takes one reader at a time. */
static int check_all(struct job *j)
{
  int64_t blocks = (j->n + BLOCK - 1) / BLOCK;
  int status = ATTN_OK;
  if (!j->source)
    return ref_parallel(blocks, check_block, j);
  for (int64_t k = 0; k < blocks && !status; k++)
    status = check_block(k, j);
  return status;
}

/* ---- angles and logits ----------------------------------------------------------------------- */

struct drift {
  double angle_max, angle2, logit2, want2;
  int64_t angles, logits;
};

static double dot(const double *x, const double *y, int64_t n)
{
  double sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum += x[c] * y[c];
  return sum;
}

static void add_angles(struct drift *x, const struct attn_rope *r, const double *want,
                       const double *got)
{
  double largest = 0;
  for (int64_t c = 0; c < r->rotary; c++)
    largest = fmax(largest, fabs(want[c]));
  for (int64_t i = 0; i < r->rotary / 2; i++) {
    int64_t a = ref_rope_element(r, i, false), b = ref_rope_element(r, i, true);
    if (hypot(want[a], want[b]) <= ANGLES * largest)
      continue;
    double angle =
        fabs(atan2(want[a] * got[b] - want[b] * got[a], want[a] * got[a] + want[b] * got[b]));
    x->angle_max = fmax(x->angle_max, angle);
    x->angle2 += angle * angle;
    x->angles++;
  }
}

/* One query and some of the keys appended with it; the rows of the query are in want and got. */
static void add_logits(struct drift *x, struct bench *b, const struct ref_target *at, double *key,
                       double *exact)
{
  const struct job *j = b->job;
  const struct ref_shape *s = &j->r.shape;
  const struct ref_seq *q = &j->r.seqs[at->seq];
  int64_t kv = at->head / s->group, steps = q->sq < PARTNERS ? q->sq : PARTNERS;
  for (int64_t k = 0; k < steps; k++) {
    int64_t pos = steps > 1 ? k * (q->sq - 1) / (steps - 1) : 0;
    fetch_new(b, &j->args->k_new, at->seq, kv, pos, s->d, key);
    turn_row(j->rope, b->frequency, q->sk - q->sq + pos, s->d, key, exact);
    fetch_cached(b, &j->args->k, at->seq, kv, pos, s->d, key);
    double want = dot(b->want, exact, s->d), e = dot(b->got, key, s->d) - want;
    x->logit2 += e * e;
    x->want2 += want * want;
    x->logits++;
  }
}

static int find_drift(const struct job *j, struct ref_rope_drift *out)
{
  struct drift x = {0};
  struct bench b, keys;
  int64_t step = j->n > SAMPLES ? j->n / SAMPLES : 1, last = 0;
  int status = bench_open(&b, j), second = bench_open(&keys, j);
  status = status ? status : second;
  for (int64_t i = 0; i < j->n && !status; i += step) {
    const struct ref_target *at = &j->targets[i];
    const struct ref_seq *q = &j->r.seqs[at->seq];
    enter(&b, at->seq);
    fetch_new(&b, &j->args->q, at->seq, at->head, at->pos, j->r.shape.d, b.given);
    turn_row(j->rope, b.frequency, q->sk - q->sq + at->pos, j->r.shape.d, b.given, b.want);
    fetch_new(&b, &j->args->o, at->seq, at->head, at->pos, j->r.shape.d, b.got);
    add_angles(&x, j->rope, b.want, b.got);
    add_logits(&x, &b, at, keys.given, keys.want);
    last = q->sk - 1 > last ? q->sk - 1 : last;
    status = b.status;
  }
  *out = (struct ref_rope_drift){
      .position = x.angles ? (double)last : NAN,
      .angle_max = x.angles ? x.angle_max : NAN,
      .angle_rms = x.angles ? sqrt(x.angle2 / (double)x.angles) : NAN,
      .logit_rel = x.want2 > 0 ? sqrt(x.logit2 / x.want2) : NAN,
  };
  bench_close(&b);
  bench_close(&keys);
  return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int verify(struct job *j, const struct ref_plan *plan, struct ref_verdict *v)
{
  v->total_rows = j->r.shape.total_q * j->r.shape.hq;
  j->all = !plan || plan->rows_max <= 0 || plan->rows_max >= v->total_rows;
  int status = ref_choose(&j->r, plan, false, NULL, &j->targets, &j->n);
  v->checked_rows = j->n;
  if (!status)
    status = check_all(j);
  if (!status)
    status = find_drift(j, &v->drift);
  return status;
}

int ref_verify_rope(const struct attn_problem *p, const struct attn_numerics *num,
                    const struct attn_args *got, const struct ref_plan *plan,
                    const struct ref_source *source, struct ref_verdict *v)
{
  static const struct attn_numerics fp32;
  struct job j = {.rope = &p->rope, .args = got, .source = source};
  memset(v, 0, sizeof *v);
  pthread_mutex_init(&j.lock, NULL);
  for (int i = 0; i < ROPE_TENSORS; i++)
    ref_tally_start(&j.tally[i]);
  j.units = ref_rope_units_of(num ? num : &fp32);
  int status = ref_open(p, num, got, &j.r);
  if (!status)
    status = verify(&j, plan, v);
  if (!status)
    ref_conclude_of(j.tally, names, ROPE_TENSORS, -1, v);
  free(j.targets);
  ref_close(&j.r);
  pthread_mutex_destroy(&j.lock);
  return status;
}
