/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-twopass.cuh - the main passes of the Hopper backward for head_dim up to 256 where
 * the order in which dQ is added matters, so that waiting for turns would cost more than computing
 * the scores a second time.  Two passes, without atomics, the same bits every time:
 *
 *   dK, dV  flash-bwd-sm90-roles.cuh, without its dQ
 *   dQ      A block owns 128 queries, 64 a warpgroup, and walks the keys: S = Q K^T, dP = dO V^T,
 *           dQ += dS K; the scores of the next step beside the gradients of the present one.
 *
 * Measured on an H200, bf16, TF/s without a mask and causal: sequence 8k deterministic 395, 415,
 * cuDNN 280, 324; one pass by turns 256, 253.  Of the time the pass for dQ takes 38 %.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_TWOPASS_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_TWOPASS_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90-roles.cuh"

/* The pass for dQ: rows [0, 64) of a tile are the first warpgroup's, the rest the second's. */
template <class T_, int PREGS_, int CREGS_, bool SCORE_ = false, bool DROP_ = false>
struct bwd90_dq {
  typedef T_ T;
  static constexpr bool SCORE = SCORE_, DROP = DROP_;
  static constexpr int D = 256, ROWS = 128, KN = 64, THREADS = 384, KSTAGES = 2;
  static constexpr int PREGS = PREGS_, CREGS = CREGS_;
  static constexpr int PANEL = 64 * 128, TILE_BYTES = 64 * D * 2;
  static constexpr int Q0 = 0, DO0 = Q0 + 2 * TILE_BYTES, K0 = DO0 + 2 * TILE_BYTES;
  static constexpr int V0 = K0 + KSTAGES * TILE_BYTES, BARS = V0 + TILE_BYTES;
  static constexpr int Q_FULL = BARS, DO_FULL = Q_FULL + 8, V_FULL = DO_FULL + 8;
  static constexpr int V_EMPTY = V_FULL + 8, K_FULL = V_EMPTY + 8, K_EMPTY = K_FULL + 8 * KSTAGES;
  static constexpr int TILE = (K_EMPTY + 8 * KSTAGES + 15) / 16 * 16, SMEM = TILE + 64;
  /* Operands of S, dP (each warpgroup its rows of Q or dO, and all of K or V), dQ; K and V. */
  static constexpr int STEP_SMEM = 12 * TILE_BYTES;
  static_assert(SMEM <= 232448, "tile");
};

/* Queries m0.. of one head, key blocks [lo, hi). */
struct bwd90_qtile {
  int m0, head, kv_head, lo, hi;
  int sq, sk, shift;
  int seq, row_q, acc; /* index in the batch (0 if packed), first row of Q, first padded row */
  int q_row, q_at, k_row, k_at; /* tensor map coordinates of the first row: row, batch */
  int batch;                    /* sequence, packed or not */
};
static_assert(sizeof(bwd90_qtile) <= 64, "tile");

template <class C>
SM90_DEV bwd90_qtile bwd90_decode_q(const bwd90_params &p)
{
  bwd90_qtile t;
  const int blocks = (p.sq + C::ROWS - 1) / C::ROWS, heads = p.b * p.hq, n = blockIdx.x;
  const int section = p.schedule.section * p.group;
  const int s = n / (section * blocks), r = n - s * section * blocks;
  const int here = min(section, heads - s * section), block = r / here;
  const int head = s * section + r - block * here, seq = head / p.hq;
  const int row_q = p.cu_q ? p.cu_q[seq] : 0, row_k = p.cu_q ? p.cu_k[seq] : 0;
  t.m0 = (blocks - 1 - block) * C::ROWS;
  t.head = head - seq * p.hq;
  t.kv_head = t.head / p.group;
  t.batch = seq;
  t.seq = p.cu_q ? 0 : seq;
  t.row_q = row_q;
  t.sq = p.cu_q ? p.cu_q[seq + 1] - row_q : p.sq;
  t.sk = p.cu_q ? p.cu_k[seq + 1] - row_k : p.sk;
  t.shift = p.topleft ? 0 : t.sk - t.sq;
  t.acc = bwd90_acc(p, seq, row_q, 64) + t.head * p.acc_sh + t.m0;
  t.q_row = (p.cu_q ? p.sq - t.sq : 0) + t.m0;
  t.q_at = p.cu_q ? row_q + t.sq : seq;
  t.k_row = p.cu_q ? p.sk - t.sk : 0;
  t.k_at = p.cu_q ? row_k + t.sk : seq;
  const int first = max(0, t.m0 + t.shift - p.left);
  const int end = min(t.sk, min(t.m0 + C::ROWS, t.sq) + t.shift + p.right);
  t.lo = t.hi = 0;
  if (first < end && t.m0 < t.sq) {
    t.lo = first / C::KN;
    t.hi = (end - 1) / C::KN + 1;
  }
  return t;
}

/* One thread: Q and dO once, then K and V for every step. Where the second half of the queries is
 * past the end, it gets the last query: of a box wholly outside, TMA touches the map's first row
 * (seen: an illegal address), and a packed tensor's map begins before the tensor does. */
template <class C>
SM90_DEV void bwd90_produce_q(uint32_t smem, const volatile bwd90_qtile *t, const CUtensorMap *mq,
                              const CUtensorMap *mk, const CUtensorMap *mv, const CUtensorMap *mdo,
                              const bwd90_params &p)
{
  const int lo = t->lo, steps = t->hi - lo;
#pragma unroll 1
  for (int i = 0; i < 2; i++)
    bwd90_load<64, C::D>(smem + C::Q0 + i * C::TILE_BYTES, mq, smem + C::Q_FULL, p.d, 0,
                         min(t->q_row + 64 * i, p.sq - 1), t->head, t->q_at);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int ks = i % C::KSTAGES, row = t->k_row + (lo + i) * C::KN;
    mbar_wait(smem + C::K_EMPTY + 8 * ks, i / C::KSTAGES % 2 ^ 1);
    bwd90_load<C::KN, C::D>(smem + C::K0 + ks * C::TILE_BYTES, mk, smem + C::K_FULL + 8 * ks, p.d,
                            0, row, t->kv_head, t->k_at);
    if (i == 0) {
#pragma unroll 1
      for (int j = 0; j < 2; j++)
        bwd90_load<64, C::D>(smem + C::DO0 + j * C::TILE_BYTES, mdo, smem + C::DO_FULL, p.dv_cols,
                             0, min(t->q_row + 64 * j, p.sq - 1), t->head, t->q_at);
    }
    mbar_wait(smem + C::V_EMPTY, i % 2 ^ 1);
    bwd90_load<C::KN, C::D>(smem + C::V0, mv, smem + C::V_FULL, p.dv_cols, 0, row, t->kv_head,
                            t->k_at);
  }
}

/* What a thread knows of its two rows. */
struct bwd90_row_stats {
  int at[2]; /* key on the diagonal */
  float lse[2], dsum[2];
};

/* S becomes P; the keys are n0.. */
SM90_DEV void bwd90_exp_rows(const bwd90_params &p, const bwd90_row_stats &r, int sk, int n0,
                             int quad, bool masked, float (&S)[32])
{
  if (masked) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
      const int key = n0 + 8 * (i / 4) + 2 * quad + i % 2, at = r.at[i / 2 % 2];
      if (key >= sk || key > at + p.right || key < at - p.left)
        S[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 32; i++)
    S[i] = ex2(fmaf(S[i], p.c, -r.lse[i / 2 % 2]));
}

/* Raw scores become P', as in bwd90_options; row: this thread's upper query, from: its first key.
 */
template <class C>
SM90_DEV void bwd90_options_rows(const bwd90_params &p, const bwd90_row_stats &r,
                                 const bwd90_head &h, int sk, int shift, int row, int from,
                                 float (&S)[32])
{
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      uint32_t up = ~0u, down = ~0u;
      if (C::DROP)
        attn_dropout_words(p.drop_seed, h.key, row, from + 16 * j + e, &up, &down);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int key = from + 16 * j + 8 * (i / 2) + e, at = r.at[i % 2];
        const uint32_t word = i % 2 ? down : up, slice = i / 2 ? word >> 16 : word & 0xffff;
        bwd90_weight(p, h, row + 8 * (i % 2) + shift - key,
                     key >= sk || key > at + p.right || key < at - p.left,
                     !C::DROP || slice >= p.drop_threshold, r.lse[i % 2], S[8 * j + 2 * i + e]);
      }
    }
}

/* The keys [n0, n0 + 64) need a mask for the queries [m, m + 64)? */
SM90_DEV bool bwd90_masked_rows(const bwd90_params &p, int sk, int m, int shift, int n0)
{
  return n0 + 64 > sk || n0 + 63 > m + shift + p.right || n0 < m + 63 + shift - p.left;
}

/* dS of a step as an operand, from P and dP */
template <class C>
SM90_DEV void bwd90_ds_rows(const bwd90_params &p, const bwd90_row_stats &r, const float (&P)[32],
                            const float (&dP)[32], uint32_t (&dS)[16])
{
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const float d = r.dsum[i % 2];
    if (C::SCORE)
      dS[i] = pack2(typename C::T(), bwd90_ds_option(p, P[2 * i], dP[2 * i], d),
                    bwd90_ds_option(p, P[2 * i + 1], dP[2 * i + 1], d));
    else
      dS[i] =
          pack2(typename C::T(), P[2 * i] * (dP[2 * i] - d), P[2 * i + 1] * (dP[2 * i + 1] - d));
  }
}

template <class C>
SM90_DEV bwd90_row_stats bwd90_read_stats(const bwd90_lane &w, const bwd90_params &p,
                                          const volatile bwd90_qtile *t)
{
  bwd90_row_stats r;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = 64 * w.wg + 16 * w.warp + w.lane / 4 + 8 * h;
    const bool in = t->m0 + row < t->sq;
    r.at[h] = t->m0 + row + t->shift;
    r.lse[h] = in ? __ldcg(p.lse2 + t->acc + row) : INFINITY;
    r.dsum[h] = in ? __ldcg(p.dsum + t->acc + row) : 0;
  }
  return r;
}

/* S becomes P or P'; the keys are n0.. */
template <class C>
SM90_DEV void bwd90_probs_rows(const bwd90_lane &w, const bwd90_params &p,
                               const volatile bwd90_qtile *t, const bwd90_row_stats &r, int n0,
                               float (&S)[32])
{
  const int sk = bwd90_uniform(t->sk), m = bwd90_uniform(t->m0 + 64 * w.wg);
  const int shift = bwd90_uniform(t->shift), quad = w.lane & 3;
  if constexpr (C::SCORE)
    bwd90_options_rows<C>(p, r, bwd90_head_of(p, t->batch, t->head), sk, sk - t->sq,
                          m + 16 * w.warp + w.lane / 4, n0 + 2 * quad, S);
  else
    bwd90_exp_rows(p, r, sk, n0, quad, bwd90_masked_rows(p, sk, m, shift, n0), S);
}

template <class C>
SM90_DEV void bwd90_dq_steps(const bwd90_lane &w, const bwd90_params &p,
                             const volatile bwd90_qtile *t, float (&dQ)[128])
{
  const int lo = bwd90_uniform(t->lo), steps = bwd90_uniform(t->hi) - lo;
  const uint32_t q = w.smem + C::Q0 + w.wg * C::TILE_BYTES, g = q + C::DO0 - C::Q0;
  const bwd90_row_stats r = bwd90_read_stats<C>(w, p, t);
  float S[32], dP[32];
  uint32_t dS[16];
  undefine(dQ);
  mbar_wait(w.smem + C::Q_FULL, 0);
  mbar_wait(w.smem + C::K_FULL, 0);
  bwd90_issue_score<C>(S, q, w.smem + C::K0);
  mbar_wait(w.smem + C::DO_FULL, 0);
  mbar_wait(w.smem + C::V_FULL, 0);
  bwd90_issue_score<C>(dP, g, w.smem + C::V0);
  wgmma_wait<0>();
  pin(S);
  pin(dP);
  bwd90_arrive(w, C::V_EMPTY);
  bwd90_probs_rows<C>(w, p, t, r, lo * C::KN, S);
  bwd90_ds_rows<C>(p, r, S, dP, dS);
#pragma unroll 1
  for (int i = 1; i < steps; i++) {
    const int ks = i % C::KSTAGES, before = (i - 1) % C::KSTAGES, n0 = (lo + i) * C::KN;
    mbar_wait(w.smem + C::K_FULL + 8 * ks, i / C::KSTAGES % 2);
    bwd90_issue_score<C>(S, q, w.smem + C::K0 + ks * C::TILE_BYTES);
    bwd90_issue_grad<C>(dQ, dS, w.smem + C::K0 + before * C::TILE_BYTES, i > 1);
    wgmma_wait<1>();
    pin(S);
    bwd90_probs_rows<C>(w, p, t, r, n0, S);
    mbar_wait(w.smem + C::V_FULL, (i % 2) ^ (bwd90_or(S) & p.zero));
    bwd90_issue_score<C>(dP, g, w.smem + C::V0);
    wgmma_wait<1>();
    pin(dQ);
    bwd90_arrive(w, C::K_EMPTY + 8 * before);
    wgmma_wait<0>();
    pin(dP);
    bwd90_arrive(w, C::V_EMPTY);
    bwd90_ds_rows<C>(p, r, S, dP, dS);
  }
  bwd90_issue_grad<C>(dQ, dS, w.smem + C::K0 + (steps - 1) % C::KSTAGES * C::TILE_BYTES, steps > 1);
  wgmma_wait<0>();
  pin(dQ);
}

template <class C>
SM90_DEV void bwd90_consume_q(const bwd90_lane &w, const bwd90_params &p,
                              const volatile bwd90_qtile *t)
{
  float dQ[128];
  if (t->lo < t->hi) {
    bwd90_dq_steps<C>(w, p, t, dQ);
  } else {
#pragma unroll
    for (int i = 0; i < 128; i++)
      dQ[i] = 0;
  }
  uint16_t *out = bwd90_at(p.dq, t->seq, t->row_q, t->head);
  bwd90_store<typename C::T>(out, p.dq.ss, t->m0 + 64 * w.wg + 16 * w.warp + w.lane / 4, t->sq, p.d,
                             p.scale, w.lane, dQ);
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_bwd_dq_sm90(const __grid_constant__ CUtensorMap mq,
                      const __grid_constant__ CUtensorMap mk,
                      const __grid_constant__ CUtensorMap mv,
                      const __grid_constant__ CUtensorMap mdo,
                      const __grid_constant__ bwd90_params p)
{
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t smem = smem_addr(shared);
  const volatile bwd90_qtile *tile = (const volatile bwd90_qtile *)(shared + C::TILE);
  if (threadIdx.x == 0) {
    *(bwd90_qtile *)(shared + C::TILE) = bwd90_decode_q<C>(p);
    mbar_init(smem + C::Q_FULL, 2);
    mbar_init(smem + C::DO_FULL, 2);
    mbar_init(smem + C::V_FULL, 1);
    mbar_init(smem + C::V_EMPTY, 8 * BWD90_LANES);
    for (int i = 0; i < C::KSTAGES; i++) {
      mbar_init(smem + C::K_FULL + 8 * i, 1);
      mbar_init(smem + C::K_EMPTY + 8 * i, 8 * BWD90_LANES);
    }
    mbar_init_fence();
  }
  bwd90_clear_panels<C::THREADS, 64, C::D>(smem + C::Q0, 2, p.d);
  bwd90_clear_panels<C::THREADS, 64, C::D>(smem + C::DO0, 2, p.dv_cols);
  bwd90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::K0, C::KSTAGES, p.d);
  bwd90_clear_panels<C::THREADS, C::KN, C::D>(smem + C::V0, 1, p.dv_cols);
  fence_proxy_async();
  __syncthreads();
  const int wg = bwd90_uniform(threadIdx.x / 128), warp = bwd90_uniform(threadIdx.x / 32 % 4);
  if (wg == 0) {
    regs_give<C::PREGS>();
    if (threadIdx.x == 0 && tile->lo < tile->hi)
      bwd90_produce_q<C>(smem, tile, &mq, &mk, &mv, &mdo, p);
  } else {
    regs_take<C::CREGS>();
    bwd90_consume_q<C>(bwd90_lane{smem, wg - 1, warp, (int)threadIdx.x % 32}, p, tile);
  }
  /* The other pass may still run: all that this one reads was there when that one began. */
  await_kernel_before();
}

template <class T, bool SCORE = false, bool DROP = false>
static bwd90_kernel bwd90_twopass_row(const char *name, int uses)
{
  typedef bwd90_roles<T, 24, 240, false, SCORE, DROP> C;
  typedef bwd90_dq<T, 24, 240, SCORE, DROP> Q;
  bwd90_kernel k = bwd90_row<C>(name, uses, (const void *)flash_bwd_roles_sm90<C>);
  k.dq = (const void *)flash_bwd_dq_sm90<Q>;
  k.dq_rows = Q::ROWS;
  k.dq_smem = Q::SMEM;
  k.step_smem += Q::STEP_SMEM * C::KM / Q::ROWS * C::KN / Q::KN;
  return k;
}

#endif
