/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-issue.cuh - what a consumer warpgroup gives to the tensor cores: Q K^T and P V, turns,
 * and the slots that it waits for and gives back.
 */
#ifndef IMPL_CUDA_FLASH_SM90_ISSUE_CUH
#define IMPL_CUDA_FLASH_SM90_ISSUE_CUH

#include "impl/cuda/sm90-forward/flash-sm90-tile.cuh"

/* Where a consumer thread is. */
struct sm90_lane {
  uint32_t smem;
  int wg, warp, lane;
  int row; /* of the tile: its upper one */
  bool elected;
};

SM90_DEV int sm90_uniform(int x)
{
  return __shfl_sync(~0u, x, 0);
}

/* The count-th tile is done with. */
template <class C>
SM90_DEV void sm90_forget(const sm90_lane &w, int count)
{
  __syncwarp();
  if (w.lane == 0)
    mbar_arrive(w.smem + C::BOX_EMPTY + 8 * (count % SM90_BOXES));
}

/* Waits for Q; as fragments, it is read at once and its slot given back. */
template <class C>
SM90_DEV void sm90_take_q(const sm90_lane &w, sm90_ring<C::QSTAGES> &qr, uint32_t (&Q)[C::D / 4])
{
  mbar_wait(w.smem + C::Q_FULL + 8 * qr.slot(), qr.phase());
  if (!C::QREG)
    return;
  const int r = 64 * w.wg + 16 * w.warp + (w.lane & 15);
  const uint32_t base = w.smem + C::Q0 + qr.slot() * C::Q_BYTES + r * 128;
#pragma unroll
  for (int k = 0; k < C::D / 16; k++) {
    uint32_t f[4];
    const int chunk = (2 * k & 7) + (w.lane >> 4);
    ldmatrix_x4(f, base + k / 4 * C::KM * 128 + ((chunk ^ (r & 7)) << 4));
#pragma unroll
    for (int i = 0; i < 4; i++)
      Q[4 * k + i] = f[i];
  }
  fence_proxy_async();
  __syncwarp();
  if (w.lane == 0)
    mbar_arrive(w.smem + C::Q_EMPTY + 8 * qr.slot());
  qr = qr.next();
}

/* Q in shared memory: the slot is given back after the tile's last Q K^T. */
template <class C>
SM90_DEV void sm90_drop_q(const sm90_lane &w, sm90_ring<C::QSTAGES> &qr)
{
  if (C::QREG)
    return;
  if (w.elected)
    mbar_arrive(w.smem + C::Q_EMPTY + 8 * qr.slot());
  qr = qr.next();
}

/* Named barriers: one a warpgroup for its turn, one for its warps. */
enum { SM90_TURN = 1, SM90_TOGETHER = 8 };

/* Waits for this warpgroup's turn to issue.  Its products run in one piece, so that its softmax
 * falls beside the others' products. */
template <class C>
SM90_DEV void sm90_take_turn(const sm90_lane &w)
{
  if (C::TURNS)
    named_sync(SM90_TURN + w.wg, 256);
}

template <class C>
SM90_DEV void sm90_pass_turn(const sm90_lane &w)
{
  if (C::TURNS)
    named_arrive(SM90_TURN + (w.wg + 1) % C::WGS, 256);
}

/* A descriptor's base, equal in all lanes.  By way of redux.sync it lands in a uniform register,
 * which saves two to four instructions in front of each wgmma. */
SM90_DEV uint32_t sm90_base(uint32_t at, uint32_t leading_bytes)
{
  return __reduce_or_sync(~0u, desc_lo(at, leading_bytes));
}

/* S = Q K^T, one group; in_turn: a P V follows in the same turn */
template <class C>
SM90_DEV void sm90_qk(const sm90_lane &w, float (&S)[C::KN / 2], const uint32_t (&Q)[C::D / 4],
                      int qslot, const sm90_ring<C::STAGES> &r, bool in_turn)
{
  const uint32_t q = sm90_base(w.smem + C::Q0 + qslot * C::Q_BYTES + w.wg * 8192, 0);
  const uint32_t k0 = sm90_base(w.smem + C::K0 + r.slot() * C::K_BYTES, 0);
  mbar_wait(w.smem + C::K_FULL + 8 * r.slot(), r.phase());
  if (in_turn)
    sm90_take_turn<C>(w);
  undefine(S);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::D / 16; k++) {
    const uint64_t b = desc(k0 + k / 4 * C::KN * 8 + k % 4 * 2);
    if (C::QREG)
      wgmma<typename C::T, C::KN>::template rs<0>(S, Q + 4 * k, b, k > 0);
    else
      wgmma<typename C::T, C::KN>::ss(S, desc(q + k / 4 * C::KM * 8 + k % 4 * 2), b, k > 0);
  }
  wgmma_commit();
}

/* O (+)= P V, one group; V is there */
template <class C>
SM90_DEV void sm90_pv(const sm90_lane &w, float (&O)[C::DV / 2], const uint32_t (&P)[C::KN / 4],
                      const sm90_ring<C::STAGES> &r, int add)
{
  const uint32_t v0 = sm90_base(w.smem + C::V0 + r.slot() * C::V_BYTES, C::KN * 128);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < C::KN / 16; k++)
    wgmma<typename C::T, C::DV>::template rs<1>(O, P + 4 * k, desc(v0 + k * 128), k > 0 ? 1 : add);
  wgmma_commit();
}

SM90_DEV void sm90_release(const sm90_lane &w, uint32_t bar)
{
  if (w.elected)
    mbar_arrive(w.smem + bar);
}

#endif
