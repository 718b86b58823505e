/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.cuh - what one thread of cuda/rope does, before and after the block's only barrier. Nothing
 * here is of CUDA alone, so that the same threads can be run one after another on the host.
 *
 * shapes: q, o (b, sq, hq, d)  k_new (b, sq, hkv, d)  v_new (b, sq, hkv, dv)
 *         k, v: the cache, (pages, page, hkv, d|dv) or (b, sk, hkv, d|dv)
 *         angles (tokens, rotary / 2) of a block, cosine and sine
 *
 * A block has some new tokens of one sequence. Its threads first make the tokens' angles, once for
 * all heads; then an item is one vector of a head's pairs (both halves of it where pairs are half a
 * head apart), of its elements beyond rotary, or of V.
 */
#ifndef IMPL_CUDA_ROPE_CUH
#define IMPL_CUDA_ROPE_CUH

#include <math.h>

#include "impl/cuda/rope/rope.h"

#ifdef __CUDACC__
#define ROPE_FN static __device__ __forceinline__
#define rope_sincospi sincospi
#else
#define ROPE_FN static inline
static inline void rope_sincospi(double x, double *sine, double *cosine)
{
  *sine = sin(x * 3.14159265358979323846);
  *cosine = cos(x * 3.14159265358979323846);
}
#endif

struct rope_angle {
  float cosine, sine;
};

/* Of a new token in the cache: elements before its first head. */
struct rope_place {
  int64_t k, v;
};

/* The tokens of a block; n <= 0: none. */
struct rope_tile {
  int32_t seq, table, n;
  int64_t row, key; /* of the first: in q and k_new, in a contiguous cache */
  int64_t position;
};

template <class T, int VECTOR, bool ALIGNED>
struct alignas(sizeof(T) * (ALIGNED ? VECTOR : 1)) rope_vector {
  T x[VECTOR];
};

ROPE_FN struct rope_tile rope_find(const struct rope_args *a, int32_t block)
{
  struct rope_tile t = {};
  t.seq = block / a->tiles;
  int32_t first = block % a->tiles * a->tokens;
  int64_t q0 = a->cu_seqlens_q ? a->cu_seqlens_q[t.seq] : 0;
  int64_t k0 = a->cu_seqlens_k ? a->cu_seqlens_k[t.seq] : 0;
  int64_t sq = a->cu_seqlens_q ? a->cu_seqlens_q[t.seq + 1] - q0 : a->sq;
  int64_t sk = a->seqlens_k      ? a->seqlens_k[t.seq]
               : a->cu_seqlens_k ? a->cu_seqlens_k[t.seq + 1] - k0
                                 : a->sk;
  while (t.table + 1 < a->tables && a->run_end[t.table] <= t.seq)
    t.table++;
  t.n = (int32_t)(sq - first < a->tokens ? sq - first : a->tokens);
  t.row = q0 + first;
  t.position = sk - sq + first;
  t.key = k0 + t.position;
  return t;
}

/* Before the barrier: where the new tokens lie in the cache. */
ROPE_FN void rope_find_places(const struct rope_args *a, const struct rope_tile *t, int32_t thread,
                              struct rope_place *places)
{
  if (thread >= t->n)
    return;
  int64_t b = t->seq, row = t->key + thread;
  if (a->page) {
    uint32_t position = (uint32_t)(t->position + thread), page = (uint32_t)a->page;
    b = a->block_table[t->seq * a->table_stride + position / page];
    row = position % page;
  }
  places[thread].k = b * a->k.sb + row * a->k.ss;
  places[thread].v = b * a->v.sb + row * a->v.ss;
}

/* Before the barrier. The angle is the low 64 bits of position times turns, whatever the position.
 */
ROPE_FN void rope_make_angles(const struct rope_args *a, const struct rope_tile *t, int32_t thread,
                              struct rope_angle *angles)
{
  int32_t half = a->rotary / 2;
  const uint64_t *turns = (a->turns ? a->turns : a->few) + (int64_t)t->table * half;
  for (int32_t i = thread; i < t->n * half; i += ROPE_THREADS) {
    uint64_t fraction = (uint64_t)(t->position + i / half) * turns[i % half];
    double cosine, sine;
    rope_sincospi((double)(int64_t)fraction * 0x1p-63, &sine, &cosine);
    angles[i].cosine = (float)(a->attention * cosine);
    angles[i].sine = (float)(a->attention * sine);
  }
}

template <class T>
ROPE_FN void rope_turn(struct rope_angle w, T *first, T *second)
{
  float a = (float)*first, b = (float)*second;
  *first = (T)(a * w.cosine - b * w.sine);
  *second = (T)(a * w.sine + b * w.cosine);
}

/* Vector number c of a head: of the pairs, then of what is beyond them. A single element takes its
 * neighbour along. */
template <class T, int VECTOR, bool ALIGNED>
ROPE_FN void rope_move(const struct rope_args *a, const struct rope_angle *angles, const T *from,
                       T *to, int32_t c)
{
  typedef rope_vector<T, VECTOR, ALIGNED> vector;
  int32_t half = a->rotary / 2, paired = a->interleaved ? a->rotary / VECTOR : half / VECTOR;
  int32_t at = c < paired || a->interleaved ? c * VECTOR : a->rotary + (c - paired) * VECTOR;
  vector x = *(const vector *)(from + at), y;
  if (c < paired && a->interleaved && VECTOR == 1) {
    if (c % 2)
      return;
    y = *(const vector *)(from + at + 1);
    rope_turn(angles[at / 2], &x.x[0], &y.x[0]);
    *(vector *)(to + at + 1) = y;
  } else if (c < paired && a->interleaved) {
    for (int i = 0; i + 1 < VECTOR; i += 2)
      rope_turn(angles[(at + i) / 2], &x.x[i], &x.x[i + 1]);
  } else if (c < paired) {
    y = *(const vector *)(from + half + at);
    for (int i = 0; i < VECTOR; i++)
      rope_turn(angles[at + i], &x.x[i], &y.x[i]);
    *(vector *)(to + half + at) = y;
  }
  *(vector *)(to + at) = x;
}

template <class T>
ROPE_FN T *rope_row(const struct attn_tensor *t, int64_t b, int64_t row, int64_t h)
{
  return (T *)t->data + b * t->sb + row * t->ss + h * t->sh;
}

/* After the barrier. */
template <class T, int VECTOR, bool ALIGNED>
ROPE_FN void rope_move_items(const struct rope_args *a, const struct rope_tile *t, int32_t thread,
                             const struct rope_angle *angles, const struct rope_place *places)
{
  typedef rope_vector<T, VECTOR, ALIGNED> vector;
  uint32_t half = (uint32_t)a->rotary / 2, d = (uint32_t)a->d;
  uint32_t turned = (a->interleaved ? d : d - half) / VECTOR, copied = (uint32_t)a->dv / VECTOR;
  uint32_t q_items = (uint32_t)a->hq * turned, k_items = (uint32_t)a->hkv * turned;
  uint32_t items = q_items + k_items + (uint32_t)a->hkv * copied, n = t->n < 0 ? 0 : (uint32_t)t->n;
  for (uint32_t i = (uint32_t)thread; i < n * items; i += ROPE_THREADS) {
    uint32_t token = i / items, item = i % items;
    const struct rope_angle *w = angles + token * half;
    int64_t row = t->row + token;
    if (item < q_items) {
      uint32_t h = item / turned;
      rope_move<T, VECTOR, ALIGNED>(a, w, rope_row<T>(&a->q, t->seq, row, h),
                                    rope_row<T>(&a->o, t->seq, row, h), (int32_t)(item % turned));
    } else if (item < q_items + k_items) {
      uint32_t k = item - q_items, h = k / turned;
      rope_move<T, VECTOR, ALIGNED>(a, w, rope_row<T>(&a->k_new, t->seq, row, h),
                                    (T *)a->k.data + places[token].k + h * a->k.sh,
                                    (int32_t)(k % turned));
    } else {
      uint32_t v = item - q_items - k_items, h = v / copied, at = v % copied * VECTOR;
      *(vector *)((T *)a->v.data + places[token].v + h * a->v.sh + at) =
          *(const vector *)(rope_row<T>(&a->v_new, t->seq, row, h) + at);
    }
  }
}

#endif
