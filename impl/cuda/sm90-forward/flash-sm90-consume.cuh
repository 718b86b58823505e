/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-consume.cuh - a consumer warpgroup from its first tile to its last.
 */
#ifndef IMPL_CUDA_FLASH_SM90_CONSUME_CUH
#define IMPL_CUDA_FLASH_SM90_CONSUME_CUH

#include "impl/cuda/sm90-forward/flash-sm90-store.cuh"

/* Waits for the count-th tile; false: there is none. */
template <class C>
SM90_DEV bool sm90_peek(const sm90_lane &w, const sm90_params &p, int count, sm90_walk &k, int &hi)
{
  mbar_wait(w.smem + C::BOX_FULL + 8 * (count % SM90_BOXES), count / SM90_BOXES % 2);
  const sm90_tile t = sm90_read<C>(w.smem, count);
  if (sm90_uniform(t.m0) < 0)
    return false;
  k = sm90_start<C>(w, p, t);
  hi = sm90_uniform(t.hi);
  return true;
}

/* Gives back, unused, the slots of the tile's steps that none of this warpgroup's rows sees: keys
 * to the right of them, or all where the rows lie behind the last one.  The warps stay together,
 * lest one miss two phases of a barrier. */
template <class C>
SM90_DEV void sm90_skip(const sm90_lane &w, const sm90_walk &k, int hi, sm90_ring<C::STAGES> &r)
{
#pragma unroll 1
  for (int n = hi - 1; n >= k.n; n--) {
    mbar_wait(w.smem + C::K_FULL + 8 * r.slot(), r.phase());
    mbar_wait(w.smem + C::V_FULL + 8 * r.slot(), r.phase());
    named_sync(SM90_TOGETHER + w.wg, 128);
    sm90_release(w, C::K_EMPTY + 8 * r.slot());
    sm90_release(w, C::V_EMPTY + 8 * r.slot());
    if (n > k.lo) {
      sm90_take_turn<C>(w);
      sm90_pass_turn<C>(w);
    }
    r = r.next();
  }
}

/* Goes to the next tile in which this warpgroup has keys; its rows of the others are written on the
 * way.  False: none left. */
template <class C>
SM90_DEV bool sm90_advance(const sm90_lane &w, const sm90_params &p, int &count, sm90_walk &k,
                           sm90_ring<C::STAGES> &r, sm90_ring<C::QSTAGES> &qr,
                           uint32_t (&Q)[C::D / 4])
{
  int hi;
  while (sm90_peek<C>(w, p, ++count, k, hi)) {
    sm90_skip<C>(w, k, hi, r);
    if (k.lo < k.n)
      return true;
    if (k.lo < hi) {
      sm90_take_q<C>(w, qr, Q);
      sm90_drop_q<C>(w, qr);
    }
    sm90_store_empty<C>(w, p, sm90_read<C>(w.smem, count));
    sm90_forget<C>(w, count);
  }
  return false;
}

SM90_DEV sm90_rows sm90_fresh()
{
  return sm90_rows{{-INFINITY, -INFINITY}, {0.f, 0.f}};
}

/* The first step of a row block, whose S is under way: makes P. */
template <class C>
SM90_DEV void sm90_begin(const sm90_lane &w, const sm90_params &p, int count, const sm90_walk &k,
                         float (&S)[C::KN / 2], uint32_t (&P)[C::KN / 4], sm90_ring<C::STAGES> &r,
                         sm90_ring<C::QSTAGES> &qr, sm90_rows &s)
{
  sm90_step x;
  wgmma_wait<0>();
  pin(S);
  sm90_release(w, C::K_EMPTY + 8 * r.slot());
  if (k.n == k.lo)
    sm90_drop_q<C>(w, qr);
  s = sm90_fresh();
  sm90_softmax<C>(w, p, k, count, true, S, s, x);
  sm90_await_v<C>(w, p, r, x);
  s.l[0] = x.t[0];
  s.l[1] = x.t[1];
  r = r.next();
  sm90_pack<typename C::T>(P, S);
}

/* The row block's other steps.  Its last P V remains to be issued; the result is that one's add. */
template <class C>
SM90_DEV int sm90_steps(const sm90_lane &w, const sm90_params &p, int count, sm90_walk &k,
                        float (&S)[C::KN / 2], float (&O)[C::DV / 2], uint32_t (&P)[C::KN / 4],
                        const uint32_t (&Q)[C::D / 4], sm90_ring<C::STAGES> &r,
                        sm90_ring<C::QSTAGES> &qr, sm90_rows &s)
{
  int add = 0;
  while (k.n > k.lo) {
    sm90_step x;
    k.n--;
    sm90_qk<C>(w, S, Q, qr.slot(), r, true);
    sm90_pv<C>(w, O, P, r.before(), add);
    sm90_pass_turn<C>(w);
    wgmma_wait<1>();
    pin(S);
    sm90_release(w, C::K_EMPTY + 8 * r.slot());
    if (k.n == k.lo)
      sm90_drop_q<C>(w, qr);
    sm90_softmax<C>(w, p, k, count, false, S, s, x);
    sm90_await_v<C>(w, p, r, x);
    wgmma_wait<0>();
    pin(O);
    pin(P);
    sm90_release(w, C::V_EMPTY + 8 * r.before().slot());
    r = r.next();
    sm90_settle<C>(w, p, k, count, S, s, x);
    sm90_pack<typename C::T>(P, S);
    if (x.rescale)
      sm90_rescale(O, x.alpha);
    add = 1;
  }
  return add;
}

template <class C>
SM90_DEV void sm90_consume(const sm90_lane &w, const sm90_params &p)
{
  float S[C::KN / 2], O[C::DV / 2], f[2];
  uint32_t P[C::KN / 4], Q[C::D / 4];
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  sm90_rows s;
  sm90_walk k;
  int count = -1;
  while (sm90_advance<C>(w, p, count, k, r, qr, Q)) {
    sm90_take_q<C>(w, qr, Q);
    k.n--;
    sm90_qk<C>(w, S, Q, qr.slot(), r, false);
    sm90_begin<C>(w, p, count, k, S, P, r, qr, s);
    undefine(O);
    const int add = sm90_steps<C>(w, p, count, k, S, O, P, Q, r, qr, s);
    sm90_pv<C>(w, O, P, r.before(), add);
    sm90_finish<C>(w, p, sm90_read<C>(w.smem, count), s, f);
    wgmma_wait<0>();
    pin(O);
    sm90_release(w, C::V_EMPTY + 8 * r.before().slot());
    sm90_rescale(O, f);
    sm90_store<C>(w, p, sm90_read<C>(w.smem, count), O);
    sm90_forget<C>(w, count);
  }
}

#endif
