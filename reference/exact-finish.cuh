/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-finish.cuh - bounds, comparisons and tallies; rows that later passes need.
 */
#ifndef REFERENCE_EXACT_FINISH_CUH
#define REFERENCE_EXACT_FINISH_CUH

#include "reference/exact-rows.cuh"

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

#endif
