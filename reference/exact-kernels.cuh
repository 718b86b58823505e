/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-kernels.cuh - the kernels of exact-cuda.cu.
 *
 * A chunk is a list of targets (query rows, or key columns in backward) with scratch of `pitch`
 * partners each (keys, or the query rows of a group's heads).  Truth (dot products, weights, sums)
 * is fp64; the moments of the bound are fp32 sums over at most SPLIT terms, added up in fp64: dots
 * (targets, d) x (partners, d) -> qk or vp (targets, pitch) rows     qk -> m, l, lse per row;
 * weights a and their errors (targets, pitch); the LSE's verdict pairs    qk, vp -> coefficients of
 * dQ, or of dK and dV, and their errors (targets, pitch) values   a x (partners, width) -> part
 * (targets, splits, width) moments  coefficients x (partners, width) -> (targets, splits, width)
 *   finish   the bound and the comparison, element by element -> one tally a target
 * fp32 sums are kept in range by powers of two: of the largest |V|, |K|, |Q| and |dO|.
 */
#ifndef REFERENCE_EXACT_KERNELS_CUH
#define REFERENCE_EXACT_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "reference/internal.h"

#define BLOCK 16   /* targets that share their partners */
#define CROWD 40   /* the same, where no moments are wanted */
#define WIDE 128   /* partners a block of the dots kernel covers */
#define DEEP 16    /* of the head dimension at a time */
#define SPLIT 1024 /* partners one block of the values and moments kernels adds up */
#define STEP 32    /* of them at a time */
#define ROW_THREADS 256

enum { OF_Q, OF_K, OF_V, OF_DOUT, OPERANDS };

/* The problem, as a kernel sees it. */
struct device_problem {
  struct ref_shape p;
  struct ref_units u;
  const struct ref_seq *seqs;
  struct attn_args a;
  int exponent[OPERANDS]; /* of the largest magnitude in each operand */
};

struct dot {
  double dot;
  float abs, range;
};

/* Forward: w z, z, errors of the weight on |v - O| and on |v|. Backward: errors in r*, sgn in z,
 * gross in gdet. */
struct alignas(16) coef {
  float a, z, gdet, glin, grnd, rdet, rlin, rrnd;
};

struct moments {
  float abs, gross, det, lin, rnd2, sgn, hi, lo;
};

struct chunk {
  const struct ref_target *targets;
  const int *starts; /* of the blocks of targets: blocks + 1 */
  int n, blocks;
  bool columns;
  int64_t pitch;
  int splits;
  struct dot *qk, *vp;
  double *a[2]; /* weights; or coefficients of K or Q [0] and of dO [1] */
  struct coef *c[2];
  double *part; /* n * splits * width */
  struct moments *sums;
  double *o; /* n * width */
  struct ref_row_sums *rows;
  double *count;               /* partners seen */
  struct ref_row_stats *stats; /* of all rows, by stats index */
  struct ref_tally *tally;     /* n */
};

/* ---- access ---------------------------------------------------------------------------------- */

/* [1.12] */
static __device__ float from_e4m3(uint8_t x)
{
  int e = x >> 3 & 15, m = x & 7;
  float mag = (x & 0x7f) == 0x7f ? NAN : e ? ldexpf(8 + m, e - 10) : ldexpf(m, -9);
  return x & 0x80 ? -mag : mag;
}

static __device__ float load(enum attn_dtype t, const void *data, int64_t at)
{
  switch (t) {
  case ATTN_F32: return ((const float *)data)[at];
  case ATTN_BF16: return __bfloat162float(((const __nv_bfloat16 *)data)[at]);
  case ATTN_F16: return __half2float(((const __half *)data)[at]);
  case ATTN_E4M3: return from_e4m3(((const uint8_t *)data)[at]);
  }
  return 0;
}

static __device__ void store(enum attn_dtype t, void *data, int64_t at, double x)
{
  switch (t) {
  case ATTN_F32: ((float *)data)[at] = (float)x; break;
  case ATTN_BF16: ((__nv_bfloat16 *)data)[at] = __double2bfloat16(x); break;
  case ATTN_F16: ((__half *)data)[at] = __double2half(x); break;
  case ATTN_E4M3: break; /* of no output */
  }
}

struct place {
  int64_t head, i, j;
};

/* The pair of target t and its partner k. */
static __device__ struct place place_of(const struct device_problem &D, const struct chunk &C,
                                        const struct ref_target &t, int k)
{
  struct place w = {t.head, t.pos, k};
  if (C.columns) {
    int sq = (int)D.seqs[t.seq].sq;
    w.head = t.head * D.p.group + k / sq;
    w.i = k % sq;
    w.j = t.pos;
  }
  return w;
}

static __device__ bool visible(const struct device_problem &D, const struct ref_target &t,
                               const struct place &w)
{
  return ref_visible(&D.p, D.seqs[t.seq].sq, D.seqs[t.seq].sk, w.i, w.j);
}

static __device__ int partners_of(const struct device_problem &D, const struct chunk &C,
                                  const struct ref_target &t)
{
  return (int)(C.columns ? D.p.group * D.seqs[t.seq].sq : D.seqs[t.seq].sk);
}

static __device__ const struct attn_tensor &operand(const struct device_problem &D, int which)
{
  return which == OF_Q ? D.a.q : which == OF_K ? D.a.k : which == OF_V ? D.a.v : D.a.dout;
}

/* [1.13] An element of an operand, as the definition takes it; of keys and values, of a key head.
 */
static __device__ double element(const struct device_problem &D, int which, int64_t at,
                                 int64_t kv_head)
{
  if (!D.p.e4m3 || (which != OF_K && which != OF_V))
    return load(D.p.dtype, operand(D, which).data, at);
  const float *scale = which == OF_K ? D.p.k_scale : D.p.v_scale;
  return (double)load(ATTN_E4M3, operand(D, which).data, at) * scale[kv_head];
}

/* The key head of targets that share their partners. */
static __device__ int64_t kv_head_of(const struct device_problem &D, const struct chunk &C,
                                     const struct ref_target &t)
{
  return C.columns ? t.head : t.head / D.p.group;
}

/* Offset of the row of an operand that belongs to one side of a pair. */
static __device__ int64_t row_of(const struct device_problem &D, int which,
                                 const struct ref_target &t, const struct place &w)
{
  const struct ref_seq &s = D.seqs[t.seq];
  if (which == OF_Q || which == OF_DOUT)
    return ref_offset(&D.p, &operand(D, which), t.seq, s.q0, w.head, w.i);
  return ref_key_offset(&D.p, &operand(D, which), t.seq, s.k0, w.head / D.p.group, w.j);
}

static __device__ int64_t lse_index(const struct device_problem &D, const struct ref_target &t)
{
  if (D.p.ragged)
    return t.head * D.p.total_q + D.seqs[t.seq].qfirst + t.pos;
  return (t.seq * D.p.hq + t.head) * D.p.max_sq + t.pos;
}

static __device__ int64_t stats_index(const struct device_problem &D, int seq, int64_t head,
                                      int64_t pos)
{
  return D.p.hq * D.seqs[seq].qfirst + head * D.seqs[seq].sq + pos;
}

static __device__ float small(double x)
{
  return x < 1e30 ? (float)x : 1e30f;
}

/* ---- dots ------------------------------------------------------------------------------------ */

/* Block (partner tile, target block): thread (warp, lane) has OWN targets from OWN warp on and
 * partners lane + 32 q. */
template <bool MOMENTS>
static __global__ void __launch_bounds__(256, 2)
    dots_kernel(const __grid_constant__ struct device_problem D,
                const __grid_constant__ struct chunk C, int of_target, int of_partner, int width,
                struct dot *out)
{
  constexpr int MOST = MOMENTS ? BLOCK : CROWD, OWN = MOST / 8;
  __shared__ double pd[DEEP][WIDE + 1], td[MOST][DEEP];
  __shared__ float pf[MOMENTS ? DEEP : 1][WIDE + 1], tf[MOMENTS ? MOST : 1][DEEP];
  __shared__ int64_t at[WIDE], target_at[MOST];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int k0 = blockIdx.x * WIDE, np = partners_of(D, C, C.targets[first]);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, many = min(WIDE, np - k0);
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  double sum[OWN][4] = {};
  float run[OWN][4] = {}, mag[OWN][4] = {}, hi[OWN][4] = {}, lo[OWN][4] = {};
  bool any = false;

  if (many <= 0)
    return;
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int k = lane + 32 * q, t = OWN * warp + r;
      if (t < n && k < many)
        any |= visible(D, C.targets[first + t], place_of(D, C, C.targets[first + t], k0 + k));
    }
  if (!__syncthreads_or(any))
    return;
  if (threadIdx.x < many)
    at[threadIdx.x] =
        row_of(D, of_partner, C.targets[first], place_of(D, C, C.targets[first], k0 + threadIdx.x));
  if (threadIdx.x < n)
    target_at[threadIdx.x] = row_of(D, of_target, C.targets[first + threadIdx.x],
                                    place_of(D, C, C.targets[first + threadIdx.x], 0));
  for (int c0 = 0; c0 < width; c0 += DEEP) {
    __syncthreads();
    for (int e = threadIdx.x; e < WIDE * DEEP; e += 256) {
      int k = e / DEEP, c = e % DEEP;
      double x = k < many && c0 + c < width ? element(D, of_partner, at[k] + c0 + c, kv_head) : 0;
      pd[c][k] = x;
      if (MOMENTS)
        pf[c][k] = (float)x;
    }
    for (int e = threadIdx.x; e < MOST * DEEP; e += 256) {
      int t = e / DEEP, c = e % DEEP;
      float x = t < n && c0 + c < width
                    ? load(D.p.dtype, operand(D, of_target).data, target_at[t] + c0 + c)
                    : 0;
      td[t][c] = x;
      if (MOMENTS)
        tf[t][c] = x;
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < DEEP; c++)
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int r = 0; r < OWN; r++) {
          sum[r][q] = fma(td[OWN * warp + r][c], pd[c][lane + 32 * q], sum[r][q]);
          if (MOMENTS) {
            float term = tf[OWN * warp + r][c] * pf[c][lane + 32 * q];
            run[r][q] += term;
            mag[r][q] += fabsf(term);
            hi[r][q] = fmaxf(hi[r][q], run[r][q]);
            lo[r][q] = fminf(lo[r][q], run[r][q]);
          }
        }
  }
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int k = lane + 32 * q, t = OWN * warp + r;
      if (t < n && k < many)
        out[(int64_t)(first + t) * C.pitch + k0 + k] = {
            sum[r][q], mag[r][q] * 1.0001f, (hi[r][q] - lo[r][q]) * 1.0001f + mag[r][q] * 1e-5f};
    }
}

/* ---- reductions over a block of ROW_THREADS -------------------------------------------------- */

static __device__ int block_min(int x, int *shared)
{
  for (int d = 16; d; d /= 2)
    x = min(x, __shfl_xor_sync(~0u, x, d));
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 0; w < ROW_THREADS / 32; w++)
    x = min(x, shared[w]);
  return x;
}

static __device__ double block_sum(double x, double *shared)
{
  for (int d = 16; d; d /= 2)
    x += __shfl_xor_sync(~0u, x, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int w = 0; w < ROW_THREADS / 32; w++)
    x += shared[w];
  return x;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A row's scores, one pair at a time. */
struct row_view {
  const struct device_problem *D;
  const struct ref_target *t;
  const struct dot *qk;
  int64_t sq, sk, diagonal;
  double slope;
};

static __device__ struct ref_score row_score(const struct row_view &v, int k)
{
  return ref_score_of(&v.D->p, v.slope, v.diagonal, k, v.qk[k].dot);
}

static __device__ double row_s(const struct row_view &v, int k)
{
  return ref_visible(&v.D->p, v.sq, v.sk, v.t->pos, k) ? row_score(v, k).s : -INFINITY;
}

/* How often the running maximum changes inside a warp's range of keys, from the maximum before it;
 * step -1 walks from the last key. */
static __device__ double count_changes(const struct row_view &v, int from, int n, int step,
                                       double before)
{
  int lane = threadIdx.x % 32, count = 0;
  for (int k = 0; k < n; k += 32) {
    double s = k + lane < n ? row_s(v, from + step * (k + lane)) : -INFINITY, top = s, prior;
    for (int d = 1; d < 32; d *= 2) {
      double other = __shfl_up_sync(~0u, top, d);
      if (lane >= d)
        top = fmax(top, other);
    }
    prior = __shfl_up_sync(~0u, top, 1);
    prior = lane ? fmax(prior, before) : before;
    count += s > prior;
    before = fmax(before, __shfl_sync(~0u, top, 31));
  }
  return count;
}

/* m, and the number of changes of the running maximum in the worse direction */
static __device__ void row_maximum(const struct row_view &v, double *shared, double *m,
                                   double *changes)
{
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = ROW_THREADS / 32;
  int share = (int)(v.sk + warps - 1) / warps, from = warp * share;
  int n = max(0, min(share, (int)v.sk - from));
  double top = -INFINITY, below = -INFINITY, above = -INFINITY, up, down;

  for (int k = lane; k < n; k += 32)
    top = fmax(top, row_s(v, from + k));
  for (int d = 16; d; d /= 2)
    top = fmax(top, __shfl_xor_sync(~0u, top, d));
  __syncthreads();
  if (lane == 0)
    shared[warp] = top;
  __syncthreads();
  *m = -INFINITY;
  for (int w = 0; w < warps; w++) {
    *m = fmax(*m, shared[w]);
    below = w < warp ? fmax(below, shared[w]) : below;
    above = w > warp ? fmax(above, shared[w]) : above;
  }
  up = block_sum(count_changes(v, from, n, 1, below), shared);
  down = block_sum(count_changes(v, from + n - 1, n, -1, above), shared);
  *changes = fmax(up, down);
}

/* The largest total weight of the twins of one of REF_PROBES keys. */
static __device__ double weight_of_twins(const struct row_view &v, const struct ref_row_sums &row,
                                         int first, double *shared)
{
  const struct ref_units &u = v.D->u;
  double twins[REF_PROBES] = {}, probe[REF_PROBES], most = 0;

  if (row.n < 2 || (u.prob <= 0 && u.score <= 0))
    return 0;
  for (int p = 0; p < REF_PROBES; p++)
    probe[p] = row_s(v, (int)ref_probe(first, row.n, p));
  for (int k = threadIdx.x; k < v.sk; k += ROW_THREADS) {
    double s = row_s(v, k);
    for (int p = 0; p < REF_PROBES; p++)
      if (ref_twin(&u, s, probe[p]) && k != ref_probe(first, row.n, p))
        twins[p] += exp(s - row.lse);
  }
  for (int p = 0; p < REF_PROBES; p++)
    most = fmax(most, block_sum(twins[p], shared));
  return most;
}

/* One block a row. errors: also the coefficients' errors, and the verdict on the LSE. */
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    rows_kernel(const __grid_constant__ struct device_problem D,
                const __grid_constant__ struct chunk C, bool errors, const float *lse,
                struct ref_tally *lse_tally)
{
  __shared__ double shared[ROW_THREADS / 32];
  const struct ref_target &t = C.targets[blockIdx.x];
  int64_t base = blockIdx.x * C.pitch, sq = D.seqs[t.seq].sq, sk = D.seqs[t.seq].sk;
  struct row_view v = {&D,
                       &t,
                       C.qk + base,
                       sq,
                       sk,
                       t.pos + sk - sq,
                       D.p.alibi ? ref_alibi_slope(D.p.hq, t.head) : 0};
  struct ref_row_sums row = {};
  int first = INT32_MAX;

  row_maximum(v, shared, &row.m, &row.changes);
  row.changes += 2;
  for (int k = threadIdx.x; k < sk; k += ROW_THREADS) {
    double s = row_s(v, k);
    row.l += s > -INFINITY ? exp(s - row.m) : 0;
    row.n += s > -INFINITY;
    first = s > -INFINITY ? min(first, k) : first;
  }
  row.l = block_sum(row.l, shared);
  row.n = block_sum(row.n, shared);
  row.lse = row.n > 0 ? row.m + log(row.l) : -INFINITY;
  if (errors)
    row.twins = weight_of_twins(v, row, block_min(first, (int *)shared), shared);
  for (int k = threadIdx.x; k < sk; k += ROW_THREADS) {
    double z, s = row_s(v, k);
    if (!(s > -INFINITY)) {
      C.a[0][base + k] = 0;
      if (errors)
        C.c[0][base + k] = {};
      continue;
    }
    z = ref_dropout(&D.p, t.seq, t.head, t.pos, k);
    C.a[0][base + k] = z * exp(s - row.lse);
    if (!errors)
      continue;
    struct ref_score r = row_score(v, k);
    struct ref_dot qk = {v.qk[k].dot, v.qk[k].abs, v.qk[k].range};
    bool tied = k > 0 && ref_tied(&D.u, s, row_s(v, k - 1));
    struct ref_error e = ref_score_error(&D.u, &D.p, &r, &qk, row.m, row.changes, tied);
    struct ref_weight w = ref_weight_of(&D.u, &row, s, &e, tied);
    ref_row_add(&D.u, &row, &w, e.det);
    C.c[0][base + k] = {(float)(w.w * z), (float)z,       small(w.g.det), small(w.g.lin),
                        small(w.g.rnd),   small(w.r.det), small(w.r.lin), small(w.r.rnd)};
  }
  if (errors) {
    row.shrink = block_sum(row.shrink, shared);
    row.det = block_sum(row.det, shared);
    row.lin = block_sum(row.lin, shared);
    row.rnd2 = block_sum(row.rnd2, shared);
  }
  if (threadIdx.x)
    return;
  C.rows[blockIdx.x] = row;
  if (!errors)
    return;
  ref_tally_start(&lse_tally[blockIdx.x]);
  ref_tally_add(&lse_tally[blockIdx.x], ATTN_F32, lse[lse_index(D, t)], row.lse,
                ref_bound_lse(&D.u, &row), 0, t.seq, t.head, t.pos, 0);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

struct pair_view {
  struct place w;
  struct ref_score s;
  struct ref_dot qk, vp;
  struct ref_row_stats row;
  double z, x;
  bool seen;
};

static __device__ struct pair_view pair_of(const struct device_problem &D, const struct chunk &C,
                                           const struct ref_target &t, int64_t base, int k)
{
  struct pair_view v;
  v.w = place_of(D, C, t, k);
  v.seen = visible(D, t, v.w);
  if (!v.seen)
    return v;
  double slope = D.p.alibi ? ref_alibi_slope(D.p.hq, v.w.head) : 0;
  int64_t shift = D.seqs[t.seq].sk - D.seqs[t.seq].sq;
  v.qk = {C.qk[base + k].dot, C.qk[base + k].abs, C.qk[base + k].range};
  v.vp = {C.vp[base + k].dot, C.vp[base + k].abs, C.vp[base + k].range};
  v.row = C.stats[stats_index(D, t.seq, v.w.head, v.w.i)];
  v.s = ref_score_of(&D.p, slope, v.w.i + shift, v.w.j, v.qk.dot);
  v.z = ref_dropout(&D.p, t.seq, v.w.head, v.w.i, v.w.j);
  v.x = exp(v.s.s - v.row.lse) * (v.z * v.vp.dot - v.row.dsum) * (1 - v.s.t * v.s.t);
  return v;
}

/* One block a target. */
static __global__ void __launch_bounds__(ROW_THREADS)
    pairs_kernel(const __grid_constant__ struct device_problem D,
                 const __grid_constant__ struct chunk C, double unit)
{
  __shared__ double shared[ROW_THREADS / 32];
  const struct ref_target &t = C.targets[blockIdx.x];
  int64_t base = blockIdx.x * C.pitch;
  double count = 0;

  for (int k = threadIdx.x, np = partners_of(D, C, t); k < np; k += ROW_THREADS) {
    struct pair_view v = pair_of(D, C, t, base, k), last = {};
    C.a[0][base + k] = 0;
    C.c[0][base + k] = {};
    if (C.columns) {
      C.a[1][base + k] = 0;
      C.c[1][base + k] = {};
    }
    if (!v.seen)
      continue;
    count++;
    if (k > 0)
      last = pair_of(D, C, t, base, k - 1);
    bool here = last.seen && last.w.head == v.w.head;
    bool tied_s = here && ref_tied(&D.u, v.s.s, last.s.s);
    bool tied_p = here && ref_tied(&D.u, v.s.s - v.row.lse, last.s.s - last.row.lse);
    bool tied_x = here && fabs(v.x - last.x) < 2 * D.u.prob * fabs(v.x);
    struct ref_error e = ref_score_error(&D.u, &D.p, &v.s, &v.qk, v.row.lse, 1, tied_s);
    struct ref_pair c = ref_pair_of(&D.u, &D.p, &v.s, &e, &v.row, &v.vp, v.z, tied_p, tied_x);
    C.a[0][base + k] = c.a;
    C.c[0][base + k] = {(float)(c.a * unit),    (float)(c.sgn * unit),  small(c.gross * unit), 0, 0,
                        small(c.ea.det * unit), small(c.ea.lin * unit), small(c.ea.rnd * unit)};
    if (C.columns) {
      C.a[1][base + k] = c.b;
      C.c[1][base + k] = {(float)c.b,     0, (float)c.b, 0, 0, small(c.eb.det), small(c.eb.lin),
                          small(c.eb.rnd)};
    }
  }
  count = block_sum(count, shared);
  if (threadIdx.x == 0)
    C.count[blockIdx.x] = count;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Block (split, target block of up to MOST, 128 columns): warp has OWN targets, lane has columns
 * lane + 32 q. */
template <int MOST>
static __global__ void __launch_bounds__(128)
    values_kernel(const __grid_constant__ struct device_problem D,
                  const __grid_constant__ struct chunk C, int of_partner, int width,
                  const double *a)
{
  constexpr int OWN = MOST / 4;
  __shared__ double v[STEP][128], c[MOST][STEP];
  __shared__ int64_t at[STEP];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int np = partners_of(D, C, C.targets[first]), end = min(np, (int)(blockIdx.x + 1) * SPLIT);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col0 = blockIdx.z * 128;
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  double sum[OWN][4] = {};

  for (int k0 = blockIdx.x * SPLIT; k0 < end; k0 += STEP) {
    int many = min(STEP, end - k0);
    bool any = false;
    __syncthreads();
    for (int e = threadIdx.x; e < MOST * STEP; e += 128) {
      int t = e / STEP, k = e % STEP;
      double x = t < n && k < many ? a[(int64_t)(first + t) * C.pitch + k0 + k] : 0;
      c[t][k] = x;
      any |= x != 0;
    }
    if (threadIdx.x < many)
      at[threadIdx.x] = row_of(D, of_partner, C.targets[first],
                               place_of(D, C, C.targets[first], k0 + threadIdx.x));
    if (!__syncthreads_or(any))
      continue;
    for (int e = threadIdx.x; e < STEP * 128; e += 128) {
      int k = e / 128, x = col0 + e % 128;
      v[k][e % 128] = k < many && x < width ? element(D, of_partner, at[k] + x, kv_head) : 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < STEP; k++)
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int r = 0; r < OWN; r++)
          sum[r][q] = fma(c[OWN * warp + r][k], v[k][lane + 32 * q], sum[r][q]);
  }
  for (int r = 0; r < OWN; r++)
    for (int q = 0; q < 4; q++) {
      int t = OWN * warp + r, x = col0 + lane + 32 * q;
      if (t < n && x < width)
        C.part[((int64_t)(first + t) * C.splits + blockIdx.x) * width + x] = sum[r][q];
    }
}

/* o = the sum of the parts; block a target */
static __global__ void total_kernel(const __grid_constant__ struct chunk C, int width)
{
  for (int x = threadIdx.x; x < width; x += blockDim.x) {
    double sum = 0;
    for (int s = 0; s < C.splits; s++)
      sum += C.part[((int64_t)blockIdx.x * C.splits + s) * width + x];
    C.o[(int64_t)blockIdx.x * width + x] = sum;
  }
}

/* ---- moments --------------------------------------------------------------------------------- */

template <bool BACKWARD>
static __device__ void add_moment(struct moments *m, float *run, const struct coef &c, float v,
                                  float o)
{
  float term = c.a * v, kept = BACKWARD ? fabsf(v) : fabsf(c.z * v), r = c.rrnd * kept;
  *run += term;
  m->abs += fabsf(term);
  m->hi = fmaxf(m->hi, *run);
  m->lo = fminf(m->lo, *run);
  m->det = fmaf(c.rdet, kept, m->det);
  m->lin = fmaf(c.rlin, kept, m->lin);
  m->rnd2 = fmaf(r, r, m->rnd2);
  if (BACKWARD) {
    m->gross = fmaf(c.gdet, kept, m->gross);
    m->sgn = fmaf(c.z, v, m->sgn);
    return;
  }
  float dev = fabsf(c.z * v - o), g = c.grnd * dev;
  m->det = fmaf(c.gdet, dev, m->det);
  m->lin = fmaf(c.glin, dev, m->lin);
  m->rnd2 = fmaf(g, g, m->rnd2);
}

/* Block (split, target block, 64 columns): warp has 4 targets, lane has columns lane, lane + 32. */
template <bool BACKWARD>
static __global__ void __launch_bounds__(128, 3)
    moments_kernel(const __grid_constant__ struct device_problem D,
                   const __grid_constant__ struct chunk C, int of_partner, int width,
                   const struct coef *coefs)
{
  __shared__ float v[STEP][64];
  __shared__ struct coef c[BLOCK][STEP];
  __shared__ int64_t at[STEP];
  int first = C.starts[blockIdx.y], n = C.starts[blockIdx.y + 1] - first;
  int np = partners_of(D, C, C.targets[first]), end = min(np, (int)(blockIdx.x + 1) * SPLIT);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col0 = blockIdx.z * 64;
  int64_t kv_head = kv_head_of(D, C, C.targets[first]);
  float unit = ldexpf(1, -D.exponent[of_partner]);
  struct moments sum[4][2] = {};
  float run[4][2] = {}, o[4][2] = {};

  for (int r = 0; r < 4 && !BACKWARD; r++)
    for (int q = 0; q < 2; q++)
      if (4 * warp + r < n && col0 + lane + 32 * q < width)
        o[r][q] =
            (float)(C.o[(int64_t)(first + 4 * warp + r) * width + col0 + lane + 32 * q] * unit);
  for (int k0 = blockIdx.x * SPLIT; k0 < end; k0 += STEP) {
    int many = min(STEP, end - k0);
    bool any = false;
    __syncthreads();
    for (int e = threadIdx.x; e < BLOCK * STEP; e += 128) {
      int t = e / STEP, k = e % STEP;
      struct coef x = {};
      if (t < n && k < many)
        x = coefs[(int64_t)(first + t) * C.pitch + k0 + k];
      c[t][k] = x;
      any |= x.a != 0 || x.gdet != 0 || x.rdet != 0;
    }
    if (threadIdx.x < many)
      at[threadIdx.x] = row_of(D, of_partner, C.targets[first],
                               place_of(D, C, C.targets[first], k0 + threadIdx.x));
    if (!__syncthreads_or(any))
      continue;
    for (int e = threadIdx.x; e < STEP * 64; e += 128) {
      int k = e / 64, x = col0 + e % 64;
      v[k][e % 64] =
          k < many && x < width ? (float)element(D, of_partner, at[k] + x, kv_head) * unit : 0;
    }
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < many; k++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        struct coef x = c[4 * warp + r][k];
#pragma unroll
        for (int q = 0; q < 2; q++)
          add_moment<BACKWARD>(&sum[r][q], &run[r][q], x, v[k][lane + 32 * q], o[r][q]);
      }
  }
  for (int r = 0; r < 4; r++)
    for (int q = 0; q < 2; q++) {
      int t = 4 * warp + r, x = col0 + lane + 32 * q;
      if (t < n && x < width)
        C.sums[((int64_t)(first + t) * C.splits + blockIdx.x) * width + x] = sum[r][q];
    }
}

/* ---- finish ---------------------------------------------------------------------------------- */

/* The sums of one element over the splits. unit: the power of two that the moments were divided by;
 * terms too small for fp32 are allowed for by least. */
static __device__ struct ref_sums element(const struct chunk &C, int width, int x, double unit,
                                          double n)
{
  struct ref_sums e = {};
  double least = n * 0x1p-148;
  for (int s = 0; s < C.splits; s++) {
    int64_t at = ((int64_t)blockIdx.x * C.splits + s) * width + x;
    const struct moments &m = C.sums[at];
    e.hi = fmax(e.hi, e.val + m.hi * unit);
    e.lo = fmin(e.lo, e.val + m.lo * unit);
    e.val += C.part[at];
    e.abs += m.abs;
    e.gross += m.gross;
    e.det += m.det;
    e.lin += m.lin;
    e.rnd2 += m.rnd2;
    e.sgn += m.sgn;
  }
  if (e.rnd2 < 1e-30)
    e.rnd2 = e.det * e.det;
  e.abs = (e.abs + least) * unit * 1.001;
  e.gross *= unit;
  e.det = (e.det + least) * unit * 1.001;
  e.lin = (e.lin + least) * unit * 1.001;
  e.rnd2 = e.rnd2 * unit * unit * 1.001;
  e.sgn = (fabs(e.sgn) + least) * unit * 1.001;
  return e;
}

/* One block of 128 a target: bounds, compares and tallies the elements of one tensor. */
static __global__ void __launch_bounds__(128)
    finish_kernel(const __grid_constant__ struct device_problem D,
                  const __grid_constant__ struct chunk C, struct attn_tensor tensor, bool backward,
                  int width, double unit)
{
  __shared__ struct ref_tally tallies[128];
  const struct ref_target &t = C.targets[blockIdx.x];
  const struct ref_seq &s = D.seqs[t.seq];
  int64_t at = ref_offset(&D.p, &tensor, t.seq, C.columns ? s.k0 : s.q0, t.head, t.pos);
  double heads = C.columns ? (double)D.p.group : 1;
  double tiles = heads * (ceil((double)(C.columns ? s.sq : s.sk) / 64) + 1);
  double n = backward ? C.count[blockIdx.x] : C.rows[blockIdx.x].n;
  struct ref_tally tally;

  ref_tally_start(&tally);
  for (int x = threadIdx.x; x < width; x += 128) {
    struct ref_sums e = element(C, width, x, unit, n);
    double bound =
        backward ? ref_bound_grad(&D.u, n, tiles, &e) : ref_bound_o(&D.u, &C.rows[blockIdx.x], &e);
    ref_tally_add(&tally, D.p.dtype, load(D.p.dtype, tensor.data, at + x), e.val, bound,
                  backward ? e.gross : e.abs, t.seq, t.head, t.pos, x);
  }
  tallies[threadIdx.x] = tally;
  for (int d = 64; d; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d)
      ref_tally_merge(&tallies[threadIdx.x], &tallies[threadIdx.x + d]);
  }
  if (threadIdx.x == 0)
    C.tally[blockIdx.x] = tallies[0];
}

/* tally[0] = all of tally[0 .. n) and of *into; one block of 128 */
static __global__ void __launch_bounds__(128)
    merge_kernel(const struct ref_tally *tally, int n, struct ref_tally *into)
{
  __shared__ struct ref_tally tallies[128];
  struct ref_tally mine;
  ref_tally_start(&mine);
  for (int i = threadIdx.x; i < n; i += 128)
    ref_tally_merge(&mine, &tally[i]);
  tallies[threadIdx.x] = mine;
  for (int d = 64; d; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d)
      ref_tally_merge(&tallies[threadIdx.x], &tallies[threadIdx.x + d]);
  }
  if (threadIdx.x == 0)
    ref_tally_merge(into, &tallies[0]);
}

/* ---- rows that are kept: outputs of forward, stats of backward --------------------------------
 */

/* One block of 128 a row: O rounded to storage, and the lse. */
static __global__ void store_kernel(const __grid_constant__ struct device_problem D,
                                    const __grid_constant__ struct chunk C)
{
  const struct ref_target &t = C.targets[blockIdx.x];
  int64_t at = ref_offset(&D.p, &D.a.o, t.seq, D.seqs[t.seq].q0, t.head, t.pos);
  for (int x = threadIdx.x; x < D.p.dv; x += blockDim.x)
    store(D.p.dtype, D.a.o.data, at + x, C.o[blockIdx.x * D.p.dv + x]);
  if (threadIdx.x == 0)
    D.a.lse[lse_index(D, t)] = (float)C.rows[blockIdx.x].lse;
}

/* One block of ROW_THREADS a row: D, its error from the given O (see exact-grad.c), sum |dO O|. */
static __global__ void __launch_bounds__(ROW_THREADS)
    stats_kernel(const __grid_constant__ struct device_problem D,
                 const __grid_constant__ struct chunk C)
{
  __shared__ double shared[ROW_THREADS / 32];
  const struct ref_target &t = C.targets[blockIdx.x];
  int64_t q0 = D.seqs[t.seq].q0;
  int64_t oat = ref_offset(&D.p, &D.a.o, t.seq, q0, t.head, t.pos);
  int64_t dat = ref_offset(&D.p, &D.a.dout, t.seq, q0, t.head, t.pos);
  struct ref_row_stats s = {C.rows[blockIdx.x].lse, 0, 0, 0};
  double most = 0;

  for (int x = threadIdx.x; x < D.p.dv; x += ROW_THREADS) {
    double o = C.o[blockIdx.x * D.p.dv + x], g = load(D.p.dtype, D.a.dout.data, dat + x);
    s.dsum += g * o;
    s.dabs += fabs(g * o);
    most += fabs(g) * (D.u.store * fabs(o) + D.u.floor);
    if (D.a.o.data)
      s.dgiven += g * (load(D.p.dtype, D.a.o.data, oat + x) - o);
  }
  s.dsum = block_sum(s.dsum, shared);
  s.dabs = block_sum(s.dabs, shared);
  s.dgiven = block_sum(s.dgiven, shared);
  most = block_sum(most, shared);
  s.dgiven = fabs(s.dgiven) <= most ? s.dgiven : copysign(most, s.dgiven);
  if (threadIdx.x == 0)
    C.stats[stats_index(D, t.seq, t.head, t.pos)] = s;
}

/* ---- whole tensors --------------------------------------------------------------------------- */

/* A tensor's rows in the order (seq, head, position). */
struct rows_view {
  struct attn_tensor tensor;
  int64_t rows, heads;
  int width;
  bool query;
};

static __device__ struct ref_target nth_row(const struct device_problem &D,
                                            const struct rows_view &v, int64_t row)
{
  int64_t lo = 0, hi = D.p.b - 1;
  while (lo < hi) {
    int64_t mid = (lo + hi + 1) / 2;
    if (v.heads * (v.query ? D.seqs[mid].qfirst : D.seqs[mid].kfirst) <= row)
      lo = mid;
    else
      hi = mid - 1;
  }
  const struct ref_seq &s = D.seqs[lo];
  row -= v.heads * (v.query ? s.qfirst : s.kfirst);
  int64_t len = v.query ? s.sq : s.sk;
  return {(int32_t)lo, (int32_t)(row / len), row % len};
}

/* *first = the smallest row * width + column of a bad output: not finite, or not 0 in an empty row;
 * *first_lse likewise. A warp a row. */
static __global__ void scan_kernel(const __grid_constant__ struct device_problem D,
                                   struct rows_view v, const float *lse, unsigned long long *first,
                                   unsigned long long *first_lse)
{
  int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
  for (int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; row < v.rows;
       row += warps) {
    struct ref_target t = nth_row(D, v, row);
    const struct ref_seq &s = D.seqs[t.seq];
    bool empty = v.query && ref_row_empty(&D.p, s.sq, s.sk, t.pos);
    int64_t at = ref_offset(&D.p, &v.tensor, t.seq, v.query ? s.q0 : s.k0, t.head, t.pos);
    for (int x = lane; x < v.width; x += 32) {
      float got = load(D.p.dtype, v.tensor.data, at + x);
      if (!isfinite(got) || (empty && got != 0))
        atomicMin(first, (unsigned long long)(row * v.width + x));
    }
    if (lse && lane == 0) {
      float got = lse[lse_index(D, t)];
      if (empty ? got != -INFINITY : !isfinite(got))
        atomicMin(first_lse, (unsigned long long)row);
    }
  }
}

/* *top = the largest |x| of a tensor, as bits; a warp a row. */
static __global__ void largest_kernel(const __grid_constant__ struct device_problem D,
                                      struct rows_view v, int which, unsigned int *top)
{
  int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
  float most = 0;
  for (int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; row < v.rows;
       row += warps) {
    struct ref_target t = nth_row(D, v, row);
    const struct ref_seq &s = D.seqs[t.seq];
    int64_t at = v.query ? ref_offset(&D.p, &v.tensor, t.seq, s.q0, t.head, t.pos)
                         : ref_key_offset(&D.p, &v.tensor, t.seq, s.k0, t.head, t.pos);
    for (int x = lane; x < v.width; x += 32)
      most = fmaxf(most, fabsf((float)element(D, which, at + x, t.head)));
  }
  for (int d = 16; d; d /= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  if (lane == 0)
    atomicMax(top, __float_as_uint(most));
}

#endif
