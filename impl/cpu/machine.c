/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c - the two-level-memory machine: a pool of threads, their SRAMs, and counted copies.
 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "impl/cpu/block.h"
#include "impl/cpu/machine.h"

/* Cores count on their own, a cache line or more apart. */
struct core {
  _Alignas(128) struct attn_core pub;
  struct machine *machine;
  pthread_t thread;
};

struct machine {
  struct attn_machine pub; /* first: callers hold a pointer to it */
  struct core *cores;
  int threads; /* started, not counting the caller, who is core 0 */
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  uint64_t round; /* of parallel(); a change starts the workers */
  int working;
  bool quit;
  int64_t n;
  int (*body)(struct attn_core *core, int64_t i, void *ctx);
  void *ctx;
  atomic_int_fast64_t next;
  atomic_int status;
  volatile uint64_t *beats; /* or NULL */
};

static int64_t round_up(int64_t n, int64_t to)
{
  return (n + to - 1) / to * to;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* NaN all over, so that reading what was never loaded shows, whatever the task before left. */
static float *tile_alloc(struct attn_core *core, size_t floats)
{
  size_t left = core->sram_bytes - core->sram_used, bytes = (floats + 7) / 8 * 8 * sizeof(float);
  if (floats > left / sizeof(float) || bytes > left) {
    core->sram_used = core->sram_bytes;
    return NULL;
  }
  float *tile = core->sram + core->sram_used / sizeof(float);
  memset(tile, 0xff, bytes);
  core->sram_used += bytes;
  if (core->sram_used > core->sram_peak)
    core->sram_peak = core->sram_used;
  return tile;
}

static void tile_load(struct attn_core *core, float *tile, int64_t ld, enum attn_dtype t,
                      const void *hbm, int64_t stride, int64_t rows, int64_t cols)
{
  const struct attn_block *block = attn_block();
  size_t size = attn_dtype_size(t);
  int64_t padded = round_up(cols, 8) < ld ? round_up(cols, 8) : ld;
  for (int64_t r = 0; r < rows; r++) {
    block->widen(t, (const char *)hbm + (size_t)(r * stride) * size, tile + r * ld, cols);
    for (int64_t c = cols; c < padded; c++)
      tile[r * ld + c] = 0;
  }
  core->hbm_read_bytes += (uint64_t)(rows * cols) * size;
}

static void tile_store(struct attn_core *core, const float *tile, int64_t ld, enum attn_dtype t,
                       void *hbm, int64_t stride, int64_t rows, int64_t cols)
{
  const struct attn_block *block = attn_block();
  size_t size = attn_dtype_size(t);
  for (int64_t r = 0; r < rows; r++)
    block->narrow(t, tile + r * ld, (char *)hbm + (size_t)(r * stride) * size, cols);
  core->hbm_write_bytes += (uint64_t)(rows * cols) * size;
}

/* ---- threads -------------------------------------------------------------------------------- */

static void take_turns(struct machine *m, struct attn_core *core)
{
  int64_t i;
  while (!atomic_load(&m->status) && (i = atomic_fetch_add(&m->next, 1)) < m->n) {
    core->sram_used = 0;
    if (m->beats)
      __atomic_fetch_add(m->beats, 1, __ATOMIC_RELAXED);
    int status = m->body(core, i, m->ctx), none = 0;
    if (status)
      atomic_compare_exchange_strong(&m->status, &none, status);
  }
}

static void *worker(void *arg)
{
  struct core *c = arg;
  struct machine *m = c->machine;
  uint64_t seen = 0;
  pthread_mutex_lock(&m->lock);
  for (;;) {
    while (m->round == seen && !m->quit)
      pthread_cond_wait(&m->work, &m->lock);
    if (m->quit)
      break;
    seen = m->round;
    pthread_mutex_unlock(&m->lock);
    take_turns(m, &c->pub);
    pthread_mutex_lock(&m->lock);
    if (--m->working == 0)
      pthread_cond_signal(&m->done);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

static int parallel(struct attn_machine *pub, int64_t n,
                    int (*body)(struct attn_core *core, int64_t i, void *ctx), void *ctx)
{
  struct machine *m = (struct machine *)pub;
  pthread_mutex_lock(&m->lock);
  m->n = n;
  m->body = body;
  m->ctx = ctx;
  atomic_store(&m->next, 0);
  atomic_store(&m->status, ATTN_OK);
  bool alone = n < 2 || m->threads == 0;
  if (!alone) {
    m->working = m->threads;
    m->round++;
    pthread_cond_broadcast(&m->work);
  }
  pthread_mutex_unlock(&m->lock);
  take_turns(m, &m->cores[0].pub);
  pthread_mutex_lock(&m->lock);
  while (!alone && m->working)
    pthread_cond_wait(&m->done, &m->lock);
  pthread_mutex_unlock(&m->lock);
  return atomic_load(&m->status);
}

/* ---- machines ------------------------------------------------------------------------------- */

static int core_init(struct core *c, struct machine *m)
{
  size_t bytes = (size_t)round_up((int64_t)m->pub.sram_bytes, 128);
  c->machine = m;
  c->pub = (struct attn_core){.machine = &m->pub, .sram_bytes = m->pub.sram_bytes};
  c->pub.sram = aligned_alloc(128, bytes);
  if (!c->pub.sram)
    return ATTN_ENOMEM;
  return ATTN_OK;
}

static int start(struct machine *m)
{
  for (int i = 0; i < m->pub.ncores; i++)
    if (core_init(&m->cores[i], m))
      return ATTN_ENOMEM;
  for (int i = 1; i < m->pub.ncores; i++, m->threads++)
    if (pthread_create(&m->cores[i].thread, NULL, worker, &m->cores[i]))
      return ATTN_ENOMEM;
  return ATTN_OK;
}

struct attn_machine *attn_machine_create(size_t sram_bytes, int ncores)
{
  if (!sram_bytes)
    sram_bytes = ATTN_SRAM_DEFAULT;
  if (ncores < 1)
    ncores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (ncores < 1)
    ncores = 1;
  struct machine *m = calloc(1, sizeof *m);
  if (!m)
    return NULL;
  m->pub = (struct attn_machine){sram_bytes, ncores, parallel, tile_alloc, tile_load, tile_store};
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->work, NULL);
  pthread_cond_init(&m->done, NULL);
  m->cores = aligned_alloc(_Alignof(struct core), (size_t)ncores * sizeof *m->cores);
  if (m->cores)
    memset(m->cores, 0, (size_t)ncores * sizeof *m->cores);
  if (!m->cores || start(m)) {
    attn_machine_destroy(&m->pub);
    return NULL;
  }
  return &m->pub;
}

void attn_machine_destroy(struct attn_machine *pub)
{
  struct machine *m = (struct machine *)pub;
  if (!m)
    return;
  pthread_mutex_lock(&m->lock);
  m->quit = true;
  pthread_cond_broadcast(&m->work);
  pthread_mutex_unlock(&m->lock);
  for (int i = 1; i <= m->threads; i++)
    pthread_join(m->cores[i].thread, NULL);
  for (int i = 0; m->cores && i < m->pub.ncores; i++)
    free(m->cores[i].pub.sram);
  free(m->cores);
  pthread_cond_destroy(&m->done);
  pthread_cond_destroy(&m->work);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

void attn_machine_watch(struct attn_machine *pub, volatile uint64_t *beats)
{
  ((struct machine *)pub)->beats = beats;
}

void attn_machine_reset(struct attn_machine *pub)
{
  struct machine *m = (struct machine *)pub;
  for (int i = 0; i < m->pub.ncores; i++) {
    struct attn_core *c = &m->cores[i].pub;
    c->hbm_read_bytes = c->hbm_write_bytes = 0;
    c->sram_peak = 0;
  }
}

void attn_machine_totals(const struct attn_machine *pub, uint64_t *read, uint64_t *write,
                         size_t *sram_peak)
{
  const struct machine *m = (const struct machine *)pub;
  uint64_t r = 0, w = 0;
  size_t peak = 0;
  for (int i = 0; i < m->pub.ncores; i++) {
    const struct attn_core *c = &m->cores[i].pub;
    r += c->hbm_read_bytes;
    w += c->hbm_write_bytes;
    peak = c->sram_peak > peak ? c->sram_peak : peak;
  }
  if (read)
    *read = r;
  if (write)
    *write = w;
  if (sram_peak)
    *sram_peak = peak;
}
