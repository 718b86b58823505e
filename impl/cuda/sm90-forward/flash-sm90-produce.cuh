/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-produce.cuh - the producer: takes tiles, and lets TMA fill the rings of Q, K and V
 * from contiguous tensors.
 */
#ifndef IMPL_CUDA_FLASH_SM90_PRODUCE_CUH
#define IMPL_CUDA_FLASH_SM90_PRODUCE_CUH

#include "impl/cuda/sm90-forward/flash-sm90-tile.cuh"

/* Panels that columns of a tensor fall into, of W/64.  The others are not loaded: a box that lies
 * wholly outside its map makes TMA touch the map's base address, which for packed tensors and pages
 * lies before the tensor. */
template <int W>
SM90_DEV int sm90_panels(int width)
{
  return W == 64 ? 1 : (width + 63) / 64;
}

/* Loads rows [row, row + ROWS) as W/64 panels; rows and columns outside the tensor become zero. */
template <int ROWS, int W>
SM90_DEV void sm90_load(uint32_t dst, const CUtensorMap *map, uint32_t bar, int width, int row,
                        int head, int batch)
{
  const int panels = sm90_panels<W>(width);
  mbar_expect(bar, ROWS * 128 * panels);
#pragma unroll
  for (int i = 0; i < W / 64; i++)
    if (i < panels)
      tma_load_4d(dst + i * ROWS * 128, map, bar, 64 * i, row, head, batch);
}

/* Loads tile n of the keys of t into its slot, once the consumers have given that back.  A packed
 * tensor's map has rows [0, max) of a sequence that ends at row max, and the end of the sequence in
 * the packed tensor as its last coordinate: what lies beyond reads as zero. */
template <class C, int W>
SM90_DEV void sm90_load_kv(const sm90_params &p, const sm90_tile &t, int width, int head, int n,
                           uint32_t tiles, uint32_t bars, sm90_ring<C::STAGES> r,
                           const CUtensorMap *map)
{
  const uint32_t dst = tiles + r.slot() * C::KN * W * 2, full = bars + 8 * r.slot();
  const int row = n * C::KN + (p.items ? p.sk - t.sk : 0);
  const int batch = p.items ? p.cu_k[t.seq + 1] : t.seq;
  mbar_wait(full + 8 * C::STAGES, r.phase() ^ 1);
  sm90_load<C::KN, W>(dst, map, full, width, row, head, batch);
}

template <class C>
SM90_DEV void sm90_load_q(uint32_t smem, const CUtensorMap *mq, const sm90_params &p,
                          const sm90_tile &t, sm90_ring<C::QSTAGES> qr)
{
  mbar_wait(smem + C::Q_EMPTY + 8 * qr.slot(), qr.phase() ^ 1);
  sm90_load<C::KM, C::D>(smem + C::Q0 + qr.slot() * C::Q_BYTES, mq,
                         smem + C::Q_FULL + 8 * qr.slot(), p.d, t.m0 + (p.items ? p.sq - t.sq : 0),
                         t.head, p.items ? t.row0 + t.sq : t.seq);
}

template <class C>
SM90_DEV void sm90_produce(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *mk,
                           const CUtensorMap *mv, const sm90_params &p)
{
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  int n = blockIdx.x;
  for (int count = 0;; count++) {
    const sm90_tile t = sm90_decode<C>(p, n);
    sm90_post<C>(smem, count, t);
    if (t.m0 < 0)
      break;
    n += gridDim.x;
    const int head = t.head / p.group;
#pragma unroll 1
    for (int i = t.hi - 1; i >= t.lo; i--) {
      if (i == t.lo && p.counter)
        n = atomicAdd(p.counter, 1) + gridDim.x;
      sm90_load_kv<C, C::D>(p, t, p.d, head, i, smem + C::K0, smem + C::K_FULL, r, mk);
      if (i == t.hi - 1) {
        sm90_load_q<C>(smem, mq, p, t, qr);
        qr = qr.next();
      } else {
        sm90_load_kv<C, C::DV>(p, t, p.dv, head, i + 1, smem + C::V0, smem + C::V_FULL, r.before(),
                               mv);
      }
      r = r.next();
    }
    if (t.lo < t.hi)
      sm90_load_kv<C, C::DV>(p, t, p.dv, head, t.lo, smem + C::V0, smem + C::V_FULL, r.before(),
                             mv);
    else if (p.counter)
      n = atomicAdd(p.counter, 1) + gridDim.x;
  }
}

#endif
