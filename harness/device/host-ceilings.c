/* SPDX-License-Identifier: Apache-2.0
 *
 * host-ceilings.c - what this host can do at best: copy, read, and multiply fp32 matrices.
 *
 * Best of several on all cores: on a host, noise only ever slows a loop.  Products are timed by
 * what each core spent on them, so that a core that others use, too, lowers no ceiling; bytes by
 * the clock, because cores share the way to memory.  Sustained: the same loops after three seconds
 * of them.
 */
#include "config.h"

#include "harness/device/device-host.h"

#include "harness/base/clock.h"
#include "harness/device/host-info.h"
#include "harness/base/rng.h"
#include "harness/gate/stats.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 5
#define WARM_S 3.0

/* One measured loop: bytes or operations per round of all cores. */
struct loop {
  int (*body)(struct attn_core *core, int64_t i, void *ctx);
  int64_t items;
  double work;
  const double *spent; /* by item, seconds of its core; NULL: the clock's count */
};

struct arrays {
  char *from, *to;
  size_t bytes; /* per item */
};

static int copy_item(struct attn_core *core, int64_t i, void *ctx)
{
  const struct arrays *a = ctx;
  memcpy(a->to + (size_t)i * a->bytes, a->from + (size_t)i * a->bytes, a->bytes);
  return ATTN_OK;
}

typedef uint64_t words __attribute__((vector_size(32)));

static int read_item(struct attn_core *core, int64_t i, void *ctx)
{
  const struct arrays *a = ctx;
  const words *w = (const void *)(a->from + (size_t)i * a->bytes);
  words sum[4] = {{0}};
  for (size_t n = 0; n < a->bytes / sizeof *w; n += 4)
    for (int k = 0; k < 4; k++)
      sum[k] += w[n + k];
  sum[0] += sum[1] + sum[2] + sum[3];
  return sum[0][0] == 1 ? ATTN_EDEVICE : ATTN_OK; /* the array is all zeros */
}

/* C (ROWS x COLS) = A B per item, both operands already packed: A in panels of MR rows, B in panels
 * of NR columns, each depth-major. The tile of C stays in registers over the whole depth. */
enum { MR = 6, ROWS = 16 * MR, COLS = 768, DEPTH = 384, ITEMS_PER_CORE = 4 };

struct product {
  float *a, *b, *c;
  double *spent;
};

/* Of this thread, while it ran. */
static double core_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef void (*tile_fn)(const float *a, const float *b, float *c);

/* One MR x (2 vectors) tile of C; a vector is as wide as the instruction set's. */
#define EACH_VECTOR                                    \
  _Pragma("GCC unroll 6") for (int r = 0; r < MR; r++) \
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)

#define DEFINE_TILE(name, lanes, target)                            \
  target static void name(const float *a, const float *b, float *c) \
  {                                                                 \
    typedef float vec __attribute__((vector_size(lanes * 4)));      \
    vec acc[MR][2] = {{{0}}}, *out = (void *)c;                     \
    const vec *panel = (const void *)b;                             \
    for (int k = 0; k < DEPTH; k++)                                 \
      EACH_VECTOR acc[r][v] += a[k * MR + r] * panel[2 * k + v];    \
    EACH_VECTOR out[2 * r + v] = acc[r][v];                         \
  }

DEFINE_TILE(tile_128, 4, )
#ifdef __x86_64__
DEFINE_TILE(tile_256, 8, __attribute__((target("avx2,fma"))))
DEFINE_TILE(tile_512, 16, __attribute__((target("avx512f"))))
#endif

static tile_fn best_tile(int *columns)
{
#ifdef __x86_64__
  *columns = 32;
  if (__builtin_cpu_supports("avx512f"))
    return tile_512;
  *columns = 16;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return tile_256;
#endif
  *columns = 8;
  return tile_128;
}

static int product_item(struct attn_core *core, int64_t i, void *ctx)
{
  const struct product *p = ctx;
  int columns;
  tile_fn tile = best_tile(&columns);
  double start = core_clock();
  const float *a = p->a + i * ROWS * DEPTH;
  float *c = p->c + i * ROWS * COLS;
  for (int col = 0; col < COLS; col += columns)
    for (int row = 0; row < ROWS; row += MR, c += MR * columns)
      tile(a + row * DEPTH, p->b + col * DEPTH, c);
  p->spent[i] = core_clock() - start;
  return ATTN_OK;
}

/* Work per second, best of REPEATS. */
static int best_rate(struct device *dev, enum device_mode mode, const struct loop *l, void *ctx,
                     double *rate)
{
  struct attn_machine *m = dev->ops->stream(dev);
  double begin = clock_now(), best = 0;
  int status = m->parallel(m, l->items, l->body, ctx);
  while (!status && mode == MODE_SUSTAINED && clock_now() - begin < WARM_S)
    status = m->parallel(m, l->items, l->body, ctx);
  for (int n = 0; n < REPEATS && !status; n++) {
    clock_pause(mode == MODE_RESTED ? 0.05 : 0);
    double start = clock_now();
    status = m->parallel(m, l->items, l->body, ctx);
    double seconds = clock_now() - start;
    if (l->spent) /* equal items, as many on each core, none slower than the median */
      seconds = stats_median(l->spent, (size_t)l->items) * (double)l->items / m->ncores;
    double r = l->work / seconds;
    best = r > best ? r : best;
  }
  *rate = best;
  return status;
}

static int memory_ceilings(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  int cores = dev->info.multiprocessors;
  size_t total = 4 * dev->info.l2_bytes, room = host_memory_available() / 4;
  total = total < (size_t)64 << 20 ? (size_t)64 << 20 : total;
  total = total < room ? total : room;
  struct arrays a = {.bytes = total / (size_t)cores / 4096 * 4096};
  struct loop copy = {copy_item, cores, 2.0 * (double)a.bytes * cores, NULL};
  struct loop read = {read_item, cores, (double)a.bytes * cores, NULL};
  int status = dev->ops->alloc(dev, a.bytes * (size_t)cores, (void **)&a.from);
  if (!status)
    status = dev->ops->alloc(dev, a.bytes * (size_t)cores, (void **)&a.to);
  if (status)
    goto out;
  memset(a.from, 0, a.bytes * (size_t)cores);
  status = best_rate(dev, mode, &copy, &a, &out->copy_gbps);
  if (!status)
    status = best_rate(dev, mode, &read, &a, &out->read_gbps);
  out->copy_gbps *= 1e-9;
  out->read_gbps *= 1e-9;
out:
  dev->ops->free(dev, a.from);
  dev->ops->free(dev, a.to);
  return status;
}

static int matmul_ceiling(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  int64_t items = (int64_t)dev->info.multiprocessors * ITEMS_PER_CORE;
  size_t na = (size_t)items * ROWS * DEPTH, nb = COLS * DEPTH, nc = (size_t)items * ROWS * COLS;
  struct product p = {0};
  struct loop l = {product_item, items, 2.0 * ROWS * COLS * DEPTH * (double)items, NULL};
  int status = dev->ops->alloc(dev, (na + nb + nc) * sizeof(float), (void **)&p.b);
  if (status)
    return status;
  l.spent = p.spent = calloc((size_t)items, sizeof *p.spent);
  if (!p.spent) {
    dev->ops->free(dev, p.b);
    return ATTN_ENOMEM;
  }
  p.a = p.b + nb;
  p.c = p.a + na;
  for (size_t n = 0; n < na + nb; n++)
    p.b[n] = (float)rng_below(1, n, 1024) / 512 - 1;
  status = best_rate(dev, mode, &l, &p, &out->matmul_tflops);
  out->matmul_tflops *= 1e-12;
  free(p.spent);
  dev->ops->free(dev, p.b);
  return status;
}

int host_ceilings(struct device *dev, enum device_mode mode, struct device_ceilings *out)
{
  memset(out, 0, sizeof *out);
  int status = memory_ceilings(dev, mode, out);
  return status ? status : matmul_ceiling(dev, mode, out);
}
