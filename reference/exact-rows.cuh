/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-rows.cuh - forward's rows of weights, and backward's pairs.
 */
#ifndef REFERENCE_EXACT_ROWS_CUH
#define REFERENCE_EXACT_ROWS_CUH

#include "reference/exact-access.cuh"

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

#endif
