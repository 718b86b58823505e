/* SPDX-License-Identifier: Apache-2.0
 *
 * compute.h - what a decoder needs of a device beside attention: products with weights, and small
 * row-wise kernels. One file a device; memory and stream are the device's own (harness/device).
 *
 * Matrices of activations are dense, (n, columns), elements of ops->dtype.  All calls but open,
 * close, weights and times only enqueue on the device's stream.
 */
#ifndef HARNESS_SERVE_COMPUTE_H
#define HARNESS_SERVE_COMPUTE_H

#include "harness/device/device.h"
#include "harness/serve/step.h"

struct compute {
  const struct compute_ops *ops;
  struct device *dev;
  void *self; /* the device's own state */
};

struct compute_ops {
  const char *device;    /* struct device_ops.name */
  enum attn_dtype dtype; /* of weights, activations and cache */
  int (*open)(struct compute *c);
  void (*close)(struct compute *c);

  /* (out, in) random normal numbers of deviation scale, the same on every device up to rounding, in
   * the order that gemm likes; plain: in rows, for gather and norm. Freed by dev->ops->free. */
  int (*weights)(struct compute *c, void **w, int64_t out, int64_t in, uint64_t seed, double scale);
  int (*plain)(struct compute *c, void **w, int64_t rows, int64_t columns, uint64_t seed,
               double mean, double scale);

  /* y (n, columns) = rows of x, plain or activations, by number. */
  int (*gather)(struct compute *c, void *y, const void *x, const int32_t *row, int64_t n,
                int64_t columns);
  /* y = x / rms(x) * gain */
  int (*norm)(struct compute *c, void *y, const void *x, const void *gain, int64_t n,
              int64_t hidden);
  /* y (n, out) = x (n, in) w^T, added to y if add. Each element's terms are added in the same order
   * whatever n is. */
  int (*gemm)(struct compute *c, void *y, const void *x, const void *w, int64_t n, int64_t out,
              int64_t in, bool add);
  /* y (n, ffn) = silu(gate) * up, gate_up (n, 2 ffn) */
  int (*swiglu)(struct compute *c, void *y, const void *gate_up, int64_t n, int64_t ffn);
  /* The first of the largest. */
  int (*argmax)(struct compute *c, int32_t *token, const void *logits, int64_t n, int64_t vocab);

  /* What is enqueued from here on belongs to a part. A step begins with a mark. Where marks cost
   * time, only the first marked_layers layers are marked, and those behind them are one part that
   * times() divides as the layers before were; 0: all. */
  int64_t marked_layers;
  void (*mark)(struct compute *c, enum step_part part);
  /* Waits for all, and tells the seconds by part since the last call. */
  int (*times)(struct compute *c, struct step_times *t);
};

extern const struct compute_ops compute_cpu, compute_cuda;

/* The one for an open device; NULL if there is none. */
const struct compute_ops *compute_find(const struct device *dev);

#endif
