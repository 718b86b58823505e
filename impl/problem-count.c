/* SPDX-License-Identifier: Apache-2.0
 *
 * problem-count.c - functions of the problem alone: which keys a query sees, FLOPs, and the bytes
 * that any implementation must move.
 *
 * Every mask is a band: query i sees the keys i + shift - left <= j <= i + shift + right, clipped
 * to 0 <= j < sk.  The band moves by one key a query, so the queries that see anything, and the
 * keys that any of them sees, are each one range; and a sum over the queries is a sum of clipped
 * arithmetic progressions, which has a closed form.
 */
#include "config.h"

#include <math.h>

#include "impl/attn.h"

#define UNLIMITED ((int64_t)1 << 40) /* beyond any length, far from overflow */

struct band {
  int64_t shift, left, right;
};

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static struct band band_of(const struct attn_problem *p, int64_t sq, int64_t sk)
{
  struct band w = {sk - sq, UNLIMITED, UNLIMITED};
  if (p->mask == ATTN_MASK_CAUSAL || p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    w.right = 0;
  if (p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    w.shift = 0;
  if (p->mask == ATTN_MASK_WINDOW) {
    w.left = p->window_left < 0 ? UNLIMITED : p->window_left;
    w.right = p->window_right < 0 ? UNLIMITED : p->window_right;
  }
  return w;
}

void attn_problem_visible(const struct attn_problem *p, int64_t sq, int64_t sk, int64_t i,
                          int64_t *lo, int64_t *hi)
{
  struct band w = band_of(p, sq, sk);
  *lo = most(0, i + w.shift - w.left);
  *hi = least(sk, i + w.shift + w.right + 1);
}

/* ---- sums over a batch ---------------------------------------------------------------------- */

/* The batch as runs: a uniform one is a single run. */
static int runs_of(const struct attn_problem *p, struct attn_run *uniform,
                   const struct attn_run **runs)
{
  *uniform = (struct attn_run){p->b, p->sq, p->sk};
  *runs = p->nruns ? p->runs : uniform;
  return p->nruns ? p->nruns : 1;
}

void attn_problem_seq(const struct attn_problem *p, int64_t s, int64_t *sq, int64_t *sk)
{
  struct attn_run uniform;
  const struct attn_run *r;
  int n = runs_of(p, &uniform, &r);
  while (n-- > 1 && s >= r->count)
    s -= r++->count;
  *sq = r->sq;
  *sk = r->sk;
}

int64_t attn_problem_total_q(const struct attn_problem *p)
{
  struct attn_run uniform;
  const struct attn_run *r;
  int64_t sum = 0;
  for (int n = runs_of(p, &uniform, &r); n--; r++)
    sum += r->count * r->sq;
  return sum;
}

int64_t attn_problem_total_k(const struct attn_problem *p)
{
  struct attn_run uniform;
  const struct attn_run *r;
  int64_t sum = 0;
  for (int n = runs_of(p, &uniform, &r); n--; r++)
    sum += r->count * r->sk;
  return sum;
}

/* Sum over 0 <= i < n of i + c clipped to [0, top]. */
static int64_t clipped_sum(int64_t n, int64_t c, int64_t top)
{
  int64_t from = least(n, most(0, -c));       /* terms before are 0 */
  int64_t to = most(from, least(n, top - c)); /* terms from here on are top */
  int64_t count = to - from, first = from + c, twice = 2 * first + count - 1;
  int64_t ramp = count % 2 ? count * (twice / 2) : count / 2 * twice;
  return (count ? ramp : 0) + (n - to) * top;
}

static double pairs_of(const struct attn_problem *p, int64_t sq, int64_t sk)
{
  struct band w = band_of(p, sq, sk);
  return (double)(clipped_sum(sq, w.shift + w.right + 1, sk) -
                  clipped_sum(sq, w.shift - w.left, sk));
}

/* As if the diagonal cut a causal mask into equal halves, and what lies left of it were whole. */
static double pairs_halved(const struct attn_problem *p, double sq, double sk)
{
  if (p->mask == ATTN_MASK_CAUSAL)
    return sq * (fmax(0, sk - sq) + sk) / 2;
  if (p->mask == ATTN_MASK_CAUSAL_TOPLEFT)
    return sq <= sk ? sq * sq / 2 : sk * (sq - sk / 2);
  return pairs_of(p, (int64_t)sq, (int64_t)sk);
}

double attn_problem_pairs(const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE)
    return 0;
  struct attn_run uniform;
  const struct attn_run *r;
  double sum = 0;
  for (int n = runs_of(p, &uniform, &r); n--; r++)
    sum += (double)r->count * pairs_of(p, r->sq, r->sk);
  return sum;
}

/* ---- work ----------------------------------------------------------------------------------- */

double attn_problem_scale(const struct attn_problem *p)
{
  return p->scale ? p->scale : 1 / sqrt((double)p->d);
}

/* Two products a pair, of length d and dv; backward counts 2.5 times that: five products. */
static double flops_of_pairs(const struct attn_problem *p, double pairs)
{
  return (p->op == ATTN_BWD ? 2.5 : 1) * 2 * (double)(p->d + p->dv) * pairs * (double)p->hq;
}

/* Four products and two sums a pair of elements. */
static double flops_of_rotation(const struct attn_problem *p)
{
  return 3 * (double)(p->rope.rotary * (p->hq + p->hkv)) * (double)attn_problem_total_q(p);
}

double attn_problem_flops(const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE)
    return flops_of_rotation(p);
  return flops_of_pairs(p, attn_problem_pairs(p));
}

double attn_problem_flops_halved(const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE)
    return flops_of_rotation(p);
  struct attn_run uniform;
  const struct attn_run *r;
  double sum = 0;
  for (int n = runs_of(p, &uniform, &r); n--; r++)
    sum += (double)r->count * pairs_halved(p, (double)r->sq, (double)r->sk);
  return flops_of_pairs(p, sum);
}

/* ---- compulsory bytes ----------------------------------------------------------------------- */

int64_t attn_problem_pages(const struct attn_problem *p, int64_t sk)
{
  return p->page ? (sk + p->page - 1) / p->page : 0;
}

/* Keys lo .. hi, and the entries of the block table that lead to them. */
struct live {
  double keys, entries;
};

static void live_add(struct live *x, const struct attn_problem *p, int64_t lo, int64_t hi,
                     double times)
{
  if (lo >= hi)
    return;
  x->keys += times * (double)(hi - lo);
  if (p->page)
    x->entries += times * (double)(attn_problem_pages(p, hi) - lo / p->page);
}

/* Adds lo .. hi to ranges that are apart and in order, joining what it meets; their number. */
static int range_join(int64_t (*range)[2], int n, int64_t lo, int64_t hi)
{
  int kept = 0, at;
  for (int i = 0; i < n; i++) {
    if (range[i][1] < lo || hi < range[i][0]) {
      range[kept][0] = range[i][0];
      range[kept++][1] = range[i][1];
      continue;
    }
    lo = least(lo, range[i][0]);
    hi = most(hi, range[i][1]);
  }
  for (at = kept; at > 0 && range[at - 1][0] > lo; at--) {
    range[at][0] = range[at - 1][0];
    range[at][1] = range[at - 1][1];
  }
  range[at][0] = lo;
  range[at][1] = hi;
  return kept + 1;
}

/* What takes part of a batch: queries that see a key, and keys that some query sees, with their
 * entries of the block table; those of a shared prefix once, whoever sees them. */
static void live_rows(const struct attn_problem *p, double *queries, struct live *x)
{
  struct attn_run uniform;
  const struct attn_run *r;
  int64_t shared[ATTN_MAX_RUNS][2];
  int nshared = 0;
  *queries = 0;
  *x = (struct live){0, 0};
  for (int n = runs_of(p, &uniform, &r); n--; r++) {
    struct band w = band_of(p, r->sq, r->sk);
    int64_t from = most(0, -(w.shift + w.right)), to = least(r->sq, r->sk + w.left - w.shift);
    if (from >= to || !r->sk)
      continue;
    int64_t lo, hi, unused;
    attn_problem_visible(p, r->sq, r->sk, from, &lo, &unused);
    attn_problem_visible(p, r->sq, r->sk, to - 1, &unused, &hi);
    *queries += (double)r->count * (double)(to - from);
    live_add(x, p, most(lo, p->prefix), hi, (double)r->count);
    if (lo < p->prefix)
      nshared = range_join(shared, nshared, lo, least(hi, p->prefix));
  }
  for (int i = 0; i < nshared; i++)
    live_add(x, p, shared[i][0], shared[i][1], 1);
}

/* Bytes of q, k_new and v_new; they are rotated and written whole. */
static double appended_bytes(const struct attn_problem *p)
{
  double row = (double)(p->hq * p->d + p->hkv * (p->d + p->dv));
  return (double)attn_problem_total_q(p) * row * (double)attn_dtype_size(p->dtype);
}

/* Entries of the block table that lead to the new tokens. */
static double appended_entries(const struct attn_problem *p)
{
  struct attn_run uniform;
  const struct attn_run *r;
  double entries = 0;
  for (int n = runs_of(p, &uniform, &r); n--; r++)
    if (p->page && r->sq)
      entries +=
          (double)r->count * (double)(attn_problem_pages(p, r->sk) - (r->sk - r->sq) / p->page);
  return entries;
}

/* Each input row that some output depends on, once, and the scales of an e4m3 cache. Backward is
 * given O and LSE, and counts them. */
double attn_problem_compulsory_read(const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE)
    return appended_bytes(p) + 4 * appended_entries(p);
  struct live live;
  double queries, size = (double)attn_dtype_size(p->dtype), heads = (double)p->hkv;
  live_rows(p, &queries, &live);
  double q = queries * (double)(p->hq * p->d) * size, o = queries * (double)(p->hq * p->dv) * size;
  double key = (double)attn_dtype_size(attn_problem_kv_type(p)) * (double)(p->d + p->dv);
  double kv = live.keys * heads * key, lse = queries * (double)p->hq * 4;
  double scales = p->kv && live.keys > 0 ? 2 * heads * 4 : 0;
  return p->op == ATTN_BWD ? q + 2 * o + lse + kv : q + kv + scales + 4 * live.entries;
}

/* Every element of the outputs, whether it depends on anything or not. */
double attn_problem_compulsory_write(const struct attn_problem *p)
{
  if (p->op == ATTN_ROPE)
    return appended_bytes(p);
  double queries = (double)attn_problem_total_q(p), keys = (double)attn_problem_total_k(p);
  double size = (double)attn_dtype_size(p->dtype);
  if (p->op == ATTN_BWD)
    return (queries * (double)(p->hq * p->d) + keys * (double)(p->hkv * (p->d + p->dv))) * size;
  return queries * (double)(p->hq * p->dv) * size + queries * (double)p->hq * 4;
}
