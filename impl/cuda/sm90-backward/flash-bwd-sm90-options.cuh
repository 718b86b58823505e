/* SPDX-License-Identifier: Apache-2.0
 *
 * flash-bwd-sm90-options.cuh - softcap, ALiBi and dropout in the Hopper backward: from a thread's
 * raw scores to the weights that dV needs and to what dS needs.
 *
 * dS = P' (dP' - dsum): P' is P times the slope of softcap; dP' is dP where dropout keeps a weight,
 * scaled as the weight was, and 0 where it drops one.  Between the two the sign of P' says which.
 */
#ifndef IMPL_CUDA_FLASH_BWD_SM90_OPTIONS_CUH
#define IMPL_CUDA_FLASH_BWD_SM90_OPTIONS_CUH

#include "impl/cuda/alibi.cuh"
#include "impl/cuda/sm90-backward/flash-bwd-sm90.cuh"
#include "impl/dropout.h"

/* What the options of a query head need. */
struct bwd90_head {
  float slope;
  uint32_t key;
};

SM90_DEV bwd90_head bwd90_head_of(const bwd90_params &p, int batch, int head)
{
  return {p.alibi ? -1.4426950408889634f * alibi_slope(p.hq, head) : 0.f,
          attn_dropout_key(p.drop_seed, batch, p.hq, head)};
}

/* One weight; far: how far query and key are apart.  x becomes P', the result P for dV. */
SM90_DEV float bwd90_weight(const bwd90_params &p, const bwd90_head &h, int far, bool hidden,
                            bool kept, float lse, float &x)
{
  float slope = 1;
  x *= p.cap_scale;
  if (p.cap > 0) {
    const float t = sm90_tanh(x);
    x = p.cap * t;
    slope = 1 - t * t;
  }
  x = fmaf(h.slope, fabsf((float)far), x) - lse;
  const float w = hidden ? 0.f : ex2(x);
  x = kept ? w * slope : -w * slope;
  return kept ? w : 0.f;
}

/* dS of one weight, from its P' */
SM90_DEV float bwd90_ds_option(const bwd90_params &p, float weight, float dP, float dsum)
{
  return fabsf(weight) * ((weight < 0 ? 0.f : dP * p.keep_scale) - dsum);
}

/* Transposed scores (this thread's keys: row, row + 8 of n0..; queries: col.. as bwd90_exp has
 * them) become the weights for dV; X: P'.  shift: sk - sq. */
template <class C, int N>
SM90_DEV void bwd90_options(const bwd90_params &p, const bwd90_head &h, const bwd90_band &k,
                            int shift, int n0, int row, int col, uint32_t lse, float (&S)[N],
                            float (&X)[N])
{
#pragma unroll
  for (int j = 0; j < N / 8; j++) {
    const float2 l[2] = {lds_v2(lse + 64 * j), lds_v2(lse + 64 * j + 32)};
#pragma unroll
    for (int e = 0; e < 2; e++) {
      uint32_t up = ~0u, down = ~0u;
      if (C::DROP)
        attn_dropout_words(p.drop_seed, h.key, col + 16 * j + e, n0 + row, &up, &down);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int query = col + 16 * j + 8 * (i / 2) + e, key = row + 8 * (i % 2);
        const int at = query - k.at - key;
        const uint32_t word = i / 2 ? down : up, slice = i % 2 ? word >> 16 : word & 0xffff;
        float &s = S[8 * j + 2 * i + e], &x = X[8 * j + 2 * i + e] = s;
        s = bwd90_weight(p, h, query + shift - n0 - key,
                         key >= k.keys || at < -p.right || at > p.left,
                         !C::DROP || slice >= p.drop_threshold, e ? l[i / 2].y : l[i / 2].x, x);
      }
    }
  }
}

/* dP becomes dS; dsum: of this thread's first query. */
template <int N>
SM90_DEV void bwd90_ds_options(const bwd90_params &p, float *dP, const float *P, uint32_t dsum)
{
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    const float2 s = lds_v2(dsum + 32 * i);
#pragma unroll
    for (int j = 4 * i; j < 4 * i + 4; j++)
      dP[j] = bwd90_ds_option(p, P[j], dP[j], j % 2 ? s.y : s.x);
  }
}

#endif
