/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.c - operands of a problem on host and device.
 */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/run/regime.h"
#include "harness/base/rng.h"
#include "harness/run/tensors.h"
#include "impl/convert.h"
#include "reference/reference.h"

#define MAX_THREADS 64
#define DRAW_PAGES 9 /* of a seed; operands have the other numbers */

/* What an operand is: its rows (query or key side), heads and head dimension, and its role. With
 * op=rope k and v are written in part. */
static const struct {
  const char *name;
  bool query, query_heads, value_dim;
  bool fwd_out, bwd_in, bwd_out, rope_in, rope_out;
} kinds[OPERANDS] = {
    [OP_Q] = {"q", true, true, false, false, true, false, true},
    [OP_K] = {"k", false, false, false, false, true, false, true, true},
    [OP_V] = {"v", false, false, true, false, true, false, true, true},
    [OP_O] = {"o", true, true, true, true, true, false, false, true},
    [OP_DOUT] = {"dout", true, true, true, false, true, false},
    [OP_DQ] = {"dq", true, true, false, false, false, true},
    [OP_DK] = {"dk", false, false, false, false, false, true},
    [OP_DV] = {"dv", false, false, true, false, false, true},
    [OP_LSE] = {"lse", true, true, false, true, true, false},
    [OP_K_NEW] = {"k_new", true, false, false, .rope_in = true},
    [OP_V_NEW] = {"v_new", true, false, true, .rope_in = true},
};

const char *operand_name(enum operand op)
{
  return kinds[op].name;
}

static bool paged(const struct attn_problem *p, enum operand op)
{
  return p->page && !kinds[op].query;
}

static int64_t rows_of(const struct attn_problem *p, enum operand op)
{
  if (paged(p, op))
    return tensors_pool_pages(p) * p->page;
  return kinds[op].query ? attn_problem_total_q(p) : attn_problem_total_k(p);
}

static int64_t heads_of(const struct attn_problem *p, enum operand op)
{
  return kinds[op].query_heads ? p->hq : p->hkv;
}

static int64_t dim_of(const struct attn_problem *p, enum operand op)
{
  bool rotated = op == OP_O && p->op == ATTN_ROPE;
  return kinds[op].value_dim && !rotated ? p->dv : p->d;
}

struct attn_tensor operand_strides(const struct attn_problem *p, enum operand op)
{
  int64_t s = kinds[op].query ? p->sq : p->sk, h = heads_of(p, op), d = dim_of(p, op);
  bool packed = p->layout == ATTN_PACKED && !paged(p, op);
  if (paged(p, op))
    s = p->page;
  if (p->layout == ATTN_BHSD)
    return (struct attn_tensor){NULL, h * s * d, d, s * d};
  return (struct attn_tensor){NULL, packed ? 0 : s * h * d, h * d, d};
}

enum attn_dtype operand_type(const struct attn_problem *p, enum operand op)
{
  return op == OP_LSE ? ATTN_F32 : paged(p, op) ? attn_problem_kv_type(p) : p->dtype;
}

size_t operand_bytes(const struct attn_problem *p, enum operand op)
{
  size_t rows = (size_t)(rows_of(p, op) * heads_of(p, op));
  size_t width = op == OP_LSE ? 1 : (size_t)dim_of(p, op);
  return rows * width * attn_dtype_size(operand_type(p, op));
}

/* ---- random values -------------------------------------------------------------------------- */

struct fill {
  enum attn_dtype type;
  void *to;
  int64_t from, until;
  uint64_t seed;
};

/* Box-Muller, two elements from one 64-bit draw. */
static void *fill_part(void *arg)
{
  struct fill *f = arg;
  for (int64_t i = f->from; i < f->until; i += 2) {
    uint64_t u = rng_at(f->seed, (uint64_t)i / 2);
    float r = sqrtf(-2.0f * logf(((float)(u >> 40) + 0.5f) * 0x1p-24f));
    float a = (float)(u & 0xffffff) * (6.2831853f * 0x1p-24f);
    attn_store(f->type, f->to, i, r * cosf(a));
    if (i + 1 < f->until)
      attn_store(f->type, f->to, i + 1, r * sinf(a));
  }
  return NULL;
}

void tensors_random(enum attn_dtype t, void *to, int64_t n, uint64_t seed)
{
  pthread_t threads[MAX_THREADS];
  struct fill parts[MAX_THREADS];
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int count = n < 65536 || cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (int)cores;
  int64_t share = (n / count + 2) & ~INT64_C(1);
  for (int i = 0; i < count; i++) {
    int64_t from = share * i, until = from + share;
    parts[i] = (struct fill){t, to, from, until < n ? until : n, seed};
    if (i + 1 == count || pthread_create(&threads[i], NULL, fill_part, &parts[i])) {
      parts[i].until = n; /* the last part, or no more threads: the rest here */
      fill_part(&parts[i]);
      count = i;
      break;
    }
  }
  for (int i = 0; i < count; i++)
    pthread_join(threads[i], NULL);
}

/* ---- operands ------------------------------------------------------------------------------- */

static int upload_cu_seqlens(struct tensors *t, bool query, struct arena_buffer **out)
{
  const struct attn_problem *p = t->p;
  size_t bytes = (size_t)(p->b + 1) * sizeof(int32_t);
  int32_t *cu = malloc(bytes);
  int status = cu ? ATTN_OK : ATTN_ENOMEM;
  if (!status)
    status = arena_alloc(t->arena, query ? "cu_seqlens_q" : "cu_seqlens_k", bytes, out);
  if (!status) {
    cu[0] = 0;
    for (int64_t s = 0; s < p->b; s++) {
      int64_t sq, sk;
      attn_problem_seq(p, s, &sq, &sk);
      cu[s + 1] = cu[s] + (int32_t)(query ? sq : sk);
    }
    status = t->arena->dev->ops->upload(t->arena->dev, (*out)->data, cu, bytes);
  }
  free(cu);
  return status;
}

static struct attn_tensor *operand_slot(struct attn_args *a, enum operand op)
{
  struct attn_tensor *slots[OPERANDS] = {&a->q,  &a->k,  &a->v, &a->o,     &a->dout, &a->dq,
                                         &a->dk, &a->dv, NULL,  &a->k_new, &a->v_new};
  return slots[op];
}

static void bind_operand(const struct attn_problem *p, struct attn_args *a, enum operand op,
                         void *data)
{
  if (op == OP_LSE) {
    a->lse = data;
    return;
  }
  *operand_slot(a, op) = operand_strides(p, op);
  operand_slot(a, op)->data = data;
}

/* By the problem's op. */
static void give_roles(struct tensors *t)
{
  enum attn_op of = t->p->op;
  for (int op = 0; op < OPERANDS; op++) {
    bool in = of == ATTN_BWD ? kinds[op].bwd_in : of == ATTN_ROPE ? kinds[op].rope_in : op <= OP_V;
    t->output[op] = of == ATTN_BWD    ? kinds[op].bwd_out
                    : of == ATTN_ROPE ? kinds[op].rope_out
                                      : kinds[op].fwd_out;
    t->used[op] = in || t->output[op];
  }
}

int tensors_create(struct tensors *t, const struct attn_problem *p, struct arena *arena)
{
  memset(t, 0, sizeof *t);
  t->p = p;
  t->arena = arena;
  give_roles(t);
  for (int op = 0; op < OPERANDS; op++) {
    t->bytes[op] = operand_bytes(p, op);
    if (!t->used[op])
      continue;
    int status = arena_alloc(arena, kinds[op].name, t->bytes[op], &t->buffer[op]);
    if (status)
      return status;
    bind_operand(p, &t->args, op, t->buffer[op]->data);
  }
  int status = p->page ? tensors_pages_create(t) : ATTN_OK;
  if (!status && p->kv)
    status = tensors_scales_create(t);
  if (!status && p->op == ATTN_ROPE)
    status = tensors_cache_create(t);
  if (status || p->layout != ATTN_PACKED)
    return status;
  status = upload_cu_seqlens(t, true, &t->cu_q);
  if (!status && !p->page)
    status = upload_cu_seqlens(t, false, &t->cu_k);
  if (!status)
    t->args.cu_seqlens_q = t->cu_q->data;
  if (!status && !p->page)
    t->args.cu_seqlens_k = t->cu_k->data;
  return status;
}

/* Backward takes o and lse of an exact forward, rounded to storage, so that no implementation's
 * forward stands behind another's gradient. */
static int exact_forward(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  if (dev->info.kind == ATTN_CPU)
    return ref_forward_host(t->p, &t->args);
#ifdef HAVE_CUDA
  return ref_forward_cuda(t->p, &t->args, dev->ops->stream(dev));
#else
  return ATTN_EUNSUPPORTED;
#endif
}

static bool drawn(const struct tensors *t, enum operand op)
{
  bool number = op <= OP_V || op == OP_DOUT || op == OP_K_NEW || op == OP_V_NEW;
  return t->used[op] && t->bytes[op] && number;
}

/* Backward's o and lse, on the host as on the device. */
static int draw_forward(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  int status = exact_forward(t);
  for (int op = 0; op < OPERANDS && !status; op++) {
    if (op != OP_O && op != OP_LSE)
      continue;
    if (!t->host[op] && !(t->host[op] = malloc(t->bytes[op] + 1)))
      return ATTN_ENOMEM;
    status = dev->ops->download(dev, t->host[op], t->buffer[op]->data, t->bytes[op]);
  }
  return status;
}

int tensors_draw(struct tensors *t, uint64_t seed)
{
  struct device *dev = t->arena->dev;
  int status = ATTN_OK;
  free(t->signs);
  t->signs = NULL;
  if (t->p->kv)
    status = tensors_scales_draw(t, rng_at(seed, OPERANDS + 1));
  for (int op = 0; op < OPERANDS; op++) {
    if (!drawn(t, op))
      continue;
    if (!t->host[op] && !(t->host[op] = malloc(t->bytes[op])))
      return ATTN_ENOMEM;
    enum attn_dtype type = operand_type(t->p, op);
    int64_t n = (int64_t)(t->bytes[op] / attn_dtype_size(type));
    tensors_random(type, t->host[op], n, rng_at(seed, (uint64_t)(op < DRAW_PAGES ? op : op + 1)));
    if (t->regime)
      regime_apply(t->regime, t, op);
  }
  if (!status && t->p->page)
    status = tensors_pages_draw(t, rng_at(seed, DRAW_PAGES));
  if (!status && t->p->op == ATTN_ROPE)
    status = tensors_cache_draw(t);
  for (int op = 0; op < OPERANDS && !status; op++)
    if (drawn(t, op))
      status = dev->ops->upload(dev, t->buffer[op]->data, t->host[op], t->bytes[op]);
  if (!status && t->p->op == ATTN_BWD)
    status = draw_forward(t);
  return status ? status : tensors_digest_inputs(t);
}

bool tensors_is_input(const struct tensors *t, enum operand op)
{
  return t->used[op] && !t->output[op] && t->host[op] && t->bytes[op];
}

int tensors_digest_inputs(struct tensors *t)
{
  struct device *dev = t->arena->dev;
  int status = ATTN_OK;
  for (int op = 0; op < OPERANDS && !status; op++) {
    t->digested[op] = tensors_is_input(t, op);
    if (t->digested[op])
      status = dev->ops->digest(dev, t->buffer[op]->data, t->bytes[op], &t->digest[op]);
  }
  return status;
}

int tensors_poison_outputs(struct tensors *t)
{
  for (int op = 0; op < OPERANDS; op++) {
    int status = t->before[op]   ? tensors_cache_reset(t, op)
                 : t->output[op] ? arena_poison(t->arena, t->buffer[op])
                                 : ATTN_OK;
    if (status)
      return status;
  }
  return ATTN_OK;
}

int tensors_same_bytes(struct tensors *t, const struct arena_buffer *device, const void *host,
                       size_t bytes)
{
  struct device *dev = t->arena->dev;
  void *got = malloc(bytes + 1);
  int same = !got || (bytes && dev->ops->download(dev, got, device->data, bytes)) ? -1 : 1;
  if (same == 1)
    same = memcmp(got, host, bytes) == 0;
  free(got);
  return same;
}

/* By its digest where that still says what is there, else byte by byte. */
static int input_unchanged(struct tensors *t, enum operand op)
{
  struct device *dev = t->arena->dev;
  uint64_t now;
  if (!t->digested[op])
    return tensors_same_bytes(t, t->buffer[op], t->host[op], t->bytes[op]);
  if (dev->ops->digest(dev, t->buffer[op]->data, t->bytes[op], &now))
    return -1;
  return now == t->digest[op];
}

int tensors_inputs_unchanged(struct tensors *t)
{
  int same = 1;
  tensors_settle(t);
  t->changed[0] = 0;
  for (int op = 0; op < OPERANDS && same == 1; op++)
    if (tensors_is_input(t, op))
      same = input_unchanged(t, op);
  if (same == 1 && t->p->kv)
    same = tensors_scales_unchanged(t);
  if (same == 1 && t->p->page)
    same = tensors_pages_unchanged(t);
  return same == 1 && t->p->op == ATTN_ROPE ? tensors_cache_kept(t) : same;
}

uint64_t tensors_output_digest(struct tensors *t, int *status)
{
  struct device *dev = t->arena->dev;
  uint64_t all = 0, one = 0;
  *status = ATTN_OK;
  for (int op = 0; op < OPERANDS && !*status; op++) {
    if (!t->output[op] || !t->bytes[op])
      continue;
    *status = dev->ops->digest(dev, t->buffer[op]->data, t->bytes[op], &one);
    all += rng_digest_term((uint64_t)op, one);
  }
  return *status ? 0 : all;
}

void tensors_destroy(struct tensors *t)
{
  for (int op = 0; op < OPERANDS; op++) {
    free(t->host[op]);
    if (t->buffer[op])
      arena_free(t->arena, t->buffer[op]);
    if (t->before[op])
      arena_free(t->arena, t->before[op]);
  }
  free(t->signs);
  if (t->cu_q)
    arena_free(t->arena, t->cu_q);
  if (t->cu_k)
    arena_free(t->arena, t->cu_k);
  tensors_pages_destroy(t);
  tensors_scales_destroy(t);
  memset(t, 0, sizeof *t);
}
