/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-pages.cuh - the producer of a paged cache.  A tile of keys consists of boxes: the rows
 * that a page and a tile have in common (their greatest common divisor, 8 at least: a swizzle's
 * period).  A lane of a feeder warp owns one box of every tile of K, or of V, and looks its page up
 * a tile ahead.
 */
#ifndef IMPL_CUDA_FLASH_SM90_PAGES_CUH
#define IMPL_CUDA_FLASH_SM90_PAGES_CUH

#include "impl/cuda/sm90-forward/flash-sm90-produce.cuh"

/* Instead of a page's number: the box is another's. */
#define SM90_NOT_MINE -1

/* A lane of a warp that loads K, or V: the nth of p.feeders that do. */
struct sm90_feeder {
  int nth, lane;
};

/* Number of the page that a key lies in.  What a table's row says behind the end of the sequence is
 * not read. */
SM90_DEV int sm90_page(const sm90_params &p, int seq, int sk, int key)
{
  return __ldg(p.block_table + seq * p.table_stride + (key < sk ? sm90_nth(p, key) : 0));
}

/* One lane waits for the warp.  If each waited for itself, lanes whose box is another warp's could
 * be lapped: nothing holds the slot back for them, and by the time that they look its parity may
 * have changed twice.  They would wait for a phase that never comes. */
SM90_DEV void sm90_warp_wait(uint32_t bar, uint32_t parity)
{
  if (threadIdx.x % 32 == 0)
    mbar_wait(bar, parity);
  __syncwarp();
}

/* Loads the box that begins with a key into its rows of each panel.  The map's rows end with the
 * page's last key of the box: rows behind the end of the sequence lie outside, and read as zero.
 * For a box without keys it is the first of all keys, which is masked: a box wholly outside its map
 * makes TMA touch the map's base address, where nothing need be. */
template <class C, int W>
SM90_DEV void sm90_load_box(const sm90_params &p, int sk, int key, int page, int width, int head,
                            uint32_t dst, uint32_t bar, const CUtensorMap *map)
{
  const int panels = sm90_panels<W>(width), rows = max(1, min(p.box, sk - key));
  const int stop = (key < sk ? key - sm90_nth(p, key) * p.page : 0) + rows;
#pragma unroll
  for (int i = 0; i < W / 64; i++)
    if (i < panels)
      tma_load_5d(dst + i * C::KN * 128, map, bar, 64 * i, p.page - rows, head, stop, page);
}

/* A lane of a feeder warp: its box, which begins with a key, of a tile of K or V, once the
 * consumers have given the slot back.  No page: the box is another warp's. */
template <class C, int W>
SM90_DEV void sm90_feed_tile(const sm90_params &p, const sm90_feeder &f, int sk, int key, int page,
                             int width, int head, uint32_t tiles, uint32_t bars,
                             sm90_ring<C::STAGES> r, const CUtensorMap *map)
{
  const uint32_t bar = bars + 8 * r.slot();
  sm90_warp_wait(bar + 8 * C::STAGES, r.phase() ^ 1);
  if (f.nth == 0 && f.lane == 0)
    mbar_expect(bar, C::KN * 128 * sm90_panels<W>(width));
  if (page >= 0)
    sm90_load_box<C, W>(p, sk, key, page, width, head,
                        tiles + r.slot() * C::KN * W * 2 + f.lane * p.box * 128, bar, map);
}

/* This lane's boxes of all keys of a tile of work, of K or of V.  K's first lane loads Q, too, and
 * claims what is next. */
template <class C, bool VALUES>
SM90_DEV void sm90_feed_keys(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *map,
                             const sm90_params &p, const sm90_feeder &f, const sm90_tile &t,
                             sm90_ring<C::STAGES> &r, sm90_ring<C::QSTAGES> qr, int &n)
{
  const int head = t.head / p.group, last = t.lo * C::KN + f.lane * p.box;
  const bool mine = f.lane * p.box < C::KN && (f.lane & (p.feeders - 1)) == f.nth;
  const bool leads = !VALUES && f.nth == 0 && f.lane == 0;
  int key = last + (t.hi - 1 - t.lo) * C::KN;
  int page = mine ? sm90_page(p, t.seq, t.sk, key) : SM90_NOT_MINE;
  bool first = true;
#pragma unroll 1
  for (; key >= last; key -= C::KN) {
    const int next = mine && key > last ? sm90_page(p, t.seq, t.sk, key - C::KN) : SM90_NOT_MINE;
    if (leads && key == last && p.counter)
      n = atomicAdd(p.counter, 1) + gridDim.x;
    if (VALUES)
      sm90_feed_tile<C, C::DV>(p, f, t.sk, key, page, p.dv, head, smem + C::V0, smem + C::V_FULL, r,
                               map);
    else
      sm90_feed_tile<C, C::D>(p, f, t.sk, key, page, p.d, head, smem + C::K0, smem + C::K_FULL, r,
                              map);
    if (leads && first)
      sm90_load_q<C>(smem, mq, p, t, qr);
    first = false;
    page = next;
    r = r.next();
  }
}

/* A feeder warp.  The first one's first lane takes the tiles, posts them, and loads Q; the other
 * warps are told of them as the consumers are. */
template <class C, bool VALUES>
SM90_DEV void sm90_feed(uint32_t smem, const CUtensorMap *mq, const CUtensorMap *map,
                        const sm90_params &p, const sm90_feeder &f)
{
  const bool leads = !VALUES && f.nth == 0;
  sm90_ring<C::STAGES> r = {};
  sm90_ring<C::QSTAGES> qr = {};
  int n = blockIdx.x;
  for (int count = 0;; count++) {
    if (leads && f.lane == 0)
      sm90_post<C>(smem, count, sm90_decode<C>(p, n));
    sm90_warp_wait(smem + C::BOX_FULL + 8 * (count % SM90_BOXES), count / SM90_BOXES % 2);
    const sm90_tile t = sm90_read<C>(smem, count);
    __syncwarp();
    if (!leads && f.lane == 0)
      mbar_arrive(smem + C::BOX_EMPTY + 8 * (count % SM90_BOXES));
    if (t.m0 < 0)
      break;
    n += gridDim.x;
    if (t.lo < t.hi) {
      sm90_feed_keys<C, VALUES>(smem, mq, map, p, f, t, r, qr, n);
      qr = qr.next();
    } else if (leads && f.lane == 0 && p.counter) {
      n = atomicAdd(p.counter, 1) + gridDim.x;
    }
  }
}

#endif
