/* SPDX-License-Identifier: Apache-2.0
 *
 * exact-access.cuh - what the kernels of exact-cuda.cu work on: the problem, a chunk of targets,
 * and how their operands are read.
 *
 * A chunk is a list of targets (query rows, or key columns in backward) with scratch of `pitch`
 * partners each (keys, or the query rows of a group's heads).  Truth (dot products, weights, sums)
 * is fp64; the moments of the bound are fp32 sums over at most SPLIT terms, added up in fp64.  fp32
 * sums are kept in range by powers of two: of the largest |V|, |K|, |Q| and |dO|.
 *
 *   exact-dots.cuh    (targets, d) x (partners, d) -> qk or vp (targets, pitch)
 *   exact-rows.cuh    rows: qk -> m, l, lse a row; weights and their errors (targets, pitch); the
 *                     LSE's verdict
 *                     pairs: qk, vp -> coefficients of dQ, or of dK and dV, and their errors
 *   exact-values.cuh  weights or coefficients x (partners, width) -> values, moments (targets,
 *                     splits, width)
 *   exact-finish.cuh  the bound and the comparison, element by element -> one tally a target
 *   exact-scan.cuh    whole tensors: what is not finite, the largest magnitude
 */
#ifndef REFERENCE_EXACT_ACCESS_CUH
#define REFERENCE_EXACT_ACCESS_CUH

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

#endif
