/* SPDX-License-Identifier: Apache-2.0
 *
 * device-host.c - the cpu device: host memory, and the two-level-memory machine as its stream.
 *
 * A launch on the machine is complete when it returns, so its time is the monotonic clock's
 * ("host-clock").  Cold: every core has read twice the last-level cache of scratch before.
 */
#include "config.h"

#include "harness/device/device-host.h"

#include "harness/base/clock.h"
#include "harness/device/host-info.h"
#include "harness/base/rng.h"
#include "impl/cpu/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIN_SRAM_BYTES ((size_t)1 << 10)
#define MARGIN ((size_t)1 << 20) /* bytes of address space on either side of a buffer */

static const char *host_absent(void)
{
  return NULL;
}

static int host_count(void)
{
  return 1;
}

static int host_open(struct device *dev, const struct device_options *o)
{
  memset(dev, 0, sizeof *dev);
  dev->ops = &device_host;
  size_t sram = o->sram_bytes ? o->sram_bytes : ATTN_SRAM_DEFAULT;
  int cores = o->cores ? o->cores : host_cores();
  if (sram < MIN_SRAM_BYTES || cores < 1) {
    snprintf(dev->error, sizeof dev->error,
             "cpu: %zu bytes of SRAM on %d cores: at least %zu bytes and 1 core are needed", sram,
             cores, MIN_SRAM_BYTES);
    return ATTN_EINVAL;
  }
  struct host *h = calloc(1, sizeof *h);
  dev->self = h;
  if (h)
    h->machine = attn_machine_create(sram, cores);
  if (!h || !h->machine) {
    free(h);
    dev->self = NULL;
    snprintf(dev->error, sizeof dev->error, "cpu: no memory for a machine of %d cores x %zu bytes",
             cores, sram);
    return ATTN_ENOMEM;
  }
  attn_machine_watch(h->machine, o->beats);
  dev->info = (struct attn_device){.kind = ATTN_CPU,
                                   .index = 0,
                                   .multiprocessors = cores,
                                   .memory_bytes = host_memory_total(),
                                   .sram_bytes = sram,
                                   .l2_bytes = host_llc_bytes()};
  host_cpu_name(dev->info.name, sizeof dev->info.name);
  return ATTN_OK;
}

static size_t room_left(void)
{
  size_t memory = host_memory_available(), addresses = host_address_room();
  return memory < addresses ? memory : addresses;
}

static int host_available(struct device *dev, size_t *bytes)
{
  *bytes = room_left();
  return ATTN_OK;
}

/* Memory between two margins that fault, so that a wild access ends the worker where it happens and
 * never reaches the harness's own heap. The page before the payload holds the mapping's length. */
static void *fenced_alloc(size_t bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), length = (bytes / page + 2) * page + 2 * MARGIN;
  char *map = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return NULL;
  if (mprotect(map + MARGIN, length - 2 * MARGIN, PROT_READ | PROT_WRITE)) {
    munmap(map, length);
    return NULL;
  }
  memcpy(map + MARGIN, &length, sizeof length);
  mprotect(map + MARGIN, page, PROT_READ);
  return map + MARGIN + page;
}

/* The system would promise more than it has and kill us later, so ask what it has first. Asking
 * takes longer than a small buffer does: those live on the last answer. */
static int host_alloc(struct device *dev, size_t bytes, void **p)
{
  struct host *h = dev->self;
  if (bytes >= h->room / 64)
    h->room = room_left();
  *p = bytes < h->room ? fenced_alloc(bytes) : NULL;
  if (*p) {
    h->room -= bytes;
    return ATTN_OK;
  }
  snprintf(dev->error, sizeof dev->error, "%.3f GiB of host memory asked for, %.3f GiB available%s",
           (double)bytes / 0x1p30, (double)h->room / 0x1p30,
           host_address_room() > h->room ? "" : " by the limit of this process: raise ulimit -v");
  return ATTN_ENOMEM;
}

static void host_free(struct device *dev, void *p)
{
  size_t length;
  if (!p)
    return;
  char *header = (char *)p - sysconf(_SC_PAGESIZE);
  memcpy(&length, header, sizeof length);
  munmap(header - MARGIN, length);
}

static void host_close(struct device *dev)
{
  struct host *h = dev->self;
  if (!h)
    return;
  attn_machine_destroy(h->machine);
  host_free(dev, h->scratch);
  free(h);
  dev->self = NULL;
}

static int host_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
  return ATTN_OK;
}

static int host_fill(struct device *dev, void *to, uint32_t pattern, size_t bytes)
{
  size_t words = bytes / 4;
  uint32_t *w = to;
  for (size_t i = 0; i < words; i++)
    w[i] = pattern;
  memcpy(w + words, &pattern, bytes % 4);
  return ATTN_OK;
}

static int host_flip(struct device *dev, void *data, size_t width, size_t n, uint64_t key)
{
  unsigned char *sign =
      (unsigned char *)data + width - 1; /* little-endian: the last byte's top bit */
  for (size_t word = 0; word * 64 < n; word++) {
    uint64_t bits = rng_at(key, word);
    for (size_t i = word * 64; i < n && i < word * 64 + 64; i++, bits >>= 1)
      sign[i * width] ^= (unsigned char)((bits & 1) << 7);
  }
  return ATTN_OK;
}

static int host_digest(struct device *dev, const void *data, size_t bytes, uint64_t *out)
{
  const unsigned char *at = data;
  uint64_t sum = 0, word;
  for (size_t i = 0; i < bytes / 8; i++) {
    memcpy(&word, at + 8 * i, 8);
    sum += rng_digest_term(i, word);
  }
  word = 0;
  memcpy(&word, at + bytes / 8 * 8, bytes % 8);
  *out = bytes % 8 ? sum + rng_digest_term(bytes / 8, word) : sum;
  return ATTN_OK;
}

static int host_sync(struct device *dev)
{
  return ATTN_OK;
}

static void *host_stream(struct device *dev)
{
  return ((struct host *)dev->self)->machine;
}

static int read_scratch(struct attn_core *core, int64_t i, void *ctx)
{
  const struct host *h = ctx;
  uint64_t sum = 0;
  for (size_t at = 0; at < h->scratch_bytes; at += 64)
    sum += *(const volatile uint64_t *)(h->scratch + at);
  return sum == 1 ? ATTN_EDEVICE : ATTN_OK; /* scratch is all zeros */
}

static int flush(struct device *dev)
{
  struct host *h = dev->self;
  if (!h->scratch) {
    size_t bytes = 2 * dev->info.l2_bytes;
    int status = host_alloc(dev, bytes, (void **)&h->scratch);
    if (status)
      return status;
    memset(h->scratch, 0, bytes);
    h->scratch_bytes = bytes;
  }
  return h->machine->parallel(h->machine, h->machine->ncores, read_scratch, h);
}

static int host_time(struct device *dev, const struct device_timing *t, device_launch launch,
                     void *ctx, struct device_sample *out)
{
  const struct device_around *around = dev->around;
  int status = around ? around->before(around->ctx, host_stream(dev)) : ATTN_OK;
  if (t->mode == MODE_RESTED)
    clock_pause(t->rest_s);
  if (!status && t->cache == CACHE_COLD)
    status = flush(dev);
  if (status)
    return status;
  double start = clock_now();
  status = launch(ctx, host_stream(dev));
  *out = (struct device_sample){.seconds = clock_now() - start, .mhz = NAN};
  if (!status && around)
    status = around->after(around->ctx, host_stream(dev));
  return status;
}

static int host_state_begin(struct device *dev)
{
  return ATTN_OK;
}

static int host_state_end(struct device *dev, struct device_state *out)
{
  *out =
      (struct device_state){NAN, NAN, NAN, NAN, NAN, .throttle = UINT64_MAX, .ecc = -1, .mig = -1};
  return ATTN_OK;
}

const struct device_ops device_host = {
    .name = "cpu",
    .absent = host_absent,
    .count = host_count,
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = host_free,
    .available = host_available,
    .upload = host_copy,
    .download = host_copy,
    .fill = host_fill,
    .flip = host_flip,
    .move = host_copy,
    .digest = host_digest,
    .sync = host_sync,
    .stream = host_stream,
    .time = host_time,
    .ceilings = host_ceilings,
    .state_begin = host_state_begin,
    .state_end = host_state_end,
};
