/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-sm90-tile.cuh - which row block and head is next, what keys it sees, and the mailbox by
 * which the producer tells the others.
 */
#ifndef IMPL_CUDA_FLASH_SM90_TILE_CUH
#define IMPL_CUDA_FLASH_SM90_TILE_CUH

#include "impl/cuda/sm90-forward/flash-sm90-config.cuh"

/* One unit of work: query rows m0.. of one head, keys of tiles [lo, hi). */
struct sm90_tile {
  int m0; /* -1: no more work */
  int head, seq;
  int lo, hi;
  int sq, sk;
  int row0; /* of the sequence in a packed tensor */
};

/* Query row i of a sequence sees the keys [i + shift - left, i + shift + right]. */
SM90_DEV int sm90_shift(const sm90_params &p, int sq, int sk)
{
  return p.topleft ? 0 : sk - sq;
}

/* Keys of a sequence of a ragged batch. */
SM90_DEV int sm90_length(const sm90_params &p, int seq)
{
  return p.seqlens_k ? p.seqlens_k[seq] : p.cu_k[seq + 1] - p.cu_k[seq];
}

/* key / p.page without a division, which shares a pipe with the exponentials. */
SM90_DEV int sm90_nth(const sm90_params &p, int key)
{
  return (int)((uint64_t)(uint32_t)(key >> 3) * p.page_magic >> p.page_shift);
}

/* Half-open range of the key tiles that any of the rows m0 .. m0 + km - 1 sees. */
SM90_DEV int2 sm90_keys(const sm90_params &p, int m0, int sq, int sk, int km, int kn)
{
  const int shift = sm90_shift(p, sq, sk), end = min(m0 + km, sq);
  const int hi = (max(0, min(sk, end + shift + p.right)) + kn - 1) / kn;
  return make_int2(min(max(0, m0 + shift - p.left) / kn, hi), hi);
}

template <class C>
SM90_DEV sm90_tile sm90_decode(const sm90_params &p, int n)
{
  sm90_tile t;
  const int blocks = p.items ? *p.items : p.blocks, heads = p.items ? p.hq : p.b * p.hq;
  const int s = n / (p.section * blocks), r = n - s * p.section * blocks;
  const int here = min(p.section, heads - s * p.section);
  const int item = here > 0 ? r / here : blocks;
  t.m0 = -1;
  t.head = t.seq = t.lo = t.hi = t.row0 = 0;
  t.sq = p.sq;
  t.sk = p.sk;
  if (item >= blocks)
    return t;
  const int head = s * p.section + r - item * here;
  if (p.items) {
    const sm90_item at = p.item[item];
    t.seq = at.seq;
    t.m0 = at.m0;
    t.head = head;
    t.row0 = p.cu_q[t.seq];
    t.sq = p.cu_q[t.seq + 1] - t.row0;
    t.sk = sm90_length(p, t.seq);
  } else {
    t.seq = head / p.hq;
    t.head = head - t.seq * p.hq;
    /* The longest first: the last see the most keys, but without a mask they may lack rows. */
    t.m0 = (p.right < SM90_UNLIMITED ? blocks - 1 - item : item) * C::KM;
  }
  const int2 keys = sm90_keys(p, t.m0, t.sq, t.sk, C::KM, C::KN);
  t.lo = keys.x;
  t.hi = keys.y;
  return t;
}

/* ---- mailbox --------------------------------------------------------------------------------- */

SM90_DEV int4 lds128(uint32_t at)
{
  int4 x;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
  return x;
}

/* What the mailbox says of the count-th tile.  It is read again wherever it is needed: registers
 * are dearer. */
template <class C>
SM90_DEV sm90_tile sm90_read(uint32_t smem, int count)
{
  const uint32_t at = smem + C::BOX + 32 * (count % SM90_BOXES);
  const int4 a = lds128(at), b = lds128(at + 16);
  return sm90_tile{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

/* Tells the consumers of the count-th tile. */
template <class C>
SM90_DEV void sm90_post(uint32_t smem, int count, const sm90_tile &t)
{
  const int slot = count % SM90_BOXES;
  const uint32_t at = smem + C::BOX + 32 * slot;
  mbar_wait(smem + C::BOX_EMPTY + 8 * slot, count / SM90_BOXES % 2 ^ 1);
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(t.m0), "r"(t.head),
               "r"(t.seq), "r"(t.lo)
               : "memory");
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(at + 16), "r"(t.hi), "r"(t.sq),
               "r"(t.sk), "r"(t.row0)
               : "memory");
  mbar_arrive(smem + C::BOX_FULL + 8 * slot);
}

#endif
