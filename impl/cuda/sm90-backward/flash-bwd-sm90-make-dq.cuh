/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-make-dq.cuh - dQ from its accumulators: as post makes it, and beside the products.
 *
 * Without a mask all key blocks add to a query block of a head, and those that run at the same
 * time come to it together.  When all have, the warp of a block that claims units of work
 * (flash-bwd-sm90-load.cuh) makes dQ of it, while it waits for the next claim: a query block after
 * the other, taken from a queue, in steps of 1 KB of sums, for it has 24 registers.  It waits for
 * nothing, and ends with the block: what is left post makes.  The sums are still in L2, and their
 * lines are given up rather than written back.  What has arrived a count tells, which the writers
 * of dQ raise every BWD90_COUNTED query blocks.
 *
 * DRAM traffic at head_dim 128, sequence 8k, batch 2, 16 heads, 538 MB of them compulsory: 1187 MB
 * at first; 974 with K and V, dK, dV and dQ as the first to leave L2, pre and post from the last
 * head to the first, and accumulators zeroed one head before they are needed rather than two; 831
 * with dQ made once a head is complete, 708 once a query block is.  Of the latter, 761 without the
 * hint for K and V, 727 with pre and post from the first head, 833 with zeroes two heads before.
 *
 * Time: with a count raised after every addition, 1.5 % more at sequence 8k and 3.5 % at 16k, where
 * the key blocks of one head fill the device: there dQ is left to post.  Raised every BWD90_COUNTED
 * query blocks, 706 MB and no slower: 1.109 of cuDNN's speed at 8k, and 1.107 with all dQ left to
 * post; 1.112 and 1.100 at 4k.  Not taken: all dQ that is complete made before the block ends,
 * which post does faster (sequence 2k 441 TF/s beside 582, causal 263 beside 477).
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_MAKE_DQ_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_MAKE_DQ_CUH

#include "impl/cuda/sm90-backward/flash-bwd-sm90.cuh"

SM90_DEV uint16_t *bwd90_at(const attn_tensor &t, int64_t seq, int64_t row, int64_t head)
{
  return (uint16_t *)t.data + seq * t.sb + row * t.ss + head * t.sh;
}

/* A state of the query block m of the head whose first padded row is acc. */
template <class C>
SM90_DEV int *bwd90_state(int32_t *states, int acc, int m, int which)
{
  return states + (acc / C::KM + m) * BWD90_TURNS + which;
}

/* Writes a warp's 16 rows x 2N columns of an accumulator; row: of this thread, its upper one. */
template <class T, int N>
SM90_DEV void bwd90_store(uint16_t *out, int64_t stride, int row, int rows, int cols, float factor,
                          int lane, const float (&x)[N])
{
#pragma unroll
  for (int j = 0; j < N / 16; j++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        r[i] =
            pack2(T(), x[16 * j + 4 * i + 2 * h] * factor, x[16 * j + 4 * i + 2 * h + 1] * factor);
      quad_swap(r, lane);
      const int col = 32 * j + 8 * (lane & 3);
      if (row + 8 * h < rows && col < cols)
        store_once(out + (row + 8 * h) * stride + col, r);
    }
  }
}

/* Writes a warp's 16 columns x 2N rows of a transposed accumulator; row, col: its first. */
template <class T, int N>
SM90_DEV void bwd90_store_t(uint16_t *out, int64_t stride, int row, int rows, int col, int cols,
                            float factor, int lane, const float (&x)[N])
{
  const int k = lane & 3;
#pragma unroll
  for (int j = 0; j < N / 8; j++) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *y = x + 8 * j + 2 * i;
      r[i] = transpose_8x8(pack2(T(), y[0] * factor, y[1] * factor));
    }
    quad_swap(r, lane);
    const int i = row + 16 * j + 8 * (k >> 1) + lane / 4, c = col + 8 * (k & 1);
    if (i < rows && c < cols)
      store_once(out + i * stride + c, r);
  }
}

/* ---- beside the products --------------------------------------------------------------------- */

/* What the claiming warp keeps in shared memory. */
struct bwd90_clerk {
  const float *acc; /* of the query block at work */
  uint16_t *out;
  int *made;
  const int *added;
  int64_t stride;
  int rows, step, turn, id, grid;
  int blocks, all; /* query blocks; additions to those that are counted with this one */
};
#define BWD90_CLERK_BYTES 80
static_assert(sizeof(bwd90_clerk) <= BWD90_CLERK_BYTES, "clerk");

/* Steps of a query block, instead of one: none is at work; its sums may not be complete; there is
 * no more; something else is to be done. */
enum { BWD90_NONE = -1, BWD90_TAKEN = -2, BWD90_NO_MORE = -3, BWD90_STOP = -4 };

/* One thread. */
template <class C>
SM90_DEV void bwd90_begin_clerk(const bwd90_params &p, volatile bwd90_clerk *x)
{
  x->stride = p.dq.ss;
  x->step = BWD90_NONE;
  x->turn = 0;
  x->id = blockIdx.x;
  x->grid = gridDim.x;
  x->blocks = p.b * p.hq * p.qblocks;
}

/* One thread: where query block n is; none is packed. */
template <class C>
SM90_DEV void bwd90_find_rows(const bwd90_params &p, volatile bwd90_clerk *x, int n)
{
  const int head = n / p.qblocks, m = n - head * p.qblocks, seq = head / p.hq;
  const int acc = bwd90_acc(p, seq, 0, C::KM) + (head - seq * p.hq) * p.acc_sh;
  const int first = m / BWD90_COUNTED * BWD90_COUNTED;
  x->rows = p.sq - m * C::KM;
  x->all = min(BWD90_COUNTED, p.qblocks - first) * p.blocks * C::WRITERS;
  x->added = bwd90_state<C>(p.states, acc, first, BWD90_ADDED);
  x->made = bwd90_state<C>(p.states, acc, m, BWD90_MADE);
  x->acc = p.dqacc + (int64_t)(acc + m * C::KM) * C::D;
  x->out = bwd90_at(p.dq, seq, m * C::KM, head - seq * p.hq);
}

/* One thread: the first step of the next query block, if all have added to it. */
template <class C>
SM90_DEV int bwd90_take_rows(const bwd90_params &p, volatile bwd90_clerk *x)
{
  if (x->step == BWD90_NONE) {
    const int n = atomicAdd(p.queue, 1);
    if (n >= x->blocks)
      return BWD90_NO_MORE;
    bwd90_find_rows<C>(p, x, n);
  }
  return ld_acquire((const int *)x->added) == x->all ? 0 : BWD90_TAKEN;
}

/* One thread: the warp's next step; loaded: the barrier that tells it to stop. */
template <class C>
SM90_DEV int bwd90_next_step(const bwd90_params &p, volatile bwd90_clerk *x, uint32_t loaded)
{
  if (mbar_test(loaded, x->turn % 2) || x->step == BWD90_NO_MORE)
    return BWD90_STOP;
  if (x->step < 0)
    x->step = bwd90_take_rows<C>(p, x);
  return x->step;
}

/* A warp: 8 sums of each thread, from where it points to, become 8 columns of a row of dQ. */
template <class C>
SM90_DEV void bwd90_make_row(const float *acc, float factor, uint32_t (&r)[4])
{
  typedef typename C::T T;
  const float4 x = __ldcg((const float4 *)acc), y = __ldcg((const float4 *)(acc + 512));
  r[0] = pack2(T(), x.x * factor, x.y * factor);
  r[C::DQ_SWAPPED ? 1 : 2] = pack2(T(), x.z * factor, x.w * factor);
  r[C::DQ_SWAPPED ? 2 : 1] = pack2(T(), y.x * factor, y.y * factor);
  r[3] = pack2(T(), y.z * factor, y.w * factor);
#pragma unroll
  for (int i = 0; i < 4; i++)
    r[i] = C::DQ_SWAPPED ? transpose_8x8(r[i]) : r[i];
  quad_swap(r, laneid());
}

/* Steps of a warp's part, as a consumer's warp held it. */
template <class C>
SM90_DEV constexpr int bwd90_part_steps()
{
  return C::DQN / 16;
}

/* Where part `at` of 8 of a query block begins. */
template <class C>
SM90_DEV const float *bwd90_part_of(volatile bwd90_clerk *x, int at)
{
  return (const float *)x->acc + at / 4 * 64 * C::DQN + at % 4 * 128;
}

/* A warp: 16 x 16 of dQ, what a warp of a consumer holds of 16 columns, or rows if transposed. */
template <class C>
SM90_DEV void bwd90_make_step(const bwd90_params &p, volatile bwd90_clerk *x, int step)
{
  constexpr int JS = bwd90_part_steps<C>();
  const int at = step / JS, j = step - at * JS, warp = at % 4, part = at / 4;
  uint32_t r[4];
  bwd90_make_row<C>(bwd90_part_of<C>(x, at) + j * 1024 + 4 * laneid(), p.scale, r);
  const int lane = laneid();
  const int row = (C::DQ_SWAPPED ? 16 * j : (C::DQ_ROWS ? 64 * part : 0) + 16 * warp) +
                  8 * (lane >> 1 & 1) + lane / 4;
  const int col =
      (C::DQ_SWAPPED ? 64 * part + 16 * warp : (C::DQ_ROWS ? 0 : part * C::DQN) + 16 * j) +
      8 * (lane & 1);
  if (row < x->rows && col < p.d)
    store_once((uint16_t *)x->out + row * x->stride + col, r);
}

/* A warp: a part has been made, of which nobody needs the sums. */
template <class C>
SM90_DEV void bwd90_end_part(volatile bwd90_clerk *x, int at)
{
  const float *sums = bwd90_part_of<C>(x, at);
#pragma unroll 1
  for (int i = laneid(); i < 8 * bwd90_part_steps<C>(); i += 32)
    discard_line(sums + i / 4 * 512 + i % 4 * 32);
  if (laneid() == 0)
    *x->made = at + 1;
}

/* A warp: makes dQ until a barrier is passed. */
template <class C>
SM90_DEV void bwd90_make_dq(const bwd90_params &p, volatile bwd90_clerk *x, uint32_t loaded)
{
  constexpr int JS = bwd90_part_steps<C>();
#pragma unroll 1
  while (p.queue) {
    int step = 0;
    if (laneid() == 0)
      step = bwd90_next_step<C>(p, x, loaded);
    step = bwd90_uniform(step);
    __syncwarp();
    if (step == BWD90_STOP)
      return;
    if (step < 0) {
      __nanosleep(500);
      continue;
    }
    bwd90_make_step<C>(p, x, step);
    __syncwarp();
    if (step % JS == JS - 1)
      bwd90_end_part<C>(x, step / JS);
    if (laneid() == 0)
      x->step = step + 1 < 8 * JS ? step + 1 : BWD90_NONE;
    __syncwarp();
  }
}

#endif
