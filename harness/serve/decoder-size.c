/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder-size.c - bytes and FLOPs of a decoder: functions of the model's shape alone.
 */
#include "config.h"

#include "harness/serve/decoder-parts.h"

int64_t decoder_layers(const struct decoder_options *o)
{
  return o->layers > 0 && o->layers < o->model.layers ? o->layers : o->model.layers;
}

double decoder_token_bytes(const struct decoder_options *o, enum attn_dtype t)
{
  const struct attn_model *m = &o->model;
  return 2.0 * (double)(decoder_layers(o) * m->hkv * m->d) * (double)attn_dtype_size(t);
}

/* Elements of a layer's matrices. */
static double layer_weights(const struct attn_model *m)
{
  double hidden = (double)m->hidden, q = (double)(m->hq * m->d), kv = (double)(m->hkv * m->d);
  return hidden * (q + 2 * kv) + q * hidden + 3 * hidden * (double)m->ffn;
}

double decoder_weight_bytes(const struct decoder_options *o, enum attn_dtype t)
{
  const struct attn_model *m = &o->model;
  double head = (double)m->vocab * (double)m->hidden;
  return ((double)decoder_layers(o) * layer_weights(m) + head) * (double)attn_dtype_size(t);
}

double decoder_gemm_flops(const struct decoder_options *o, int64_t n)
{
  const struct attn_model *m = &o->model;
  double head = (double)m->vocab * (double)m->hidden;
  return 2 * ((double)decoder_layers(o) * layer_weights(m) * (double)n + head);
}

void decoder_problem(const struct decoder_options *o, enum attn_dtype t, int64_t first, int64_t n,
                     struct attn_problem *p)
{
  const struct attn_model *m = &o->model;
  *p = (struct attn_problem){.op = n == 1 ? ATTN_DECODE : ATTN_APPEND,
                             .dtype = t,
                             .b = 1,
                             .hq = m->hq,
                             .hkv = m->hkv,
                             .sq = n,
                             .sk = first + n,
                             .d = m->d,
                             .dv = m->d,
                             .mask = ATTN_MASK_CAUSAL,
                             .page = o->contiguous ? 0 : o->page};
  if (m->window) {
    p->mask = ATTN_MASK_WINDOW;
    p->window_left = m->window - 1;
  }
}

double decoder_attention_flops(const struct decoder_options *o, int64_t first, int64_t n)
{
  struct attn_problem p;
  decoder_problem(o, ATTN_F32, first, n, &p);
  return (double)decoder_layers(o) * attn_problem_flops(&p);
}
