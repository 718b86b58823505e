/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - what the harness asks of a device: memory, a stream, and one honest timing.
 *
 * Two devices: host (harness/device/device-host.c, the two-level-memory machine) and cuda
 * (harness/device/device-cuda.c).  Opening a device may be slow; nothing else in the harness may
 * touch CUDA before.  All calls return an enum attn_status; the reason is in dev->error.
 */
#ifndef HARNESS_DEVICE_H
#define HARNESS_DEVICE_H

#include "impl/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is timed or counted: enqueues one run on stream. */
typedef int (*device_launch)(void *ctx, void *stream);

enum device_cache { CACHE_COLD, CACHE_WARM };
enum device_mode { MODE_RESTED, MODE_SUSTAINED };

struct device_timing {
  enum device_cache cache; /* cold: 2x L2 of scratch is read before the run */
  enum device_mode mode;   /* rested: rest_s of pause before the run; sustained: none, and the
                            * caller warms up by 3 s of timings that it throws away */
  double rest_s;           /* 0.05 */
};

struct device_sample {
  double seconds; /* of the run alone: hidden event pair minus the empty hidden pair */
  double mhz;     /* clock counted inside the chip around the run; NaN: unknown */
};

/* Measured on this device in this process; 0: not measured. Rates are per second: medians on cuda,
 * the best on the host, where noise only ever slows. */
struct device_ceilings {
  double copy_gbps;     /* device copy, bytes read plus bytes written */
  double read_gbps;     /* read-only sum */
  double matmul_tflops; /* large product of random bf16 data (fp32 on the host) */
};

/* State over a block of work, polled while it runs. Unknown numbers are NaN. */
struct device_state {
  double sm_clock_hz, memory_clock_hz, power_w, power_limit_w, temperature_c;
  uint64_t throttle; /* NVML clock-event-reason bits, OR of all polls */
  int ecc;           /* 1 on, 0 off, -1 unknown */
  int mig;           /* likewise */
};

/* What time() enqueues on the stream around the run, outside of what it times: before ahead of the
 * emptying of the cache, after behind the last clock. They must not wait. */
struct device_around {
  device_launch before, after;
  void *ctx;
};

struct device {
  const struct device_ops *ops;
  struct attn_device info;
  char driver[32], runtime[32]; /* versions, "" where there is none */
  char uuid_hash[17];           /* first 16 hex digits of SHA-256 of the UUID (16 bytes), or "" */
  char error[256];
  const struct device_around *around; /* or NULL */
  void *self;                         /* the device's own state */
};

struct device_options {
  int index;         /* which GPU */
  size_t sram_bytes; /* cpu device: M; 0 is one SM's 227 KiB */
  int cores;         /* cpu device: worker threads; 0 is all */
  volatile uint64_t
      *beats; /* grows while a launch makes progress, where the device sees it; NULL */
};

#define DEVICE_ROW 20

struct device_ops {
  const char *name; /* "cpu", "cuda" */
  /* NULL if a device of this kind is here, or why not (no side effect on this process: safe
   * before fork). */
  const char *(*absent)(void);
  int (*count)(void); /* how many there are; as free of side effects as absent */
  int (*open)(struct device *dev, const struct device_options *o);
  void (*close)(struct device *dev);
  int (*alloc)(struct device *dev, size_t bytes, void **p); /* 1024-byte aligned */
  void (*free)(struct device *dev, void *p);
  int (*available)(struct device *dev, size_t *bytes); /* memory that alloc could still give */
  int (*upload)(struct device *dev, void *to, const void *from, size_t bytes);
  int (*download)(struct device *dev, void *to, const void *from, size_t bytes);
  int (*fill)(struct device *dev, void *to, uint32_t pattern, size_t bytes);
  /* The next two are enqueued on the stream. Flips the sign of element i of n, each width bytes,
   * where bit i % 64 of rng_at(key, i / 64) is set. */
  int (*flip)(struct device *dev, void *data, size_t width, size_t n, uint64_t key);
  int (*move)(struct device *dev, void *to, const void *from, size_t bytes); /* on the device */
  /* The digest (base/rng.h) of memory as little-endian words of 64 bits, the last filled up with
   * zeros: the same on every device. */
  int (*digest)(struct device *dev, const void *data, size_t bytes, uint64_t *out);
  int (*sync)(struct device *dev); /* everything on every stream; reports sticky errors */
  void *(*stream)(struct device *dev);
  int (*time)(struct device *dev, const struct device_timing *t, device_launch launch, void *ctx,
              struct device_sample *out);
  /* Seconds of one run among DEVICE_ROW in a row, launched as a whole, and one by one; NaN where
   * the launch cannot be recorded for that. NULL: the device has no such thing. */
  int (*graph)(struct device *dev, device_launch launch, void *ctx, double *graph_s, double *row_s);
  int (*ceilings)(struct device *dev, enum device_mode mode, struct device_ceilings *out);
  int (*state_begin)(struct device *dev); /* starts polling */
  int (*state_end)(struct device *dev, struct device_state *out);
};

extern const struct device_ops device_host, device_cuda;

/* The devices this build knows, NULL-ended; the last present one is the default. */
const struct device_ops *const *device_all(void);
const struct device_ops *device_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
